"""The demo data that ship with the project."""

from pathlib import Path

import numpy as np
import pytest

from hydra_core.data import DEMO_DATA, load_dataset
from hydra_core.data.demo import DATA_FOLDER
from hydra_core.errors import HydraError

pytestmark = pytest.mark.skipif(not DATA_FOLDER.is_dir(), reason="assets/data is not in this copy")


def test_fashion_mnist_has_the_size_that_fine_tuning_needs() -> None:
    sizes = {part: len(load_dataset("demo/fashion-mnist", split=part)) for part in ("train", "validation", "test")}
    assert sizes["train"] >= 10_000
    assert sizes["validation"] >= 2_000
    assert sizes["test"] >= 2_000
    dataset = load_dataset("demo/fashion-mnist")
    assert dataset.items[0].mode == "RGB"
    assert dataset.items[0].size == (28, 28)
    assert dataset.class_names is not None
    assert dataset.class_names[0] == "T-shirt/top"
    assert dataset.class_names[9] == "Ankle boot"


@pytest.mark.parametrize("ref", ["demo/mnist", "demo/patches", "demo/nyt", "demo/amazon", "demo/movies"])
def test_parts_are_disjoint(ref: str) -> None:
    def contents(split: str) -> set[bytes]:
        dataset = load_dataset(ref, split=split)
        return {x.encode() if isinstance(x, str) else np.asarray(x).tobytes() for x in dataset.items}

    assert not contents("validation") & contents("test")
    dataset = load_dataset(ref)
    assert (dataset.labels is None) == (ref == "demo/patches")


def test_labels_follow_the_names_that_are_given() -> None:
    plain = load_dataset("demo/fashion-mnist", split="validation")
    assert plain.class_names is not None
    assert plain.labels is not None
    turned = load_dataset("demo/fashion-mnist", split="validation", class_names=plain.class_names[::-1])
    assert turned.labels is not None
    assert (turned.labels == 9 - plain.labels).all()
    some = load_dataset("demo/fashion-mnist", split="validation", class_names=["Bag", "Coat"])
    assert len(some) == (plain.labels == 8).sum() + (plain.labels == 4).sum()
    assert len(some) + len(some.skipped) == len(plain)
    with pytest.raises(HydraError, match="none of the classes"):
        load_dataset("demo/mnist", class_names=plain.class_names)


def test_limit_is_stratified() -> None:
    dataset = load_dataset("demo/fashion-mnist", limit=50, seed=1)
    assert dataset.labels is not None
    assert np.bincount(dataset.labels).tolist() == [5] * 10


def test_bad_references() -> None:
    with pytest.raises(HydraError, match="demo/fashion-mnist"):
        load_dataset("demo/cifar")
    with pytest.raises(HydraError, match="validation, test"):
        load_dataset("demo/mnist", split="train")
    with pytest.raises(HydraError, match="split must be"):
        load_dataset("demo/movies", split="dev")
    assert len(DEMO_DATA) == 6


def test_missing_assets_are_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydra_core.data.demo.DATA_FOLDER", tmp_path)
    for ref in DEMO_DATA:
        with pytest.raises(HydraError, match="missing"):
            load_dataset(ref)
    (tmp_path / "mnist.npz").write_bytes(b"broken")
    (tmp_path / "movies.parquet").write_bytes(b"broken")
    for ref in ("demo/mnist", "demo/movies"):
        with pytest.raises(HydraError, match="damaged"):
            load_dataset(ref)
