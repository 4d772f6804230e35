"""Data for an original model and our backbone alike: each item stands for a row of random inputs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import hydra_core as hydra
from hydra_core.backbones.base import Backbone
from hydra_core.data import Dataset
from hydra_core.data.sources import ArraySource, ImageItems
from tests import originals
from tests.originals import Original

NUM_ID, NUM_OOD = 13, 11


class Prepared:
    """A processor that hands out ready tensors: item i is row i of the original's random inputs."""

    def __init__(self, inputs):
        self.inputs = inputs

    def __call__(self, items):
        rows = [int(str(item)) if isinstance(item, str) else int(np.asarray(item)[0, 0, 0]) for item in items]
        return {name: tensor[rows] for name, tensor in self.inputs.items()}

    def save(self, folder):
        raise NotImplementedError


@dataclass
class Case:
    """Original and backbone, ID and OOD data, the inputs that their items stand for, and the ID labels."""

    original: Original
    backbone: Backbone
    data: Dataset
    ood: Dataset
    known: dict[str, torch.Tensor]
    other: dict[str, torch.Tensor]
    labels: np.ndarray

    def __iter__(self):
        return iter((self.original, self.backbone, self.data, self.ood, self.known, self.other, self.labels))


def samples(original: Original, size: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if "pixel_values" in original.inputs:
        shape = (size, *original.inputs["pixel_values"].shape[1:])
        return {"pixel_values": torch.randn(shape, generator=generator).double() * (1 + seed % 3)}
    ids = torch.randint(2, 61, (size, 9), generator=generator)
    mask = (torch.arange(9)[None] < torch.randint(1, 10, (size, 1), generator=generator)).long()
    return {"input_ids": ids * mask + (1 - mask) * original.inputs["input_ids"].min(), "attention_mask": mask}


def case(name: str, folder: Path) -> Case:
    """The original called `name`, our float64 backbone of it, and data for both."""
    original = originals.build(name, folder)
    backbone = hydra.load_backbone(original.ref, device="cpu", dtype="float64", **original.load_options)
    known, other = samples(original, NUM_ID, seed=5), samples(original, NUM_OOD, seed=7)
    backbone.processor = Prepared({key: torch.cat([known[key], other[key]]) for key in known})
    labels = np.arange(NUM_ID) % len(original.classes)

    def data(rows, targets, title):
        if backbone.family == "bert":
            items, kind = [str(row) for row in rows], "text"
        else:
            pixels = np.array([np.full((1, 1), row, dtype=np.uint8) for row in rows])
            items, kind = ImageItems(ArraySource(pixels)), "image"
        return Dataset(items, targets, original.classes, kind=kind, name=title)

    rest = range(NUM_ID, NUM_ID + NUM_OOD)
    return Case(original, backbone, data(range(NUM_ID), labels, "rows"), data(rest, None, "rest"), known, other, labels)


def images(size: int, seed: int, classes=originals.CLASSES, labelled: bool = True, name: str = "noise") -> Dataset:
    """Noise images of the small ViT's size with a line whose place is the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(size) % len(classes)
    pixels = rng.integers(0, 256, (size, 18, 18, 3), dtype=np.uint8)
    pixels[np.arange(size), labels * 2, :, :] = 255  # something to learn
    return Dataset(
        ImageItems(ArraySource(pixels)), labels if labelled else None, classes if labelled else None,
        kind="image", name=name,
    )  # fmt: skip
