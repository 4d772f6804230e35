"""Folders and zips of images."""

import pickle
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hydra_core.data import load_dataset
from hydra_core.errors import HydraError


def zip_of(folder: Path, target: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, prefix + path.relative_to(folder).as_posix())
    return target


def test_one_sub_folder_a_class(class_folder: Path) -> None:
    dataset = load_dataset(str(class_folder))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1]
    assert dataset.labels.dtype == np.int64
    assert dataset.kind == "image"
    assert dataset.skipped == ()
    assert all(isinstance(item, Image.Image) and item.mode == "RGB" for item in dataset.items)
    np.testing.assert_array_equal(np.asarray(dataset.items[3]), np.asarray(Image.open(class_folder / "dog" / "0.png")))


def test_class_names_map_by_name(class_folder: Path) -> None:
    dataset = load_dataset(class_folder, class_names=["bird", "dog", "cat"])
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [2, 2, 2, 1, 1]
    assert dataset.class_names == ("bird", "dog", "cat")
    part = load_dataset(class_folder, class_names=["dog"])
    assert part.labels is not None
    assert part.labels.tolist() == [0, 0]
    assert [key for key, _ in part.skipped] == ["cat/0.png", "cat/1.png", "cat/2.png"]
    assert "'cat'" in part.skipped[0][1]
    with pytest.raises(HydraError, match="none of the classes"):
        load_dataset(class_folder, class_names=["bird"])


def test_a_flat_folder_has_no_labels(class_folder: Path) -> None:
    dataset = load_dataset(class_folder / "cat")
    assert dataset.labels is None
    assert dataset.class_names is None
    assert len(dataset) == 3


def test_files_beside_class_folders_and_litter(class_folder: Path, png: Callable[..., bytes]) -> None:
    (class_folder / "stray.png").write_bytes(png(5))
    (class_folder / ".DS_Store").write_bytes(b"x")
    (class_folder / "cat" / "Thumbs.db").write_bytes(b"x")
    dataset = load_dataset(class_folder)
    assert len(dataset) == 5
    assert [key for key, _ in dataset.skipped] == ["stray.png"]


@pytest.mark.parametrize("prefix", ["", "pets/"])
def test_a_zip_equals_its_folder(class_folder: Path, tmp_path: Path, prefix: str) -> None:
    folder = load_dataset(class_folder)
    zipped = load_dataset(zip_of(class_folder, tmp_path / "pets.zip", prefix))
    assert zipped.class_names == folder.class_names
    assert zipped.labels is not None
    assert folder.labels is not None
    assert zipped.labels.tolist() == folder.labels.tolist()
    assert zipped.fingerprint == folder.fingerprint
    np.testing.assert_array_equal(np.asarray(zipped.items[4]), np.asarray(folder.items[4]))


def test_a_zip_is_read_by_many_threads_and_travels_to_another_process(class_folder: Path, tmp_path: Path) -> None:
    dataset = load_dataset(zip_of(class_folder, tmp_path / "pets.zip"))
    expected = [np.asarray(image) for image in dataset.items]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda k: (k % 5, np.asarray(dataset.items[k % 5])), range(200)))
    assert all(np.array_equal(image, expected[k]) for k, image in results)
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(np.asarray(again.items[2]), expected[2])


@pytest.mark.parametrize("name", ["../evil.png", "a/../../evil.png", "/evil.png", "..\\evil.png", "C:\\evil.png"])
def test_d30_zip_names_that_lead_outside(tmp_path: Path, name: str, png: Callable[..., bytes]) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = inside / "slip.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/good.png", png(0))
        archive.writestr(name, png(1))
    with pytest.raises(HydraError, match="outside"):
        load_dataset(path)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inside", "slip.zip"]


def test_d30_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/zeros.png", b"\0" * 1_000_000)
    assert path.stat().st_size * 100 < 1_000_000
    with pytest.raises(HydraError, match="times its size"):
        load_dataset(path)


def test_d30_a_zip_that_lies_about_a_size(tmp_path: Path, png: Callable[..., bytes]) -> None:
    # the directory says 10 bytes, the file has 100,000: no more than it says is read, and the file is named
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/good.png", png(0))
        archive.writestr("a/lie.png", b"\0" * 100_000)
    data = path.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(data)
    dataset = load_dataset(path)
    assert len(dataset) == 1
    assert dataset.skipped[0][0] == "a/lie.png"


def test_d30_limits_of_a_zip(class_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zip_of(class_folder, tmp_path / "pets.zip")
    monkeypatch.setattr("hydra_core.data.folders.MAX_UNPACKED_BYTES", 100)
    with pytest.raises(HydraError, match="unpacks to"):
        load_dataset(path)
    monkeypatch.setattr("hydra_core.data.folders.MAX_ZIP_FILES", 4)
    with pytest.raises(HydraError, match="5 files"):
        load_dataset(path)


def test_damaged_zips(tmp_path: Path, class_folder: Path) -> None:
    bad = tmp_path / "bad.zip"
    bad.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(HydraError, match="not a zip"):
        load_dataset(bad)
    # one damaged member: named, the rest runs
    path = zip_of(class_folder, tmp_path / "pets.zip")
    data = bytearray(path.read_bytes())
    at = data.index((class_folder / "dog" / "1.png").read_bytes()) + 50
    data[at : at + 20] = b"\0" * 20
    path.write_bytes(bytes(data))
    dataset = load_dataset(path)
    assert [key for key, _ in dataset.skipped] == ["dog/1.png"]
    assert len(dataset) == 4


def test_an_image_that_vanishes_later_is_named(class_folder: Path) -> None:
    dataset = load_dataset(class_folder)
    (class_folder / "cat" / "0.png").unlink()
    with pytest.raises(HydraError, match=r"cat/0\.png"):
        dataset.items[0]


def test_empty_or_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(HydraError, match="no sample"):
        load_dataset(tmp_path / "empty")
    for ref in (tmp_path / "nothing", "", "  ", "no/such.csv"):
        with pytest.raises(HydraError, match="no data at"):
            load_dataset(ref)
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(HydraError, match="no data file"):
        load_dataset(tmp_path / "a.docx")


def test_progress_is_told_and_may_cancel(class_folder: Path) -> None:
    from hydra_core.errors import Cancelled

    calls: list[tuple[int, int]] = []
    load_dataset(class_folder, progress=lambda done, total, note: calls.append((done, total)))
    assert calls[0] == (0, 5)
    assert calls[-1] == (5, 5)

    def stop(done: int, total: int, note: str) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        load_dataset(class_folder, progress=stop)
