"""Grids of patches, entropy, distance and composition against values computed by hand, for every family."""

import math

import numpy as np
import pytest
import torch

import hydra_core as hydra
from hydra_core.attention import attention_distance, attention_entropy, attention_over_patches, patch_grid
from hydra_core.scoring.composition import composition
from tests import rows

FAMILIES = ("vit", "deit-teacher", "bert", "distilbert", "roberta", "open-clip")


@pytest.fixture(scope="module", params=FAMILIES)
def case(request, tmp_path_factory):
    return rows.case(request.param, tmp_path_factory.mktemp("originals"))


def test_the_grid_is_what_is_left_behind_the_tokens_in_front(case):
    """H14; that the maps are the original library's is in test_backbones.py."""
    if case.backbone.family == "bert":
        assert case.backbone.patch_grid is None
        return
    height, width = case.known["pixel_values"].shape[-2:]
    patch = 6 if case.backbone.family == "vit" else 5
    assert case.backbone.patch_grid == (height // patch, width // patch)
    row = case.backbone.attention_maps(case.known)[0][:, :, 0]  # the CLS token's attention
    picture = attention_over_patches(row, case.backbone.patch_grid)
    assert picture.shape[-2:] == case.backbone.patch_grid
    front = row.shape[-1] - math.prod(case.backbone.patch_grid)
    assert front == (2 if "teacher" in case.original.name else 1)
    torch.testing.assert_close(picture.sum((-2, -1)) + row[..., :front].sum(-1), torch.ones_like(row[..., 0]))
    assert torch.equal(picture[..., -1, -1], row[..., -1])
    assert torch.equal(picture[..., 0, 1], row[..., front + 1])


def test_square_grids_and_the_message_for_others():
    assert patch_grid(197) == (14, 14)
    assert patch_grid(201, prefix=5) == (14, 14)  # CLS and four registers
    with pytest.raises(hydra.HydraError, match="201 tokens less 1 in front leave 200 patches, which form no square"):
        patch_grid(201)
    with pytest.raises(hydra.HydraError, match="4 tokens cannot fill a grid of 3 x 3"):
        attention_over_patches(torch.ones(2, 4), (3, 3))


def test_entropy_and_distance_by_hand():
    maps = torch.zeros(2, 2, 5, 5, dtype=torch.float64)
    maps[:, 0] = 0.2  # alike everywhere
    maps[:, 1] = torch.eye(5)  # each token looks at itself
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    entropy = attention_entropy(maps, mask)
    torch.testing.assert_close(entropy, torch.tensor([[math.log(5), 0.0]] * 2, dtype=torch.float64))
    text = attention_distance(maps, key_mask=mask)
    # token 0: (0+1+2+3+4)/5 = 2, token 1: 1.4, token 2: 1.2, then mirrored
    torch.testing.assert_close(text[0], torch.tensor([(2 + 1.4 + 1.2 + 1.4 + 2) / 5, 0.0], dtype=torch.float64))
    torch.testing.assert_close(text[1], torch.tensor([1.7, 0.0], dtype=torch.float64))
    image = attention_distance(maps, grid=(2, 2))  # 4 patches behind CLS, each 0, 1, 1 and sqrt 2 away
    torch.testing.assert_close(image[0], torch.tensor([(2 + math.sqrt(2)) / 4, 0.0], dtype=torch.float64))


def test_composition_equals_the_products_written_out(case):
    """Whole (D x D) matrices, multiplied through centring and gains one after another."""
    found = composition(case.backbone)
    blocks = [case.backbone.network.encoder.layer(i) for i in range(case.original.layers)]
    width = blocks[0].shape.width
    centre = torch.eye(width, dtype=torch.float64) - 1 / width

    def heads(block):
        packed = block.qkv.weight.view(3, -1, block.shape.head_dim, width)
        return packed[0], packed[1], packed[2], block.out.weight.view(-1, block.shape.head_dim, width)

    def gain(norm):
        return torch.diag(norm.weight[0]) @ centre

    for first, second in ((0, 1), (0, 2), (1, 2)):
        path = torch.eye(width, dtype=torch.float64)
        if blocks[first].scale1 is not None:
            path = torch.diag(blocks[first].scale1.weight[0])
        for block in blocks[first:second]:
            path = path if block.shape.pre_norm else gain(block.norm2) @ gain(block.norm1) @ path
        if blocks[second].shape.pre_norm:
            path = gain(blocks[second].norm1) @ path
        _, _, value, out = heads(blocks[first])
        query, key, value2, out2 = heads(blocks[second])
        for i, j in ((0, 0), (1, 2), (2, 1)):
            writes = path @ out[i].T @ value[i]
            asks = query[j].T @ key[j]
            moves = out2[j].T @ value2[j]
            for kind, reads in (("q", asks.T), ("k", asks), ("v", moves)):
                expected = (reads @ writes).norm() / (reads.norm() * writes.norm())
                assert found.of(kind)[first, i, second, j] == pytest.approx(float(expected), abs=1e-9)
    assert np.isnan(found.q[1, :, 1]).all()
    assert np.isnan(found.q[2, :, 0]).all()
    assert 0 <= np.nanmin(found.v) <= np.nanmax(found.v) <= 1


def test_composition_of_a_pruned_backbone_has_gaps_where_heads_are_gone(case):
    pruned = hydra.prune(case.backbone, case.backbone.mask.without([(0, 1), (2, 0)]))
    whole, found = composition(case.backbone), composition(pruned)
    assert np.isnan(found.k[0, 1]).all()
    assert np.isnan(found.k[:, :, 2, 0]).all()
    assert found.k[0, 2, 2, 1] == pytest.approx(whole.k[0, 2, 2, 1], abs=1e-12)
