"""Accuracy, Brier score and negative log-likelihood."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core import metrics
from hydra_core.errors import HydraError

FUNCTIONS = [
    metrics.accuracy,
    metrics.brier_score,
    metrics.negative_log_likelihood,
    metrics.reliability,
    metrics.calibration_error,
    metrics.adaptive_calibration_error,
    metrics.maximum_calibration_error,
]


def random_case(seed: int, num_samples: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(num_classes), size=num_samples)
    return probabilities, rng.integers(0, num_classes, size=num_samples)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_matches_scikit_learn(seed: int, num_samples: int, num_classes: int) -> None:
    from sklearn.metrics import accuracy_score, log_loss

    probabilities, labels = random_case(seed, num_samples, num_classes)
    assert metrics.accuracy(probabilities, labels) == pytest.approx(
        accuracy_score(labels, probabilities.argmax(axis=1))
    )
    assert metrics.negative_log_likelihood(probabilities, labels) == pytest.approx(
        log_loss(labels, probabilities, labels=range(num_classes)), abs=1e-9
    )
    by_hand = np.mean(
        [sum((p[c] - (c == y)) ** 2 for c in range(num_classes)) for p, y in zip(probabilities, labels, strict=True)]
    )
    assert metrics.brier_score(probabilities, labels) == pytest.approx(by_hand, abs=1e-12)


def test_brier_of_two_classes_is_twice_scikit_learns() -> None:
    # scikit-learn's two-class Brier looks at the positive class alone; ours sums over both: range 0 to 2.
    from sklearn.metrics import brier_score_loss

    rng = np.random.default_rng(0)
    positive, labels = rng.random(50), rng.integers(0, 2, 50)
    assert metrics.brier_score(positive, labels) == pytest.approx(2 * brier_score_loss(labels, positive))


def test_m11_brier_sums_over_classes() -> None:
    assert metrics.brier_score([[0.8, 0.2], [0.3, 0.7]], [0, 1]) == pytest.approx(0.13, abs=1e-6)
    assert metrics.brier_score([[1.0, 0.0]], [1]) == 2.0


def test_m10_rows_with_a_non_finite_logit_are_left_out_by_every_metric() -> None:
    logits = [[2, 0, 0], [np.nan, np.nan, np.nan], [0, 3, 0], [0, 0, 1]]
    labels = [0, 0, 1, 2]
    probabilities = metrics.softmax(logits)
    assert np.isnan(probabilities[1]).all()
    assert metrics.accuracy(probabilities, labels) == 1.0  # 3 of 3, not 3 of 4
    assert metrics.calibration_error(probabilities, labels, num_bins=10) == pytest.approx(0.242485, abs=1e-6)
    assert sum(one.count for one in metrics.reliability(probabilities, labels)) == 3
    kept = [0, 2, 3]
    for function in FUNCTIONS:
        assert function(probabilities, labels) == function(probabilities[kept], np.array(labels)[kept])
    # one non-finite entry is enough to leave its row out
    part = probabilities.copy()
    part[1] = [0.5, 0.5, np.nan]
    assert metrics.accuracy(part, labels) == 1.0


def test_positive_class_vector_equals_two_columns() -> None:
    positive = np.random.default_rng(1).random(30)
    labels = np.random.default_rng(2).integers(0, 2, 30)
    for function in FUNCTIONS:
        assert function(positive, labels) == function(np.stack([1 - positive, positive], axis=1), labels)


def test_a_certain_wrong_row_keeps_the_likelihood_finite() -> None:
    value = metrics.negative_log_likelihood([[1.0, 0.0]], [1])
    assert value == pytest.approx(-np.log(np.finfo(np.float64).tiny))
    value = metrics.negative_log_likelihood(np.array([[1.0, 0.0]], dtype=np.float32), [1])
    assert value == pytest.approx(-np.log(np.finfo(np.float32).tiny), rel=1e-6)
    assert str(metrics.negative_log_likelihood([[1.0, 0.0]], [0])) == "0.0"


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5, 0.5]], [0, 1], "labels must have shape"),
        ([[0.5, 0.5]], [2], "0 .. 1"),
        ([[0.5, 0.5]], [-1], "0 .. 1"),
        ([[0.5, 0.5]], [0.5], "whole numbers"),
        ([[0.5, 0.5]], [np.nan], "whole numbers"),
        ([[0.5, 0.5]], None, "labels are needed"),
        ([[-0.1, 1.1]], [0], "lie in"),
        ([[2.0, -1.0]], [0], "softmax"),
        ([[0.5, 0.4]], [0], "sum to 1"),
        (np.zeros((0, 2)), [], "no sample"),
        ([], [], "no sample"),
        ([[np.nan, np.nan]], [0], "non-finite"),
        ([[1.0]], [0], "C >= 2"),
        ([[[0.5, 0.5]]], [0], "shape"),
        ([[0.5, 0.5], [1.0]], [0, 1], "rectangular"),
        ("abc", [0], "numbers"),
    ],
)
def test_bad_input_is_refused(probabilities: object, labels: object, message: str) -> None:
    for function in FUNCTIONS:
        with pytest.raises(HydraError, match=message):
            function(probabilities, labels)


def test_tensors_and_half_precision_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.randint(0, 5, (20,), generator=torch.Generator().manual_seed(1))
    probabilities = logits.softmax(1)
    expected = torch.nn.functional.cross_entropy(logits, labels).item()
    assert metrics.negative_log_likelihood(probabilities, labels) == pytest.approx(expected, abs=1e-6)
    assert metrics.negative_log_likelihood(probabilities.bfloat16(), labels) == pytest.approx(expected, abs=2e-2)
    np.testing.assert_allclose(metrics.softmax(logits), logits.double().softmax(1).detach().numpy(), rtol=0, atol=1e-12)


def test_metrics_import_without_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hydra_core.metrics; print([m for m in ('torch', 'sklearn', 'torchmetrics') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
