"""Which fused ensembles a study stands for now: of the members as pruned, and of the fine-tuned ones."""

import json
from typing import TYPE_CHECKING

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.study import Study
from pages.ui import cache, tuned

if TYPE_CHECKING:
    from hydra_core import FusedEnsemble

AS_PRUNED = "as pruned"


def variants(study: Study) -> list[str]:
    """The names that :func:`fused` takes for the masks as they are now; none without members. Loads no model.

    A fine-tuned ensemble of other masks, or whose weights are not those that were measured, is not among them.
    """
    if not study.active_masks:
        return []
    return [AS_PRUNED, *(name for name in tuned.ENSEMBLES if _stored(study, name) is not None)]


def fingerprint(study: Study, variant: str = AS_PRUNED) -> str | None:
    """The fingerprint of ``fused(study, variant)``, None where there is no such ensemble now. Loads no model."""
    return study.active_fingerprint if variant == AS_PRUNED else _stored(study, variant)


def fused(study: Study, variant: str = AS_PRUNED) -> "FusedEnsemble":
    """The fused ensemble called `variant`.

    Raises:
        HydraError: there are no members, or no such ensemble of the masks as they are now.
    """
    masks = study.active_masks
    if not masks:
        raise HydraError("there are no members yet; make them on the Members page")
    if variant == AS_PRUNED:
        return cache.fused(study, masks)
    stored, folder = _stored(study, variant), study.ensemble_folder(variant)
    if stored is None or folder is None:
        known = ", ".join(map(repr, variants(study)))
        raise HydraError(f"there is no ensemble {variant!r} of these masks (there is {known}); fine-tune on Fuse first")
    return _load(str(folder), stored, study.config.device)


def export_name(format: str, variant: str) -> str:
    """The name, among the study's exports, of the facts about a variant's file."""
    return format if variant == AS_PRUNED else f"{format}, {variant}"


def file_stem(variant: str) -> str:
    """The name of a variant's file, without ending: "fused" as pruned, else "fused-fine-tuned" and so on."""
    return "fused" if variant == AS_PRUNED else "fused-" + variant.replace(", ", "-").replace(" ", "-")


@st.cache_resource(max_entries=2, show_spinner=False)
def _load(folder: str, fingerprint: str, device: str) -> "FusedEnsemble":
    import hydra_core as hydra

    found = hydra.load_ensemble(folder, device=device)
    if found.fingerprint != fingerprint:  # replaced in this moment
        raise HydraError("the fine-tuned ensemble has just been replaced; try again")
    return found


def _stored(study: Study, name: str) -> str | None:
    """The fingerprint of a stored ensemble of the masks as they are now."""
    run, folder = tuned.current(study), study.ensemble_folder(name)
    if run is None or folder is None:
        return None
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # damaged: as if it were not there, to be made again
    return found if found == run.fingerprints.get(name) else None
