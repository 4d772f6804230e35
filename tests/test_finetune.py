"""Fine-tuning against plain torch loops, and what averaging MLPs on fusing does."""

import copy
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import hydra_core as hydra
from hydra_core.finetune import MAX_GRADIENT_NORM, WEIGHT_DECAY
from hydra_core.merging import merge_gap_of
from tests import originals
from tests.rows import images


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    original = originals.build("vit", tmp_path_factory.mktemp("originals"))
    return hydra.load_backbone(original.ref, device="cpu")


@pytest.fixture(scope="module")
def pruned(backbone):
    """With uneven layers, one of them empty."""
    return hydra.prune(backbone, backbone.mask.without([(0, 0), *[(1, head) for head in range(5)], (2, 3)]))


def test_fine_tuning_learns_and_leaves_the_original_alone(backbone):
    data = images(70, 7)
    pruned = hydra.prune(backbone, backbone.mask.without([(0, 0), (1, 1)]))
    inputs = backbone.prepare(list(data.items))
    before = pruned.logits(inputs)
    tuned = hydra.fine_tune(pruned, data, epochs=3, learning_rate=3e-3, batch_size=16, seed=1)
    assert torch.equal(pruned.logits(inputs), before)
    loss = torch.nn.functional.cross_entropy
    labels = torch.tensor(data.labels)
    assert loss(tuned.logits(inputs), labels) < loss(before, labels) - 0.1
    assert tuned.mask == pruned.mask
    assert tuned.fingerprint != pruned.fingerprint
    again = hydra.fine_tune(pruned, data, epochs=3, learning_rate=3e-3, batch_size=16, seed=1)
    assert torch.equal(again.logits(inputs), tuned.logits(inputs)), "seeded, so the same again"


def test_fusing_fine_tuned_members_averages_the_mlp(backbone):
    """Against members whose MLP was replaced by the mean by hand."""
    import copy

    data = images(35, 8)
    members = [hydra.prune(backbone, backbone.mask.without([(0, head)])) for head in range(3)]
    tuned = [hydra.fine_tune(m, data, epochs=1, learning_rate=1e-3, seed=i) for i, m in enumerate(members)]
    fused = hydra.fuse(tuned)
    assert fused.report["mlp_max_difference"] > 0
    assert fused.report["embeddings"] == "averaged"
    assert fused.report["readouts"] == "per member"
    networks = [copy.deepcopy(member.network) for member in tuned]
    states = [network.state_dict() for network in networks]
    for name in states[0]:
        if ".fc" in name or name.startswith("embed."):
            mean = torch.stack([state[name].double() for state in states]).mean(0).float()
            for state in states:
                state[name].copy_(mean)
    inputs = backbone.place(backbone.prepare(list(data.items)))
    with torch.no_grad():
        expected = torch.cat([network(inputs) for network in networks])
    torch.testing.assert_close(fused.member_logits(inputs), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"epochs": 1.5}, {"learning_rate": 0.0}, {"learning_rate": 5}])
def test_fine_tuning_refuses_nonsense(backbone, bad):
    with pytest.raises(hydra.HydraError, match=next(iter(bad))):
        hydra.fine_tune(backbone, images(8, 0), **{"epochs": 1, "learning_rate": 1e-3, **bad})


def nll(model, data):
    mean = hydra.predict(model, data).mean_probabilities.astype(float)
    return log_loss(data.labels, mean / mean.sum(axis=1, keepdims=True), labels=range(7))


def test_fine_tuning_equals_a_plain_loop(backbone, pruned):
    """Whole batches, so that the order of the samples does not matter."""
    data = images(35, 3)
    inputs, labels = backbone.place(backbone.prepare(list(data.items))), torch.tensor(data.labels)
    network = copy.deepcopy(pruned.network).requires_grad_(True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1.0, weight_decay=WEIGHT_DECAY)
    steps, peak = 4, 2e-3
    losses = []
    for step in range(steps):
        # warm-up takes max(1, 10 % of 4) = 1 step, at the peak; then half a cosine over the other three
        rate = peak if step == 0 else peak * (1 + math.cos(math.pi * (step - 1) / 3)) / 2
        optimizer.param_groups[0]["lr"] = rate
        loss = torch.nn.functional.cross_entropy(network(inputs)[0], labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
    heard = []
    tuned = hydra.fine_tune(
        pruned, data, epochs=steps, learning_rate=peak, batch_size=64, epoch_done=heard.append
    )  # fmt: skip
    np.testing.assert_allclose([one.train_loss for one in heard], losses, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(tuned.logits(inputs), network(inputs)[0], rtol=0, atol=2e-3)


@pytest.mark.parametrize("rank", [None, 2])
def test_a_stopped_run_goes_on_to_the_same_weights(pruned, tmp_path, rank):
    options = {"epochs": 3, "learning_rate": 3e-3, "batch_size": 16, "seed": 4, "lora_rank": rank}
    data, held_out = images(56, 1), images(28, 2)
    curve, heard, notes = [], [], []
    file, other = tmp_path / "run" / "state.safetensors", tmp_path / "other.safetensors"
    whole = hydra.fine_tune(
        pruned, data, validation=held_out, checkpoint=other, epoch_done=curve.append, **options
    )  # fmt: skip
    assert not other.exists(), "nothing is left to go on from"

    def stop(done, total, note):
        if "epoch 3" in note:
            raise hydra.Cancelled

    with pytest.raises(hydra.Cancelled):
        hydra.fine_tune(pruned, data, validation=held_out, checkpoint=file, progress=stop, **options)
    assert file.is_file()
    with pytest.raises(hydra.HydraError, match="belongs to another run"):
        hydra.fine_tune(pruned, data, validation=held_out, checkpoint=file, **{**options, "seed": 5})
    resumed = hydra.fine_tune(
        pruned, data, validation=held_out, checkpoint=file, keep_checkpoint=True, epoch_done=heard.append,
        progress=lambda done, total, note: notes.append(note), **options,
    )  # fmt: skip
    assert heard == curve, "the whole curve, though only the last epoch was trained again"
    assert not any("epoch 1" in note or "epoch 2" in note for note in notes)
    assert resumed.fingerprint == whole.fingerprint
    heard.clear()
    kept = hydra.fine_tune(
        pruned, data, validation=held_out, checkpoint=file, epoch_done=heard.append, progress=stop, **options
    )  # fmt: skip
    assert kept.fingerprint == whole.fingerprint, "taken from the file: stop would have raised in epoch 3"
    assert heard == curve
    assert not kept.network.training
    assert not any(p.requires_grad for p in kept.network.parameters())
    file.write_bytes(b"half a file")
    with pytest.raises(hydra.HydraError, match="cannot be read"):
        hydra.fine_tune(pruned, data, checkpoint=file, **options)


def test_the_epoch_with_the_lowest_validation_nll_is_returned(pruned):
    data, held_out, heard = images(21, 1), images(140, 9), []
    tuned = hydra.fine_tune(
        pruned, data, epochs=40, learning_rate=2e-2, batch_size=7, validation=held_out, patience=3,
        epoch_done=heard.append,
    )  # fmt: skip
    values = [one.validation_nll for one in heard]
    assert len(values) < 40, "it overfits, so it stops"
    assert len(values) == int(np.argmin(values)) + 1 + 3
    assert nll(tuned, held_out) == pytest.approx(min(values), abs=1e-5)


def test_lora_changes_matrices_by_its_rank_and_nothing_else(pruned):
    before, data = pruned.network.state_dict(), images(70, 5)
    tuned = hydra.fine_tune(pruned, data, epochs=2, learning_rate=1e-2, lora_rank=2)
    after = tuned.network.state_dict()
    assert after.keys() == before.keys()
    assert nll(tuned, data) < nll(pruned, data) - 0.1
    for name, tensor in after.items():
        changed = not torch.equal(tensor, before[name])
        matrix = name.startswith("encoder") and name.endswith(("qkv.weight", "out.weight", "fc1.weight", "fc2.weight"))
        if matrix and tensor.numel():
            assert torch.linalg.matrix_rank(tensor - before[name], rtol=1e-4) == 2, name
        else:
            assert changed == name.startswith("readouts."), name
    again = hydra.fine_tune(pruned, data, epochs=2, learning_rate=1e-2, lora_rank=2)
    assert again.fingerprint == tuned.fingerprint


def test_a_fused_ensemble_is_tuned_as_one(backbone):
    data = images(70, 6)
    members = [hydra.prune(backbone, backbone.mask.without([(0, head)])) for head in range(3)]
    fused = hydra.fuse(members)
    before = hydra.predict(fused, data).logits
    tuned = hydra.fine_tune(fused, data, epochs=2, learning_rate=2e-3)
    assert np.array_equal(hydra.predict(fused, data).logits, before)
    assert (tuned.masks, tuned.num_members) == (fused.masks, 3)
    assert nll(tuned, data) < nll(fused, data) - 0.1


def test_merge_gap_is_that_of_both_ensembles(backbone):
    data, other = images(42, 8), images(30, 2, labelled=False)
    members = [hydra.prune(backbone, backbone.mask.without([(0, head)])) for head in range(3)]
    exact = hydra.merge_gap(members, hydra.fuse(members), data)
    assert exact.max_difference < 1e-5
    tuned = [hydra.fine_tune(m, data, epochs=1, learning_rate=3e-3, seed=i) for i, m in enumerate(members)]
    fused = hydra.fuse(tuned)
    gap = hydra.merge_gap(tuned, fused, data, ood={"noise": other})
    inputs = backbone.prepare(list(data.items))
    apart = torch.stack([member.logits(inputs).softmax(-1) for member in tuned]).mean(0)
    together = fused.probabilities(inputs)
    assert gap.mean_difference == pytest.approx(float((apart - together).abs().mean()), abs=1e-6)
    assert gap.max_difference == pytest.approx(float((apart - together).abs().max()), abs=1e-6)
    assert gap.before.metrics["nll"] == pytest.approx(
        log_loss(data.labels, apart.double().numpy(), labels=range(7)), abs=1e-5
    )
    assert gap.after == hydra.evaluate(fused, data, ood={"noise": other})
    assert hydra.MergeGap.from_json(gap.to_json()) == gap
    sides = [
        [hydra.stack_members([hydra.predict(m, one) for m in tuned]), hydra.predict(fused, one)]
        for one in (data, other)
    ]
    assert merge_gap_of(*sides[0], *({"noise": one} for one in sides[1])) == gap
    with pytest.raises(hydra.HydraError, match="on the same data"):
        merge_gap_of(sides[0][0], sides[1][1])
    with pytest.raises(hydra.HydraError, match="keep other heads"):
        hydra.merge_gap(tuned[::-1], fused, data)


@pytest.mark.parametrize("name", ["bert", "open-clip"])
def test_other_families_learn_by_lora_too(name, tmp_path):
    from tests import rows

    case = rows.case(name, tmp_path)
    inputs, labels = case.known, torch.tensor(case.labels)
    tuned = hydra.fine_tune(case.backbone, case.data, epochs=8, learning_rate=1e-2, batch_size=5, lora_rank=2)
    losses = [float(torch.nn.functional.cross_entropy(m.logits(inputs), labels)) for m in (case.backbone, tuned)]
    assert losses[1] < losses[0] - 0.1
