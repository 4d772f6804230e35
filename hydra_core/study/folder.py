"""The folder of a study: made, opened, copied, renamed, deleted; and its JSON artefacts as text.

What the artefacts mean is known one level up, in :mod:`hydra_core.study`.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hydra_core.artefacts import parse_json
from hydra_core.errors import HydraError
from hydra_core.study import files
from hydra_core.study.config import CONFIG_FILE, StudyConfig, read_config, write_config
from hydra_core.study.zip import pack

# Kinds that are stored as something else than JSON text.
FOLDER_KINDS = ("predictions", "ensembles")
_KNOWN_KINDS = ("scores", "circuits", "masks", "evaluations", *FOLDER_KINDS)
_UNFINISHED = ".unfinished"
_KIND = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True)
class StudyFolder:
    """A study folder. The object holds the path alone: what it returns is read from disk at that moment."""

    folder: Path

    @classmethod
    def create(cls, root: Path, name: str, config: StudyConfig) -> Self:
        """Make a new study under `root`.

        Raises:
            HydraError: the name is not usable (letters, digits, blanks and ``._-``) or is taken.
        """
        return cls.build(root, name, config, lambda _: None)

    @classmethod
    def build(
        cls, root: Path, name: str, config: StudyConfig, fill: Callable[[Self], object], *, replace: bool = False
    ) -> Self:
        """Make a new study and let `fill` put its artefacts in before anyone sees it.

        Where `fill` raises (an error, a cancelled job), there is no new study, and an old one is as it was.

        Args:
            root: the folder of studies; made where it does not exist.
            name: see :meth:`create`.
            config: what the study is about.
            fill: called with the study under a temporary name.
            replace: put it in the place of a study of that name, which else is an error.
        """
        target = Path(root) / files.check_study_name(name)
        if not (replace and looks_like_study(target)):
            target = free_folder(Path(root), name)

        def write(folder: Path) -> None:
            _put_config(folder, config, target.name)
            fill(cls(folder))

        files.write_folder(target, write)
        return cls(target)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open an existing study.

        Raises:
            HydraError: no study there, a damaged ``study.json``, or one that a newer version made.
        """
        study = cls(Path(folder))
        _ = study.config
        return study

    @property
    def name(self) -> str:
        """The study's name: that of its folder."""
        return self.folder.name

    @property
    def config(self) -> StudyConfig:
        """What the study is about; HydraError where ``study.json`` is missing, damaged or newer than this."""
        return stored_config(self.folder)[0]

    def set_config(self, config: StudyConfig) -> None:
        """Replace the configuration. What belongs to another backbone or data stays until :meth:`clear`."""
        _put_config(self.folder, config, self.name)

    def rename(self, new: str) -> Self:
        """Rename the study; returns it at its new place. HydraError where the name is not usable or taken."""
        target = free_folder(self.folder.parent, new)
        with files.explained("rename", self.folder):
            self.folder.rename(target)
        return type(self)(target)

    def duplicate(self, new: str, root: Path | None = None) -> Self:
        """Copy the study to the name `new`, under `root` where given; a shipped study is opened as a copy."""
        target = free_folder(Path(root) if root is not None else self.folder.parent, new)

        def copy(folder: Path) -> None:
            shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))

        files.write_folder(target, copy)
        return type(self)(target)

    def delete(self) -> None:
        """Delete the study, also a broken one; HydraError where the folder is no study."""
        if not looks_like_study(self.folder):
            raise HydraError(f"{self.folder} is not a study: nothing was deleted")
        files.remove_folder(self.folder)

    def to_zip(self) -> bytes:
        """The whole study as a zip that :func:`hydra_core.study.import_zip` reads."""
        return pack(self.folder)

    def kinds(self) -> list[str]:
        """The kinds of artefact that the study holds."""
        if not self.folder.is_dir():
            return []
        return sorted(p.name for p in self.folder.iterdir() if p.is_dir() and _KIND.fullmatch(p.name))

    def clear(self, kinds: Iterable[str] | None = None) -> None:
        """Remove every artefact of `kinds`, by default of all: what is left is the configuration."""
        for kind in self.kinds() if kinds is None else kinds:
            if (self.folder / _checked(kind)).is_dir():
                files.remove_folder(self.folder / kind)
        if kinds is None and (unfinished := self.folder / _UNFINISHED).is_dir():
            files.remove_folder(unfinished)

    def unfinished(self, what: str) -> Path:
        """Where a job keeps what it needs to go on after a stop, whether or not it exists.

        Hidden, so that it is in no zip and no copy of the study.
        """
        return self.folder / _UNFINISHED / files.file_stem(what)

    def remove_unfinished(self, what: str) -> None:
        """Remove what :meth:`unfinished` names; nothing happens where there is none."""
        if (folder := self.unfinished(what)).is_dir():
            files.remove_folder(folder)

    def put(self, kind: str, name: str, text: str) -> None:
        """Store JSON text.

        Raises:
            HydraError: it is not JSON, or cannot be written; the old text is then still there.
        """
        parse_json(text, f"an artefact of the kind {kind!r}")
        files.write_bytes(self.path(kind, name), text.encode())

    def get(self, kind: str, name: str) -> str | None:
        """The JSON text, None where there is none; HydraError where the file is damaged."""

        def checked(text: str) -> str:
            json.loads(text)
            return text

        return files.parse_file(self.path(kind, name), checked)

    def names(self, kind: str) -> list[str]:
        """The names stored under `kind`, sorted."""
        found = (self.folder / _checked(kind)).glob("*.json")
        return sorted(files.artefact_name(path.stem) for path in found if not files.is_hidden(path))

    def remove(self, kind: str, name: str) -> None:
        """Remove an artefact; nothing happens where there is none."""
        files.remove_file(self.path(kind, name))

    def path(self, kind: str, name: str) -> Path:
        """Where the JSON artefact lies, whether or not it exists."""
        if kind in FOLDER_KINDS:
            raise HydraError(f"{kind!r} are no JSON artefacts: they have methods of their own")
        return self.folder / _checked(kind) / f"{files.file_stem(name)}.json"


def stored_config(folder: Path) -> tuple[StudyConfig, str]:
    """The configuration in `folder` and the name stored with it."""
    path = folder / CONFIG_FILE
    text = files.read_text(path)
    if text is None:
        raise HydraError(f"there is no study in {folder}: it has no {CONFIG_FILE}; choose a study's folder")
    try:
        return read_config(text)
    except HydraError as error:
        raise HydraError(
            f"the study {folder} cannot be opened: {error}; put back a copy of its {CONFIG_FILE} or delete it"
        ) from None


def free_folder(root: Path, name: str) -> Path:
    """Where a new study called `name` goes; HydraError where the name is not usable or taken."""
    folder = root / files.check_study_name(name)
    if folder.exists():
        raise HydraError(f"there is already a study called {folder.name!r}: choose another name or delete it first")
    return folder


def looks_like_study(folder: Path) -> bool:
    """Whether `folder` is a study, possibly a broken one."""
    return (folder / CONFIG_FILE).is_file() or any((folder / kind).is_dir() for kind in _KNOWN_KINDS)


def _put_config(folder: Path, config: StudyConfig, name: str) -> None:
    files.write_bytes(folder / CONFIG_FILE, write_config(config, name).encode())


def _checked(kind: str) -> str:
    if not _KIND.fullmatch(kind):
        raise HydraError(f"{kind!r} is no kind of artefact: use lower-case letters, digits and '-'")
    return kind
