"""Calibration errors and the reliability diagram's bins."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core import metrics
from hydra_core.errors import HydraError


def loop_error(confidence: np.ndarray, hit: np.ndarray, num_bins: int) -> tuple[float, float]:
    """ECE and MCE by a plain loop over bins and samples."""
    ece = mce = 0.0
    for k in range(num_bins):
        low, high = k / num_bins, (k + 1) / num_bins
        inside = [i for i, c in enumerate(confidence) if low <= c < high or (k == num_bins - 1 and c == high)]
        if inside:
            gap = abs(np.mean([confidence[i] for i in inside]) - np.mean([float(hit[i]) for i in inside]))
            ece += len(inside) / len(confidence) * gap
            mce = max(mce, gap)
    return float(ece), float(mce)


def test_m1_confidence_one_shares_the_last_bin() -> None:
    probabilities, labels = [[0.95, 0.05], [1.0, 0.0]], [0, 1]
    assert metrics.calibration_error(probabilities, labels, num_bins=10) == pytest.approx(0.475, abs=1e-6)
    assert metrics.maximum_calibration_error(probabilities, labels, num_bins=10) == pytest.approx(0.475, abs=1e-6)
    bins = metrics.reliability(probabilities, labels, num_bins=10)
    assert [one.count for one in bins] == [0] * 9 + [2]


def test_m1_a_hair_above_one_changes_nothing() -> None:
    # torchmetrics takes values outside [0, 1] for logits; here they are clamped
    exact = metrics.calibration_error([[1.0, 0.0], [0.7, 0.3]], [0, 0], num_bins=10)
    rounded = metrics.calibration_error([[1.0 + 1e-7, -1e-7], [0.7, 0.3]], [0, 0], num_bins=10)
    assert rounded == pytest.approx(exact, abs=1e-6)


def test_m2_bin_edges() -> None:
    assert metrics.calibration_error([0, 1, 0, 1], [0, 1, 0, 1]) == 0.0  # (a)
    error = metrics.calibration_error([[0.8, 0.2], [0.85, 0.15]], [0, 1], num_bins=10)  # (b)
    assert error == pytest.approx(0.325, abs=1e-6)
    for dtype in (np.float64, np.float32):  # (c)
        row = np.array([[0.3, 0.25, 0.25, 0.2]], dtype=dtype)
        bins = metrics.reliability(row, [0], num_bins=10)
        assert [i for i, one in enumerate(bins) if one.count] == [3]


def test_m1_rounding_outside_the_range_is_clamped() -> None:
    bins = metrics.reliability([1.0 + 1e-7, -1e-7], [1, 0], num_bins=10, kind="positive_class")
    assert [i for i, one in enumerate(bins) if one.count] == [0, 9]
    assert (bins[0].confidence, bins[9].confidence) == (0.0, 1.0)


@pytest.mark.parametrize("num_bins", [3, 7, 10, 15, 20, 49, 100])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_m2_every_edge_belongs_to_the_bin_it_opens(num_bins: int, dtype: type) -> None:
    for k in range(num_bins + 1):
        p = np.array([k / num_bins], dtype=dtype)
        bins = metrics.reliability(p, [0], num_bins=num_bins, kind="positive_class")
        assert [i for i, one in enumerate(bins) if one.count] == [min(k, num_bins - 1)]
        if k > 0:
            below = np.nextafter(p, dtype(0))
            bins = metrics.reliability(below, [0], num_bins=num_bins, kind="positive_class")
            assert [i for i, one in enumerate(bins) if one.count] == [k - 1]


def test_m3_empty_bins_are_null() -> None:
    probabilities, labels = [[0.62, 0.38], [0.64, 0.36]], [0, 0]
    assert metrics.calibration_error(probabilities, labels) == pytest.approx(0.37, abs=1e-6)
    assert metrics.maximum_calibration_error(probabilities, labels) == pytest.approx(0.37, abs=1e-6)
    bins = metrics.reliability(probabilities, labels)
    empty = [one for one in bins if one.count == 0]
    assert len(empty) == 14
    assert all(one.accuracy is None and one.confidence is None and one.gap is None for one in empty)
    text = json.dumps([one.to_dict() for one in bins], allow_nan=False)
    assert text.count("null") == 28


def test_m4_kinds_of_two_classes() -> None:
    positive, labels = [0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1]
    assert metrics.calibration_error(positive, labels, num_bins=10) == pytest.approx(0.15, abs=1e-6)
    error = metrics.calibration_error(positive, labels, num_bins=10, kind="positive_class")
    assert error == pytest.approx(0.25, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 5), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_matches_a_plain_loop(seed: int, num_samples: int, num_classes: int, num_bins: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(num_classes, 0.5), size=num_samples)
    labels = rng.integers(0, num_classes, num_samples)
    ece, mce = loop_error(probabilities.max(1), probabilities.argmax(1) == labels, num_bins)
    assert metrics.calibration_error(probabilities, labels, num_bins) == pytest.approx(ece, abs=1e-9)
    assert metrics.maximum_calibration_error(probabilities, labels, num_bins) == pytest.approx(mce, abs=1e-9)
    columns = [loop_error(probabilities[:, c], labels == c, num_bins)[0] for c in range(num_classes)]
    classwise = metrics.calibration_error(probabilities, labels, num_bins, kind="classwise")
    assert classwise == pytest.approx(np.mean(columns), abs=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_adaptive_matches_a_plain_split(seed: int, num_samples: int, num_bins: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(4), size=num_samples)
    labels = rng.integers(0, 4, num_samples)
    confidence, hit = probabilities.max(1), probabilities.argmax(1) == labels
    expected = sum(
        len(part) / num_samples * abs(confidence[part].mean() - hit[part].mean())
        for part in np.array_split(np.argsort(confidence), num_bins)
        if len(part)
    )
    assert metrics.adaptive_calibration_error(probabilities, labels, num_bins) == pytest.approx(expected, abs=1e-9)


def test_adaptive_does_not_depend_on_the_order_of_rows() -> None:
    # all confidences equal: one group, however the rows are sorted
    probabilities = [[0.8, 0.2]] * 10
    right_first = metrics.adaptive_calibration_error(probabilities, [0] * 5 + [1] * 5, num_bins=5)
    mixed = metrics.adaptive_calibration_error(probabilities, [0, 1] * 5, num_bins=5)
    assert right_first == pytest.approx(0.3, abs=1e-9)
    assert mixed == right_first


def test_matches_torchmetrics_away_from_its_known_faults() -> None:
    # torchmetrics puts a confidence of exactly 1.0 into a bin of its own and decides between logits and
    # probabilities by looking at the values; random probabilities inside (0, 1) touch neither.
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(6), size=500)
    labels = rng.integers(0, 6, 500)
    for norm, ours in (("l1", metrics.calibration_error), ("max", metrics.maximum_calibration_error)):
        theirs = functional.multiclass_calibration_error(
            torch.tensor(probabilities), torch.tensor(labels), num_classes=6, n_bins=15, norm=norm
        )
        assert ours(probabilities, labels) == pytest.approx(float(theirs), abs=1e-6)
    positive, target = rng.random(500), rng.integers(0, 2, 500)
    theirs = functional.binary_calibration_error(torch.tensor(positive), torch.tensor(target), n_bins=10)
    # torchmetrics' binary error is the positive class's, without saying so
    ours = metrics.calibration_error(positive, target, num_bins=10, kind="positive_class")
    assert ours == pytest.approx(float(theirs), abs=1e-6)


def test_bad_settings_are_refused() -> None:
    probabilities, labels = [[0.5, 0.5]], [0]
    for num_bins in (0, -1, 2.5, True):
        for function in (
            metrics.reliability,
            metrics.calibration_error,
            metrics.adaptive_calibration_error,
            metrics.maximum_calibration_error,
        ):
            with pytest.raises(HydraError, match="num_bins"):
                function(probabilities, labels, num_bins=num_bins)
    with pytest.raises(HydraError, match="two classes"):
        metrics.calibration_error([[0.2, 0.3, 0.5]], [0], kind="positive_class")
    with pytest.raises(HydraError, match="knows the kinds"):
        metrics.calibration_error(probabilities, labels, kind="other")  # type: ignore[arg-type]
