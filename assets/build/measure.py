"""Measure the shipped demo weights through the original libraries, on the shipped test (or validation) parts.

    python assets/build/measure.py [vit] [bert] [clip] [--split test]

Prints one line a model: accuracy with n and the 95 % Wilson interval, negative log-likelihood (nats),
size of the weights. vit and bert run through transformers, clip through open_clip, all from the saved
float16 files, computing in float32; nothing of hydra_core is used, so that these figures are a check on
it. About 1 minute on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import logging

import numpy as np
import pandas as pd
import torch
from common import DATA, MODELS, fashion_shipped
from merge import load_merged
from PIL import Image


def fashion_pictures(split: str) -> tuple[list[Image.Image], torch.Tensor]:
    """The shipped part as RGB pictures, as a user would hand them over."""
    images, labels = fashion_shipped(split)
    return [Image.fromarray(image).convert("RGB") for image in images], torch.from_numpy(labels)


@torch.no_grad()
def vit_logits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the demo ViT through AutoImageProcessor and AutoModelForImageClassification."""
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    processor = AutoImageProcessor.from_pretrained(MODELS / "vit")
    model = AutoModelForImageClassification.from_pretrained(MODELS / "vit", dtype=torch.float32).eval()
    pictures, labels = fashion_pictures(split)
    parts = [processor(pictures[i : i + 250], return_tensors="pt") for i in range(0, len(pictures), 250)]
    return torch.cat([model(**part).logits for part in parts]), labels


@torch.no_grad()
def bert_logits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the demo BERT: base weights of the package with the shipped difference merged in."""
    model, tokenizer, config = load_merged()
    frame = pd.read_parquet(DATA / "movies.parquet")
    frame = frame[frame["split"] == split]
    texts = frame["text"].tolist()
    logits = []
    for i in range(0, len(texts), 100):
        options = {"padding": True, "truncation": True, "max_length": config["max_length"]}
        logits.append(model(**tokenizer(texts[i : i + 100], return_tensors="pt", **options)).logits)
    return torch.cat(logits), torch.tensor(frame["label"].tolist())


@torch.no_grad()
def clip_logits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Zero-shot logits of the demo CLIP with the held-out templates, all of it through open_clip."""
    import open_clip

    where = f"local-dir:{MODELS / 'clip'}"
    model, _, preprocess = open_clip.create_model_and_transforms(where)
    model.eval()
    words = json.loads((MODELS / "clip" / "templates.json").read_text())
    templates = [(lambda name, text=text: text.format(name)) for text in words["templates"]]
    weights = open_clip.build_zero_shot_classifier(
        model, open_clip.get_tokenizer(where), words["class_names"], templates, device="cpu"
    )
    pictures, labels = fashion_pictures(split)
    inputs = torch.stack([preprocess(picture) for picture in pictures])
    features = torch.cat([model.encode_image(part, normalize=True) for part in inputs.split(250)])
    return model.logit_scale.exp() * features @ weights, labels


FILES = {"vit": "model.safetensors", "bert": "delta.safetensors", "clip": "open_clip_model.safetensors"}
LOGITS = {"vit": vit_logits, "bert": bert_logits, "clip": clip_logits}


def wilson(right: int, count: int) -> tuple[float, float]:
    """95 % Wilson score interval of a share."""
    z = 1.959964
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return middle - half, middle + half


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="vit, bert, clip; by default all three")
    parser.add_argument("--split", choices=["validation", "test"], default="test")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    for name in arguments.models or list(LOGITS):
        logits, labels = LOGITS[name](arguments.split)
        right = int((logits.argmax(1) == labels).sum())
        low, high = wilson(right, len(labels))
        loss = torch.nn.functional.cross_entropy(logits, labels).item()
        size = (MODELS / name / FILES[name]).stat().st_size / 2**20
        print(
            f"{name} {arguments.split} n={len(labels)} accuracy={right / len(labels):.4f} "
            f"[{low:.4f}, {high:.4f}] nll={loss:.4f} weights={size:.2f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
