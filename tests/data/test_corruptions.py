"""Corruptions are the same each time, change the data, and leave its size and labels."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from hydra_core.data.corruptions import IMAGE_CORRUPTIONS, TEXT_CORRUPTIONS, corrupt_image
from hydra_core.data.dataset import Dataset
from hydra_core.data.sources import ArraySource, ImageItems
from hydra_core.errors import HydraError

SENTENCE = "The uncanny ability to right itself precisely when you think it is in danger of going very wrong indeed"


def pictures(n: int = 4, size: tuple[int, int] = (28, 28)) -> Dataset:
    images = np.random.default_rng(0).integers(60, 200, (n, *size, 3), dtype=np.uint8)
    return Dataset(ImageItems(ArraySource(images)), np.arange(n) % 2, ["a", "b"], kind="image", name="p")


def test_names_are_the_librarys() -> None:
    import imagecorruptions

    assert list(IMAGE_CORRUPTIONS) == imagecorruptions.get_corruption_names("all")


@pytest.mark.parametrize("name", IMAGE_CORRUPTIONS)
@pytest.mark.parametrize("size", [(28, 28), (20, 50), (40, 36)])
def test_every_image_corruption_runs_is_repeatable_and_keeps_the_size(name: str, size: tuple[int, int]) -> None:
    dataset = pictures(2, size)
    corrupted = dataset.corrupt(name, 3)
    first = [np.asarray(image) for image in corrupted.items]
    np.random.seed(5)  # what others do with numpy's generator changes nothing
    again = [np.asarray(image) for image in corrupted.items]
    for before, one, two in zip(dataset.items, first, again, strict=True):
        assert one.shape == (*size, 3)
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, np.asarray(before))
    # a sample is corrupted the same way within a subset
    np.testing.assert_array_equal(np.asarray(dataset.subset([1]).corrupt(name, 3).items[0]), first[1])


def test_numpys_generator_is_put_back() -> None:
    np.random.seed(3)
    expected = np.random.rand(2)
    np.random.seed(3)
    first = np.random.rand(1)
    corrupt_image(pictures().items[0], "gaussian_noise", 2)
    second = np.random.rand(1)
    np.testing.assert_array_equal(np.concatenate([first, second]), expected)


def test_threads_do_not_disturb_one_another() -> None:
    dataset = pictures(4).corrupt("shot_noise", 4)
    expected = [np.asarray(image) for image in dataset.items]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: np.asarray(dataset.items[k % 4]), range(60)))
    assert all(np.array_equal(image, expected[k % 4]) for k, image in enumerate(results))


def test_severity_one_changes_less_than_five() -> None:
    image = Image.fromarray(np.full((64, 64, 3), 120, dtype=np.uint8))
    plain = np.asarray(image, dtype=float)

    def change(severity: int) -> float:
        return float(np.abs(np.asarray(corrupt_image(image, "gaussian_noise", severity), dtype=float) - plain).mean())

    assert change(1) < change(3) < change(5)


def test_small_images_say_that_they_were_enlarged() -> None:
    corrupted = pictures().corrupt("fog", 2)
    assert corrupted.name == "p + fog 2"
    assert any("28 x 28" in note and "32 x 32" in note for note in corrupted.notes)
    assert pictures(size=(40, 40)).corrupt("fog", 2).notes == ()


def test_labels_stay_and_the_fingerprint_changes() -> None:
    dataset = pictures()
    corrupted = dataset.corrupt("contrast", 1)
    assert corrupted.labels is not None
    assert dataset.labels is not None
    assert corrupted.labels.tolist() == dataset.labels.tolist()
    prints = {dataset.fingerprint, corrupted.fingerprint, dataset.corrupt("contrast", 2).fingerprint}
    assert len(prints | {dataset.corrupt("fog", 1).fingerprint}) == 4


def text_data(*items: str) -> Dataset:
    return Dataset(items, None, None, kind="text", name="t")


@pytest.mark.parametrize("name", TEXT_CORRUPTIONS)
def test_text_corruptions(name: str) -> None:
    dataset = text_data(*[f"{SENTENCE} {k}" for k in range(40)], "one", "a", "...", "")
    corrupted = dataset.corrupt(name, 5)
    assert list(corrupted.items) == list(dataset.corrupt(name, 5).items)
    changed = sum(a != b for a, b in zip(dataset.items[:40], corrupted.items, strict=False))
    assert changed >= 38
    assert all(text for text in corrupted.items[:-1])
    assert list(dataset.subset([3]).corrupt(name, 5).items) == [corrupted.items[3]]
    assert corrupted.fingerprint != dataset.fingerprint


def test_text_corruptions_do_what_their_names_say() -> None:
    dataset = text_data(*[f"{SENTENCE} {k}" for k in range(200)])
    words = [text.split() for text in dataset.items]
    for severity in (1, 3, 5):
        ordered = [text.split() for text in dataset.corrupt("word_order", severity).items]
        assert all(sorted(a) == sorted(b) for a, b in zip(words, ordered, strict=True))
        dropped = [text.split() for text in dataset.corrupt("word_drop", severity).items]
        share = 1 - sum(map(len, dropped)) / sum(map(len, words))
        assert share == pytest.approx(0.08 * severity, abs=0.03)
        typed = dataset.corrupt("typos", severity).items
        assert all(a.count(" ") == b.count(" ") for a, b in zip(dataset.items, typed, strict=True))


@pytest.mark.parametrize(
    ("dataset", "name", "severity", "message"),
    [
        (text_data("a"), "fog", 1, "for texts"),
        (pictures(), "typos", 1, "for images"),
        (pictures(), "fog", 0, "1 to 5"),
        (pictures(), "fog", 6, "1 to 5"),
        (pictures(), "fog", 1.0, "1 to 5"),
    ],
)
def test_bad_corruptions_are_refused(dataset: Dataset, name: str, severity: int, message: str) -> None:
    with pytest.raises(HydraError, match=message):
        dataset.corrupt(name, severity)
