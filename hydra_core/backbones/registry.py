"""``load_backbone``: one reference string in, one checked :class:`Backbone` out."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydra_core.backbones import hf, open_clip_tower
from hydra_core.backbones.base import Backbone, fingerprint_of
from hydra_core.backbones.layers import LayerWeights, encoder_of
from hydra_core.backbones.network import Embed, Network, NetworkSpec, Processor, Readout
from hydra_core.backbones.parity import check_parity, image_probe, text_probe
from hydra_core.backbones.processors import ClipImageProcessor, load_hf_image_processor, load_hf_tokenizer
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask

DTYPES = ("float32", "float64", "bfloat16", "float16")
MAX_TEXT_TOKENS = 512
REFERENCES = (
    'a demo ("demo/vit", "demo/bert", "demo/clip"), a Hugging Face folder, "hf:<repo id>", '
    '"open_clip:<arch>:<pretrained tag or file>" or "open_clip:local-dir:<folder>"'
)


def resolve_device(device: str) -> str:
    """`auto` is the GPU where there is one, else the CPU; anything else must be a device that is there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise HydraError(f'device {device!r} is not available here; use "auto", "cpu" or an existing GPU') from None
    return device


def resolve_dtype(dtype: str) -> torch.dtype:
    """The torch dtype of that name; HydraError lists the known ones."""
    if dtype not in DTYPES:
        raise HydraError(f"dtype {dtype!r} is not known; expected one of {', '.join(DTYPES)}")
    resolved: torch.dtype = getattr(torch, dtype)
    return resolved


def load_backbone(
    ref: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    class_names: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
) -> Backbone:
    """Load a transformer classifier and check it against the original library.

    Args:
        ref: `"demo/vit"`, `"demo/bert"`, `"demo/clip"`; a local Hugging Face folder (config.json, safetensors,
            processor or tokenizer where there is one); `"hf:<repo id>"`; `"open_clip:<arch>:<tag or file>"` or
            `"open_clip:local-dir:<folder>"`.
        device: `"auto"`, `"cpu"`, `"cuda"`, ...
        dtype: `"float32"`, `"float64"`, `"bfloat16"` or `"float16"`; the check is made in float32 before casting.
        class_names: replaces the model's own class names; needed for open_clip.
        templates: prompt templates with `{}` where the class name goes; needed for open_clip.

    Raises:
        HydraError: an unknown reference, a missing file, an unsupported architecture, class names that do not
            match, or logits that differ from the original library's (both figures are named).

    Example:
        >>> backbone = load_backbone("demo/vit")  # doctest: +SKIP
    """
    if not isinstance(ref, str) or not ref.strip():
        raise HydraError(f"the backbone reference {ref!r} is empty or no text; expected {REFERENCES}")
    place, number = resolve_device(device), resolve_dtype(dtype)
    if ref.startswith("demo/"):
        from hydra_core.backbones import demo

        backbone = demo.load(ref, class_names=class_names, templates=templates, dtype=number)
    elif ref.startswith("open_clip:"):
        backbone = load_open_clip(ref, class_names=class_names, templates=templates, dtype=number)
    elif ref.startswith("timm:"):
        raise HydraError(f"{ref!r}: timm models are not supported yet; expected {REFERENCES}")
    elif ref.startswith("hf:"):
        backbone = load_hf_folder(_download(ref), ref=ref, class_names=class_names)
    else:
        folder = Path(ref)
        if not folder.is_dir():
            kind = "is a file, not a folder" if folder.is_file() else "does not exist"
            raise HydraError(f"{ref!r} {kind}; a backbone reference is {REFERENCES}")
        backbone = load_hf_folder(folder, ref=ref, class_names=class_names)
    backbone.network.to(device=place, dtype=number)
    return backbone


def _download(ref: str) -> Path:
    from huggingface_hub import snapshot_download

    repo = ref.removeprefix("hf:")
    try:
        files = ["*.json", "*.safetensors", "*.txt", "*.model"]
        return Path(snapshot_download(repo, allow_patterns=files))
    except Exception as error:  # the hub raises a dozen kinds: offline, private, missing, malformed
        raise HydraError(
            f"{ref!r} could not be fetched from the hub ({type(error).__name__}: {str(error).splitlines()[0]}); "
            "check the name and the connection, or download the folder and give its path"
        ) from None


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a Hugging Face folder; HydraError where it is missing or broken."""
    path = folder / "config.json"
    if not path.is_file():
        raise HydraError(f"{str(folder)!r} has no config.json; a Hugging Face model folder was expected")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise HydraError(f"{str(path)!r} cannot be read as JSON ({error})") from None
    if not isinstance(config, dict):
        raise HydraError(f"{str(path)!r} does not hold a model's configuration")
    return config


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keep transformers' bars out of logs and of the command line's own progress."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_hf_folder(folder: Path, *, ref: str, class_names: Sequence[str] | None) -> Backbone:
    """Load a Hugging Face folder (see :func:`load_backbone`)."""
    config = read_config(folder)
    architecture = hf.architecture_of(config, ref)
    class_name = config["architectures"][0]
    if not any(folder.glob("*.safetensors")):
        raise HydraError(f"{ref!r} has no .safetensors file; save the model with safetensors (no pickle is read)")
    try:
        with _no_progress_bars():
            model, info = hf.model_class(class_name).from_pretrained(
                str(folder), dtype=torch.float32, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # transformers and safetensors raise many kinds for a damaged folder
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HydraError(f"{ref!r} could not be loaded by transformers: {first}") from None
    if info["missing_keys"]:
        raise HydraError(
            f"{ref!r} lacks weights ({', '.join(sorted(info['missing_keys'])[:3])}, ...); is its classifier trained?"
        )
    processor: Processor | None
    if architecture.family == "vit":
        processor = load_hf_image_processor(folder, model.config)
    else:
        processor = load_hf_tokenizer(folder, max_text_length(model.config))
    return from_hf_model(model, processor, ref=ref, class_names=class_names)


def max_text_length(config: Any) -> int:
    """Longest text in tokens: the position table's length (RoBERTa keeps two of its rows), at most 512."""
    kept = int(config.pad_token_id) + 1 if config.model_type == "roberta" else 0
    return min(MAX_TEXT_TOKENS, int(config.max_position_embeddings) - kept)


def from_hf_model(
    model: Any, processor: Processor | None, *, ref: str, class_names: Sequence[str] | None = None
) -> Backbone:
    """A Backbone of a transformers model in memory (float32); the model's weights are taken over, not copied."""
    model = model.eval()
    config = model.config
    architecture = hf.architecture_of({**config.to_dict(), "architectures": [type(model).__name__]}, ref)
    embed, layers, readout = architecture.parts(model)
    if isinstance(embed, hf.ImageEmbed):
        height, width = embed.embeddings.image_size
        probe = image_probe(height, width)
    else:
        probe = text_probe(config.vocab_size, min(12, max_text_length(config)), int(config.pad_token_id or 0))
    names = _names(class_names, [str(config.id2label[i]) for i in range(config.num_labels)], ref)
    weights = [architecture.layer(layer, config) for layer in layers]
    spec = hf.spec_of(config, type(model).__name__)

    def original(inputs: Mapping[str, Tensor]) -> Tensor:
        logits: Tensor = model(**inputs).logits
        return logits

    return assemble(
        embed, weights, readout, spec, original, probe, processor, ref=ref, family=architecture.family, names=names
    )


def load_open_clip(
    ref: str, *, class_names: Sequence[str] | None, templates: Sequence[str] | None, dtype: torch.dtype
) -> Backbone:
    """Load an open_clip model (see :func:`load_backbone`)."""
    import open_clip

    name = ref.removeprefix("open_clip:")
    if not class_names or not templates:
        raise HydraError(
            f"{ref!r} needs class_names= and templates=: an open_clip image tower has no classes of its own, they "
            "are made from prompts such as 'a photo of a {}.'"
        )
    if any("{}" not in template for template in templates):
        raise HydraError("each prompt template needs {} where the class name goes")
    pretrained: str | None = None
    if name.startswith("local-dir:"):
        folder = Path(name.removeprefix("local-dir:"))
        if not folder.is_dir():
            raise HydraError(f"{ref!r}: the folder {str(folder)!r} does not exist")
        if not any(folder.glob("*.safetensors")):
            raise HydraError(f"{ref!r}: no .safetensors file in {str(folder)!r} (no pickle is read)")
    else:
        name, _, pretrained = name.partition(":")
        if not pretrained:
            raise HydraError(f"{ref!r} names no weights; expected open_clip:<arch>:<pretrained tag or file>")
    try:
        model, _, _ = open_clip.create_model_and_transforms(name, pretrained=pretrained, precision="fp32")
        tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:  # open_clip raises many kinds for unknown names and damaged files
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise HydraError(f"{ref!r} could not be loaded by open_clip: {first}") from None
    return from_open_clip_model(model, tokenizer, ref=ref, class_names=class_names, templates=templates, dtype=dtype)


def from_open_clip_model(
    model: Any,
    tokenizer: Any,
    *,
    ref: str,
    class_names: Sequence[str],
    templates: Sequence[str],
    dtype: torch.dtype = torch.float32,
) -> Backbone:
    """A Backbone of an open_clip model in memory (float32); its text tower makes the class weights and is let go."""
    import open_clip

    # The prompts run once, so in float64: a float64 backbone then has class weights of its own precision.
    exact = open_clip.build_zero_shot_classifier(model.eval().double(), tokenizer, list(class_names), list(templates))
    model, class_weights = model.float(), exact.float()
    embed, weights, readout, spec = open_clip_tower.take_apart(model, class_weights, ref)
    height, width = model.visual.image_size
    settings = {**getattr(model.visual, "preprocess_cfg", {}), "size": [height, width]}

    def original(inputs: Mapping[str, Tensor]) -> Tensor:
        features = model.encode_image(inputs["pixel_values"], normalize=True)
        logits: Tensor = model.logit_scale.exp() * features @ class_weights
        return logits if model.logit_bias is None else logits + model.logit_bias

    probe = image_probe(height, width)
    names = _names(class_names, list(class_names), ref)
    processor = ClipImageProcessor(settings)
    backbone = assemble(embed, weights, readout, spec, original, probe, processor, ref=ref, family="clip", names=names)
    backbone.network.to(dtype)
    backbone.network.readouts[0].class_weights.data = exact.to(dtype)
    return backbone


def assemble(
    embed: Embed,
    weights: Sequence[LayerWeights],
    readout: Readout,
    spec: NetworkSpec,
    original: Callable[[Mapping[str, Tensor]], Tensor],
    probe: Mapping[str, Tensor],
    processor: Processor | None,
    *,
    ref: str,
    family: str,
    names: Sequence[str],
) -> Backbone:
    """Put the parts together, check them against `original` on `probe`, and freeze."""
    network = Network(embed, encoder_of(weights, readout.tokens), [readout], 1).eval().requires_grad_(False)
    report = check_parity(network, original, probe, ref)
    return Backbone(
        network, processor, spec, ref=ref, family=family, class_names=names, fingerprint=fingerprint_of(network),
        mask=HeadMask([[True] * layer.num_heads for layer in weights]), parity=report,
    )  # fmt: skip


def _names(given: Sequence[str] | None, own: Sequence[str], ref: str) -> tuple[str, ...]:
    if given is not None and len(given) != len(own):
        raise HydraError(f"{len(given)} class names were given, {ref!r} has {len(own)} classes")
    names = tuple(str(name) for name in (given or own))
    if len(set(names)) != len(names):
        raise HydraError(f"the class names of {ref!r} are not all different: {', '.join(names)[:80]}")
    return names
