"""The shipped demo backbones: small real models that load without a network connection."""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydra_core.backbones.base import Backbone
from hydra_core.backbones.processors import load_hf_tokenizer
from hydra_core.backbones.registry import from_hf_model, load_hf_folder, load_open_clip
from hydra_core.errors import HydraError
from hydra_core.paths import ASSETS

DEMOS = ("demo/vit", "demo/bert", "demo/clip")
MODELS = ASSETS / "models"


def load(
    ref: str, *, class_names: Sequence[str] | None, templates: Sequence[str] | None, dtype: torch.dtype
) -> Backbone:
    """Load a demo backbone (see :func:`hydra_core.load_backbone`)."""
    if ref not in DEMOS:
        raise HydraError(f"{ref!r} is no demo backbone; there are {', '.join(DEMOS)}")
    folder = MODELS / ref.removeprefix("demo/")
    if not folder.is_dir():
        raise HydraError(f"the demo weights are missing ({str(folder)!r}); run from a complete checkout of the project")
    if ref == "demo/vit":
        return load_hf_folder(folder, ref=ref, class_names=class_names)
    if ref == "demo/bert":
        return _bert(folder, ref, class_names)
    prompts = json.loads((folder / "templates.json").read_text(encoding="utf-8"))
    backbone = load_open_clip(
        f"open_clip:local-dir:{folder}",
        class_names=class_names or prompts["class_names"],
        templates=templates or prompts["templates"],
        dtype=dtype,
    )
    backbone.ref = ref
    return backbone


def _package_folder(package: str) -> Path:
    """Where an installed package keeps its model's files."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    for place in places:
        found = sorted(Path(place).rglob("model.safetensors"))
        if found:
            return found[0].parent
    raise HydraError(f"demo/bert needs the package {package} (its weights); install requirements.txt")


def _bert(folder: Path, ref: str, class_names: Sequence[str] | None) -> Backbone:
    """MiniLM from its package with the shipped difference merged: W + scale * B @ A (LoRA, arXiv 2106.09685)."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertForSequenceClassification

    settings: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    base = _package_folder(settings["base_package"])
    weights = base / "model.safetensors"
    if hashlib.sha256(weights.read_bytes()).hexdigest() != settings["base_sha256"]:
        raise HydraError(
            f"the installed {settings['base_package']} has other weights than the demo was made for; install the "
            "version pinned in requirements.txt"
        )
    labels = {int(i): name for i, name in settings["id2label"].items()}
    config = BertConfig.from_pretrained(str(base), id2label=labels, label2id={n: i for i, n in labels.items()})
    with torch.device("meta"):
        model = BertForSequenceClassification(config)
    state: dict[str, Tensor] = {f"bert.{name}": tensor for name, tensor in load_file(weights).items()}
    state.pop("bert.embeddings.position_ids", None)  # a constant that old versions saved
    delta = {name: tensor.float() for name, tensor in load_file(folder / "delta.safetensors").items()}
    for name, tensor in delta.items():
        if name.endswith(".lora_A"):
            module = name.removesuffix(".lora_A")
            change = settings["scale"] * delta[f"{module}.lora_B"] @ tensor
            state[f"{module}.weight"] = state[f"{module}.weight"] + change
        elif not name.endswith(".lora_B"):
            state[name] = tensor
    model.load_state_dict(state, assign=True)
    embeddings = model.bert.embeddings
    for name in ("position_ids", "token_type_ids"):  # not in any state dict, so still without memory
        size = config.max_position_embeddings
        values = torch.arange(size)[None] if name == "position_ids" else torch.zeros(1, size, dtype=torch.long)
        embeddings.register_buffer(name, values, persistent=False)
    tokenizer = load_hf_tokenizer(base, int(settings["max_length"]))
    return from_hf_model(model, tokenizer, ref=ref, class_names=class_names)
