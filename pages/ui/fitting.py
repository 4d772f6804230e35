"""Stored scores and circuits, without those of other weights or other data: the page says so and goes on."""

from typing import TypeVar

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.scoring.results import Circuit, HeadScores, check_belongs
from hydra_core.study import Study
from pages.ui import cache

Found = TypeVar("Found", HeadScores, Circuit)


def fitting(study: Study, found: dict[str, Found]) -> dict[str, Found]:
    """Those of `found` that belong to the study's backbone and data as they are now; a warning names the others."""
    facts, source = cache.facts(study), None
    if found and not study.config.data.startswith("demo/"):  # what a demo reference names never changes
        source = cache.dataset(study, "id", cache.SELECTION).source_fingerprint
    kept, refused = {}, []
    for name, one in found.items():
        try:
            check_belongs(name, one, facts.fingerprint, source)
        except HydraError as error:
            refused.append(str(error))
        else:
            kept[name] = one
    if refused:
        st.warning("Left out: " + "; ".join(refused) + ".")
    return kept
