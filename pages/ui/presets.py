"""One-click masks for a member. Pure: heads in, heads out."""

from collections.abc import Sequence

import numpy as np

from hydra_core.masks import HeadMask


def top_heads(values: np.ndarray, count: int, widths: Sequence[int]) -> HeadMask:
    """Keep the `count` heads of each layer with the highest value; equal values: the lower head first.

    Args:
        values: (L, max heads), NaN where a layer has no such head.
        widths: heads of each layer.
    """
    rows = []
    for row, width in zip(values, widths, strict=True):
        usable = np.where(np.isfinite(row[:width]), row[:width], -np.inf)
        best = set(np.argsort(-usable, kind="stable")[:count].tolist())
        rows.append([head in best for head in range(width)])
    return HeadMask(rows)


def random_heads(count: int, widths: Sequence[int], seed: int) -> HeadMask:
    """Keep `count` heads of each layer, drawn at random."""
    generator = np.random.default_rng(seed)
    rows = []
    for width in widths:
        chosen = set(generator.permutation(width)[:count].tolist())
        rows.append([head in chosen for head in range(width)])
    return HeadMask(rows)


def full(widths: Sequence[int]) -> HeadMask:
    """Keep every head."""
    return HeadMask([[True] * width for width in widths])
