"""Risk-coverage curves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core import metrics
from hydra_core.errors import HydraError


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_matches_a_plain_loop(samples: list[tuple[int, bool]]) -> None:
    scores = np.array([s for s, _ in samples], dtype=float)
    correct = np.array([c for _, c in samples])
    curve = metrics.risk_coverage(scores, correct)
    thresholds = sorted(set(scores))
    coverage = [np.mean(scores <= t) for t in thresholds]
    risk = [1 - np.mean(correct[scores <= t]) for t in thresholds]
    np.testing.assert_allclose(curve.coverage, coverage)
    np.testing.assert_allclose(curve.risk, risk, atol=1e-12)
    each = [1 - np.mean(correct[scores <= s]) for s in scores]
    assert curve.aurc == pytest.approx(np.mean(each), abs=1e-12)


def test_non_finite_uncertainty_is_left_out_and_counted() -> None:
    curve = metrics.risk_coverage([0.1, np.nan, 0.2], [1, 0, 1])
    assert curve.excluded == 1
    assert curve.risk.max() == 0.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(HydraError, match="same shape"):
        metrics.risk_coverage([0.1, 0.2], [1])
    with pytest.raises(HydraError, match="finite"):
        metrics.risk_coverage([np.nan], [1])
    with pytest.raises(HydraError, match="true or false"):
        metrics.risk_coverage([0.1], [2])
