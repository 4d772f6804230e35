"""Adapters, gates, pruning and fusion against the original libraries (float64)."""

import copy
import random
import threading

import pytest
import torch

import hydra_core as hydra
from tests import originals
from tests.originals import Original


@pytest.fixture(scope="module", params=originals.NAMES)
def original(request, tmp_path_factory) -> Original:
    return originals.build(request.param, tmp_path_factory.mktemp("originals"))


@pytest.fixture(scope="module")
def backbone(original: Original) -> hydra.Backbone:
    return hydra.load_backbone(original.ref, device="cpu", dtype="float64", **original.load_options)


def gates_of(mask: hydra.HeadMask) -> torch.Tensor:
    return torch.tensor(mask.keep, dtype=torch.float64)


def uneven_masks(backbone: hydra.Backbone) -> list[hydra.HeadMask]:
    """Three members: uneven heads a layer, one with a layer that lost all of them, one equal to the backbone."""
    rng = random.Random(3)
    uneven = [[rng.random() < 0.6 for _ in range(w)] for w in backbone.mask.widths]
    uneven[0][0], uneven[1][1] = True, False
    empty = [[j != 1 for j in range(w)] for w in backbone.mask.widths]
    empty[1] = [False] * len(empty[1])
    return [hydra.HeadMask(uneven), hydra.HeadMask(empty), backbone.mask]


def test_logits_equal_the_original_library(original, backbone):
    torch.testing.assert_close(backbone.logits(original.inputs), original.logits(), rtol=0, atol=1e-9)
    assert backbone.parity.max_difference <= backbone.parity.tolerance
    assert backbone.class_names == original.classes
    assert backbone.num_heads == (original.heads,) * original.layers


def test_a_gate_equals_zeroed_columns_of_the_output_projection(original, backbone):
    full = original.logits()
    for layer in range(original.layers):
        for head in range(original.heads):
            gates = torch.ones(original.layers, original.heads, dtype=torch.float64)
            gates[layer, head] = 0
            expected = original.logits([(layer, head)])
            assert (expected - full).abs().max() > 1e-6, "the reference must depend on this head"
            torch.testing.assert_close(backbone.logits(original.inputs, gates), expected, rtol=0, atol=1e-9)


def test_per_sample_gates(original, backbone):
    batch = len(next(iter(original.inputs.values())))
    gates = torch.ones(batch, original.layers, original.heads, dtype=torch.float64)
    for i in range(batch):
        gates[i, i % original.layers, i % original.heads] = 0
    got = backbone.logits(original.inputs, gates)
    for i in range(batch):
        expected = original.logits([(i % original.layers, i % original.heads)])[i]
        torch.testing.assert_close(got[i], expected, rtol=0, atol=1e-9)


def test_masked_equals_pruned_equals_fused(original, backbone):
    masks = uneven_masks(backbone)
    before = backbone.logits(original.inputs)
    members = [hydra.prune(backbone, mask) for mask in masks]
    fused = hydra.fuse(members)
    together = fused.member_logits(original.inputs)
    for mask, member, ours in zip(masks, members, together, strict=True):
        cut = [(i, j) for i, row in enumerate(mask.keep) for j, kept in enumerate(row) if not kept]
        expected = original.logits(cut)
        assert member.num_heads == mask.kept_per_layer
        masked = backbone.logits(original.inputs, gates_of(mask))
        torch.testing.assert_close(masked, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(member.logits(original.inputs), masked, rtol=0, atol=1e-10)
        torch.testing.assert_close(ours, masked, rtol=0, atol=1e-10)
    mean = torch.stack([logits.softmax(-1) for logits in together]).mean(0)
    torch.testing.assert_close(fused.probabilities(original.inputs), mean, rtol=0, atol=1e-12)
    assert torch.equal(before, backbone.logits(original.inputs)), "the backbone must stay bitwise as it was"


def test_even_members_and_a_shared_prefix(original, backbone):
    """The batched path, and layers before the first difference run once (counted, and still equal)."""
    last = original.layers - 1
    masks = [backbone.mask.without([(0, 0), (last, head)]) for head in range(3)]
    members = [hydra.prune(backbone, mask) for mask in masks]
    fused = hydra.fuse(members)
    assert fused.report["shared_layers"] == last
    assert fused.flops() < sum(member.flops() for member in members)
    for member, ours in zip(members, fused.member_logits(original.inputs), strict=True):
        torch.testing.assert_close(ours, member.logits(original.inputs), rtol=0, atol=1e-10)


def test_identical_members_are_one_stream(original, backbone):
    member = hydra.prune(backbone, backbone.mask.without([(1, 1)]))
    fused = hydra.fuse([member, member])
    assert fused.report["shared_layers"] == original.layers
    expected = member.logits(original.inputs).expand(2, -1, -1)
    torch.testing.assert_close(fused.member_logits(original.inputs), expected, rtol=0, atol=1e-10)


def test_all_heads_of_a_layer_pruned_adds_the_output_bias_only(original, backbone):
    """H16, against the original with the whole projection zeroed."""
    mask = backbone.mask.without([(1, head) for head in range(original.heads)])
    assert mask.empty_layers == (1,)
    logits = hydra.prune(backbone, mask).logits(original.inputs)
    assert torch.isfinite(logits).all()
    expected = original.logits([(1, head) for head in range(original.heads)])
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)


def test_masking_all_heads_changes_logits_and_is_finite(original, backbone):
    """H13."""
    full = backbone.logits(original.inputs)
    none = backbone.logits(original.inputs, torch.zeros(1, 1, 1))
    assert torch.isfinite(none).all()
    assert (none - full).abs().max() > 1e-3


def test_indices_stay_the_originals_after_pruning(original, backbone):
    once = hydra.prune(backbone, backbone.mask.without([(0, 0)]))
    twice = hydra.prune(once, backbone.mask.without([(0, 2)]))
    assert twice.mask.kept_in(0) == tuple(j for j in range(original.heads) if j not in (0, 2))
    expected = original.logits([(0, 0), (0, 2)])
    torch.testing.assert_close(twice.logits(original.inputs), expected, rtol=0, atol=1e-9)
    gates = torch.ones(original.layers, original.heads, dtype=torch.float64)
    gates[0, 2] = 0
    torch.testing.assert_close(once.logits(original.inputs, gates), expected, rtol=0, atol=1e-9)


def test_attention_maps_are_the_originals(original, backbone):
    """H14, rows sum to 1; where the original can return its maps, they are equal."""
    maps = backbone.attention_maps(original.inputs)
    tokens = maps[0].shape[-1]
    batch = len(next(iter(original.inputs.values())))
    assert [tuple(m.shape) for m in maps] == [(batch, original.heads, tokens, tokens)] * original.layers
    for m in maps:
        torch.testing.assert_close(m.sum(-1), torch.ones_like(m.sum(-1)), rtol=0, atol=1e-9)
    if not original.name.startswith("open-clip"):
        original.model.set_attn_implementation("eager")
        theirs = original.model(**original.inputs, output_attentions=True).attentions
        original.model.set_attn_implementation("sdpa")
        for ours, m in zip(maps, theirs, strict=True):
            # The library's own eager softmax runs in float32.
            torch.testing.assert_close(ours, m.to(ours.dtype), rtol=0, atol=1e-6)


def test_saved_ensemble_is_bit_identical(original, backbone, tmp_path):
    """H15 within one process; tests/test_ensemble_io.py loads in a new one."""
    fused = hydra.fuse([hydra.prune(backbone, mask) for mask in uneven_masks(backbone)])
    hydra.save_ensemble(fused, tmp_path / "ensemble")
    again = hydra.load_ensemble(tmp_path / "ensemble", device="cpu")
    assert again.masks == fused.masks
    assert again.class_names == fused.class_names
    assert again.fingerprint == fused.fingerprint
    assert torch.equal(again.member_logits(original.inputs), fused.member_logits(original.inputs))


def test_two_threads_with_different_gates_do_not_meet(original, backbone):
    """H20: gates are an argument, so nothing of one session shows in another."""
    expected = {h: backbone.logits(original.inputs, gates_of(backbone.mask.without([(0, h)]))) for h in (0, 1)}
    wrong = []

    def work(head: int) -> None:
        gates = gates_of(backbone.mask.without([(0, head)]))
        for _ in range(30):
            if not torch.equal(backbone.logits(original.inputs, gates), expected[head]):
                wrong.append(head)

    threads = [threading.Thread(target=work, args=(head,)) for head in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_flops_equal_what_torch_counts(original, backbone):
    """Operation counts against FlopCounterMode on meta tensors (the CPU's attention is not counted by it)."""
    from torch.utils.flop_counter import FlopCounterMode

    for model in (backbone, hydra.fuse([hydra.prune(backbone, m) for m in uneven_masks(backbone)])):
        network = copy.deepcopy(model.network).to("meta")
        inputs = {k: v.to("meta") for k, v in original.inputs.items() if k != "attention_mask"}
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            network(inputs)
        tokens = backbone.network.embed.num_tokens() or original.inputs["input_ids"].shape[1]
        assert model.flops(batch_size=4, tokens=tokens) == counter.get_total_flops()


@pytest.mark.parametrize("shape", [(2, 2), (3, 1, 99), (9, 9, 9, 9)])
def test_gates_of_a_wrong_shape_are_refused(original, backbone, shape):
    with pytest.raises(hydra.HydraError, match="gates of shape"):
        backbone.logits(original.inputs, torch.ones(shape))
