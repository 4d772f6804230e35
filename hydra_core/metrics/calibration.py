"""Calibration: does a confidence of 0.8 mean right in 8 of 10?

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017 (top-label ECE, MCE); Nixon et al.,
"Measuring Calibration in Deep Learning", CVPR workshops 2019 (class-wise and equal-mass bins).

Bins are [lower, upper), the last one closed. Edges are k / num_bins, each correctly rounded to the precision
of the input, so that a confidence of 0.3 falls into the bin that starts at 0.3 (numpy.linspace puts that
edge at 0.30000000000000004, and then it would not).
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.metrics._arrays import Floats, Ints, Rows, to_rows

Kind = Literal["top_label", "positive_class", "classwise"]
KINDS: tuple[Kind, ...] = ("top_label", "positive_class", "classwise")


@dataclass(frozen=True)
class Bin:
    """One bin of a reliability diagram; accuracy and confidence are None where it is empty.

    Attributes:
        lower, upper: edges of the bin in [0, 1].
        count: number of samples in it.
        accuracy: share of them that are right (for ``positive_class``: that are positive).
        confidence: mean of their confidences.
    """

    lower: float
    upper: float
    count: int
    accuracy: float | None
    confidence: float | None

    @property
    def gap(self) -> float | None:
        """|accuracy - confidence|, None in an empty bin."""
        if self.accuracy is None or self.confidence is None:
            return None
        return abs(self.accuracy - self.confidence)

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain values for JSON: null in an empty bin, never NaN."""
        return asdict(self)


def reliability(
    probabilities: Any,
    labels: Any,
    num_bins: int = 15,
    kind: Literal["top_label", "positive_class"] = "top_label",
) -> list[Bin]:
    """The bins of a reliability diagram, equal in width, lowest first.

    Args:
        probabilities: (N, C), or (N,) for the positive class of two.
        labels: (N,) class indices from 0.
        num_bins: number of bins, at least 1.
        kind: ``top_label`` bins the largest probability against being right; ``positive_class`` (two classes)
            bins the probability of class 1 against being of class 1.

    Raises:
        HydraError: wrong shapes, no usable row, values that are no probabilities, labels out of range, or a
            number of bins below 1.
    """
    if kind not in ("top_label", "positive_class"):
        raise HydraError(f"reliability knows the kinds 'top_label' and 'positive_class', got {kind!r}")
    rows = to_rows(probabilities, labels)
    return _equal_width(*_confidence(rows, kind), num_bins, rows.dtype)


def calibration_error(probabilities: Any, labels: Any, num_bins: int = 15, kind: Kind = "top_label") -> float:
    """Expected calibration error: mean of |accuracy - confidence| over bins, weighted by count; 0 to 1.

    Args:
        probabilities: (N, C), or (N,) for the positive class of two (still top-label by default).
        labels: (N,) class indices from 0.
        num_bins: number of equal-width bins, at least 1.
        kind: ``top_label``; ``positive_class`` (two classes only); or ``classwise``, the mean over classes of
            the error of that class's probability against being of that class.

    Raises:
        HydraError: as for :func:`reliability`, an unknown kind, or ``positive_class`` with more than two
            classes.

    Example:
        >>> positive, labels = [0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1]
        >>> round(calibration_error(positive, labels, num_bins=10), 6)
        0.15
        >>> round(calibration_error(positive, labels, num_bins=10, kind="positive_class"), 6)
        0.25
    """
    if kind not in KINDS:
        raise HydraError(f"calibration_error knows the kinds {', '.join(map(repr, KINDS))}, got {kind!r}")
    rows = to_rows(probabilities, labels)
    if kind == "classwise":
        columns = range(rows.probabilities.shape[1])
        errors = [
            _expected(_equal_width(rows.probabilities[:, c], rows.labels == c, num_bins, rows.dtype)) for c in columns
        ]
        return float(np.mean(errors))
    return _expected(_equal_width(*_confidence(rows, kind), num_bins, rows.dtype))


def maximum_calibration_error(
    probabilities: Any,
    labels: Any,
    num_bins: int = 15,
    kind: Literal["top_label", "positive_class"] = "top_label",
) -> float:
    """Maximum calibration error: the largest |accuracy - confidence| of a bin that is not empty; 0 to 1.

    Args and errors: as for :func:`reliability`.
    """
    bins = reliability(probabilities, labels, num_bins, kind)
    return max(one.gap for one in bins if one.gap is not None)


def adaptive_calibration_error(
    probabilities: Any,
    labels: Any,
    num_bins: int = 15,
    kind: Literal["top_label", "positive_class"] = "top_label",
) -> float:
    """Calibration error over bins of equal mass: sorted by confidence, N / num_bins samples each; 0 to 1.

    Where N does not divide, the first bins take one more. Equal confidences stay in one bin, so the result
    does not depend on the order of the rows. Fewer samples than bins: one sample a bin.

    Args and errors: as for :func:`reliability`.
    """
    if kind not in ("top_label", "positive_class"):
        raise HydraError(f"adaptive_calibration_error knows the kinds 'top_label' and 'positive_class', got {kind!r}")
    _check_bins(num_bins)
    rows = to_rows(probabilities, labels)
    confidence, hit = _confidence(rows, kind)
    order = np.argsort(confidence, kind="stable")
    confidence, hit = confidence[order], hit[order]
    sizes = [len(part) for part in np.array_split(np.arange(len(confidence)), num_bins)]
    # A cut inside a run of equal confidences moves to the end of the run.
    ends = np.searchsorted(confidence, confidence[np.cumsum(sizes)[np.array(sizes) > 0] - 1], side="right")
    index = np.searchsorted(ends, np.arange(len(confidence)), side="right").astype(np.int64)
    return _expected(_summarise(confidence, hit, index, np.linspace(0.0, 1.0, len(ends) + 1)))


def _check_bins(num_bins: Any) -> None:
    if isinstance(num_bins, bool) or not isinstance(num_bins, int | np.integer) or num_bins < 1:
        raise HydraError(f"num_bins must be a whole number of at least 1, got {num_bins!r}")


def _confidence(rows: Rows, kind: str) -> tuple[Floats, NDArray[np.bool_]]:
    """What is binned (n,), and whether it came true (n,)."""
    if kind == "positive_class":
        if rows.probabilities.shape[1] != 2:
            raise HydraError(
                f"'positive_class' is for two classes, these probabilities have "
                f"{rows.probabilities.shape[1]}; use 'classwise'"
            )
        return rows.probabilities[:, 1], rows.labels == 1
    return rows.probabilities.max(axis=1), rows.probabilities.argmax(axis=1) == rows.labels


def _equal_width(confidence: Floats, hit: NDArray[np.bool_], num_bins: int, dtype: np.dtype[Any]) -> list[Bin]:
    _check_bins(num_bins)
    edges = np.arange(num_bins + 1) / num_bins
    rounded = edges.astype(dtype).astype(np.float64)
    index = np.minimum(np.searchsorted(rounded, confidence, side="right") - 1, num_bins - 1)
    return _summarise(confidence, hit, index.astype(np.int64), edges)


def _summarise(confidence: Floats, hit: NDArray[np.bool_], index: Ints, edges: Floats) -> list[Bin]:
    num_bins = len(edges) - 1
    counts = np.bincount(index, minlength=num_bins)
    hits = np.bincount(index, weights=hit, minlength=num_bins)
    total = np.bincount(index, weights=confidence, minlength=num_bins)
    return [
        Bin(
            lower=float(edges[i]),
            upper=float(edges[i + 1]),
            count=int(counts[i]),
            accuracy=float(hits[i] / counts[i]) if counts[i] else None,
            confidence=float(total[i] / counts[i]) if counts[i] else None,
        )
        for i in range(num_bins)
    ]


def _expected(bins: list[Bin]) -> float:
    total = sum(one.count for one in bins)
    return float(sum(one.count * one.gap for one in bins if one.gap is not None) / total)
