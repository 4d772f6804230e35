"""The data that ship with the project: real images and texts, in fixed parts.

assets/data/README.md has their sources, licences and sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hydra_core.data.dataset import Dataset, Kind
from hydra_core.data.labels import map_labels, no_sample_left
from hydra_core.data.sources import ArraySource, ImageItems
from hydra_core.errors import HydraError
from hydra_core.paths import ASSETS

DATA_FOLDER = ASSETS / "data"
SPLITS = ("train", "validation", "test")

_FASHION = (
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
_SENTIMENT = ("negative", "positive")


@dataclass(frozen=True)
class _Demo:
    file: str
    kind: Kind
    class_names: tuple[str, ...] | None
    splits: tuple[str, ...]
    description: str


_DEMOS: Mapping[str, _Demo] = {
    "demo/fashion-mnist": _Demo("fashion_mnist.npz", "image", _FASHION, SPLITS, "clothes, 28 x 28 grey, 10 classes"),
    "demo/mnist": _Demo("mnist.npz", "image", tuple("0123456789"), SPLITS[1:], "handwritten digits, 28 x 28 grey"),
    "demo/patches": _Demo("patches.npz", "image", None, SPLITS[1:], "crops of photographs, 28 x 28 grey"),
    "demo/movies": _Demo("movies.parquet", "text", _SENTIMENT, SPLITS, "sentences from film reviews"),
    "demo/nyt": _Demo("nyt.parquet", "text", _SENTIMENT, SPLITS[1:], "sentences from newspaper editorials"),
    "demo/amazon": _Demo("amazon.parquet", "text", _SENTIMENT, SPLITS[1:], "sentences from product reviews"),
}
DEMO_DATA: Mapping[str, str] = {ref: demo.description for ref, demo in _DEMOS.items()}


def load_demo(ref: str, split: str, class_names: tuple[str, ...] | None = None) -> Dataset:
    """One part of a demo dataset; see :func:`hydra_core.data.load_dataset`.

    Raises:
        HydraError: unknown reference or part, the files are missing, or no label is one of `class_names`.
    """
    if ref not in _DEMOS:
        raise HydraError(f"unknown demo data {ref!r}: there are {', '.join(_DEMOS)}")
    demo = _DEMOS[ref]
    if split not in demo.splits:
        raise HydraError(f"{ref!r} has no part {split!r}: choose one of {', '.join(demo.splits)}")
    path = DATA_FOLDER / demo.file
    if not path.is_file():
        raise HydraError(
            f"the file of {ref!r} is missing: {str(path)!r}; run from a complete copy of the project (its "
            "assets/data folder holds the demo data)"
        )
    contents, found = _read(path, demo, split)
    if demo.class_names is None or found is None:
        return Dataset(contents, None, class_names, kind=demo.kind, name=ref)
    names = [demo.class_names[label] for label in found]
    rows = range(1, len(names) + 1)
    stay, labels, known, skipped = map_labels(names, list(rows), class_names or demo.class_names)
    if not stay:
        raise no_sample_left(repr(ref), skipped)
    whole = Dataset(contents, None, known, kind=demo.kind, name=ref)
    items = whole.items if len(stay) == len(whole) else whole.subset(stay).items
    return Dataset(items, labels, known, kind=demo.kind, name=ref, skipped=skipped)


def _read(path: Path, demo: _Demo, split: str) -> tuple[Any, list[int] | None]:
    """The items of a part and their labels."""
    try:
        if demo.kind == "image":
            with np.load(path, allow_pickle=False) as arrays:
                labels = arrays[f"{split}_labels"].tolist() if f"{split}_labels" in arrays else None
                return ImageItems(ArraySource(arrays[f"{split}_images"])), labels
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(
            path, columns=["text", "label"], filters=[("split", "==", split)]
        ).to_pydict()
        return table["text"], table["label"]
    except (OSError, ValueError, KeyError) as error:
        raise HydraError(f"the demo file {str(path)!r} is damaged ({error}); restore it from the project") from None
