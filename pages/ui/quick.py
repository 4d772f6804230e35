"""Numbers on a quick sample, live while masks change: up to 256 ID and 256 OOD validation samples.

Validation, not test: who chooses heads by these numbers must not have seen the test samples.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from hydra_core.masks import HeadMask
from hydra_core.study import Study
from pages.ui import cache

if TYPE_CHECKING:
    from hydra_core import Backbone, Evaluation
    from hydra_core.quick_sample import QuickSample

SIZE = 256


@dataclass(frozen=True)
class Row:
    """One line of the quick table; operations and parameters are relative to the full backbone."""

    name: str
    evaluation: "Evaluation"
    operations: float
    parameters: float


@st.cache_resource(max_entries=4, show_spinner=False)
def _sample(key: str, name: str, _study: Study) -> "QuickSample":
    from hydra_core.quick_sample import QuickSample

    return QuickSample(cache.backbone(_study), cache.dataset(_study, name, cache.SELECTION).take(SIZE, seed=0))


@st.cache_resource(max_entries=16, show_spinner=False)
def _pruned(key: str, mask_json: str, _study: Study) -> "Backbone":
    import hydra_core as hydra

    return hydra.prune(cache.backbone(_study), HeadMask.from_json(mask_json))


cache.drop_with_backbone(_sample.clear)
cache.drop_with_backbone(_pruned.clear)


@st.cache_data(max_entries=512, show_spinner=False)
def _logits(key: str, name: str, mask_json: str | None, _study: Study) -> np.ndarray:
    """Logits (N, C) of the backbone with one mask (None: all heads) on the sample of the set `name`."""
    pruned = cache.backbone(_study) if mask_json is None else _pruned(key, mask_json, _study)
    return _sample(key, name, _study).logits(pruned.mask, pruned)


@st.cache_data(max_entries=256, show_spinner=False)
def _costs(key: str, masks_json: tuple[str, ...], _study: Study) -> tuple[float, float]:
    """Operations and parameters of the fused members (one: the pruned member) over the full backbone's."""
    import hydra_core as hydra

    backbone = cache.backbone(_study)
    members = [_pruned(key, text, _study) for text in masks_json]
    model = members[0] if len(members) == 1 else hydra.fuse(members)
    return model.flops() / backbone.flops(), model.num_parameters / backbone.num_parameters


@st.cache_resource(max_entries=256, show_spinner=False)
def _evaluation(key: str, ood: str | None, masks_json: tuple[str | None, ...], _study: Study) -> "Evaluation":
    import hydra_core as hydra

    def predictions(name: str) -> hydra.Predictions:
        data = _sample(key, name, _study).dataset
        logits = np.stack([_logits(key, name, text, _study) for text in masks_json])
        bad = ~np.isfinite(logits).all(axis=(0, 2))
        return hydra.Predictions(
            logits=logits, labels=data.labels, excluded=tuple(int(i) for i in np.flatnonzero(bad)),
            class_names=cache.backbone(_study).class_names, model_fingerprint="", data_fingerprint=data.fingerprint,
            data_name=data.name,
        )  # fmt: skip

    return hydra.evaluate_predictions(predictions("id"), {ood: predictions(ood)} if ood else {})


def _key(study: Study) -> str:
    """Everything the sample's numbers depend on but the masks."""
    config = study.config
    facts = (config.data, sorted(config.ood.items()), config.limit, config.seed)
    return f"{cache.backbone(study).fingerprint}|{cache.backbone_key(config)}|{facts}"


def member_probabilities(study: Study, masks: list[HeadMask]) -> tuple[np.ndarray, np.ndarray | None]:
    """(M, N, C) on the ID sample, and its labels (N,), which it may lack."""
    from hydra_core.metrics import softmax

    key = _key(study)
    logits = np.stack([_logits(key, "id", mask.to_json(), study) for mask in masks])
    return softmax(logits), _sample(key, "id", study).dataset.labels


def table(study: Study, masks: list[HeadMask], ood: str | None) -> list[Row]:
    """Full model, each member, the ensemble; computed only where a mask is new."""
    key = _key(study)
    texts = tuple(mask.to_json() for mask in masks)
    rows = [Row("Full model", _evaluation(key, ood, (None,), study), 1.0, 1.0)]
    for i, text in enumerate(texts):
        rows.append(Row(f"Member {i}", _evaluation(key, ood, (text,), study), *_costs(key, (text,), study)))
    if len(texts) > 1:
        rows.append(Row("Ensemble", _evaluation(key, ood, texts, study), *_costs(key, texts, study)))
    return rows
