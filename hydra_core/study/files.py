"""Files of a study: safe names, writing that cannot be seen half done, reading that says what is broken.

Nothing here knows what the files mean; :mod:`hydra_core.study` does.
"""

import os
import re
import shutil
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from hydra_core.errors import HydraError

T = TypeVar("T")

# Names that Windows gives to devices, with or without an extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)
_MAX_NAME = 80
_MAX_FILE_NAME = 200  # bytes: file systems take 255, and a temporary name adds some


def check_study_name(name: str) -> str:
    """`name` as the folder name of a study, on every system that may open it.

    Returns:
        The name without surrounding blanks, in Unicode's composed form.

    Raises:
        HydraError: empty, too long, with other characters than letters, digits and `` ._-``, starting or
            ending with a dot, or a name that Windows keeps for a device.
    """
    clean = unicodedata.normalize("NFC", name).strip()
    wanted = "use letters, digits, blanks, '.', '_' and '-'"
    if not clean:
        raise HydraError(f"a study needs a name: {wanted}")
    if len(clean) > _MAX_NAME:
        raise HydraError(f"the study name has {len(clean)} characters; use at most {_MAX_NAME}")
    bad = sorted({c for c in clean if not (c.isalnum() or c in " ._-")})
    if bad:
        raise HydraError(
            f"the study name {clean!r} has characters that do not fit a folder name: {''.join(bad)}; {wanted}"
        )
    if clean.startswith(".") or clean.endswith("."):
        raise HydraError(f"the study name {clean!r} starts or ends with a dot: choose another name")
    if _DEVICE.match(clean):
        raise HydraError(f"the study name {clean!r} is kept for a device on Windows: choose another name")
    if len(clean.encode()) > _MAX_FILE_NAME:
        raise HydraError(f"the study name {clean!r} is too long for a folder name: choose a shorter one")
    return clean


def file_stem(name: str) -> str:
    """The file name, without ending, under which an artefact called `name` is stored.

    Letters, digits and `` .-~`` stay; everything else is percent-encoded, so that ``captum:deep_lift`` or
    ``../x`` are names like any other and a double underscore separates two of them. :func:`artefact_name`
    reads it back.
    """
    if not name.strip():
        raise HydraError("an entry of a study needs a name, got an empty one")
    stem = quote(name, safe=" ")
    stem = stem.replace("__", "_%5F")
    if stem.startswith("_"):
        stem = "%5F" + stem[1:]
    if stem.endswith(("_", " ", ".")):
        stem = f"{stem[:-1]}%{ord(stem[-1]):02X}"
    if stem.startswith((".", " ")) or _DEVICE.match(stem):
        stem = f"%{ord(stem[0]):02X}{stem[1:]}"
    if len(stem) > _MAX_FILE_NAME:
        raise HydraError(f"the name {name[:40]!r}... is too long for a file: choose a shorter one")
    return stem


def artefact_name(stem: str) -> str:
    """The inverse of :func:`file_stem`."""
    return unquote(stem)


def is_hidden(path: Path) -> bool:
    """Whether `path` is a temporary file or folder of ours (or anything else a reader must leave out)."""
    return path.name.startswith(".")


def temporary_beside(path: Path) -> Path:
    """A new hidden name in the folder of `path`, so that a rename stays on one file system."""
    return path.with_name(f".{uuid.uuid4().hex[:12]}.tmp")


@contextmanager
def explained(doing: str, path: Path) -> Iterator[None]:
    """Turn an operating system error into a sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise HydraError(
            f"cannot {doing} {path}: {reason}; check that the folder may be written and the disk is not full"
        ) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write `path` so that a reader, or a crash, finds the old file or the new one and never a part.

    Raises:
        HydraError: the file system refuses; the old file is still there.
    """
    temporary = temporary_beside(path)
    with explained("write", path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_folder(folder: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a new folder under a temporary name, then put it in the place of `folder`.

    Where `fill` raises (a cancelled job, say), `folder` is as it was.
    """
    temporary, old = temporary_beside(folder), temporary_beside(folder)
    with explained("write", folder):
        try:
            temporary.mkdir(parents=True)
            fill(temporary)
            if folder.exists():
                folder.rename(old)
            try:
                temporary.rename(folder)
            except OSError:
                if old.exists():
                    old.rename(folder)
                raise
            _sync_folder(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)


def remove_file(path: Path) -> None:
    """Remove `path` where it exists."""
    with explained("remove", path):
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove `folder`; to a reader it vanishes at once."""
    trash = temporary_beside(folder)
    with explained("remove", folder):
        folder.rename(trash)
        shutil.rmtree(trash)


def read_text(path: Path) -> str | None:
    """The text of `path`, None where there is no such file.

    Raises:
        HydraError: the file cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise broken(path, error) from error


def parse_file(path: Path, parse: Callable[[str], T]) -> T | None:
    """`parse` applied to the text of `path`, None where there is no such file.

    Raises:
        HydraError: the file cannot be read or parsed; names the file and what to do.
    """
    text = read_text(path)
    if text is None:
        return None
    try:
        return parse(text)
    # A damaged or edited file may lack a key or hold another type; the person needs the file's name.
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise broken(path, error) from error


def broken(path: Path, error: Exception) -> HydraError:
    """The error for a damaged file of a study."""
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return HydraError(
        f"the file {path} of this study is damaged ({reason}); delete it and compute it again, or put back a "
        "copy: the rest of the study is unharmed"
    )


def _sync_folder(folder: Path) -> None:
    # A rename is on disk once its folder is; Windows cannot open folders and needs none of it.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
