"""Small original models with random weights and unusual sizes, saved by their own library: the tests' references.

Nothing here uses hydra_core: heads are cut by zeroing columns of the original's output projection.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

CLASSES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu")
TEMPLATES = ("a photo of a {}.", "one {}")


@dataclass
class Original:
    """One original model in float64 with what a test needs to know about it."""

    name: str
    ref: str
    load_options: dict[str, Any]
    model: Any
    forward: Callable[[Any, Mapping[str, Tensor]], Tensor]  # (model, inputs) -> logits
    projections: Callable[[Any], list[nn.Module]]  # each layer's output projection, weight (D, H * dh)
    heads: int
    classes: tuple[str, ...]
    inputs: dict[str, Tensor]

    @property
    def layers(self) -> int:
        return len(self.projections(self.model))

    def logits(self, cut: list[tuple[int, int]] | None = None, inputs: Mapping[str, Tensor] | None = None) -> Tensor:
        """Logits of the original with the given (layer, head) pairs cut: their columns zeroed, and put back after."""
        modules = self.projections(self.model)
        kept = {layer: modules[layer].weight.detach().clone() for layer, _ in cut or []}
        with torch.no_grad():
            for layer, head in cut or []:
                width = kept[layer].shape[1] // self.heads
                modules[layer].weight[:, head * width : (head + 1) * width] = 0
            out = self.forward(self.model, self.inputs if inputs is None else inputs)
            for layer, weight in kept.items():
                modules[layer].weight.copy_(weight)
        return out


def _randomise(model: nn.Module, seed: int = 0) -> None:
    """Weights large enough that every head matters; the libraries' own small start would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name == "logit_scale":
                continue
            noise = torch.randn(p.shape, generator=generator)
            is_norm = (p.dim() == 1 and name.endswith("weight")) or "ls_" in name
            p.copy_(1.0 + 0.2 * noise if is_norm else noise * (0.3 if p.dim() == 1 else 1.2 / p.shape[-1] ** 0.5))


def _names(count: int) -> dict[str, Any]:
    return {"id2label": dict(enumerate(CLASSES[:count])), "label2id": {n: i for i, n in enumerate(CLASSES[:count])}}


def _images(height: int, width: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(4, 3, height, width, generator=torch.Generator().manual_seed(1)).double()}


def _text(vocabulary: int, pad: int) -> dict[str, Tensor]:
    ids = torch.randint(0, vocabulary, (4, 11), generator=torch.Generator().manual_seed(1))
    ids[ids == pad] = pad + 1
    mask = torch.ones_like(ids)
    for row, length in enumerate((11, 7, 1, 10)):
        ids[row, length:], mask[row, length:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def _hf(name: str, folder: Path, cls: str, config: Any, inputs: dict[str, Tensor], path: str, heads: int) -> Original:
    import transformers

    model = getattr(transformers, cls)(config).eval()
    _randomise(model)
    model.save_pretrained(folder, safe_serialization=True)
    inner, leaf = path.split(":")

    def projections(m: Any) -> list[nn.Module]:
        return [layer.get_submodule(leaf) for layer in m.get_submodule(inner)]

    return Original(
        name, str(folder), {}, model.double(), lambda m, x: m(**x).logits, projections, heads,
        tuple(config.id2label[i] for i in range(config.num_labels)), inputs,
    )  # fmt: skip


def _open_clip(name: str, folder: Path, vision: dict[str, Any], quick: bool) -> Original:
    import open_clip
    from safetensors.torch import save_file

    config = {
        "embed_dim": 20,
        "quick_gelu": quick,
        "vision_cfg": {"layers": 3, "width": 30, "head_width": 6, "patch_size": 5, "image_size": [20, 15], **vision},
        "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    model = open_clip.CLIP(**copy.deepcopy(config)).eval()
    _randomise(model)
    folder.mkdir(parents=True)
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    tokenizer = open_clip.SimpleTokenizer(context_length=12)
    model = model.double()
    with torch.no_grad():  # the recipe of the CLIP paper, written out
        prompts = [[template.format(c) for template in TEMPLATES] for c in CLASSES[:4]]
        texts = [model.encode_text(tokenizer(p), normalize=True).mean(0) for p in prompts]
        class_weights = torch.stack([t / t.norm() for t in texts])

    def forward(m: Any, x: Mapping[str, Tensor]) -> Tensor:
        return m.logit_scale.exp() * m.encode_image(x["pixel_values"], normalize=True) @ class_weights.T

    return Original(
        name, f"open_clip:local-dir:{folder}", {"class_names": CLASSES[:4], "templates": TEMPLATES}, model, forward,
        lambda m: [block.attn.out_proj for block in m.visual.transformer.resblocks], 5, CLASSES[:4], _images(20, 15),
    )  # fmt: skip


def build(name: str, root: Path) -> Original:
    """Build, save and describe the original model `name` (one of ``NAMES``)."""
    import transformers as tf

    folder = root / name
    if name in ("vit", "vit-no-bias", "deit", "deit-teacher"):
        shape = {
            "hidden_size": 35, "num_hidden_layers": 3, "num_attention_heads": 5, "intermediate_size": 22,
            "image_size": 18, "patch_size": 6, "hidden_act": "gelu_new" if name == "deit" else "gelu",
            "qkv_bias": name != "vit-no-bias", **_names(7),
        }  # fmt: skip
        config = tf.DeiTConfig(**shape) if name.startswith("deit") else tf.ViTConfig(**shape)
        cls = {"deit": "DeiTForImageClassification", "deit-teacher": "DeiTForImageClassificationWithTeacher"}
        inner = "deit.layers" if name.startswith("deit") else "vit.layers"
        return _hf(name, folder, cls.get(name, "ViTForImageClassification"), config, _images(18, 18),
                   f"{inner}:attention.o_proj", 5)  # fmt: skip
    if name in ("bert", "roberta"):
        shape = {
            "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 37,
            "vocab_size": 61, "max_position_embeddings": 40, **_names(3),
        }  # fmt: skip
        config = tf.BertConfig(**shape) if name == "bert" else tf.RobertaConfig(**shape)
        cls = "BertForSequenceClassification" if name == "bert" else "RobertaForSequenceClassification"
        return _hf(name, folder, cls, config, _text(61, config.pad_token_id),
                   f"{name}.encoder.layer:attention.output.dense", 3)  # fmt: skip
    if name == "distilbert":
        config = tf.DistilBertConfig(
            dim=24, n_layers=3, n_heads=4, hidden_dim=31, vocab_size=61, max_position_embeddings=40,
            activation="relu", **_names(3),
        )  # fmt: skip
        return _hf(name, folder, "DistilBertForSequenceClassification", config, _text(61, 0),
                   "distilbert.transformer.layer:attention.out_lin", 4)  # fmt: skip
    if name == "open-clip":
        return _open_clip(name, folder, {}, quick=False)
    if name == "open-clip-quick":
        vision = {"ls_init_value": 0.5, "pool_type": "avg", "no_ln_pre": True, "final_ln_after_pool": True}
        return _open_clip(name, folder, vision, quick=True)
    raise KeyError(name)


NAMES = (
    "vit", "vit-no-bias", "deit", "deit-teacher", "bert", "roberta", "distilbert", "open-clip", "open-clip-quick",
)  # fmt: skip


def cross_entropy(logits: Tensor, labels: np.ndarray) -> np.ndarray:
    """Per-sample cross-entropy in nats, written out."""
    rows = logits.double().numpy()
    rows = rows - rows.max(axis=1, keepdims=True)
    return np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(rows)), labels]


def plain_circuit(
    original: Original,
    known: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    labels: np.ndarray,
    objective: str,
    keep: int,
    without: Sequence[tuple[int, int]] = (),
) -> tuple[set[tuple[int, int]], np.ndarray]:
    """HeadMap's Algorithm 1 as it is written, over the original model: the whole forward for every head.

    Heads in `without` are gone from the start. Returns the circuit and (L, H) values, NaN where a head is gone.
    """
    chosen: list[tuple[int, int]] = []
    table = np.full((original.layers, original.heads), np.nan)
    for layer in range(original.layers):
        losses, aurocs = [], []
        heads = [head for head in range(original.heads) if (layer, head) not in without]
        for head in heads:
            cut = [*without, *chosen, (layer, head)]
            id_logits, ood_logits = original.logits(cut, known), original.logits(cut, other)
            losses.append(cross_entropy(id_logits, labels).mean())
            scores = [1 - torch.softmax(z, -1).max(-1).values.numpy() for z in (id_logits, ood_logits)]
            truth = np.r_[np.zeros(len(scores[0])), np.ones(len(scores[1]))]
            aurocs.append(roc_auc_score(truth, np.r_[scores[0], scores[1]]))
        columns = np.array(losses), 1 - np.array(aurocs)
        scaled = [(v - v.min()) / (v.max() - v.min()) if v.max() > v.min() else v * 0 for v in columns]
        values = {"loss": columns[0], "ood_auroc": np.array(aurocs), "average": (scaled[0] + scaled[1]) / 2}[objective]
        harm = -values if objective == "ood_auroc" else values
        best = sorted(range(len(heads)), key=lambda i: (-harm[i], i))[:keep]
        chosen += [(layer, heads[i]) for i in best]
        table[layer, heads] = values
    return set(chosen), table
