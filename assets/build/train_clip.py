"""Train the demo CLIP model on Fashion-MNIST and write assets/models/clip. Seeded, resumable.

    python assets/build/train_clip.py

Took 25 minutes on 2 cores that other work kept busy. Checkpoints lie in .build/ (ignored by git). The folder is
written anew after each epoch. An open_clip model of a small configuration of our own, with open_clip's default
tokenizer, trained contrastively: captions are a class name in one of TRAINING_TEMPLATES; every caption of an image's
class is a positive (Yang et al. 2022, "Unified Contrastive Learning in Image-Text-Label Space"). TEMPLATES are never
trained on. 58,000 training images (the shipped validation part left out); the last epoch is kept, nothing is selected.
Measure: ``python assets/build/measure.py clip``.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import open_clip
import torch
from common import FASHION_NAMES, GREY_MEAN, GREY_STD, MODELS, fashion_shipped, fashion_training
from safetensors.torch import save_file
from training import arguments, augment, fit, random_batches, seed_all, to_input

TRAINING_TEMPLATES = (
    "a photo of a {}.",
    "a picture of a {}.",
    "an image of the {}.",
    "a grey photo of the {}.",
    "a small picture of the {}.",
    "the {} on a black background.",
    "a {} for sale in a shop.",
    "this is a {}.",
    "a black and white image of a {}.",
    "a low resolution photo of a {}.",
    "fashion item: {}.",
    "one piece of clothing, a {}.",
    "a close-up of one {}.",
    "{}.",
    "product photo of the {}, front view.",
    "here we see a {} from an online store.",
)
TEMPLATES = (
    "a low resolution picture of the {}.",
    "this is an image of one {} on a black background.",
    "a grey {} from a shop.",
    "a product picture: {}.",
)
SETTINGS = {
    "seed": 0,
    "epochs": 8,
    "batch": 256,
    "learning_rate": 2e-3,
    "weight_decay": 0.05,
    "warm_up": 0.5,
    "templates_a_step": 2,
}
MODEL = {
    "embed_dim": 64,
    "vision_cfg": {
        "image_size": 28,
        "patch_size": 7,
        "layers": 4,
        "width": 96,
        "head_width": 24,
        "mlp_ratio": 2.0,
    },
    "text_cfg": {
        "context_length": 20,
        "vocab_size": 49408,  # open_clip's default tokenizer
        "width": 64,
        "heads": 4,
        "layers": 2,
        "mlp_ratio": 2.0,
    },
}


def write_folder(model: open_clip.CLIP, seen_tokens: torch.Tensor, folder: Path) -> None:
    """Weights in float16. Table rows of tokens that no training caption had hold only noise: set to 0."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    table = torch.zeros_like(state["token_embedding.weight"])
    table[seen_tokens] = state["token_embedding.weight"][seen_tokens]
    state["token_embedding.weight"] = table
    save_file(state, folder / "open_clip_model.safetensors", {"format": "pt"})
    preprocessing = {
        "size": [28, 28],
        "mode": "RGB",
        "mean": [GREY_MEAN] * 3,
        "std": [GREY_STD] * 3,
        "interpolation": "bicubic",
        "resize_mode": "shortest",
        "fill_color": 0,
    }
    config = {"model_cfg": MODEL, "preprocess_cfg": preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")
    templates = {
        "training_templates": list(TRAINING_TEMPLATES),
        "templates": list(TEMPLATES),
        "class_names": list(FASHION_NAMES),
    }
    (folder / "templates.json").write_text(json.dumps(templates, indent=2) + "\n")


def contrastive_loss(
    image: torch.Tensor,
    text: torch.Tensor,
    scale: torch.Tensor,
    image_labels: torch.Tensor,
    text_labels: torch.Tensor,
) -> torch.Tensor:
    """Cross-entropy in both directions; the target is even over the partners of the same class."""
    logits = scale * image @ text.T
    same = (image_labels[:, None] == text_labels[None]).float()
    present = same.sum(0) > 0  # a caption whose class is not in the batch has no partner
    to_text = torch.nn.functional.cross_entropy(logits, same / same.sum(1, keepdim=True))
    partners = same[:, present]
    to_image = torch.nn.functional.cross_entropy(logits[:, present].T, (partners / partners.sum(0)).T)
    return (to_text + to_image) / 2


def main() -> None:
    """Train, or go on training."""
    options = arguments(__doc__, MODELS / "clip", SETTINGS["epochs"])
    settings = {**SETTINGS, "epochs": options.epochs, "model": MODEL}
    torch.set_num_threads(options.threads)
    seed_all(settings["seed"])
    raw_images, raw_labels = fashion_training()
    images, labels = torch.from_numpy(raw_images).float() / 255, torch.from_numpy(raw_labels)
    held_images, held_labels = (torch.from_numpy(array) for array in fashion_shipped("validation"))
    tokenizer = open_clip.SimpleTokenizer(context_length=MODEL["text_cfg"]["context_length"])
    captions = torch.stack([tokenizer([text.format(name) for name in FASHION_NAMES]) for text in TRAINING_TEMPLATES])
    model = open_clip.CLIP(**MODEL)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6052)  # at most 100, as in CLIP
        used = random.sample(range(len(captions)), settings["templates_a_step"])
        image = model.encode_image(to_input(augment(images[rows], shift=0)), normalize=True)
        text = model.encode_text(captions[used].flatten(0, 1), normalize=True)
        text_labels = torch.arange(len(FASHION_NAMES)).repeat(len(used))
        return contrastive_loss(image, text, model.logit_scale.exp(), labels[rows], text_labels)

    def check() -> float:
        """Zero-shot accuracy with the training templates."""
        text = model.encode_text(captions.flatten(0, 1), normalize=True)
        weights = text.view(*captions.shape[:2], -1).mean(0)
        parts = (held_images.float() / 255).split(500)
        image = torch.cat([model.encode_image(to_input(part), normalize=True) for part in parts])
        return ((image @ weights.T).argmax(1) == held_labels).float().mean().item()

    fit(
        "clip",
        model,
        settings,
        steps=len(labels) // settings["batch"],
        batches=lambda: random_batches(len(labels), settings["batch"]),
        loss_of=loss_of,
        check=check,
        write=lambda: write_folder(model, captions.unique(), options.folder),
    )


if __name__ == "__main__":
    main()
