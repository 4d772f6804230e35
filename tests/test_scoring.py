"""Taylor, ablation and HeadMap against plain loops over the original libraries' models."""

import copy
import itertools

import numpy as np
import pytest
import torch

import hydra_core as hydra
from hydra_core.data import Dataset
from hydra_core.scoring.results import check_belongs
from tests import rows
from tests.originals import cross_entropy, plain_circuit

FAMILIES = ("vit", "deit-teacher", "bert", "distilbert", "open-clip", "open-clip-quick")
HEADS_KEPT = 2


@pytest.fixture(scope="module", params=FAMILIES)
def case(request, tmp_path_factory):
    return rows.case(request.param, tmp_path_factory.mktemp("originals"))


@pytest.mark.parametrize("objective", ["loss", "ood_auroc", "average"])
def test_find_circuit_equals_the_plain_loop(case, objective):
    original, backbone, data, ood, known, other, labels = case
    expected, table = plain_circuit(original, known, other, labels, objective, HEADS_KEPT)
    before = backbone.logits(known)
    circuit = hydra.find_circuit(backbone, data, ood=ood, objective=objective, heads_per_layer=HEADS_KEPT, batch_size=5)
    assert circuit.keep.kept == expected
    np.testing.assert_allclose(circuit.values, table, rtol=0, atol=1e-5)
    assert torch.equal(before, backbone.logits(known))


@pytest.mark.parametrize("objective", ["loss", "average"])
def test_find_circuit_equals_the_plain_loop_with_uneven_heads(case, objective):
    original, backbone, data, ood, known, other, labels = case
    gone = [(0, 1), (1, 0), (1, 2)]
    expected, table = plain_circuit(original, known, other, labels, objective, 1, without=gone)
    pruned = hydra.prune(backbone, backbone.mask.without(gone))
    circuit = hydra.find_circuit(pruned, data, ood=ood, objective=objective, heads_per_layer=1, batch_size=5)
    assert circuit.keep.kept == expected
    np.testing.assert_allclose(circuit.values, table, rtol=0, atol=1e-5)


def test_find_circuit_does_not_depend_on_batches_or_memory(case):
    _, backbone, data, ood, *_ = case
    options = {"ood": ood, "objective": "average", "heads_per_layer": [1, 2, 0]}
    whole = hydra.find_circuit(backbone, data, batch_size=100, **options)
    for more in ({"batch_size": 1}, {"batch_size": 4}, {"batch_size": 7, "state_bytes": 0}):
        other = hydra.find_circuit(backbone, data, **more, **options)
        assert other.keep == whole.keep
        assert other.keep.kept_per_layer == (1, 2, 0)
        np.testing.assert_allclose(other.values, whole.values, rtol=0, atol=1e-9)


def test_headmap_and_ablation_are_the_worsening_against_all_heads(case):
    original, backbone, data, _, known, _, labels = case
    base = cross_entropy(original.logits(inputs=known), labels).mean()
    scores = hydra.score_heads(backbone, data, method="ablation", batch_size=4)
    for layer, head in itertools.product(range(original.layers), range(original.heads)):
        expected = cross_entropy(original.logits([(layer, head)], known), labels).mean() - base
        assert scores.values[layer, head] == pytest.approx(expected, abs=1e-9)
    circuit = hydra.find_circuit(backbone, data, heads_per_layer=HEADS_KEPT)
    headmap = hydra.score_heads(backbone, data, method="headmap", heads_per_layer=HEADS_KEPT)
    np.testing.assert_allclose(headmap.values, circuit.values - base, atol=1e-9)
    assert circuit.baseline == pytest.approx(base, abs=1e-9)


def test_taylor_equals_the_gradient_through_the_original_model(case):
    original, backbone, data, _, known, _, labels = case
    per_sample = []
    model = original.model
    for i, label in enumerate(labels):
        gates = torch.ones(original.layers, original.heads, dtype=torch.float64, requires_grad=True)
        weights = dict(model.named_parameters())
        names = {id(p): name for name, p in weights.items()}
        gated = dict(weights)
        for layer, module in enumerate(original.projections(model)):
            width = module.weight.shape[1] // original.heads
            columns = gates[layer].repeat_interleave(width)
            gated[names[id(module.weight)]] = module.weight.detach() * columns
        row = {name: tensor[i : i + 1] for name, tensor in known.items()}
        logits = torch.func.functional_call(
            Forward(model, original.forward), {f"model.{n}": p for n, p in gated.items()}, (row,)
        )
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label]))
        per_sample.append(torch.autograd.grad(loss, gates)[0].numpy())
    per_sample = np.array(per_sample)
    assert np.abs(per_sample).max() > 1e-3
    from hydra_core.scoring.taylor import taylor_samples

    ours = taylor_samples(backbone, data, labels, batch_size=4)
    np.testing.assert_allclose(ours, per_sample, rtol=0, atol=1e-9)
    michel = hydra.score_heads(backbone, data, method="taylor", batch_size=3)
    molchanov = hydra.score_heads(backbone, data, method="taylor_squared", batch_size=13)
    np.testing.assert_allclose(michel.values, np.abs(per_sample).mean(0), rtol=0, atol=1e-9)
    np.testing.assert_allclose(molchanov.values, (per_sample**2).mean(0), rtol=0, atol=1e-9)


class Forward(torch.nn.Module):
    def __init__(self, model, forward):
        super().__init__()
        self.model = model
        self.call = forward

    def forward(self, inputs):
        return self.call(self.model, inputs)


def test_frozen_parameters_and_one_class_give_scores(case):
    """H21."""
    _, backbone, data, *_ = case
    free = copy.copy(backbone)
    free.network = copy.deepcopy(backbone.network).requires_grad_(True)
    frozen = hydra.score_heads(backbone, data, method="taylor").values
    np.testing.assert_array_equal(hydra.score_heads(free, data, method="taylor").values, frozen)
    one_class = Dataset(data.items, np.zeros(len(data), dtype=np.int64), data.class_names, kind=data.kind, name="one")
    for method in ("taylor", "ablation"):
        assert np.isfinite(hydra.score_heads(backbone, one_class, method=method).values).all()


def test_too_little_memory_halves_the_batch_and_changes_nothing(case, monkeypatch):
    """H21: the embedding stands in for a device that cannot hold more than three samples."""
    _, backbone, data, *_ = case
    expected = hydra.score_heads(backbone, data, method="taylor", batch_size=13).values
    predicted = hydra.predict(backbone, data, batch_size=13).logits
    embed = type(backbone.network.embed)
    whole = embed.forward

    def small(self, inputs):
        if len(next(iter(inputs.values()))) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return whole(self, inputs)

    monkeypatch.setattr(embed, "forward", small)
    notes = []
    got = hydra.predict(backbone, data, batch_size=13, progress=lambda *step: notes.append(step[2])).logits
    np.testing.assert_allclose(got, predicted, rtol=0, atol=1e-5)
    assert any("out of memory" in note for note in notes)
    scores = hydra.score_heads(backbone, data, method="taylor", batch_size=13).values
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)


def test_scoring_that_raises_midway_leaves_the_backbone_as_it_was(case):
    """H20."""
    _, backbone, data, _, known, *_ = case
    before = backbone.logits(known)
    state = {name: tensor.clone() for name, tensor in backbone.network.state_dict().items()}

    def stop(done, total, note):
        if done >= 2:
            raise hydra.Cancelled

    for method in ("taylor", "ablation", "headmap"):
        with pytest.raises(hydra.Cancelled):
            hydra.score_heads(backbone, data, method=method, heads_per_layer=1, batch_size=2, progress=stop)
    assert torch.equal(before, backbone.logits(known))
    assert all(torch.equal(tensor, state[name]) for name, tensor in backbone.network.state_dict().items())


def test_scores_of_a_pruned_backbone_are_nan_where_heads_are_gone(case):
    original, backbone, data, *_ = case
    pruned = hydra.prune(backbone, backbone.mask.without([(0, 1), *[(1, h) for h in range(original.heads)]]))
    for method in ("taylor", "ablation"):
        values = hydra.score_heads(pruned, data, method=method).values
        gone = ~np.array(pruned.mask.keep)
        assert np.isnan(values[gone]).all()
        assert np.isfinite(values[~gone]).all()
    circuit = hydra.find_circuit(pruned, data, heads_per_layer=[1, 0, 1])
    assert circuit.keep.kept <= pruned.mask.kept


def test_scores_and_circuits_of_other_weights_or_data_are_refused(case):
    _, backbone, data, *_ = case
    part = data.take(9, seed=1)
    found = {
        "scores": hydra.score_heads(backbone, part, method="taylor", num_samples=8),
        "circuit": hydra.find_circuit(backbone, part, heads_per_layer=1),
    }
    other = Dataset(data.items, None, data.class_names, kind=data.kind, name="without labels")
    for name, one in found.items():
        check_belongs(name, one, backbone.fingerprint, data.source_fingerprint)
        check_belongs(name, one, backbone.fingerprint)
        with pytest.raises(hydra.HydraError, match=f"'{name}' was made on other data"):
            check_belongs(name, one, backbone.fingerprint, other.source_fingerprint)
        pruned = hydra.prune(backbone, backbone.mask.without([(0, 0)]))
        with pytest.raises(hydra.HydraError, match=f"'{name}' was made on another backbone"):
            check_belongs(name, one, pruned.fingerprint)


def test_samples_with_a_logit_that_is_not_finite_are_not_counted(case):
    _, backbone, data, *_ = case
    broken = copy.copy(backbone)
    inputs = {name: tensor.clone() for name, tensor in backbone.processor.inputs.items()}
    if "pixel_values" not in inputs:
        pytest.skip("token ids cannot be broken")
    inputs["pixel_values"][[2, 7]] = torch.nan
    broken.processor = rows.Prepared(inputs)
    for method in ("ablation", "headmap", "taylor"):
        scores = hydra.score_heads(broken, data, method=method, heads_per_layer=1)
        assert scores.num_samples == rows.NUM_ID - 2, method
        assert np.isfinite(scores.values).all()
    assert hydra.find_circuit(broken, data, heads_per_layer=1).num_samples == rows.NUM_ID - 2


def test_only_a_backbone_has_heads_to_score(case):
    _, backbone, data, *_ = case
    fused = hydra.fuse([backbone])
    for run in (hydra.find_circuit, hydra.score_heads):
        more = {"method": "taylor"} if run is hydra.score_heads else {"heads_per_layer": 1}
        with pytest.raises(hydra.HydraError, match=r"of one backbone .* got a FusedEnsemble"):
            run(fused, data, **more)


def test_taylor_in_inference_mode_and_what_compares_within_layers(case):
    _, backbone, data, *_ = case
    expected = hydra.score_heads(backbone, data, method="taylor")
    with torch.inference_mode():
        found = hydra.score_heads(backbone, data, method="taylor")
    np.testing.assert_array_equal(found.values, expected.values)
    assert not expected.within_layers
    assert hydra.score_heads(backbone, data, method="headmap", heads_per_layer=1).within_layers


def test_each_layer_is_told_when_it_is_done(case):
    _, backbone, data, *_ = case
    heard = []
    circuit = hydra.find_circuit(
        backbone, data, heads_per_layer=2, layer_done=lambda layer, heads, values: heard.append((layer, heads, values))
    )
    assert [layer for layer, *_ in heard] == list(range(backbone.num_layers))
    assert [tuple(sorted(heads)) for _, heads, _ in heard] == [circuit.keep.kept_in(layer) for layer, *_ in heard]
    np.testing.assert_array_equal(np.array([values for *_, values in heard]), circuit.values)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "ood_auroc", "heads_per_layer": 1}, "needs OOD data"),
        ({"objective": "nonsense", "heads_per_layer": 1}, "not known"),
        ({"heads_per_layer": 99}, "99 heads in layer 0"),
        ({"heads_per_layer": [1]}, "has 1 numbers"),
        ({"heads_per_layer": None}, "heads_per_layer is needed"),
        ({"heads_per_layer": "222"}, "must be a whole number or one a layer, got '222'"),
        ({"heads_per_layer": [1.0, 1, 1]}, "must be a whole number or one a layer"),
        ({"heads_per_layer": [True, 1, 1]}, "must be a whole number or one a layer"),
        ({"heads_per_layer": 1, "batch_size": 0}, "batch_size"),
        ({"heads_per_layer": 1, "score": "psychic"}, "psychic"),
    ],
)
def test_bad_requests_are_refused_before_work_starts(case, options, words):
    _, backbone, data, *_ = case
    with pytest.raises(hydra.HydraError, match=words):
        hydra.find_circuit(backbone, data, **options)


def test_results_survive_json(case):
    _, backbone, data, ood, *_ = case
    circuit = hydra.find_circuit(backbone, data, ood=ood, objective="average", heads_per_layer=2)
    again = hydra.Circuit.from_json(circuit.to_json())
    assert again.keep == circuit.keep
    np.testing.assert_array_equal(again.values, circuit.values)
    scores = hydra.score_heads(hydra.prune(backbone, backbone.mask.toggle(0, 0)), data, method="taylor")
    np.testing.assert_array_equal(hydra.HeadScores.from_json(scores.to_json()).values, scores.values)
