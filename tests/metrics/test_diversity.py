"""Mutual information, disagreement and divergence between members."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core import metrics
from hydra_core.errors import HydraError


def test_m12_opposite_members_and_identical_members() -> None:
    value = metrics.mutual_information([[[0.9, 0.1]], [[0.1, 0.9]]])
    np.testing.assert_allclose(value, [0.368064], atol=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 7))
@settings(max_examples=40, deadline=None)
def test_m12_identical_members_have_exactly_none(seed: int, num_members: int) -> None:
    one = np.random.default_rng(seed).dirichlet(np.ones(5), size=20)
    assert (metrics.mutual_information(np.stack([one] * num_members)) == 0.0).all()
    assert metrics.disagreement(np.stack([one] * num_members)) == 0.0
    assert (metrics.pairwise_kl(np.stack([one] * num_members)) == 0.0).all()


@given(st.integers(0, 10**6), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_matches_plain_loops(seed: int, num_members: int) -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    p = np.random.default_rng(seed).dirichlet(np.ones(3), size=(num_members, 11))
    expected = [
        scipy_stats.entropy(p[:, n].mean(0)) - np.mean([scipy_stats.entropy(p[m, n]) for m in range(num_members)])
        for n in range(11)
    ]
    np.testing.assert_allclose(metrics.mutual_information(p), expected, atol=1e-9)
    differs = [
        np.mean([p[i, n].argmax() != p[j, n].argmax() for n in range(11)])
        for i in range(num_members)
        for j in range(i + 1, num_members)
    ]
    assert metrics.disagreement(p) == pytest.approx(np.mean(differs))
    table = metrics.pairwise_kl(p)
    for i in range(num_members):
        for j in range(num_members):
            by_hand = np.mean([scipy_stats.entropy(p[i, n], p[j, n]) for n in range(11)])
            assert table[i, j] == pytest.approx(by_hand, abs=1e-9)


def test_bounds_and_zeros() -> None:
    certain = np.eye(3)[:, None, :]  # three members, each certain of another class
    np.testing.assert_allclose(metrics.mutual_information(certain), [np.log(3)])
    assert metrics.disagreement(certain) == 1.0
    assert np.isfinite(metrics.pairwise_kl(certain)).all()


def test_non_finite_rows_are_left_out() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 5))
    q = p.copy()
    q[1, 2] = np.nan
    value = metrics.mutual_information(q)
    assert np.isnan(value[2])
    keep = [0, 1, 3, 4]
    np.testing.assert_array_equal(value[keep], metrics.mutual_information(p[:, keep]))
    assert metrics.disagreement(q) == metrics.disagreement(p[:, keep])


@pytest.mark.parametrize("function", [metrics.mutual_information, metrics.disagreement, metrics.pairwise_kl])
def test_bad_input_is_refused(function: object) -> None:
    assert callable(function)
    with pytest.raises(HydraError, match="at least 2 members, got 1"):
        function([[[0.5, 0.5]]])
    with pytest.raises(HydraError, match=r"\(M, N, C\)"):
        function([[0.5, 0.5], [0.4, 0.6]])
    with pytest.raises(HydraError, match="no sample"):
        function(np.zeros((2, 0, 2)))
    with pytest.raises(HydraError, match="sum to 1"):
        function([[[0.5, 0.1]], [[0.5, 0.5]]])


def test_disagreement_without_a_finite_row_is_refused() -> None:
    with pytest.raises(HydraError, match="non-finite"):
        metrics.disagreement(np.full((2, 3, 2), np.nan))


@given(st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_error_correlation_is_numpys(seed: int, num_members: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), size=(num_members, 30))
    labels = rng.integers(0, 3, size=30)
    wrong = (p.argmax(2) != labels).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):  # numpy's own NaN for a member without variance
        expected = np.corrcoef(wrong)
    np.testing.assert_allclose(metrics.error_correlation(p, labels), expected, atol=1e-12)
    p[0, 3, 1] = np.nan
    keep = [n for n in range(30) if n != 3]
    got = metrics.error_correlation(p, labels)
    np.testing.assert_array_equal(got, metrics.error_correlation(p[:, keep], labels[keep]))


def test_error_correlation_by_hand_and_where_it_is_undefined() -> None:
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    a, b, always = [right, right, wrong, wrong], [right, wrong, right, wrong], [right] * 4
    table = metrics.error_correlation([a, b, a, always], [0, 0, 0, 0])
    assert table[0, 1] == 0.0
    assert table[0, 2] == pytest.approx(1.0)
    assert np.isnan(table[3]).all()
    assert np.isnan(table[:, 3]).all()
    with pytest.raises(HydraError, match=r"lie in 0 \.\. 1"):
        metrics.error_correlation([a, b], [0, 0, 0, 2])
