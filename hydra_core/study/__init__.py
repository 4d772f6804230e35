"""The saved study: a folder that holds every step, so that a reload, a crash or a new machine loses nothing.

Layout: ``study.json`` (format, version, name, configuration), ``scores/``, ``circuits/``, ``masks/``,
``evaluations/`` and any other kind of JSON artefact, ``predictions/<model>__<data>.safetensors``,
``ensembles/<name>/``. Each file is written to a temporary name and renamed, so a study can be read while it
is written; a broken file is named and leaves the rest usable.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hydra_core.errors import HydraError
from hydra_core.mask_files import write_mask_file
from hydra_core.masks import HeadMask, fused_fingerprint, pruned_fingerprint
from hydra_core.study import files
from hydra_core.study.config import StudyConfig
from hydra_core.study.folder import FOLDER_KINDS, StudyFolder, looks_like_study, stored_config
from hydra_core.study.zip import unpack

if TYPE_CHECKING:
    from hydra_core.evaluation import Evaluation
    from hydra_core.fusion import FusedEnsemble
    from hydra_core.prediction import Predictions
    from hydra_core.scoring.results import Circuit, HeadScores

__all__ = ["Study", "StudyConfig", "StudySummary", "import_zip", "list_studies", "studies_root"]

T = TypeVar("T")
CURRENT_MASKS = "current"


@dataclass(frozen=True)
class StudySummary:
    """One row of the list of studies; `error` says why it cannot be opened, None where it can."""

    name: str
    folder: Path
    modified: float  # seconds since 1970
    backbone: str | None
    error: str | None


@dataclass(frozen=True)
class Study(StudyFolder):
    """A study folder with what its artefacts mean.

    Each getter of one artefact returns None where there is none, and raises a HydraError that names the file
    where it is damaged. The getters of all leave damaged ones out; :meth:`problems` tells of those.
    """

    def save_scores(self, name: str, scores: "HeadScores") -> None:
        """Store head scores."""
        self.put("scores", name, scores.to_json())

    def scores(self, name: str) -> "HeadScores | None":
        """Stored head scores, or None."""
        from hydra_core.scoring.results import HeadScores

        return self._read("scores", name, HeadScores.from_json)

    def score_sets(self) -> "dict[str, HeadScores]":
        """All head scores that can be read, by name."""
        from hydra_core.scoring.results import HeadScores

        return self._read_all("scores", HeadScores.from_json)

    def save_circuit(self, name: str, circuit: "Circuit") -> None:
        """Store a circuit."""
        self.put("circuits", name, circuit.to_json())

    def circuit(self, name: str) -> "Circuit | None":
        """A stored circuit, or None."""
        from hydra_core.scoring.results import Circuit

        return self._read("circuits", name, Circuit.from_json)

    def circuits(self) -> "dict[str, Circuit]":
        """All circuits that can be read, by name."""
        from hydra_core.scoring.results import Circuit

        return self._read_all("circuits", Circuit.from_json)

    def save_masks(self, name: str, masks: Iterable[HeadMask], fingerprint: str, note: str = "") -> None:
        """Store the members' masks with the fingerprint of the backbone they belong to.

        The text (``get("masks", name)``) is a mask file, which :func:`hydra_core.mask_files.read_mask_file` checks
        against a backbone.
        """
        self.put("masks", name, write_mask_file(list(masks), fingerprint, self.config.backbone, note))

    def masks(self, name: str) -> list[HeadMask] | None:
        """Stored masks, or None; the fingerprint is not looked at."""
        return self._read("masks", name, _parse_masks)

    def mask_sets(self) -> dict[str, list[HeadMask]]:
        """All sets of masks that can be read, by name."""
        return self._read_all("masks", _parse_masks)

    @property
    def active_masks(self) -> list[HeadMask] | None:
        """The masks that the members have now (the set called "current"), or None."""
        return self.masks(CURRENT_MASKS)

    @property
    def active_fingerprint(self) -> str | None:
        """Fingerprint of the ensemble fused from the active masks without fine-tuning; None where there are none."""
        masks, text = self.active_masks, self.get("masks", CURRENT_MASKS)
        if not masks or not text:
            return None
        backbone = str(json.loads(text)["fingerprint"])
        return fused_fingerprint([pruned_fingerprint(backbone, mask) for mask in masks])

    def save_evaluation(self, name: str, evaluation: "Evaluation") -> None:
        """Store an evaluation."""
        self.put("evaluations", name, evaluation.to_json())

    def evaluation(self, name: str) -> "Evaluation | None":
        """A stored evaluation, or None."""
        from hydra_core.evaluation import Evaluation

        return self._read("evaluations", name, Evaluation.from_json)

    def evaluations(self) -> "dict[str, Evaluation]":
        """All evaluations that can be read, by name."""
        from hydra_core.evaluation import Evaluation

        return self._read_all("evaluations", Evaluation.from_json)

    # --- predictions and ensembles -------------------------------------------------------------------

    def save_predictions(self, model: str, data: str, predictions: "Predictions") -> None:
        """Store the logits (M, N, C) of `model` ("full", "fused", ...) on `data` ("id", or an OOD set)."""
        from hydra_core.study.predictions import encode

        files.write_bytes(self._predictions_path(model, data), encode(predictions))

    def predictions(self, model: str, data: str) -> "Predictions | None":
        """Stored predictions, or None; HydraError where the file is damaged."""
        from hydra_core.study.predictions import decode

        path = self._predictions_path(model, data)
        return decode(path) if path.exists() else None

    def prediction_models(self) -> list[str]:
        """The models that have stored predictions."""
        return sorted({model for model, _ in self._prediction_names()})

    def prediction_data(self, model: str) -> list[str]:
        """The names of the data on which `model` has stored predictions."""
        return sorted(data for owner, data in self._prediction_names() if owner == model)

    def remove_predictions(self, model: str) -> None:
        """Remove the stored predictions of `model`."""
        for data in self.prediction_data(model):
            files.remove_file(self._predictions_path(model, data))

    def save_ensemble(self, name: str, fused: "FusedEnsemble") -> None:
        """Store a fused ensemble as a folder that :func:`hydra_core.load_ensemble` reads."""
        from hydra_core.ensemble_io import save_ensemble

        files.write_folder(self._ensemble_path(name), lambda folder: save_ensemble(fused, folder))

    def ensemble_folder(self, name: str) -> Path | None:
        """The folder of a stored ensemble, or None."""
        folder = self._ensemble_path(name)
        return folder if folder.is_dir() else None

    def ensembles(self) -> list[str]:
        """The names of the stored ensembles."""
        found = (self.folder / "ensembles").glob("*/")
        return sorted(files.artefact_name(path.name) for path in found if not files.is_hidden(path))

    def remove_ensemble(self, name: str) -> None:
        """Remove a stored ensemble; nothing happens where there is none."""
        if (folder := self.ensemble_folder(name)) is not None:
            files.remove_folder(folder)

    def problems(self) -> list[str]:
        """One sentence for each artefact that cannot be read."""
        readers: dict[str, Callable[[str], object]] = {
            "scores": self.scores,
            "circuits": self.circuit,
            "masks": self.masks,
            "evaluations": self.evaluation,
        }
        found: list[str] = []
        for kind in self.kinds():
            if kind not in FOLDER_KINDS:
                read = readers.get(kind, partial(self.get, kind))
                found += _errors(read, self.names(kind))
        for model in self.prediction_models():
            found += _errors(partial(self.predictions, model), self.prediction_data(model))
        return found

    def _predictions_path(self, model: str, data: str) -> Path:
        return self.folder / "predictions" / f"{files.file_stem(model)}__{files.file_stem(data)}.safetensors"

    def _ensemble_path(self, name: str) -> Path:
        return self.folder / "ensembles" / files.file_stem(name)

    def _prediction_names(self) -> list[tuple[str, str]]:
        found = [
            p.stem.split("__") for p in (self.folder / "predictions").glob("*__*.safetensors") if not files.is_hidden(p)
        ]
        return [(files.artefact_name(p[0]), files.artefact_name(p[1])) for p in found if len(p) == 2]

    def _read(self, kind: str, name: str, parse: Callable[[str], T]) -> T | None:
        return files.parse_file(self.path(kind, name), parse)

    def _read_all(self, kind: str, parse: Callable[[str], T]) -> dict[str, T]:
        found: dict[str, T] = {}
        for name in self.names(kind):
            try:
                value = self._read(kind, name, parse)
            except HydraError:
                continue  # told by problems(); one damaged file must not hide the others
            if value is not None:
                found[name] = value
        return found


def studies_root() -> Path:
    """Where studies live: ``$HYDRA_STUDIES``, by default ``./studies``."""
    return Path(os.environ.get("HYDRA_STUDIES") or "studies")


def list_studies(root: Path) -> list[StudySummary]:
    """The studies under `root`, the last changed first; broken ones with their error."""
    root = Path(root)
    if not root.is_dir():
        return []
    found = [_summary(folder) for folder in root.iterdir() if not files.is_hidden(folder) and looks_like_study(folder)]
    return sorted(found, key=lambda summary: (-summary.modified, summary.name))


def import_zip(root: Path, data: bytes) -> Study:
    """Unpack a study that was downloaded as a zip, under its own name or, where that is taken, with a number.

    Raises:
        HydraError: not a study's zip, or one that is not safe to unpack (see :mod:`hydra_core.study.zip`).
    """
    root = Path(root)
    folder = unpack(data, root)
    try:
        try:
            name = _usable(stored_config(folder)[1])
        except HydraError as error:
            # The temporary folder's name would tell the person nothing.
            raise HydraError(str(error).replace(str(folder), "in the zip")) from None
        study = Study(root / name)
        number = 2
        while study.folder.exists():
            study, number = Study(root / f"{name} {number}"), number + 1
        with files.explained("write", study.folder):
            folder.rename(study.folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return study


def _parse_masks(text: str) -> list[HeadMask]:
    members = json.loads(text)["members"]
    if not members:
        raise HydraError("it holds no member")
    return [HeadMask.from_dict(member) for member in members]


def _usable(name: str) -> str:
    try:
        return files.check_study_name(name)
    except HydraError:
        return "imported study"


def _summary(folder: Path) -> StudySummary:
    # Storing an artefact renames a file into its kind's folder, which changes that folder's time. A temporary
    # file may vanish while we look.
    changed = [path.stat().st_mtime for path in (folder, *folder.iterdir()) if path.exists()]
    try:
        backbone, error = Study(folder).config.backbone, None
    except HydraError as problem:
        backbone, error = None, str(problem)
    return StudySummary(folder.name, folder, max(changed), backbone, error)


def _errors(read: Callable[[str], object], names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        try:
            read(name)
        except HydraError as error:
            found.append(str(error))
    return found
