"""Metrics on plain arrays: arrays or tensors in, plain floats out. Nothing here needs torch.

One place for the conventions (each function repeats its own): rows with a non-finite value are left out by
every metric alike; probabilities are clamped to [0, 1]; bins are [lower, upper) with the last one closed;
OOD is the positive class; entropies, divergences and likelihoods are in nats.
"""

from hydra_core.metrics._arrays import softmax
from hydra_core.metrics.calibration import (
    Bin,
    adaptive_calibration_error,
    calibration_error,
    maximum_calibration_error,
    reliability,
)
from hydra_core.metrics.classification import accuracy, brier_score, negative_log_likelihood
from hydra_core.metrics.diversity import (
    disagreement,
    error_correlation,
    expected_pairwise_kl,
    mutual_information,
    pairwise_disagreement,
    pairwise_kl,
    vote_disagreement,
)
from hydra_core.metrics.ood import (
    ENSEMBLE_SCORES,
    OOD_SCORES,
    Curve,
    OodMetrics,
    ood_metrics,
    ood_score,
    pr_points,
    rates_at,
    roc_points,
)
from hydra_core.metrics.selective import RiskCoverage, risk_coverage

__all__ = [
    "ENSEMBLE_SCORES",
    "OOD_SCORES",
    "Bin",
    "Curve",
    "OodMetrics",
    "RiskCoverage",
    "accuracy",
    "adaptive_calibration_error",
    "brier_score",
    "calibration_error",
    "disagreement",
    "error_correlation",
    "expected_pairwise_kl",
    "maximum_calibration_error",
    "mutual_information",
    "negative_log_likelihood",
    "ood_metrics",
    "ood_score",
    "pairwise_disagreement",
    "pairwise_kl",
    "pr_points",
    "rates_at",
    "reliability",
    "risk_coverage",
    "roc_points",
    "softmax",
    "vote_disagreement",
]
