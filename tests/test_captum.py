"""Captum over gates against closed forms that are computed through the original model, head by head."""

import itertools
import math

import numpy as np
import pytest
import torch

import hydra_core as hydra
from tests import rows

LEFT = 8  # heads that exact enumeration goes over


@pytest.fixture(scope="module", params=["vit", "bert"])
def case(request, tmp_path_factory):
    return rows.case(request.param, tmp_path_factory.mktemp("originals"))


def log_probability(case, cut) -> np.ndarray:
    """(N,), of the true class, through the original with the heads in `cut` zeroed."""
    logits = case.original.logits(cut, case.known)
    return torch.log_softmax(logits, -1)[range(len(case.labels)), case.labels].numpy()


def all_heads(case):
    return list(itertools.product(range(case.original.layers), range(case.original.heads)))


def test_feature_ablation_is_what_the_loss_gains_without_the_head(case):
    values = hydra.score_heads(case.backbone, case.data, method="captum:feature_ablation", batch_size=5).values
    plain = hydra.score_heads(case.backbone, case.data, method="ablation").values
    np.testing.assert_allclose(values, plain, atol=1e-9)
    for head in all_heads(case):
        expected = (log_probability(case, []) - log_probability(case, [head])).mean()
        assert values[head] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("method", ["integrated_gradients", "shapley_sampling"])
def test_attributions_of_each_sample_are_complete(case, method):
    from hydra_core.scoring.captum_scores import captum_samples

    samples, _ = captum_samples(case.backbone, case.data, case.labels, method, batch_size=6)
    expected = log_probability(case, []) - log_probability(case, all_heads(case))
    np.testing.assert_allclose(samples.sum(axis=(1, 2)), expected, atol=1e-4)


def test_input_x_gradient_is_the_signed_taylor_term(case):
    from hydra_core.scoring.captum_scores import captum_samples
    from hydra_core.scoring.taylor import taylor_samples

    samples, _ = captum_samples(case.backbone, case.data, case.labels, "input_x_gradient", batch_size=4)
    gradients = taylor_samples(case.backbone, case.data, case.labels, batch_size=13)  # of the loss: the sign turns
    np.testing.assert_allclose(samples, -gradients, atol=1e-9)


def test_shapley_values_match_exact_enumeration_within_their_sampling_error(case):
    heads = all_heads(case)
    present = heads[:: max(1, len(heads) // LEFT)][:LEFT]
    cut = [head for head in heads if head not in present]
    pruned = hydra.prune(case.backbone, case.backbone.mask.without(cut))
    value = {
        kept: log_probability(case, [head for head in heads if head not in kept]).mean()
        for size in range(LEFT + 1)
        for kept in itertools.combinations(present, size)
    }
    scores = hydra.score_heads(pruned, case.data, method="captum:shapley_sampling", seed=3)
    assert scores.standard_error is not None
    off = []
    for head in present:
        exact = sum(
            math.factorial(len(kept)) * math.factorial(LEFT - 1 - len(kept)) / math.factorial(LEFT)
            * (value[tuple(sorted({*kept, head}))] - value[kept])
            for kept in value if head not in kept
        )  # fmt: skip
        off.append((scores.values[head] - exact) / scores.standard_error[head])
    # Eight standardised errors: Student's t with 24 degrees of freedom leaves (-4, 4) once in two thousand times each,
    # and an error that were claimed too large would leave them all near 0.
    assert np.abs(off).max() < 4
    assert np.abs(off).max() > 0.3
    assert np.isnan([scores.values[cut[0]], scores.standard_error[cut[0]]]).all()
    assert scores.values[tuple(zip(*present, strict=True))].sum() == pytest.approx(
        value[tuple(present)] - value[()], abs=1e-7
    )


def test_scores_with_their_error_survive_json(case):
    scores = hydra.score_heads(case.backbone, case.data, method="captum:shapley_sampling")
    again = hydra.HeadScores.from_json(scores.to_json())
    np.testing.assert_array_equal(again.values, scores.values)
    np.testing.assert_array_equal(again.standard_error, scores.standard_error)


def test_a_long_attribution_can_be_cancelled_within_a_batch(case):
    calls = []

    def progress(done, total, note):
        calls.append((done, total))
        if len(calls) == 20:
            raise hydra.Cancelled

    with pytest.raises(hydra.Cancelled):
        hydra.score_heads(case.backbone, case.data, method="captum:shapley_sampling", progress=progress)
    assert len(calls) == 20
    assert calls == sorted(calls)
    assert calls[-1][0] < calls[-1][1]


def test_frozen_parameters_and_a_batch_of_one_class_make_no_difference(case):
    for parameter in case.backbone.network.parameters():
        parameter.requires_grad_(False)
    one_class = case.data.subset([0, 7])  # the same label where there are 7 classes
    for method in ("taylor", "captum:integrated_gradients", "captum:input_x_gradient"):
        whole = hydra.score_heads(case.backbone, case.data, method=method).values
        for parameter in case.backbone.network.parameters():
            parameter.requires_grad_(True)
        np.testing.assert_allclose(hydra.score_heads(case.backbone, case.data, method=method).values, whole, atol=1e-12)
        for parameter in case.backbone.network.parameters():
            parameter.requires_grad_(False)
        assert np.isfinite(hydra.score_heads(case.backbone, one_class, method=method).values).all()


def test_shapley_sampling_leaves_the_callers_random_numbers_alone(case):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    hydra.score_heads(case.backbone, case.data, method="captum:shapley_sampling", num_samples=2)
    assert torch.equal(torch.rand(4), expected)
