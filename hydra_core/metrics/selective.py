"""Selective prediction: the error that is left when the most uncertain samples are handed to a person.

Geifman and El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hydra_core.errors import HydraError
from hydra_core.metrics._arrays import Floats, to_array


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk against coverage, one point for each distinct uncertainty.

    Attributes:
        coverage: (K,) share of samples answered, rising to 1.
        risk: (K,) share of wrong answers among them.
        aurc: mean over samples of the risk at the coverage that just includes the sample; lower is better.
        excluded: samples left out because their uncertainty is not finite.
    """

    coverage: Floats
    risk: Floats
    aurc: float
    excluded: int


def risk_coverage(uncertainty: Any, correct: Any) -> RiskCoverage:
    """Risk-coverage curve, answering the least uncertain samples first; equal uncertainties enter together.

    Args:
        uncertainty: (N,) higher = less certain; non-finite values are left out and counted.
        correct: (N,) bool or 0/1, whether the prediction is right.

    Raises:
        HydraError: shapes differ, entries of `correct` are not 0 or 1, or no finite uncertainty.
    """
    scores, _, _ = to_array(uncertainty, "uncertainty")
    hits, _, _ = to_array(correct, "correct")
    if scores.ndim != 1 or hits.shape != scores.shape:
        raise HydraError(f"uncertainty and correct must have the same shape (N,), got {scores.shape} and {hits.shape}")
    finite = np.isfinite(scores)
    if not finite.any():
        raise HydraError(f"none of the {len(scores)} uncertainties is finite: there is no curve to draw")
    scores, hits = scores[finite], hits[finite]
    if not np.isin(hits, (0.0, 1.0)).all():
        raise HydraError("correct must hold true or false (1 or 0) for each sample")
    order = np.argsort(scores, kind="stable")
    scores, wrong = scores[order], 1.0 - hits[order]
    _, counts = np.unique(scores, return_counts=True)
    last = np.cumsum(counts) - 1
    risk = np.cumsum(wrong)[last] / (last + 1)
    return RiskCoverage(
        coverage=(last + 1) / len(scores),
        risk=risk,
        aurc=float((risk * counts).sum() / len(scores)),
        excluded=int((~finite).sum()),
    )
