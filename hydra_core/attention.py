"""What attention maps look like: grids of patches, distance and entropy of each head."""

import math
from typing import Any

import torch
from torch import Tensor

from hydra_core.errors import HydraError


def patch_grid(num_tokens: int, prefix: int = 1) -> tuple[int, int]:
    """Rows and columns of the square grid that the tokens behind CLS and register tokens form.

    Args:
        num_tokens: tokens of one input, all counted.
        prefix: tokens in front that are no patches: CLS, a distillation token, registers.

    Raises:
        HydraError: the patches left form no square.
    """
    patches = num_tokens - prefix
    side = math.isqrt(max(patches, 0))
    if patches < 1 or side * side != patches:
        raise HydraError(
            f"{num_tokens} tokens less {prefix} in front leave {patches} patches, which form no square grid; "
            "say how many tokens in front are no patches (CLS, registers), or the grid itself"
        )
    return side, side


def attention_over_patches(row: Any, grid: tuple[int, int]) -> Any:
    """One token's attention (..., T) as a picture (..., rows, columns); what goes to tokens in front is left out.

    Args:
        row: attention of one query token, a tensor or an array; it sums to 1 over all T tokens, so the picture sums to
            at most 1.
        grid: rows and columns of the patches, which are the last tokens.

    Raises:
        HydraError: fewer tokens than the grid has patches.
    """
    patches = grid[0] * grid[1]
    if row.shape[-1] < patches:
        raise HydraError(f"{row.shape[-1]} tokens cannot fill a grid of {grid[0]} x {grid[1]} patches")
    return row[..., -patches:].reshape(*row.shape[:-1], *grid)


def attention_entropy(maps: Tensor, key_mask: Tensor | None = None) -> Tensor:
    """Entropy of each head's attention in nats, mean over query tokens: 0 (one token) to log T (all alike).

    Args:
        maps: (B, H, T, T), rows sum to 1.
        key_mask: (B, T) bool, False at padding, whose rows are left out.

    Returns:
        (B, H).
    """
    rows = torch.special.entr(maps).sum(-1)  # (B, H, T)
    return _mean_over_tokens(rows, key_mask)


def attention_distance(maps: Tensor, grid: tuple[int, int] | None = None, key_mask: Tensor | None = None) -> Tensor:
    """How far each head looks: the mean distance from a token to those it attends to, weighted by attention.

    For images in patches, as in Dosovitskiy et al. (arXiv 2010.11929), figure 7: between patch centres, from patches to
    patches, the attention to other tokens left out and the rest brought to sum 1. For text (``grid=None``) in tokens.

    Args:
        maps: (B, H, T, T), rows sum to 1.
        grid: rows and columns of the patches, which are the last tokens; None for text.
        key_mask: (B, T) bool, False at padding, whose rows are left out.

    Returns:
        (B, H).
    """
    if grid is None:
        places = torch.arange(maps.shape[-1], device=maps.device, dtype=maps.dtype)[:, None]
    else:
        patches = grid[0] * grid[1]
        maps = maps[..., -patches:, -patches:]
        maps = maps / maps.sum(-1, keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)
        rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
        places = torch.stack([rows.flatten(), columns.flatten()], dim=1).to(maps)
    distances = torch.cdist(places, places)  # (T, T)
    return _mean_over_tokens((maps * distances).sum(-1), None if grid is not None else key_mask)


def _mean_over_tokens(rows: Tensor, key_mask: Tensor | None) -> Tensor:
    if key_mask is None:
        return rows.mean(-1)
    weights = key_mask.to(rows)[:, None]
    return (rows * weights).sum(-1) / weights.sum(-1)
