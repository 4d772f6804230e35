"""Dataset: subsets keep their rows together, and say what they hold by a fingerprint."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core.data.dataset import Dataset
from hydra_core.data.sources import ArraySource, ImageItems
from hydra_core.errors import HydraError


def texts(labels: list[int] | None, size: int | None = None) -> Dataset:
    size = len(labels) if labels is not None else size or 0
    array = None if labels is None else np.array(labels, dtype=np.int64)
    items = [f"text {i}" for i in range(size)]
    return Dataset(items, array, None if labels is None else ["a", "b", "c"], kind="text", name="t")


def pictures(n: int = 6) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (n, 28, 28), dtype=np.uint8)
    return Dataset(ImageItems(ArraySource(images)), np.arange(n) % 3, ["a", "b", "c"], kind="image", name="p")


@given(st.lists(st.integers(0, 2), min_size=2, max_size=60), st.integers(1, 60), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_take_is_stratified_ordered_and_repeatable(labels: list[int], n: int, seed: int) -> None:
    dataset = texts(labels)
    part = dataset.take(n, seed)
    assert len(part) == min(n, len(labels))
    numbers = [int(text.split()[1]) for text in part.items]
    assert numbers == sorted(set(numbers))
    assert part.labels is not None
    assert part.labels.tolist() == [labels[i] for i in numbers]
    for label in range(3):
        share = labels.count(label) * min(n, len(labels)) / len(labels)
        assert abs(part.labels.tolist().count(label) - share) < 1
    assert part.fingerprint == dataset.take(n, seed).fingerprint


@given(st.lists(st.integers(0, 2), min_size=4, max_size=50), st.floats(0.2, 0.8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_split_parts_are_disjoint_and_whole(labels: list[int], fraction: float, seed: int) -> None:
    dataset = texts(labels)
    first, second = dataset.split(fraction, seed)
    assert len(first) == round(fraction * len(labels))
    assert sorted([*first.items, *second.items]) == sorted(dataset.items)
    assert first.class_names == second.class_names == ("a", "b", "c")


def test_unlabelled_data_splits_too() -> None:
    first, second = texts(None, 10).split(0.5)
    assert (len(first), len(second), first.labels) == (5, 5, None)


def test_fingerprint_follows_content_order_and_labels() -> None:
    base = texts([0, 1, 2])
    assert base.fingerprint == texts([0, 1, 2]).fingerprint
    assert len(base.fingerprint) == 64
    others = [
        texts([0, 1, 1]),
        texts(None, 3),
        base.subset([1, 0, 2]),
        base.subset([0, 1]),
        Dataset(base.items, base.labels, ["a", "b", "d"], kind="text", name="t"),
        Dataset(["text 0", "text 1", "text 2!"], base.labels, ["a", "b", "c"], kind="text", name="t"),
        pictures(3),
    ]
    prints = {one.fingerprint for one in [base, *others]}
    assert len(prints) == 8
    # where it was loaded from does not matter
    assert Dataset(base.items, base.labels, base.class_names, kind="text", name="x").fingerprint == base.fingerprint


def test_what_is_drawn_from_a_set_remembers_the_whole() -> None:
    whole = texts([0, 1, 2] * 4)
    first, rest = whole.split(0.5)
    for part in (whole, whole.take(5), whole.subset([3, 3, 1]), first, rest.take(2), whole.take(5).subset([0])):
        assert part.source_fingerprint == whole.fingerprint
    assert whole.take(5).corrupt("typos", 1).source_fingerprint != whole.fingerprint


def test_image_fingerprint_sees_one_changed_pixel() -> None:
    images = np.zeros((2, 4, 4), dtype=np.uint8)
    changed = images.copy()
    changed[1, 2, 3] = 1
    prints = {
        Dataset(ImageItems(ArraySource(one)), None, None, kind="image", name="p").fingerprint
        for one in (images, changed)
    }
    assert len(prints) == 2


def test_subset_of_images_and_slices() -> None:
    dataset = pictures()
    part = dataset.subset([4, 0])
    np.testing.assert_array_equal(np.asarray(part.items[0]), np.asarray(dataset.items[4]))
    assert part.labels is not None
    assert part.labels.tolist() == [1, 0]
    assert [np.asarray(i).sum() for i in dataset.items[1:3]] == [np.asarray(dataset.items[k]).sum() for k in (1, 2)]
    assert len(dataset.subset(np.array([True, False] * 3))) == 3
    assert len(dataset.subset([])) == 0
    assert len(list(dataset.items)) == 6


@pytest.mark.parametrize("indices", [[6], [-1], [0.5], ["a"], [[0]]])
def test_bad_indices(indices: list) -> None:
    with pytest.raises(HydraError, match="ind"):
        pictures().subset(indices)


def test_bad_settings() -> None:
    dataset = texts([0, 1, 2])
    for n in (0, -1, 1.5, True):
        with pytest.raises(HydraError, match="at least 1"):
            dataset.take(n)  # type: ignore[arg-type]
    for fraction in (0, 1, -0.1, 1.5, 0.01, "a"):
        with pytest.raises(HydraError, match="fraction"):
            dataset.split(fraction)  # type: ignore[arg-type]
    with pytest.raises(HydraError, match="labels"):
        Dataset(["a"], np.array([3]), ["x"], kind="text", name="t")
    with pytest.raises(HydraError, match="labels"):
        Dataset(["a"], np.array([0, 0]), ["x"], kind="text", name="t")
    with pytest.raises(HydraError, match="class_names"):
        Dataset(["a"], np.array([0]), None, kind="text", name="t")


def test_labels_cannot_be_written_to() -> None:
    labels = texts([0, 1]).labels
    assert labels is not None
    with pytest.raises(ValueError, match="read-only"):
        labels[0] = 1
