"""Racing HeadMap: the statistics against scikit-learn and plain loops, the decisions against the exact search."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import hydra_core as hydra
from hydra_core.scoring.objective import Objective
from hydra_core.scoring.race import FIRST_STAGE, placements, race_ends, race_layer


def test_placements_have_the_auroc_as_their_mean_on_either_side():
    rng = np.random.default_rng(0)
    known, other = rng.integers(0, 9, 40).astype(float), rng.integers(3, 12, 25).astype(float)  # many ties
    auroc = roc_auc_score(np.r_[np.zeros(40), np.ones(25)], np.r_[known, other])
    above, below = placements(known, other)
    assert above.mean() == pytest.approx(auroc, abs=1e-12)
    assert below.mean() == pytest.approx(auroc, abs=1e-12)
    known[3] = np.nan
    assert np.isnan(placements(known, other)[0]).sum() == 1
    assert np.isfinite(placements(known, other)[1]).all()


def test_stages_grow_to_the_whole_of_both_sets():
    ends = race_ends(2000, 500)
    assert ends[0][0] < 1.5 * FIRST_STAGE
    assert ends[-1] == (2000, 500)
    assert ends == sorted(set(ends))
    assert race_ends(40, 0) == [(40, 0)]
    assert all(few == 3 for _, few in race_ends(2000, 3))  # a small set is seen whole from the start
    assert all(few >= 16 for _, few in race_ends(2000, 50))


def race(table: np.ndarray, count: int, seed: int, confidence: float = 0.95, tolerance: float = 0.0):
    """Race the rows of `table` (K, N), each sample's loss with that head masked, in an order drawn with `seed`."""
    order = np.random.default_rng(seed).permutation(table.shape[1])
    ends = race_ends(table.shape[1], 0)
    begins = [0, *(end for end, _ in ends)]
    none = np.zeros(0)

    def measure(stage, heads):
        rows = order[begins[stage] : begins[stage + 1]]
        return [(table[head, rows], none, none) for head in heads]

    return race_layer(range(len(table)), count, Objective("loss", "msp"), measure, ends, confidence, tolerance)


def test_a_race_agrees_with_the_whole_set_as_often_as_it_says_and_measures_less():
    rng = np.random.default_rng(1)
    common = rng.exponential(1.0, 3000)  # what a sample loses with any head masked
    means = np.array([0.0, 0.03, 0.05, 0.3, 0.36, 0.5])
    table = common + means[:, None] + 0.5 * rng.standard_normal((6, 3000))
    exact = sorted(np.argsort(-table.mean(axis=1))[:3].tolist())
    races = [race(table, 3, seed, confidence=0.9) for seed in range(200)]
    agreeing = np.mean([one.chosen == exact for one in races])
    assert agreeing >= 0.9
    assert np.mean([one.num_samples.sum() for one in races]) < table.size / 3
    # Without a bound it would decide by chance: the first stage alone must not suffice.
    assert max(one.num_samples.max() for one in races) > 2 * FIRST_STAGE


def test_a_tolerance_stops_at_near_ties_and_costs_no_more_than_it_says():
    rng = np.random.default_rng(4)
    common = rng.exponential(1.0, 4000)
    harms = np.array([0.0, 0.49, 0.5, 0.51, 1.0])  # heads 1, 2 and 3 are near ties: the spread is 1
    table = common + harms[:, None] + 0.5 * rng.standard_normal((5, 4000))
    means = table.mean(axis=1)
    exact = [race(table, 2, seed, confidence=0.9) for seed in range(20)]
    raced = [race(table, 2, seed, confidence=0.9, tolerance=0.1) for seed in range(100)]
    assert np.mean([one.num_samples.sum() for one in raced]) < np.mean([one.num_samples.sum() for one in exact]) / 3
    assert len({tuple(one.chosen) for one in raced}) > 1  # which of the near ties is taken depends on the order
    allowed = means[4] + means[3] - 0.1 * (means.max() - means.min())
    assert np.mean([means[one.chosen].sum() >= allowed for one in raced]) >= 0.9
    # A tolerance does not excuse a head that is far less harmful.
    assert all(4 in one.chosen and 0 not in one.chosen for one in raced)


def test_what_stays_in_doubt_is_measured_on_everything_and_ties_go_to_the_lower_index():
    rng = np.random.default_rng(2)
    losses = rng.exponential(1.0, 900)
    table = np.stack([losses + 2, losses, losses, losses, losses - 2])
    raced = race(table, 2, seed=0)
    assert raced.chosen == [0, 1]
    assert raced.num_samples[[0, 4]].max() < 900  # taken and dropped early
    assert (raced.num_samples[1:4] == 900).all()
    assert raced.values[1] == pytest.approx(losses.mean())


def test_race_with_none_or_all_to_choose_stops_at_once():
    table = np.random.default_rng(3).exponential(1.0, (4, 1000))
    for count in (0, 4):
        raced = race(table, count, seed=0)
        assert raced.chosen == list(range(count))
        assert raced.num_samples.max() < 1.5 * FIRST_STAGE


@pytest.mark.parametrize("objective", ["loss", "ood_auroc", "average"])
def test_raced_circuits_of_the_demo(objective):
    backbone = hydra.load_backbone("demo/vit", device="cpu")
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=200)
    ood = hydra.load_dataset("demo/mnist", split="validation", limit=160)
    options = {"ood": ood, "objective": objective, "heads_per_layer": 4}
    exact = hydra.find_circuit(backbone, data, **options)
    raced = hydra.find_circuit(backbone, data, search="race", tolerance=0.0, **options)
    assert (exact.search, raced.search) == ("exact", "race")
    assert exact.measured is None
    assert raced.keep.kept_per_layer == (4,) * 6
    if objective != "average" and raced.measured[0].max() == 200:
        assert raced.baseline == pytest.approx(exact.baseline, abs=1e-6)
    full = raced.measured[0] == 200  # up to the first layer both searches masked the same heads: none
    if objective != "average":  # whose values are relative to those of the whole layer
        np.testing.assert_allclose(raced.values[0][full], exact.values[0][full], atol=1e-6)
    assert ((raced.measured >= 1) & (raced.measured <= 200)).all()
    again = hydra.Circuit.from_json(raced.to_json())
    np.testing.assert_array_equal(again.measured, raced.measured)
    assert again.keep == raced.keep


def test_a_race_on_sets_of_very_unlike_size(demo_vit):
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=150)
    few = hydra.load_dataset("demo/mnist", split="validation", limit=3)
    raced = hydra.find_circuit(
        demo_vit, data, ood={"digits": few}, objective="average", heads_per_layer=4, search="race"
    )  # fmt: skip
    assert raced.keep.kept_per_layer == (4,) * 6
    assert (raced.ood_name, raced.num_ood) == ("digits", 3)


@pytest.fixture(scope="module")
def demo_vit():
    return hydra.load_backbone("demo/vit", device="cpu")


def test_unknown_search_confidence_and_tolerance_are_refused():
    backbone = hydra.load_backbone("demo/vit", device="cpu")
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=20)
    with pytest.raises(hydra.HydraError, match="'fast' is not known; expected one of exact, race"):
        hydra.find_circuit(backbone, data, heads_per_layer=1, search="fast")
    with pytest.raises(hydra.HydraError, match=r"confidence must be at least 0\.5"):
        hydra.find_circuit(backbone, data, heads_per_layer=1, search="race", confidence=95)
    for wrong in ({"confidence": "x"}, {"tolerance": None}, {"seed": -1}, {"seed": "a"}):
        with pytest.raises(hydra.HydraError, match=next(iter(wrong))):
            hydra.find_circuit(backbone, data, heads_per_layer=1, search="race", **wrong)
    with pytest.raises(hydra.HydraError, match="tolerance must be from 0 to 1"):
        hydra.find_circuit(backbone, data, heads_per_layer=1, search="race", tolerance=-0.1)
