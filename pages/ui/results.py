"""Which models have stored predictions in a study, and their evaluations. Runs no model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from hydra_core.study import Study
from pages.ui import cache, tuned

if TYPE_CHECKING:
    from hydra_core import Evaluation, Predictions

FUSED_MASKS = "fused"  # the set of masks that the stored predictions of "fused" belong to


@dataclass(frozen=True)
class Source:
    """A line of the tables: the stored model, one member of it or all."""

    label: str
    model: str
    member: int | None = None


FULL = Source("Full model", "full")
FUSED = Source("Fused ensemble", "fused")


def sources(study: Study) -> list[Source]:
    """All models with stored ID predictions: full, fused, fine-tuned, the fused one's members, other single systems."""
    models = study.prediction_models()
    found = [FULL] if "full" in models else []
    known = ("full", "fused", *tuned.MODELS)
    others = [Source(name, name) for name in models if name not in known and not name.startswith("member ")]
    before = " (of earlier masks)" if stale_tuning(study) else ""
    ensembles = [Source(f"{name[0].upper()}{name[1:]}{before}", name) for name in tuned.MODELS if name in models]
    if "fused" in models:
        predictions = cache.predictions(study, "fused")
        found.append(FUSED)
        if predictions is not None and predictions.num_members > 1:
            others = [*(Source(f"Member {i}", "fused", i) for i in range(predictions.num_members)), *others]
    return found + ensembles + others


def predictions(study: Study, source: Source, data: str = "id") -> "Predictions | None":
    """The stored predictions of a source on `data`."""
    found = cache.predictions(study, source.model, data)
    if found is None or source.member is None:
        return found
    return found.member(source.member)


def evaluation(study: Study, source: Source, score: str = "msp", num_bins: int = 15) -> "Evaluation | None":
    """All metrics of a source on the ID data and each OOD set that it was run on."""
    known = predictions(study, source)
    if known is None:
        return None
    others = {name: predictions(study, source, name) for name in study.config.ood}
    found = {name: value for name, value in others.items() if value is not None}
    key = f"{study.folder}|{source}|{score}|{num_bins}|{known.model_fingerprint}|{known.data_fingerprint}|" + "|".join(
        f"{name}:{value.data_fingerprint}" for name, value in found.items()
    )
    return _evaluation(key, known, found, score, num_bins)


@st.cache_resource(max_entries=512, show_spinner=False)
def _evaluation(key: str, _known: Any, _others: Any, score: str, num_bins: int) -> "Evaluation":
    import hydra_core as hydra

    return hydra.evaluate_predictions(_known, _others, score=score, num_bins=num_bins)


def outdated(study: Study) -> bool:
    """Whether the stored predictions were made with other weights than the study's backbone has now."""
    facts, full = cache.known_facts(study), predictions(study, FULL)
    return facts is not None and full is not None and full.model_fingerprint != facts.fingerprint


def stale(study: Study) -> bool:
    """Whether the members' masks have changed since the stored fused predictions were made."""
    base, fused = study.active_fingerprint, predictions(study, FUSED)
    return base is not None and fused is not None and fused.model_fingerprint != base


def stale_tuning(study: Study) -> bool:
    """Whether the members' masks have changed since they were fine-tuned."""
    return any(name in tuned.MODELS for name in study.prediction_models()) and tuned.current(study) is None
