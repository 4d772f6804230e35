"""load_dataset: one reference, one dataset."""

import os
from collections.abc import Sequence
from pathlib import Path

from hydra_core.data import tables
from hydra_core.data.dataset import Dataset
from hydra_core.data.demo import SPLITS, load_demo
from hydra_core.data.folders import load_folder, load_zip
from hydra_core.data.labels import check_class_names
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress


def load_dataset(
    ref: str | os.PathLike[str],
    *,
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load images or texts.

    Args:
        ref: ``demo/fashion-mnist``, ``demo/mnist``, ``demo/patches``, ``demo/movies``, ``demo/nyt`` or
            ``demo/amazon``; a folder or .zip with one sub-folder of images a class; a flat folder or .zip of
            images (no labels); or a .csv, .tsv, .jsonl or .parquet file with a column ``text`` or ``image``
            (a path, from the file's own folder) and, where there are labels, ``label``.
        split: ``train``, ``validation`` or ``test``; for demo data alone, the rest loads whole.
        limit: at most that many samples, each class by its share.
        seed: which samples `limit` takes.
        class_names: the backbone's classes. Labels are matched to them BY NAME; a sample whose label is none
            of them goes to `skipped`. Without it, the names that occur, sorted, are the classes.
        progress: told of each image checked.

    Returns:
        The dataset. Images that cannot be decoded, and rows without text or a usable label, are in `skipped`.

    Raises:
        HydraError: unknown reference, missing or unreadable file, a file over the limits of
            :func:`hydra_core.data.describe_limits`, or no usable sample.

    Example:
        >>> load_dataset("demo/movies", limit=100).class_names  # doctest: +SKIP
        ('negative', 'positive')
    """
    if split not in SPLITS:
        raise HydraError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    names = check_class_names(class_names)
    text = os.fspath(ref)
    dataset = load_demo(text, split, names) if text.startswith("demo/") else _load_path(text, names, progress)
    return dataset if limit is None else dataset.take(limit, seed)


def _load_path(ref: str, class_names: tuple[str, ...] | None, progress: Progress | None) -> Dataset:
    path = Path(ref).expanduser()
    if not ref.strip() or not path.exists():
        raise HydraError(
            f"no data at {ref!r}: give a demo reference (such as 'demo/movies'), a folder, a .zip, or a "
            f"{', '.join(tables.SUFFIXES)} file that exists"
        )
    try:
        if path.is_dir():
            return load_folder(path, class_names, progress)
        if path.suffix.lower() == ".zip":
            return load_zip(path, class_names, progress)
        if path.suffix.lower() in tables.SUFFIXES:
            return tables.load_table(path, class_names, progress)
    except OSError as error:
        raise HydraError(f"{str(path)!r} cannot be read ({error.strerror or error})") from None
    raise HydraError(
        f"{str(path)!r} is no data file: a folder, a .zip, or a {', '.join(tables.SUFFIXES)} file is expected"
    )
