"""Hugging Face adapters: ViT and DeiT image classifiers; BERT, DistilBERT and RoBERTa sequence classifiers.

transformers 5 has no pruning and no head mask of its own; here its models are read once, by attribute, and checked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hydra_core.backbones.layers import LayerWeights, affine
from hydra_core.backbones.network import Embed, NetworkSpec, Readout
from hydra_core.errors import HydraError

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
}

_REASONS = {
    "albert": "ALBERT shares one attention among all its layers, so a head cannot be removed from one layer alone",
}


class ImageEmbed(Embed):
    """The original patch and position embeddings of ViT or DeiT."""

    def __init__(self, embeddings: Any, prefix: int) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.prefix = prefix  # CLS, and DeiT's distillation token

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """`pixel_values` (B, 3, height, width) -> (B, T, D)."""
        pixels = inputs["pixel_values"]
        expected = tuple(self.embeddings.image_size)
        if tuple(pixels.shape[-2:]) != expected:
            raise HydraError(
                f"images of {pixels.shape[-2]}x{pixels.shape[-1]} pixels do not fit this backbone, which takes "
                f"{expected[0]}x{expected[1]}; pass the images through prepare() first"
            )
        tokens: Tensor = self.embeddings(pixels)
        return tokens

    def num_tokens(self) -> int:
        """Patches and prefix tokens."""
        return int(self.embeddings.patch_embeddings.num_patches) + self.prefix

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of the patches."""
        size, patch = self.embeddings.patch_embeddings.image_size, self.embeddings.patch_embeddings.patch_size
        return int(size[0] // patch[0]), int(size[1] // patch[1])

    def flops(self, tokens: int) -> int:
        """The patch convolution."""
        return 2 * int(self.embeddings.patch_embeddings.projection.weight.numel()) * (tokens - self.prefix)


class TextEmbed(Embed):
    """The original word, position and type embeddings with their LayerNorm."""

    def __init__(self, embeddings: nn.Module, takes_types: bool) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.takes_types = takes_types

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """`input_ids` (B, T) -> (B, T, D)."""
        extra = {}
        if self.takes_types and inputs.get("token_type_ids") is not None:
            extra["token_type_ids"] = inputs["token_type_ids"]
        tokens: Tensor = self.embeddings(input_ids=inputs["input_ids"], **extra)
        return tokens

    def key_mask(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """`attention_mask` as bool; None where no token is padding (exact, and a faster attention)."""
        mask = inputs.get("attention_mask")
        if mask is None or (not torch.compiler.is_compiling() and bool(mask.all())):
            return None
        return mask.bool()


class ImageReadout(Readout):
    """Final LayerNorm on CLS, then the classifier; DeiT with a teacher averages two."""

    def __init__(self, norm: nn.Module, classifiers: list[nn.Module]) -> None:
        super().__init__()
        self.norm = norm
        self.classifiers = nn.ModuleList(classifiers)
        self.tokens = len(classifiers)

    def forward(self, x: Tensor) -> Tensor:
        """(B, Q, D) -> (B, C): classifier i reads token i."""
        x = self.norm(x)
        return torch.stack([c(x[:, i]) for i, c in enumerate(self.classifiers)]).mean(0)


class TextReadout(Readout):
    """Dense layer and activation on the first token, then the classifier."""

    def __init__(self, dense: nn.Module, act: str, classifier: nn.Module) -> None:
        super().__init__()
        self.dense = dense
        self.act = act
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """(B, Q, D) -> (B, C)."""
        x = self.dense(x[:, 0])
        logits: Tensor = self.classifier(torch.tanh(x) if self.act == "tanh" else torch.relu(x))
        return logits


def _act(name: Any) -> str:
    if name not in _ACTIVATIONS:
        raise HydraError(f"this backbone's activation {name!r} is not supported; known are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _vit_layer(layer: Any, config: Any) -> LayerWeights:
    a = layer.attention
    return LayerWeights(
        affine(a.q_proj), affine(a.k_proj), affine(a.v_proj), affine(a.o_proj),
        layer.layernorm_before, layer.layernorm_after, affine(layer.mlp.fc1), affine(layer.mlp.fc2),
        config.num_attention_heads, _act(config.hidden_act), pre_norm=True,
    )  # fmt: skip


def _bert_layer(layer: Any, config: Any) -> LayerWeights:
    a, out = layer.attention.self, layer.attention.output
    return LayerWeights(
        affine(a.query), affine(a.key), affine(a.value), affine(out.dense), out.LayerNorm, layer.output.LayerNorm,
        affine(layer.intermediate.dense), affine(layer.output.dense),
        config.num_attention_heads, _act(config.hidden_act), pre_norm=False,
    )  # fmt: skip


def _distilbert_layer(layer: Any, config: Any) -> LayerWeights:
    a = layer.attention
    return LayerWeights(
        affine(a.q_lin), affine(a.k_lin), affine(a.v_lin), affine(a.out_lin), layer.sa_layer_norm,
        layer.output_layer_norm, affine(layer.ffn.lin1), affine(layer.ffn.lin2),
        config.n_heads, _act(config.activation), pre_norm=False,
    )  # fmt: skip


def _vit_parts(model: Any) -> tuple[Embed, list[Any], Readout]:
    base = model.base_model
    if hasattr(model, "distillation_classifier"):
        heads = [model.cls_classifier, model.distillation_classifier]
    else:
        heads = [model.classifier]
    prefix = 2 if hasattr(base.embeddings, "distillation_token") else 1
    return ImageEmbed(base.embeddings, prefix), list(base.layers), ImageReadout(base.layernorm, heads)


def _bert_parts(model: Any) -> tuple[Embed, list[Any], Readout]:
    embed = TextEmbed(model.bert.embeddings, takes_types=True)
    return embed, list(model.bert.encoder.layer), TextReadout(model.bert.pooler.dense, "tanh", model.classifier)


def _roberta_parts(model: Any) -> tuple[Embed, list[Any], Readout]:
    embed = TextEmbed(model.roberta.embeddings, takes_types=True)
    head = model.classifier
    return embed, list(model.roberta.encoder.layer), TextReadout(head.dense, "tanh", head.out_proj)


def _distilbert_parts(model: Any) -> tuple[Embed, list[Any], Readout]:
    embed = TextEmbed(model.distilbert.embeddings, takes_types=False)
    layers = list(model.distilbert.transformer.layer)
    return embed, layers, TextReadout(model.pre_classifier, "relu", model.classifier)


@dataclass(frozen=True)
class Architecture:
    """How one model type is taken apart."""

    family: str
    classes: tuple[str, ...]
    parts: Callable[[Any], tuple[Embed, list[Any], Readout]]
    layer: Callable[[Any, Any], LayerWeights]
    num_layers_key: str = "num_hidden_layers"


ARCHITECTURES = {
    "vit": Architecture("vit", ("ViTForImageClassification",), _vit_parts, _vit_layer),
    "deit": Architecture(
        "vit", ("DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"), _vit_parts, _vit_layer
    ),
    "bert": Architecture("bert", ("BertForSequenceClassification",), _bert_parts, _bert_layer),
    "roberta": Architecture("bert", ("RobertaForSequenceClassification",), _roberta_parts, _bert_layer),
    "distilbert": Architecture(
        "bert", ("DistilBertForSequenceClassification",), _distilbert_parts, _distilbert_layer, "n_layers"
    ),
}


def supported() -> str:
    """The supported architectures in words."""
    return "ViT and DeiT image classifiers; BERT, DistilBERT and RoBERTa sequence classifiers"


def architecture_of(config: Mapping[str, Any], ref: str) -> Architecture:
    """The :class:`Architecture` for a config.json, or a HydraError that says what was found.

    Args:
        config: parsed config.json.
        ref: named in errors.
    """
    model_type = str(config.get("model_type"))
    queries, keys = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if keys is not None and queries is not None and keys != queries:
        raise HydraError(
            f"{ref!r} ({model_type}) uses grouped-query attention: {queries} query heads share {keys} key-value "
            f"heads, so heads cannot be removed one by one. Supported: {supported()}"
        )
    if model_type in _REASONS:
        raise HydraError(f"{ref!r} is not supported: {_REASONS[model_type]}. Supported: {supported()}")
    if model_type not in ARCHITECTURES:
        raise HydraError(f"{ref!r} is a model of type {model_type!r}. Supported: {supported()}")
    architecture = ARCHITECTURES[model_type]
    found = (config.get("architectures") or ["none named"])[0]
    if found not in architecture.classes:
        raise HydraError(
            f"{ref!r} holds a {found}, which has no classifier to score heads by; expected "
            f"{' or '.join(architecture.classes)}"
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise HydraError(f"{ref!r} is a decoder; an encoder was expected. Supported: {supported()}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise HydraError(
            f"{ref!r} has {config['position_embedding_type']!r} position embeddings, which are not supported; "
            "absolute ones are"
        )
    return architecture


def model_class(name: str) -> Any:
    """The transformers class of that name (checked against ``ARCHITECTURES`` before)."""
    import transformers

    return getattr(transformers, name)


def spec_of(config: Any, class_name: str) -> NetworkSpec:
    """What a saved ensemble needs to build embedding and read-out again."""
    return NetworkSpec("hf", {"class": class_name, "config": config.to_diff_dict()})


def skeleton(config: Mapping[str, Any]) -> tuple[Embed, Readout]:
    """Embedding and read-out without trained numbers, from :func:`spec_of`'s config."""
    architecture = architecture_of({**config["config"], "architectures": [config["class"]]}, config["class"])
    cls = model_class(config["class"])
    plain = {k: v for k, v in config["config"].items() if k not in {"architectures", "transformers_version"}}
    model = cls(cls.config_class(**{**plain, architecture.num_layers_key: 0}))
    embed, _, readout = architecture.parts(model)
    return embed, readout
