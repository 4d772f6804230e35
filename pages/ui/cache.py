"""Loaded backbones, datasets and quick results, shared by all sessions, by string keys; nothing here is ever changed.

Imports of the core are inside the functions: reading a page must not import torch.
"""

import dataclasses
import gc
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask
from hydra_core.study import Study, StudyConfig

if TYPE_CHECKING:
    from hydra_core import Backbone, Dataset, FusedEnsemble, Predictions
    from hydra_core.pipeline import Parts

TEST, SELECTION = "test", "selection"
_loaded: "weakref.WeakSet[Any]" = weakref.WeakSet()
_holders: list[Callable[[], None]] = []
_fingerprints: dict[str, str] = {}  # of the weights that were found on loading, by backbone key


# --- backbones ---


def backbone_key(config: StudyConfig) -> str:
    """The string that names a loaded backbone: everything its numbers depend on."""
    fields = ("backbone", "device", "dtype", "class_names", "templates")
    return json.dumps([*(getattr(config, name) for name in fields), _modified(config.backbone)])


def drop_with_backbone(clear: Callable[[], None]) -> None:
    """Register a cache whose entries hold a backbone: it is emptied when one leaves, or the weights would stay."""
    _holders.append(clear)


def _drop_holders(_: Any = None) -> None:
    for clear in _holders:
        clear()


@st.cache_resource(max_entries=2, show_spinner=False, on_release=_drop_holders)
def _backbone(key: str) -> "Backbone":
    import hydra_core as hydra

    ref, device, dtype, class_names, templates, _ = json.loads(key)
    loaded = hydra.load_backbone(ref, device=device, dtype=dtype, class_names=class_names, templates=templates)
    _loaded.add(loaded)
    _fingerprints[key] = loaded.fingerprint
    return loaded


def backbone(study: Study) -> "Backbone":
    """The study's backbone, loaded once for all sessions."""
    return _backbone(backbone_key(study.config))


def converted(study: Study, dtype: str) -> "Backbone":
    """The study's backbone in another number format; not kept."""
    from hydra_core.pipeline import load_study_backbone

    return load_study_backbone(dataclasses.replace(study.config, dtype=dtype))


@dataclass(frozen=True)
class Facts:
    """What pages say about a backbone, kept in the study so that they need not load it."""

    family: str
    fingerprint: str
    widths: tuple[int, ...]
    head_dim: int
    num_parameters: int
    flops: int
    class_names: tuple[str, ...]
    device: str
    dtype: str
    parity: dict[str, float] | None


def known_facts(study: Study) -> Facts | None:
    """Facts about the study's backbone if they are stored; loads nothing."""
    key = backbone_key(study.config)
    try:
        stored = json.loads(study.get("settings", "backbone") or "{}")
        if stored.get("key") == key:
            data = stored["facts"]
            found = Facts(**{**data, "widths": tuple(data["widths"]), "class_names": tuple(data["class_names"])})
            # The weights may have been replaced since: what was loaded last is the truth.
            return found if _fingerprints.get(key, found.fingerprint) == found.fingerprint else None
    except (HydraError, ValueError, KeyError, TypeError, AttributeError):
        pass  # damaged or of an older version: made again
    return None


def facts(study: Study) -> Facts:
    """Facts about the study's backbone; loads it the first time."""
    key = backbone_key(study.config)
    known = known_facts(study)
    if known is not None:
        return known
    loaded = backbone(study)
    parity = loaded.parity
    made = Facts(
        family=loaded.family, fingerprint=loaded.fingerprint, widths=loaded.mask.widths, head_dim=loaded.head_dim,
        num_parameters=loaded.num_parameters, flops=loaded.flops(), class_names=loaded.class_names,
        device=loaded.device, dtype=loaded.dtype,
        parity=None if parity is None else {
            "max_difference": parity.max_difference, "tolerance": parity.tolerance, "num_samples": parity.num_samples
        },
    )  # fmt: skip
    study.put("settings", "backbone", json.dumps({"key": key, "facts": dataclasses.asdict(made)}))
    return made


def release_backbone(config: StudyConfig) -> None:
    """Forget the backbone of `config`; a session that still uses it loads it again."""
    _backbone.clear(backbone_key(config))
    _drop_holders()


def backbones_in_memory() -> int:
    """How many loaded backbones there are now."""
    gc.collect()
    return len(_loaded)


@st.cache_resource(max_entries=2, show_spinner=False)
def _fused(key: str, fingerprint: str, masks_json: tuple[str, ...]) -> "FusedEnsemble":
    import hydra_core as hydra

    backbone = _backbone(key)
    return hydra.fuse([hydra.prune(backbone, HeadMask.from_json(text)) for text in masks_json])


drop_with_backbone(_fused.clear)


def fused(study: Study, masks: list[HeadMask]) -> "FusedEnsemble":
    """The fused network of these members."""
    key = backbone_key(study.config)
    return _fused(key, _backbone(key).fingerprint, tuple(mask.to_json() for mask in masks))


# --- data ---


@st.cache_resource(max_entries=12, show_spinner=False)
def _parts(key: str) -> "Parts":
    from hydra_core.pipeline import load_parts

    ref, limit, seed, class_names, _modified = json.loads(key)
    return load_parts(ref, seed=seed, validation_limit=limit, test_limit=limit, class_names=class_names)


def dataset(study: Study, name: str = "id", part: str = TEST) -> "Dataset":
    """The study's ID data (`id`) or the OOD set called `name`; `part`: test, or selection for choosing heads."""
    config = study.config
    ref = config.data if name == "id" else config.ood[name]
    class_names = list(backbone(study).class_names) if name == "id" else None
    parts = _parts(json.dumps([ref, config.limit, config.seed, class_names, _modified(ref)]))
    return parts.validation if part == SELECTION else parts.test


def _modified(ref: str) -> float | None:
    # A file or folder that was changed under its name is another one. (References that are no path have no time.)
    try:
        times = [os.stat(ref).st_mtime]
        if os.path.isdir(ref):
            times += [entry.stat().st_mtime for entry in os.scandir(ref)]
        return max(times)
    except (OSError, ValueError):
        return None


# --- stored predictions ---


@st.cache_resource(max_entries=48, show_spinner=False)
def _predictions(folder: str, model: str, data: str, written: int) -> "Predictions | None":
    return Study.open(folder).predictions(model, data)  # type: ignore[arg-type]


def predictions(study: Study, model: str, data: str = "id") -> "Predictions | None":
    """Stored predictions, read once for each time they were written."""
    written = sum(
        path.stat().st_mtime_ns for path in (study.folder / "predictions").glob("*.safetensors") if path.is_file()
    )
    return _predictions(str(study.folder), model, data, written)
