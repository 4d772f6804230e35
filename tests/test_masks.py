"""Laws of head masks (hypothesis), and mask files of another backbone."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hydra_core as hydra
from hydra_core import HeadMask, read_mask_file, write_head_lists, write_mask_file

rows = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5)


@given(rows)
def test_json_brings_back_an_equal_mask(keep):
    mask = HeadMask(keep)
    again = HeadMask.from_json(mask.to_json())
    assert again == mask
    assert hash(again) == hash(mask)
    assert again.keep == tuple(tuple(row) for row in keep)


@given(rows, st.data())
def test_toggling_twice_changes_nothing(keep, data):
    mask = HeadMask(keep)
    layer = data.draw(st.integers(0, len(keep) - 1))
    head = data.draw(st.integers(0, len(keep[layer]) - 1))
    once = mask.toggle(layer, head)
    assert once != mask
    assert once.toggle(layer, head) == mask
    assert mask.without([(layer, head)]).keep[layer][head] is False
    assert abs(once.num_kept - mask.num_kept) == 1


@given(rows)
def test_overlap_against_plain_sets(keep):
    mask, other = HeadMask(keep), HeadMask([row[::-1] for row in keep])
    a = {(i, j) for i, row in enumerate(keep) for j, v in enumerate(row) if v}
    b = {(i, j) for i, row in enumerate(keep) for j, v in enumerate(row[::-1]) if v}
    assert mask.jaccard(other) == (len(a & b) / len(a | b) if a | b else 1.0)
    assert mask.jaccard(mask) == 1.0
    assert mask.complement().kept & mask.kept == frozenset()
    assert mask.kept_per_layer == tuple(sum(row) for row in keep)
    assert mask.empty_layers == tuple(i for i, row in enumerate(keep) if not any(row))


@pytest.mark.parametrize("bad", [[], [[2]], [["false"]], 3, [3], [[None]]])
def test_what_is_no_mask_is_refused(bad):
    with pytest.raises(hydra.HydraError, match="head mask"):
        HeadMask(bad)


@pytest.mark.parametrize("text", ["", "[", "{}", "3", '{"keep": 3}', '{"keep": [[2]]}', "null"])
def test_what_is_no_mask_file_is_refused(text):
    with pytest.raises(hydra.HydraError):
        HeadMask.from_json(text)


def test_heads_that_do_not_exist_are_named():
    mask = HeadMask([[True, True], [True]])
    with pytest.raises(hydra.HydraError, match="head 1 does not exist in layer 1: it has heads 0 to 0"):
        mask.toggle(1, 1)
    with pytest.raises(hydra.HydraError, match="layer 2 does not exist"):
        mask.without([(2, 0)])
    with pytest.raises(hydra.HydraError, match="different backbones"):
        mask.jaccard(HeadMask([[True]]))


def test_a_mask_file_of_another_backbone_is_refused():
    mine = HeadMask([[True, False], [True, True]])
    backbone = SimpleNamespace(fingerprint="a" * 64, ref="mine", mask=HeadMask([[True, True], [True, True]]))
    text = write_mask_file([mine], backbone.fingerprint, "mine")
    assert read_mask_file(text, backbone) == [mine]
    other = SimpleNamespace(fingerprint="b" * 64, ref="theirs", mask=backbone.mask)
    with pytest.raises(hydra.HydraError, match=r"'mine' .*aaaaaaaaaaaa.*'theirs', fingerprint bbbbbbbbbbbb"):
        read_mask_file(text, other)
    wrong = json.dumps({**json.loads(text), "members": [{"keep": [[True]]}]})
    with pytest.raises(hydra.HydraError, match="1 layers x 1 heads"):
        read_mask_file(wrong, backbone)


# --- lists of heads ---


@given(rows)
def test_lists_of_heads_against_a_plain_loop_and_back(keep):
    mask = HeadMask(keep)
    kept, pruned = {}, {}
    for layer, row in enumerate(keep):
        kept[layer] = [head for head in range(len(row)) if row[head]]
        cut = [head for head in range(len(row)) if not row[head]]
        if cut:
            pruned[layer] = cut
    assert mask.kept_lists() == kept
    assert mask.pruned_lists() == pruned
    assert HeadMask.from_pruned_lists(pruned, mask.widths) == mask


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=2, max_size=2).map(HeadMask))
def test_a_file_of_head_lists_is_read_like_a_mask_file(mask):
    masks = [mask, mask.complement()]
    backbone = SimpleNamespace(fingerprint="a" * 64, ref="mine", mask=HeadMask([[True] * 3] * 2))
    text = write_head_lists(masks, backbone.fingerprint, "mine", "by hand")
    assert read_mask_file(text, backbone) == masks
    data = json.loads(text)
    # as transformers 4 reads config.pruned_heads: keys back to numbers
    lists = [{int(layer): heads for layer, heads in member["pruned"].items()} for member in data["members"]]
    assert lists == [one.pruned_lists() for one in masks]
    assert (data["note"], data["heads_per_layer"]) == ("by hand", [3, 3])
    with pytest.raises(hydra.HydraError, match="open that backbone first"):
        read_mask_file(text, SimpleNamespace(fingerprint="b" * 64, ref="theirs", mask=backbone.mask))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": [{"pruned": {"0": [3]}}]}, "head 3 does not exist in layer 0"),
        ({"members": [{"pruned": {"2": [0]}}]}, "layer 2 does not exist"),
        ({"members": [{"pruned": {"0": [1]}, "kept": {"0": [0, 1, 2], "1": [0, 1, 2]}}]}, "do not fit each other"),
        ({"members": [{"pruned": {"0": 1}}]}, "lists of heads by layer"),
        ({"members": [{"pruned": {"one": [1]}}]}, "lists of heads by layer"),
        ({"members": [{"pruned": {"0": ["1"]}}]}, "a head is a whole number"),
        ({"members": [{"kept": {"0": [1]}}]}, "lists of heads by layer"),
        ({"members": [3]}, "lists of heads by layer"),
        ({"heads_per_layer": None}, "number of heads in each layer"),
    ],
)
def test_damaged_head_lists_are_refused(change, words):
    backbone = SimpleNamespace(fingerprint="a" * 64, ref="mine", mask=HeadMask([[True] * 3] * 2))
    data = json.loads(write_head_lists([backbone.mask], backbone.fingerprint, "mine"))
    with pytest.raises(hydra.HydraError, match=words):
        read_mask_file(json.dumps({**data, **change}), backbone)
