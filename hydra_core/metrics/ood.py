"""Telling out-of-distribution (OOD) samples from in-distribution (ID) ones by an uncertainty score.

Conventions: a score is an uncertainty, higher = more OOD, and OOD is the positive class. A prediction "OOD"
at threshold t is score >= t; equal scores fall on the same side, whole.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hydra_core.errors import HydraError
from hydra_core.metrics._arrays import Floats, logsumexp, member_mean, softmax, to_array, to_members
from hydra_core.metrics.diversity import (
    entropy,
    expected_pairwise_kl,
    mutual_information,
    vote_disagreement,
)

OOD_SCORES: dict[str, str] = {
    "msp": "1 - largest mean probability (Hendrycks and Gimpel, 2017); 0 to 1",
    "max_logit": "minus the largest logit, mean over members (Hendrycks et al., 2022)",
    "energy": "minus logsumexp of the logits, mean over members (Liu et al., 2020); nats",
    "entropy": "entropy of the mean probabilities; 0 to ln C nats",
    "mutual_information": "H(mean p) - mean H(p), needs at least two members; 0 to ln M nats",
    "expected_pairwise_kl": "mean KL divergence over ordered pairs of members (Malinin et al., 2020), needs two; nats",
    "vote_disagreement": "share of pairs of members that name different classes, needs two; 0 to 1, many ties",
}
# Of these one member alone has none.
ENSEMBLE_SCORES = ("mutual_information", "expected_pairwise_kl", "vote_disagreement")
_NEEDS_LOGITS = ("max_logit", "energy")


def ood_score(name: str, *, logits: Any = None, member_probabilities: Any = None) -> Floats:
    """One uncertainty score a sample; higher = more OOD.

    Args:
        name: one of :data:`OOD_SCORES`, which describes each; those of :data:`ENSEMBLE_SCORES` need two members.
        logits: (M, N, C), or (N, C) for one member; needed by ``max_logit`` and ``energy``.
        member_probabilities: (M, N, C), or (N, C) for one member; where it is missing the other scores take
            the softmax of `logits`.

    Returns:
        (N,) float64; NaN in rows where a member has a non-finite value.

    Raises:
        HydraError: unknown name, missing input, another shape, values that are no probabilities, or one member for
            a score that compares members.
    """
    if name not in OOD_SCORES:
        raise HydraError(f"unknown OOD score {name!r}: choose one of {', '.join(OOD_SCORES)}")
    if name in _NEEDS_LOGITS:
        if logits is None:
            raise HydraError(f"the OOD score {name!r} needs logits=, which were not given")
        return _from_logits(name, _with_members(logits, "logits"))
    if member_probabilities is None:
        if logits is None:
            raise HydraError(f"the OOD score {name!r} needs member_probabilities= or logits=; neither was given")
        member_probabilities = softmax(_with_members(logits, "logits"))
    values = _with_members(member_probabilities, "member_probabilities")
    if name in ENSEMBLE_SCORES:
        of_members = {"mutual_information": mutual_information, "expected_pairwise_kl": expected_pairwise_kl}
        return of_members.get(name, vote_disagreement)(values)
    checked, finite = to_members(values, 1, name)
    mean = member_mean(checked)
    score = 1.0 - mean.max(axis=-1) if name == "msp" else entropy(mean)
    return np.where(finite, score, np.nan)


def _with_members(values: Any, name: str) -> Any:
    """`values` as (M, N, C), in the type they came in: probabilities are checked to that type's precision."""
    if not hasattr(values, "shape"):
        values, _, _ = to_array(values, name)
    if len(values.shape) == 2:
        values = values[None]
    if len(values.shape) != 3 or values.shape[2] < 1:
        raise HydraError(f"{name} must have shape (M, N, C), or (N, C) for one member; got {tuple(values.shape)}")
    return values


def _from_logits(name: str, logits: Any) -> Floats:
    values, _, _ = to_array(logits, "logits")
    if values.shape[0] == 0:
        raise HydraError("logits hold no member: at least one is needed")
    finite = np.asarray(np.isfinite(values).all(axis=(0, 2)))
    safe = np.where(finite[None, :, None], values, 0.0)
    each = -safe.max(axis=-1) if name == "max_logit" else -logsumexp(safe)  # (M, N)
    return np.where(finite, member_mean(each), np.nan)


@dataclass(frozen=True)
class OodMetrics:
    """How well a score separates OOD (positive) from ID; values are in [0, 1], or None where undefined.

    Attributes:
        auroc: area under the ROC curve.
        aupr_ood, aupr_id: average precision with OOD, or with ID (score negated), as the positive class.
        fpr95: share of ID samples taken for OOD at the largest threshold that finds at least 95 % of OOD.
        fpr95_id_positive: share of OOD samples taken for ID at the threshold that keeps at least 95 % of ID
            (the orientation of OpenOOD).
        threshold: the score at which `fpr95` was read.
        num_id, num_ood: finite scores that were used.
        excluded_id, excluded_ood: non-finite scores that were left out.
        reason: why the values are None, else None.
        warning: set where AUROC is below 0.5, so that the score points the wrong way.
    """

    auroc: float | None
    aupr_ood: float | None
    aupr_id: float | None
    fpr95: float | None
    fpr95_id_positive: float | None
    threshold: float | None
    num_id: int
    num_ood: int
    excluded_id: int = 0
    excluded_ood: int = 0
    reason: str | None = None
    warning: str | None = None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Plain values for JSON."""
        return asdict(self)


def ood_metrics(id_scores: Any, ood_scores: Any) -> OodMetrics:
    """AUROC, AUPR and FPR95 of a score; non-finite scores are left out and counted.

    Args:
        id_scores: (N,) scores of ID samples, higher = more OOD.
        ood_scores: (K,) scores of OOD samples.

    Raises:
        HydraError: not one-dimensional, or not numbers. One side empty is no error: the values are None.

    Example:
        >>> ood_metrics([0.1] * 18 + [0.9] * 2, [0.5] * 20).fpr95
        0.1
    """
    inside, dropped_id = _finite_scores(id_scores, "id_scores")
    outside, dropped_ood = _finite_scores(ood_scores, "ood_scores")
    counts = (len(inside), len(outside), dropped_id, dropped_ood)
    missing = [name for name, values in (("ID", inside), ("OOD", outside)) if not len(values)]
    if missing:
        left = f" ({dropped_id + dropped_ood} non-finite left out)" if dropped_id + dropped_ood else ""
        reason = f"no {' and no '.join(missing)} score{left}: AUROC, AUPR and FPR95 need both ID and OOD samples"
        return OodMetrics(None, None, None, None, None, None, *counts, reason=reason)

    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.concatenate([inside, outside])
    is_ood = np.repeat([0, 1], [len(inside), len(outside)])
    auroc = float(roc_auc_score(is_ood, scores))
    threshold = _threshold_at_95(outside)
    warning = None
    if auroc < 0.5:
        warning = (
            f"AUROC is {auroc:.3f}, below 0.5: the score points the wrong way "
            "(ID samples look more uncertain than OOD samples)"
        )
    return OodMetrics(
        auroc,
        float(average_precision_score(is_ood, scores)),
        float(average_precision_score(1 - is_ood, -scores)),
        float(np.mean(inside >= threshold)),
        float(np.mean(-outside >= _threshold_at_95(-inside))),
        threshold,
        *counts,
        warning=warning,
    )


def _threshold_at_95(positives: Floats) -> float:
    """The largest t with at least 95 % of `positives` at or above it."""
    needed = (95 * len(positives) + 99) // 100  # ceil(0.95 n) without 0.95's rounding
    return float(np.sort(positives)[len(positives) - needed])


def _finite_scores(scores: Any, name: str) -> tuple[Floats, int]:
    values, _, _ = to_array(scores, name)
    if values.ndim != 1:
        raise HydraError(f"{name} must have shape (N,), one score a sample; got {values.shape}")
    finite = np.isfinite(values)
    return values[finite], int((~finite).sum())


def rates_at(id_scores: Any, ood_scores: Any, threshold: float) -> tuple[float | None, float | None]:
    """(TPR, FPR) of calling a sample OOD where score >= `threshold`; None for a side without a finite score.

    Args:
        id_scores: (N,) scores of ID samples.
        ood_scores: (K,) scores of OOD samples.
        threshold: the score to cut at.
    """
    inside, _ = _finite_scores(id_scores, "id_scores")
    outside, _ = _finite_scores(ood_scores, "ood_scores")
    tpr = float(np.mean(outside >= threshold)) if len(outside) else None
    fpr = float(np.mean(inside >= threshold)) if len(inside) else None
    return tpr, fpr


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of a ROC or precision-recall curve, in the order they are drawn. All arrays have one length.

    Attributes:
        x, y: FPR and TPR (ROC), or recall and precision (PR).
        thresholds: score >= threshold gives that point; infinite at a curve's empty end.
    """

    x: Floats
    y: Floats
    thresholds: Floats


def roc_points(id_scores: Any, ood_scores: Any) -> Curve | None:
    """ROC curve with OOD positive (x = FPR, y = TPR); None where one side has no finite score."""
    pooled = _pooled(id_scores, ood_scores)
    if pooled is None:
        return None
    from sklearn.metrics import roc_curve

    fpr, tpr, thresholds = roc_curve(*pooled)
    return Curve(np.asarray(fpr), np.asarray(tpr), np.asarray(thresholds))


def pr_points(id_scores: Any, ood_scores: Any) -> Curve | None:
    """Precision-recall curve with OOD positive (x = recall, y = precision); None as in :func:`roc_points`."""
    pooled = _pooled(id_scores, ood_scores)
    if pooled is None:
        return None
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(*pooled)
    return Curve(np.asarray(recall), np.asarray(precision), np.append(thresholds, np.inf))


def _pooled(id_scores: Any, ood_scores: Any) -> tuple[Floats, Floats] | None:
    inside, _ = _finite_scores(id_scores, "id_scores")
    outside, _ = _finite_scores(ood_scores, "ood_scores")
    if not len(inside) or not len(outside):
        return None
    return np.repeat([0.0, 1.0], [len(inside), len(outside)]), np.concatenate([inside, outside])
