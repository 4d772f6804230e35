"""Read what a caller gives (lists, arrays, tensors) into checked numpy arrays.

Tensors are recognised by their ``detach``, so that nothing here imports torch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# How far a row's sum, or a single probability, may be off before it is no rounding: float32 softmax over
# thousands of classes stays within 1e-5; half precision keeps 3 digits.
_SUM_TOLERANCE = 1e-4
_HALF_SUM_TOLERANCE = 2e-2
_RANGE_TOLERANCE = 1e-5
_HALF_RANGE_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Rows:
    """Probabilities with the rows left out that hold a non-finite value.

    Attributes:
        probabilities: (n, C) float64 in [0, 1], n = rows that are left.
        labels: (n,) int64.
        excluded: indices (into the caller's rows) of the rows left out.
        dtype: the precision the caller's numbers came in; bin edges are rounded to it.
    """

    probabilities: Floats
    labels: Ints
    excluded: tuple[int, ...]
    dtype: np.dtype[Any]


def to_array(values: Any, name: str) -> tuple[Floats, np.dtype[Any], bool]:
    """`values` as float64, the dtype it came in, and whether that was half precision.

    Raises:
        HydraError: not numbers, or a ragged list.
    """
    half = False
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        half = str(values.dtype) in {"torch.bfloat16", "torch.float16"}
        # numpy has no bfloat16
        values = (values.float() if half else values).numpy()
    try:
        array = np.asarray(values)
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        result = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise HydraError(f"{name} must be numbers in a rectangular array, got {type(values).__name__}") from None
    return result, dtype, half or dtype.itemsize < 4


def to_labels(labels: Any, num_samples: int, num_classes: int) -> Ints:
    """`labels` as (N,) int64, each in 0 .. C-1.

    Raises:
        HydraError: another shape, a label that is no whole number, or one out of range.
    """
    if labels is None:
        raise HydraError("labels are needed here, but the data has none")
    array, _, _ = to_array(labels, "labels")
    if array.shape != (num_samples,):
        raise HydraError(
            f"labels must have shape ({num_samples},), one for each row of probabilities, got {array.shape}"
        )
    if not np.all(np.isfinite(array)) or np.any(array != np.round(array)):
        raise HydraError("labels must be whole numbers (class indices from 0)")
    if array.min() < 0 or array.max() >= num_classes:
        bad = array[(array < 0) | (array >= num_classes)][0]
        raise HydraError(f"labels must lie in 0 .. {num_classes - 1} ({num_classes} classes), got {int(bad)}")
    return array.astype(np.int64)


def _check_range(values: Floats, half: bool, name: str) -> None:
    """Refuse finite rows (..., C) that are no probabilities."""
    if values.size == 0:
        return
    tolerance = _HALF_RANGE_TOLERANCE if half else _RANGE_TOLERANCE
    low, high = float(values.min()), float(values.max())
    if low < -tolerance or high > 1 + tolerance:
        raise HydraError(
            f"{name} must lie in [0, 1], got values from {low:.6g} to {high:.6g}; "
            "if these are logits, take the softmax first"
        )
    tolerance = _HALF_SUM_TOLERANCE if half else _SUM_TOLERANCE
    sums = values.sum(axis=-1)
    worst = float(sums.flat[int(np.abs(sums - 1).argmax())])
    if abs(worst - 1) > tolerance:
        raise HydraError(f"{name} must sum to 1 in each row, got a row that sums to {worst:.6g}")


def to_rows(probabilities: Any, labels: Any) -> Rows:
    """Probabilities (N, C), or (N,) of the positive class of two, with their labels (N,).

    Rows with a non-finite value are left out. The rest is clamped to [0, 1]: rounding may leave 1 + 1e-7.

    Raises:
        HydraError: wrong shapes, no row, values that are no probabilities, labels out of range, or no row
            without a non-finite value.
    """
    values, dtype, half = to_array(probabilities, "probabilities")
    if values.ndim == 1:
        values = np.stack([1.0 - values, values], axis=1)  # (N, 2)
    if values.ndim != 2 or values.shape[1] < 2:
        raise HydraError(
            "probabilities must have shape (N, C) with C >= 2, or (N,) for the positive class of two, "
            f"got {values.shape}"
        )
    if values.shape[0] == 0:
        raise HydraError("probabilities hold no sample: at least one row is needed")
    wanted = to_labels(labels, values.shape[0], values.shape[1])
    finite = np.isfinite(values).all(axis=1)
    if not finite.any():
        raise HydraError(f"all {len(values)} rows of probabilities hold a non-finite value: nothing to measure")
    _check_range(values[finite], half, "probabilities")
    return Rows(
        probabilities=np.clip(values[finite], 0.0, 1.0),
        labels=wanted[finite],
        excluded=tuple(np.flatnonzero(~finite).tolist()),
        dtype=dtype,
    )


def to_members(member_probabilities: Any, min_members: int, what: str) -> tuple[Floats, NDArray[np.bool_]]:
    """Member probabilities (M, N, C) clamped to [0, 1], and which of the N rows are finite in all members.

    Raises:
        HydraError: another shape, fewer than `min_members` members, no sample, or no probabilities.
    """
    values, _, half = to_array(member_probabilities, "member_probabilities")
    if values.ndim != 3 or values.shape[2] < 2:
        raise HydraError(
            f"member_probabilities must have shape (M, N, C): members, samples, classes; got {values.shape}"
        )
    if values.shape[0] < min_members:
        plural = "s" if min_members > 1 else ""
        raise HydraError(f"{what} needs at least {min_members} member{plural}, got {values.shape[0]}")
    if values.shape[1] == 0:
        raise HydraError("member_probabilities hold no sample: at least one is needed")
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(values).all(axis=(0, 2)))  # (N,)
    _check_range(values[:, finite], half, "member_probabilities")
    return np.clip(values, 0.0, 1.0), finite


def member_mean(values: Floats) -> Floats:
    """Mean over the first axis; exactly the common value where all members agree.

    A plain mean of three equal numbers can be off by one rounding, and then the mutual information of
    identical members would not be exactly 0.
    """
    first = values[0]
    mean: Floats = first + (values - first).mean(axis=0)
    return mean


def softmax(logits: Any) -> Floats:
    """Softmax over the last axis, in float64; rows with a non-finite logit become NaN as a whole."""
    values, _, _ = to_array(logits, "logits")
    bad = ~np.isfinite(values).all(axis=-1, keepdims=True)
    safe = np.where(bad, 0.0, values)
    exponents = np.exp(safe - safe.max(axis=-1, keepdims=True))
    return np.where(bad, np.nan, exponents / exponents.sum(axis=-1, keepdims=True))


def logsumexp(values: Floats) -> Floats:
    """log(sum(exp(values))) over the last axis, without overflow."""
    peak = values.max(axis=-1, keepdims=True)
    total: Floats = np.log(np.exp(values - peak).sum(axis=-1)) + peak[..., 0]
    return total
