"""Faithfulness curves, rank correlation and stability against plain loops, scikit-learn and SciPy."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, roc_auc_score

import hydra_core as hydra
from hydra_core.agreement import Stability, overlaps, rank_correlation, stability
from hydra_core.faithfulness import Faithfulness, faithfulness, random_rankings, ranking_of, top_heads
from tests import rows


@pytest.fixture(scope="module", params=["vit", "bert"])
def case(request, tmp_path_factory):
    return rows.case(request.param, tmp_path_factory.mktemp("originals"))


def test_curves_equal_cutting_heads_in_the_original(case):
    ranking = np.random.default_rng(0).random((case.original.layers, case.original.heads))
    found = faithfulness(case.backbone, case.data, {"mine": ranking}, ood={"rest": case.ood})
    heads = case.original.heads
    assert found.kept == list(range(heads + 1))
    for k in (0, 2, heads):
        for direction in ("keep", "remove"):
            cut = []
            for layer, row in enumerate(ranking):
                top = set(np.argsort(-row)[:k].tolist())
                cut += [(layer, head) for head in range(heads) if (head in top) == (direction == "remove")]
            known = torch.softmax(case.original.logits(cut, case.known), -1).numpy()
            other = torch.softmax(case.original.logits(cut, case.other), -1).numpy()
            truth = np.r_[np.zeros(len(known)), np.ones(len(other))]
            curves = found.curves["mine"][direction]
            assert curves["accuracy"][k] == pytest.approx(accuracy_score(case.labels, known.argmax(1)))
            expected = roc_auc_score(truth, 1 - np.r_[known.max(1), other.max(1)])
            assert curves["ood/rest/auroc"][k] == pytest.approx(expected, abs=1e-6)
    accuracy = found.curves["mine"]["keep"]["accuracy"]
    by_hand = sum((a + b) / 2 / heads for a, b in pairwise(accuracy))
    assert found.area("mine", "keep", "accuracy") == pytest.approx(by_hand)
    assert found.area("mine", "keep", "disagreement") is None  # one member alone
    assert Faithfulness.from_json(found.to_json()) == found


def test_every_ranking_begins_and_ends_alike(case):
    rankings = random_rankings(case.backbone.mask.widths, 3, seed=1)
    assert list(rankings) == ["random 0", "random 1", "random 2"]
    found = faithfulness(case.backbone, case.data, rankings)
    full = hydra.evaluate(case.backbone, case.data).metrics["nll"]
    for curves in found.curves.values():
        assert curves["keep"]["nll"][-1] == pytest.approx(full, abs=1e-9)
        assert curves["remove"]["nll"][0] == pytest.approx(full, abs=1e-9)
        assert curves["keep"]["nll"][0] == curves["remove"]["nll"][-1]
    middles = {tuple(curves["keep"]["nll"][1:-1]) for curves in found.curves.values()}
    assert len(middles) == 3


def test_a_circuit_is_its_own_top(case):
    for objective in ("loss", "ood_auroc", "average"):
        circuit = hydra.find_circuit(case.backbone, case.data, ood=case.ood, objective=objective, heads_per_layer=2)
        assert top_heads(ranking_of(circuit), 2, case.backbone.mask) == circuit.keep


def test_rankings_of_another_backbone_or_shape_are_refused(case):
    scores = hydra.score_heads(case.backbone, case.data, method="taylor")
    pruned = hydra.prune(case.backbone, case.backbone.mask.without([(0, 0)]))
    with pytest.raises(hydra.HydraError, match="'taylor' was made on another backbone"):
        faithfulness(pruned, case.data, {"taylor": scores})
    with pytest.raises(hydra.HydraError, match=r"'mine' has shape \(2, 2\), the backbone's heads need \(3, \d\)"):
        faithfulness(case.backbone, case.data, {"mine": np.ones((2, 2))})
    with pytest.raises(hydra.HydraError, match="'mine' has no finite value for some heads"):
        faithfulness(case.backbone, case.data, {"mine": np.full((3, case.original.heads), np.nan)})
    with pytest.raises(hydra.HydraError, match="at least one ranking"):
        faithfulness(case.backbone, case.data, {})


def test_a_pruned_backbone_has_curves_of_the_heads_it_has(case):
    gone = [(0, 0), (1, 1)]
    pruned = hydra.prune(case.backbone, case.backbone.mask.without(gone))
    scores = hydra.score_heads(pruned, case.data, method="taylor")
    found = faithfulness(pruned, case.data, {"taylor": scores})
    curves = found.curves["taylor"]
    most = case.original.heads
    assert found.kept == list(range(most + 1))
    whole = hydra.evaluate(pruned, case.data).metrics["nll"]
    assert curves["keep"]["nll"][-1] == pytest.approx(whole, abs=1e-9)
    assert curves["remove"]["nll"][0] == pytest.approx(whole, abs=1e-9)
    # one head a layer, chosen by hand
    top = [(layer, int(np.nanargmax(row))) for layer, row in enumerate(scores.values)]
    one = hydra.prune(pruned, case.backbone.mask.complement().including(top))
    assert curves["keep"]["nll"][1] == pytest.approx(hydra.evaluate(one, case.data).metrics["nll"], abs=1e-9)


def test_rank_correlation_within_layers_sees_no_trend_over_layers():
    depth = np.arange(5.0)[:, None] * 100
    same, reverse = np.array([[1.0, 2, 3, np.nan]] * 5), np.array([[3.0, 2, 1, np.nan]] * 5)
    tables = {"a": same + depth, "b": reverse + depth}
    assert rank_correlation(tables)[0, 1] > 0.9
    assert rank_correlation(tables, within_layers=True)[0, 1] == pytest.approx(-1.0)


def test_rank_correlation_is_spearmans_over_the_heads_that_both_have():
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 4)), rng.random((3, 4))
    a[0, 1] = np.nan
    found = rank_correlation({"a": a, "b": b, "minus b": -b, "constant": np.ones((3, 4))})
    both = np.isfinite(a)
    assert found[0, 1] == pytest.approx(spearmanr(a[both], b[both]).statistic)
    assert found[1, 2] == pytest.approx(-1)
    assert np.isnan(found[0, 3])
    assert (np.diag(found) == 1).all()
    with pytest.raises(hydra.HydraError, match="different backbones"):
        rank_correlation({"a": a, "b": np.ones((2, 2))})


def test_overlaps_are_jaccard():
    one, two = hydra.HeadMask([[True, True, False]]), hydra.HeadMask([[True, False, True]])
    np.testing.assert_allclose(overlaps({"one": one, "two": two}), [[1, 1 / 3], [1 / 3, 1]])


def test_stability_counts_how_often_each_head_is_chosen(case):
    drawn = []

    def choose(data, ood, progress):
        drawn.append(sorted(str(data.items[i]) if data.kind == "text" else int(np.asarray(data.items[i])[0, 0, 0])
                            for i in range(len(data))))  # fmt: skip
        progress(1, 2, "half")
        return hydra.find_circuit(case.backbone, data, ood=ood, objective="average", heads_per_layer=2).keep

    ticks = []
    found = stability(choose, case.data, case.ood, num_resamples=4, seed=5,
                      progress=lambda done, total, note: ticks.append(done))  # fmt: skip
    assert ticks == [125, 375, 625, 875, 1000]
    assert found.values.sum() == pytest.approx(2 * 3)  # two heads a layer, every time
    assert set(np.unique(found.values * 4)) <= {0, 1, 2, 3, 4}
    assert all(len(rows) == len(case.data) for rows in drawn)
    assert all(len(set(rows)) < len(rows) for rows in drawn)  # with replacement
    assert len({tuple(rows) for rows in drawn}) == 4
    always = stability(lambda *_: case.backbone.mask, case.data, num_resamples=3)
    assert always.mean_overlap == 1
    assert (always.values == 1).all()
    assert Stability.from_json(found.to_json()) == found
