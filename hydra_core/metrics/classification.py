"""Accuracy and the two proper scores: Brier and negative log-likelihood.

Shapes: probabilities (N, C), or (N,) for the positive class of two; labels (N,) of class indices. Rows with a
non-finite value are left out by all of them alike.
"""

from typing import Any

import numpy as np

from hydra_core.metrics._arrays import to_rows


def accuracy(probabilities: Any, labels: Any) -> float:
    """Share of rows whose largest probability is the label's, in [0, 1]; equal values: the lower class.

    Args:
        probabilities: (N, C), or (N,) for the positive class of two.
        labels: (N,) class indices from 0.

    Raises:
        HydraError: wrong shapes, no usable row, values that are no probabilities, labels out of range.

    Example:
        >>> accuracy([[0.8, 0.2], [0.6, 0.4]], [0, 1])
        0.5
    """
    rows = to_rows(probabilities, labels)
    return float(np.mean(rows.probabilities.argmax(axis=1) == rows.labels))


def brier_score(probabilities: Any, labels: Any) -> float:
    """Mean over rows of the squared distance to the one-hot label, summed over classes: 0 (best) to 2.

    Brier, "Verification of forecasts expressed in terms of probability", 1950. Two-class tools that use the
    positive class alone report half of it.

    Args:
        probabilities: (N, C), or (N,) for the positive class of two.
        labels: (N,) class indices from 0.

    Raises:
        HydraError: as for :func:`accuracy`.

    Example:
        >>> round(brier_score([[0.8, 0.2], [0.3, 0.7]], [0, 1]), 6)
        0.13
    """
    rows = to_rows(probabilities, labels)
    target = np.zeros_like(rows.probabilities)
    target[np.arange(len(target)), rows.labels] = 1.0
    return float(np.mean(((rows.probabilities - target) ** 2).sum(axis=1)))


def negative_log_likelihood(probabilities: Any, labels: Any) -> float:
    """Mean of -ln(probability of the label), in nats; 0 is best.

    A label with probability 0 counts with the smallest normal number of the input's precision (87.3 nats in
    float32, 708.4 in float64), so that one such row does not make the figure infinite.

    Args:
        probabilities: (N, C), or (N,) for the positive class of two.
        labels: (N,) class indices from 0.

    Raises:
        HydraError: as for :func:`accuracy`.
    """
    rows = to_rows(probabilities, labels)
    chosen = rows.probabilities[np.arange(len(rows.labels)), rows.labels]
    # 0.0 - x: a certain, right prediction is 0, not -0
    return float(0.0 - np.mean(np.log(np.maximum(chosen, float(np.finfo(rows.dtype).tiny)))))
