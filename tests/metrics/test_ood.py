"""OOD scores, and how well they separate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hydra_core import metrics
from hydra_core.errors import HydraError


def loop_fpr95(positives: np.ndarray, negatives: np.ndarray) -> float:
    """FPR at the largest threshold whose TPR is at least 95 %, trying every value as a threshold."""
    for threshold in sorted(set(positives) | set(negatives), reverse=True):
        if 20 * sum(positives >= threshold) >= 19 * len(positives):
            return float(np.mean(negatives >= threshold))
    raise AssertionError


def loop_auroc(positives: np.ndarray, negatives: np.ndarray) -> float:
    pairs = [(p > n) + 0.5 * (p == n) for p in positives for n in negatives]
    return float(np.mean(pairs))


@pytest.mark.parametrize(
    ("inside", "outside", "missing"),
    [
        ([0.1, 0.2], [], "no OOD"),
        ([], [0.1], "no ID"),
        ([], [], "no ID and no OOD"),
        ([0.1], [np.nan], "no OOD"),
    ],
)
def test_m6_one_side_only_is_undefined_with_a_reason(inside: list, outside: list, missing: str) -> None:
    result = metrics.ood_metrics(inside, outside)
    values = (result.auroc, result.aupr_ood, result.aupr_id, result.fpr95, result.fpr95_id_positive)
    assert values == (None,) * 5
    assert result.reason is not None
    assert missing in result.reason
    assert metrics.roc_points(inside, outside) is None
    assert metrics.pr_points(inside, outside) is None


def test_m7_all_scores_equal() -> None:
    result = metrics.ood_metrics([0.5] * 20, [0.5] * 20)
    assert (result.auroc, result.fpr95, result.aupr_ood, result.aupr_id) == (0.5, 1.0, 0.5, 0.5)
    assert result.fpr95_id_positive == 1.0


def test_m8_ties_stay_whole() -> None:
    inside, outside = np.array([0.1] * 18 + [0.9] * 2), np.array([0.5] * 20)
    result = metrics.ood_metrics(inside, outside)
    assert result.fpr95 == pytest.approx(0.10, abs=1e-6)
    assert result.fpr95_id_positive == pytest.approx(1.0, abs=1e-6)
    assert result.auroc == pytest.approx(0.90, abs=1e-6)
    assert result.aupr_ood == pytest.approx(0.909091, abs=1e-6)
    assert result.aupr_id == pytest.approx(0.95, abs=1e-6)
    assert result.warning is None
    flipped = metrics.ood_metrics(-inside, -outside)
    assert flipped.auroc == pytest.approx(0.10, abs=1e-6)
    assert flipped.warning is not None
    assert "wrong way" in flipped.warning


def test_m10_non_finite_scores_are_left_out_and_counted() -> None:
    with_nan = metrics.ood_metrics([0.1, np.nan, 0.3], [0.2, 0.9, np.inf, np.nan])
    clean = metrics.ood_metrics([0.1, 0.3], [0.2, 0.9])
    assert (with_nan.excluded_id, with_nan.excluded_ood) == (1, 2)
    assert (with_nan.num_id, with_nan.num_ood) == (2, 2)
    assert (with_nan.auroc, with_nan.fpr95, with_nan.aupr_ood) == (clean.auroc, clean.fpr95, clean.aupr_ood)


scores = st.lists(st.integers(0, 12).map(lambda v: v / 4), min_size=1, max_size=45)


@given(scores, scores)
@settings(max_examples=80, deadline=None)
def test_matches_plain_loops_with_many_ties(inside: list[float], outside: list[float]) -> None:
    a, b = np.array(inside), np.array(outside)
    result = metrics.ood_metrics(a, b)
    assert result.auroc == pytest.approx(loop_auroc(b, a), abs=1e-9)
    assert result.fpr95 == pytest.approx(loop_fpr95(b, a), abs=1e-12)
    assert result.fpr95_id_positive == pytest.approx(loop_fpr95(-a, -b), abs=1e-12)
    assert result.threshold is not None
    tpr, fpr = metrics.rates_at(a, b, result.threshold)
    assert tpr is not None
    assert tpr >= 0.95
    assert fpr == result.fpr95


def test_fpr95_needs_exactly_ninety_five_percent() -> None:
    # 0.95 * n is not exact in floating point; 19 of 20, 38 of 40, 57 of 60 ... are enough
    for n in (20, 40, 60, 100, 180, 1000):
        outside = np.arange(n, dtype=float)
        cut = n // 20  # the threshold may leave out this many
        assert metrics.ood_metrics([cut - 0.5, cut + 0.0], outside).fpr95 == 0.5


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_scores_match_their_formulas(seed: int) -> None:
    scipy_special = pytest.importorskip("scipy.special")
    logits = np.random.default_rng(seed).normal(scale=5, size=(3, 7, 4))
    p = scipy_special.softmax(logits, axis=-1)
    mean = p.mean(axis=0)
    mean_entropy = scipy_special.entr(mean).sum(-1)
    expected = {
        "msp": 1 - mean.max(-1),
        "max_logit": -logits.max(-1).mean(0),
        "energy": -scipy_special.logsumexp(logits, axis=-1).mean(0),
        "entropy": mean_entropy,
        "mutual_information": mean_entropy - scipy_special.entr(p).sum(-1).mean(0),
        "expected_pairwise_kl": np.mean(
            [scipy_special.rel_entr(p[i], p[j]).sum(-1) for i in range(3) for j in range(3) if i != j], axis=0
        ),
        "vote_disagreement": np.mean([p[i].argmax(-1) != p[j].argmax(-1) for i in range(3) for j in range(i)], axis=0),
    }
    assert set(expected) == set(metrics.OOD_SCORES)
    for name, value in expected.items():
        result = metrics.ood_score(name, logits=logits, member_probabilities=p)
        np.testing.assert_allclose(result, value, rtol=0, atol=1e-9)
        # the softmax of the logits serves where probabilities are not given
        np.testing.assert_allclose(metrics.ood_score(name, logits=logits), value, rtol=0, atol=1e-9)
        if name not in metrics.ENSEMBLE_SCORES:
            one = metrics.ood_score(name, logits=logits[0])
            np.testing.assert_allclose(one, metrics.ood_score(name, logits=logits[:1]), rtol=0, atol=0)


def test_energy_of_huge_logits_does_not_overflow() -> None:
    np.testing.assert_allclose(metrics.ood_score("energy", logits=[[1e4, 1e4]]), [-1e4 - np.log(2)])


def test_a_row_with_a_non_finite_logit_has_no_score() -> None:
    logits = np.zeros((2, 3, 4))
    logits[1, 1, 2] = np.inf
    for name in metrics.OOD_SCORES:
        result = metrics.ood_score(name, logits=logits)
        assert np.isnan(result[1])
        assert np.isfinite(result[[0, 2]]).all()


def test_scores_accept_bfloat16_tensors() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.randn(2, 5, 300, generator=torch.Generator().manual_seed(0)) * 3
    for name in ("msp", "entropy", "mutual_information"):
        exact = metrics.ood_score(name, member_probabilities=logits.softmax(-1))
        half = metrics.ood_score(name, member_probabilities=logits.softmax(-1).bfloat16())
        np.testing.assert_allclose(half, exact, atol=0.1)


def test_bad_input_is_refused() -> None:
    with pytest.raises(HydraError, match="unknown OOD score 'margin'"):
        metrics.ood_score("margin", logits=[[0.0, 1.0]])
    with pytest.raises(HydraError, match="needs logits"):
        metrics.ood_score("energy", member_probabilities=[[[0.5, 0.5]]])
    with pytest.raises(HydraError, match="neither was given"):
        metrics.ood_score("msp")
    with pytest.raises(HydraError, match="at least 2 members, got 1"):
        metrics.ood_score("mutual_information", logits=[[0.0, 1.0]])
    with pytest.raises(HydraError, match=r"\(M, N, C\)"):
        metrics.ood_score("msp", logits=[0.0, 1.0])
    with pytest.raises(HydraError, match="no sample"):
        metrics.ood_score("msp", member_probabilities=np.zeros((2, 0, 3)))
    with pytest.raises(HydraError, match="softmax"):
        metrics.ood_score("msp", member_probabilities=[[[3.0, -2.0]]])
    with pytest.raises(HydraError, match="one score a sample"):
        metrics.ood_metrics([[0.1]], [0.2])


def test_curves_hold_the_areas() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=80), rng.normal(1.0, size=50)
    result = metrics.ood_metrics(inside, outside)
    roc = metrics.roc_points(inside, outside)
    pr = metrics.pr_points(inside, outside)
    assert roc is not None
    assert pr is not None
    assert np.trapezoid(roc.y, roc.x) == pytest.approx(result.auroc)
    assert -np.sum(np.diff(pr.x) * pr.y[:-1]) == pytest.approx(result.aupr_ood)
    assert len(pr.thresholds) == len(pr.x)


@pytest.mark.parametrize("name", metrics.ENSEMBLE_SCORES)
def test_scores_of_an_ensemble_need_two_members_and_are_0_for_equal_ones(name: str) -> None:
    with pytest.raises(HydraError, match="at least 2 members, got 1"):
        metrics.ood_score(name, logits=[[0.0, 1.0]])
    one = np.random.default_rng(0).normal(size=(1, 9, 4))
    assert (metrics.ood_score(name, logits=np.repeat(one, 3, axis=0)) == 0).all()
