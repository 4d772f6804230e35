"""One fused forward against its members run one after another, for random masks (hypothesis), families and formats."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hydra_core as hydra
from hydra_core.backbones import network
from tests import originals
from tests.originals import Original

# The batched and the ragged path, LayerNorm before and after, CLS and mean pooling, text with padding; the others slow.
QUICK = ("vit", "bert", "open-clip-quick")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in originals.NAMES if name not in QUICK]
DTYPES = ("float64", "float32", "bfloat16")


@pytest.fixture(scope="module", params=[*QUICK, *SLOW])
def models(request, tmp_path_factory) -> tuple[Original, dict[str, hydra.Backbone]]:
    original = originals.build(request.param, tmp_path_factory.mktemp("originals"))
    load = {
        dtype: hydra.load_backbone(original.ref, device="cpu", dtype=dtype, **original.load_options) for dtype in DTYPES
    }
    return original, load


@st.composite
def member_masks(draw, layers: int = 3, heads: int = 3) -> list[hydra.HeadMask]:
    """M masks (1 to 8) of one of the shapes that fusion treats differently; `heads` at least 3."""
    members = draw(st.integers(1, 8))
    row = st.lists(st.booleans(), min_size=heads, max_size=heads)
    kind = draw(st.sampled_from(["uneven", "even", "equal prefix", "identical", "empty layer"]))
    if kind == "identical":
        return [hydra.HeadMask(draw(st.lists(row, min_size=layers, max_size=layers)))] * members
    rows = [[draw(row) for _ in range(layers)] for _ in range(members)]
    if kind == "even":
        counts = [draw(st.integers(0, heads)) for _ in range(layers)]
        chosen = [[draw(st.permutations(range(heads)))[:count] for count in counts] for _ in range(members)]
        rows = [[[head in ids for head in range(heads)] for ids in one] for one in chosen]
    if kind == "equal prefix":
        shared = draw(st.integers(1, layers))
        rows = [rows[0][:shared] + one[shared:] for one in rows]
    if kind == "empty layer":
        empty = draw(st.integers(0, layers - 1))
        which = draw(st.sets(st.integers(0, members - 1), min_size=1))
        rows = [[*one[:empty], [False] * heads, *one[empty + 1 :]] if m in which else one for m, one in enumerate(rows)]
    return [hydra.HeadMask(one) for one in rows]


def check(original: Original, backbones: dict[str, hydra.Backbone], masks: list[hydra.HeadMask]) -> None:
    apart, together = {}, {}
    for dtype, backbone in backbones.items():
        members = [hydra.prune(backbone, mask) for mask in masks]
        fused = hydra.fuse(members)
        apart[dtype] = torch.stack([member.logits(original.inputs) for member in members]).double()
        together[dtype] = fused.member_logits(original.inputs).double()
        assert together[dtype].shape == apart[dtype].shape
    exact, scale = apart["float64"], max(1.0, float(apart["float64"].abs().max()))
    torch.testing.assert_close(together["float64"], exact, rtol=0, atol=1e-10)
    torch.testing.assert_close(together["float32"], apart["float32"], rtol=0, atol=1e-5 * scale)
    # Another order of summation rounds differently in bfloat16, but no worse than the members themselves do.
    members_error = float((apart["bfloat16"] - exact).abs().max())
    fused_error = float((together["bfloat16"] - exact).abs().max())
    assert fused_error <= 1.5 * members_error + 0.01 * scale


def drawn(models, data) -> None:
    original, backbones = models
    check(original, backbones, data.draw(member_masks(original.layers, original.heads)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fused_equals_the_members_one_after_another(models, data):
    drawn(models, data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fused_equals_the_members_for_many_more_masks(models, data):
    drawn(models, data)


def test_a_large_batch_in_parts_equals_it_whole(models, monkeypatch):
    original, backbones = models
    backbone = backbones["float64"]
    masks = [backbone.mask.without([(0, head), (1, 0)]) for head in range(3)]
    fused = hydra.fuse([hydra.prune(backbone, mask) for mask in masks])
    batch = len(next(iter(original.inputs.values())))
    gates = torch.ones(batch, original.layers, original.heads, dtype=torch.float64)
    gates[1, 2, 1] = gates[2, 0, 2] = 0
    whole = [fused.member_logits(original.inputs, g) for g in (None, gates, gates[1:2])]
    monkeypatch.setattr(network, "STREAM_BYTES_ON_CPU", 1)  # one sample a part
    with torch.no_grad():
        assert fused.network._parts(fused.network.embed(original.inputs)) == batch
    for expected, g in zip(whole, (None, gates, gates[1:2]), strict=True):
        torch.testing.assert_close(fused.member_logits(original.inputs, g), expected, rtol=0, atol=1e-10)
