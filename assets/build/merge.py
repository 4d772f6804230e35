"""Put the demo BERT together without peft: base weights of the package plus the shipped difference.
 The difference (assets/models/bert/delta.safetensors) holds, by the names of
BertForSequenceClassification, ``<module>.lora_A`` (r, in) and ``<module>.lora_B`` (out, r): ``W = W_base
+ scale * lora_B @ lora_A``, in float32. Every other tensor replaces the parameter of its own name whole.
Used by measure.py, apart from hydra_core.
"""

from __future__ import annotations

import json
from typing import Any

from common import MODELS, minilm_folder, sha256
from safetensors.torch import load_file


def load_merged() -> tuple[Any, Any, dict[str, Any]]:
    """The merged model in eval mode, its tokenizer, and the configuration of the difference."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    folder = MODELS / "bert"
    settings = json.loads((folder / "config.json").read_text())
    base = minilm_folder()
    if sha256(base / "model.safetensors") != settings["base_sha256"]:
        raise SystemExit("The installed base weights are not the ones that this difference was made for.")
    config = BertConfig.from_pretrained(base, id2label={int(k): v for k, v in settings["id2label"].items()})
    model = BertForSequenceClassification(config)
    merged = {f"bert.{name}": tensor for name, tensor in load_file(base / "model.safetensors").items()}
    delta = {name: tensor.float() for name, tensor in load_file(folder / "delta.safetensors").items()}
    for name, tensor in delta.items():
        if name.endswith(".lora_A"):
            module = name.removesuffix(".lora_A")
            merged[f"{module}.weight"] += settings["scale"] * delta[f"{module}.lora_B"] @ tensor
        elif not name.endswith(".lora_B"):
            merged[name] = tensor
    merged.pop("bert.embeddings.position_ids", None)  # a constant that old versions saved
    model.load_state_dict(merged)
    return model.eval(), AutoTokenizer.from_pretrained(base), settings
