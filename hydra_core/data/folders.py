"""Images in a folder or a zip: one sub-folder a class, or all in one place without labels."""

import os
import zipfile
from pathlib import Path, PurePosixPath

from hydra_core.data.dataset import Dataset
from hydra_core.data.images import SUFFIXES
from hydra_core.data.labels import Skipped, map_labels, no_sample_left
from hydra_core.data.limits import (
    MAX_UNPACKED_BYTES,
    MAX_ZIP_FILES,
    MAX_ZIP_RATIO,
    ZIP_RATIO_FLOOR,
    megabytes,
)
from hydra_core.data.sources import BytesSource, FileSource, ImageItems, ZipSource
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report

# What a file manager leaves behind is no data.
_LITTER = {"__MACOSX", "Thumbs.db", "desktop.ini"}


def load_folder(folder: Path, class_names: tuple[str, ...] | None = None, progress: Progress | None = None) -> Dataset:
    """The images below `folder`; see :func:`hydra_core.data.load_dataset`."""
    names: list[str] = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        names += [(Path(parent) / file).relative_to(folder).as_posix() for file in files]
    names = sorted(name for name in names if not _is_litter(PurePosixPath(name)))
    images = [name for name in names if _is_image(name)]
    return _load(FileSource(folder, images), names, f"the folder {str(folder)!r}", class_names, progress, folder)


def load_zip(path: Path, class_names: tuple[str, ...] | None = None, progress: Progress | None = None) -> Dataset:
    """The images in a zip, read in place; see :func:`hydra_core.data.load_dataset`.

    Raises:
        HydraError: no zip, a name that leads outside, or one that unpacks to too much.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked_members(archive, path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, HydraError):
            raise
        raise HydraError(f"{str(path)!r} is not a zip that can be read ({error})") from None
    members = {k: v for k, v in sorted(members.items()) if not _is_litter(PurePosixPath(k))}
    tops = {PurePosixPath(name).parts[0] for name in members}
    if len(tops) == 1 and all(len(PurePosixPath(name).parts) > 2 for name in members if _is_image(name)):
        # A zip made of a folder has that folder around the classes.
        members = {"/".join(PurePosixPath(k).parts[1:]): v for k, v in members.items()}
    images = [name for name in members if _is_image(name)]
    source = ZipSource(path, images, [members[name] for name in images])
    return _load(source, list(members), f"the zip {str(path)!r}", class_names, progress, path)


def _checked_members(archive: zipfile.ZipFile, path: Path) -> dict[str, str]:
    """Cleaned name -> name in the zip, of its files; HydraError for a zip that means harm."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MAX_ZIP_FILES:
        raise HydraError(f"{str(path)!r} holds {len(infos):,} files, the limit is {MAX_ZIP_FILES:,}")
    total = sum(info.file_size for info in infos)
    if total > MAX_UNPACKED_BYTES:
        raise HydraError(f"{str(path)!r} unpacks to {megabytes(total)}, the limit is {megabytes(MAX_UNPACKED_BYTES)}")
    packed = path.stat().st_size
    if total > ZIP_RATIO_FLOOR and total > MAX_ZIP_RATIO * packed:
        raise HydraError(
            f"{str(path)!r} unpacks to {total // packed} times its size, the limit is {MAX_ZIP_RATIO} times: "
            "it looks like a zip bomb and was not unpacked"
        )
    members: dict[str, str] = {}
    for info in infos:
        name = info.filename.replace("\\", "/")
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
            raise HydraError(
                f"{str(path)!r} holds the name {info.filename!r}, which leads outside the zip; nothing was read"
            )
        members[inside.as_posix()] = info.filename
    return members


def _is_litter(path: PurePosixPath) -> bool:
    return any(part in _LITTER or part.startswith(".") for part in path.parts)


def _is_image(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def _load(
    source: BytesSource,
    names: list[str],
    what: str,
    class_names: tuple[str, ...] | None,
    progress: Progress | None,
    path: Path,
) -> Dataset:
    """Drop what cannot be decoded, read labels from the sub-folders, and say what was left out."""
    skipped: list[Skipped] = [
        (name, f"no image by its ending ({', '.join(SUFFIXES)})") for name in names if not _is_image(name)
    ]
    labelled = any("/" in name for name in source.names)
    positions: list[int] = []
    for i, name in enumerate(source.names):
        report(progress, i, len(source.names), "Checking images")
        if labelled and "/" not in name:
            skipped.append((name, "lies beside the class folders, not in one"))
            continue
        reason = source.check(i)
        if reason is None:
            positions.append(i)
        else:
            skipped.append((name, reason))
    report(progress, len(source.names), len(source.names), "Checking images")
    kept_names = [source.names[i] for i in positions]
    if labelled and positions:
        found = [name.split("/", 1)[0] for name in kept_names]
        stay, labels, class_names, unknown = map_labels(found, kept_names, class_names)
        positions = [positions[i] for i in stay]
        skipped += unknown
    else:
        labels = None
    skipped.sort(key=lambda entry: str(entry[0]))
    if not positions:
        raise no_sample_left(what, skipped)
    items = ImageItems(source, positions)
    return Dataset(items, labels, class_names, kind="image", name=path.name, skipped=skipped)
