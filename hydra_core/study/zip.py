"""A study as one zip file, and back: nothing is written outside the study, and no bomb is unpacked."""

import io
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from hydra_core.errors import HydraError
from hydra_core.study.files import explained, is_hidden, temporary_beside

MAX_UNPACKED = 4 * 1024**3  # bytes
MAX_FILES = 10_000
MAX_RATIO = 100  # unpacked / packed, of one file
_RATIO_FLOOR = 1024**2  # bytes: a small file of equal values may pack better than that and does no harm
_CHUNK = 1024**2
# Weights and predictions hardly pack.
_STORED = {".safetensors"}


def pack(folder: Path) -> bytes:
    """All files of `folder` as a zip, under one top folder of its name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_symlink() or not path.is_file() or any(part.startswith(".") for part in inside.parts):
                continue
            method = zipfile.ZIP_STORED if path.suffix in _STORED else zipfile.ZIP_DEFLATED
            archive.write(path, f"{folder.name}/{inside.as_posix()}", compress_type=method)
    return buffer.getvalue()


def unpack(data: bytes, root: Path) -> Path:
    """Unpack a study's zip into a new hidden folder under `root`, which the caller renames.

    Returns:
        The folder that holds ``study.json``.

    Raises:
        HydraError: not a zip, not a study, names that lead outside, links, encrypted files, too many or too
            large files, or a file that unpacks to more than 100 times its size. Nothing is left behind.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError) as error:
        raise HydraError(
            f"the file is not a zip that can be read ({error}); upload a study as the app downloaded it"
        ) from None
    with archive:
        members = _checked(archive)
        folder = temporary_beside(root / "study")
        try:
            with explained("write", folder):
                folder.mkdir(parents=True)
                left = MAX_UNPACKED
                for info, inside in members:
                    left -= _extract(archive, info, folder / inside, left)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


def _checked(archive: zipfile.ZipFile) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """The files to unpack and their path below the study's folder."""
    files = [info for info in archive.infolist() if not info.is_dir()]
    if len(files) > MAX_FILES:
        raise HydraError(f"the zip holds {len(files)} files; a study has at most {MAX_FILES}")
    top = _top_folder(files)
    members: list[tuple[zipfile.ZipInfo, PurePosixPath]] = []
    seen: set[str] = set()
    for info in files:
        path = _safe_path(info)
        # What a Mac adds to a zip, and what an interrupted write left, is no part of the study.
        if path.parts[0] == "__MACOSX" or any(is_hidden(Path(part)) for part in path.parts):
            continue
        if top and path.parts[0] != top:
            raise HydraError(
                f"the zip holds {info.filename!r} beside the study's folder {top!r}: zip the one folder alone"
            )
        inside = PurePosixPath(*path.parts[1:]) if top else path
        if str(inside).casefold() in seen:
            raise HydraError(f"the zip holds {info.filename!r} twice: zip the study's folder again")
        seen.add(str(inside).casefold())
        _check_size(info)
        members.append((info, inside))
    total = sum(info.file_size for info, _ in members)
    if total > MAX_UNPACKED:
        raise HydraError(f"the zip unpacks to {total / 1024**3:.1f} GiB; the limit is {MAX_UNPACKED / 1024**3:.0f} GiB")
    return members


def _top_folder(files: list[zipfile.ZipInfo]) -> str:
    """Name of the one folder that holds ``study.json``; "" where it lies at the top."""
    homes = [PurePosixPath(info.filename).parent for info in files if PurePosixPath(info.filename).name == "study.json"]
    homes = [home for home in homes if len(home.parts) <= 1]
    if len(homes) != 1:
        raise HydraError(
            "the zip is not one study: it needs exactly one study.json, at its top or in one folder; "
            "upload a study as the app downloaded it"
        )
    return homes[0].parts[0] if homes[0].parts else ""


def _safe_path(info: zipfile.ZipInfo) -> PurePosixPath:
    path = PurePosixPath(info.filename)
    # zipfile turns the local separator into "/"; a backslash that is left is Windows's on another system.
    unsafe = "\\" in info.filename or ":" in info.filename or "\0" in info.filename
    if unsafe or path.is_absolute() or not path.parts or ".." in path.parts:
        raise HydraError(
            f"the zip holds the name {info.filename!r}, which leads outside the study: nothing was unpacked"
        )
    if stat.S_ISLNK(info.external_attr >> 16):
        raise HydraError(f"the zip holds a link, {info.filename!r}: nothing was unpacked")
    if info.flag_bits & 0x1:
        raise HydraError("the zip is encrypted: upload it without a password")
    return path


def _check_size(info: zipfile.ZipInfo) -> None:
    if info.file_size > _RATIO_FLOOR and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        raise HydraError(
            f"{info.filename!r} in the zip unpacks to more than {MAX_RATIO} times its size: nothing was unpacked"
        )


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write one file and return its size; the size in the zip's table is not trusted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    try:
        with archive.open(info) as source, open(target, "wb") as stream:
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > min(info.file_size, left):
                    raise HydraError(
                        f"{info.filename!r} in the zip is larger than its table says: nothing was unpacked"
                    )
                stream.write(chunk)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, zlib.error) as error:
        raise HydraError(f"{info.filename!r} in the zip is damaged ({error}): download the study again") from None
    return written
