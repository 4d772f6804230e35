"""Greedy members against a plain loop, and the fewest heads that keep accuracy against the original library."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import hydra_core as hydra
from hydra_core.data import Dataset
from hydra_core.greedy import greedy_members
from tests import originals
from tests.originals import Original
from tests.rows import images


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Original:
    return originals.build("vit", tmp_path_factory.mktemp("originals"))


@pytest.fixture(scope="module")
def backbone(original) -> hydra.Backbone:
    return hydra.load_backbone(original.ref, device="cpu")


def plain_greedy(logits, labels, others, count, goal) -> list[int]:
    """Forward selection written out with scikit-learn."""
    taken: list[int] = []
    for _ in range(count):
        best, best_value = None, None
        for k in range(len(logits)):
            if k in taken:
                continue
            mean = np.mean([softmax(logits[i], axis=-1) for i in [*taken, k]], axis=0)
            if goal == "nll":
                value = log_loss(labels, mean, labels=range(mean.shape[1]))
            else:
                found = []
                for other in others:
                    strange = np.mean([softmax(other[i], axis=-1) for i in [*taken, k]], axis=0)
                    truth = np.r_[np.zeros(len(mean)), np.ones(len(strange))]
                    found.append(roc_auc_score(truth, np.r_[1 - mean.max(1), 1 - strange.max(1)]))
                value = -np.mean(found)
            if best_value is None or value < best_value - 1e-12:
                best, best_value = k, value
        taken.append(best)
    return taken


@pytest.mark.parametrize("goal", ["nll", "ood_auroc"])
@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_plain_loop(goal, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=40)
    logits = rng.normal(size=(7, 40, 3)) * 2
    logits[:, np.arange(40), labels] += rng.uniform(0, 2, size=(7, 1))
    others = [rng.normal(size=(7, 25, 3)), rng.normal(size=(7, 30, 3)) * 1.5]
    taken = greedy_members(logits, labels, ood_logits=others, num_members=4, goal=goal)
    assert taken == plain_greedy(logits, labels, others, 4, goal)


def test_greedy_takes_equal_candidates_in_order_and_says_what_it_lacks():
    logits = np.repeat(np.random.default_rng(0).normal(size=(1, 10, 3)), 4, axis=0)
    labels = np.zeros(10, dtype=int)
    assert greedy_members(logits, labels, num_members=3) == [0, 1, 2]
    odd = greedy_members(logits, labels, num_members=2, allowed=lambda taken, k: k % 2 == 1)
    assert odd == [1, 3]
    with pytest.raises(hydra.HydraError, match="of 4 candidates only 2 could be taken together, 3 were wanted"):
        greedy_members(logits, labels, num_members=3, allowed=lambda taken, k: k % 2 == 1)
    with pytest.raises(hydra.HydraError, match="'ood_auroc' needs at least one OOD set"):
        greedy_members(logits, labels, num_members=3, goal="ood_auroc")
    with pytest.raises(hydra.HydraError, match="'ece' is not known"):
        greedy_members(logits, labels, num_members=3, goal="ece")


GREEDY = {"strategy": "greedy", "heads_per_layer": 2, "num_members": 2}


def test_greedy_members_differ(backbone):
    data, other = images(28, 5), images(20, 6, labelled=False)
    masks = hydra.make_members(backbone, data, ood={"noise": other}, goal="ood_auroc", **GREEDY)
    assert len(set(masks)) == 2
    assert all(mask.kept_per_layer == (2, 2, 2) for mask in masks)
    with pytest.raises(hydra.HydraError, match="needs OOD validation data"):
        hydra.make_members(backbone, data, goal="ood_auroc", **GREEDY)
    with pytest.raises(hydra.HydraError, match="'ece' is not known"):
        hydra.make_members(backbone, data, goal="ece", **GREEDY)


@pytest.mark.slow
def test_greedy_members_keep_to_the_overlap_or_say_why_not(backbone):
    data = images(28, 5)
    masks = hydra.make_members(backbone, data, max_overlap=0.6, **GREEDY)
    assert masks[0].jaccard(masks[1]) <= 0.6
    with pytest.raises(hydra.HydraError, match="Raise max_overlap"):
        hydra.make_members(backbone, data, max_overlap=0.0, **{**GREEDY, "num_members": 5})


def labelled_by(original: Original, count: int) -> Dataset:
    """Pictures whose labels are what the original says of most of them, so that accuracy means something."""
    data = images(count, 7)
    backbone = hydra.load_backbone(original.ref, device="cpu", dtype="float64")
    top = original.logits(inputs=backbone.prepare(list(data.items))).argmax(1).numpy().copy()
    top[::9] = (top[::9] + 1) % 7
    return Dataset(list(data.items), top, originals.CLASSES, kind="image", name="as the original sees it")


@pytest.mark.parametrize("max_drop", [0.1, 0.3])
def test_fewest_heads_keep_accuracy_and_no_single_one_more_can_go(original, backbone, max_drop):
    data = labelled_by(original, 60)
    assert data.labels is not None
    inputs = hydra.load_backbone(original.ref, device="cpu", dtype="float64").prepare(list(data.items))

    def measured(mask: hydra.HeadMask) -> float:
        cut = sorted(mask.complement().kept)
        return accuracy_score(data.labels, original.logits(cut, inputs).argmax(1).numpy())

    pinned = [(2, 4)]
    found = hydra.fewest_heads(backbone, data, max_drop=max_drop, pinned=pinned)
    assert found.full_accuracy == pytest.approx(measured(backbone.mask))
    assert found.accuracy == pytest.approx(measured(found.mask))
    assert found.accuracy >= found.full_accuracy - max_drop - 1e-9
    assert found.mask.num_kept < backbone.mask.num_kept
    assert min(found.mask.kept_per_layer) >= 1
    assert (2, 4) in found.mask.kept
    for layer, head in found.mask.kept - set(pinned):
        if found.mask.kept_per_layer[layer] > 1:
            assert measured(found.mask.without([(layer, head)])) < found.full_accuracy - max_drop


def test_fewest_heads_refuses_what_cannot_be(backbone):
    data = images(10, 0)
    with pytest.raises(hydra.HydraError, match=r"max_drop is a share of accuracy from 0 to 1 .*, got 3"):
        hydra.fewest_heads(backbone, data, max_drop=3)
    with pytest.raises(hydra.HydraError, match="min_heads_per_layer must be a whole number"):
        hydra.fewest_heads(backbone, data, max_drop=0.1, min_heads_per_layer=-1)
    with pytest.raises(hydra.HydraError, match="head 9 does not exist in layer 0"):
        hydra.fewest_heads(backbone, data, max_drop=0.1, pinned=[(0, 9)])
    with pytest.raises(hydra.HydraError, match="keeping accuracy needs labels"):
        hydra.fewest_heads(backbone, images(10, 0, labelled=False), max_drop=0.1)


def test_fewest_heads_can_be_cancelled(backbone):
    def progress(done: int, total: int, note: str) -> None:
        raise hydra.Cancelled

    before = {name: tensor.clone() for name, tensor in backbone.network.state_dict().items()}
    with pytest.raises(hydra.Cancelled):
        hydra.fewest_heads(backbone, images(20, 0), max_drop=0.1, progress=progress)
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.network.state_dict().items())
