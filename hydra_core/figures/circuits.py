"""Circuits over one another, and a number for each pair of members."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import plotly.graph_objects as go

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.figures.heads import head_axes, row_height
from hydra_core.masks import HeadMask, mean_overlap


def circuit_layers(circuits: Mapping[str, HeadMask], *, title: str, dark: bool | None = None) -> go.Figure:
    """Circuits over one another: one marker shape and colour each, side by side in the head's cell.

    Args:
        circuits: name -> the heads of the circuit, all of one backbone.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no circuit, or circuits of different backbones.
    """
    if not circuits:
        raise HydraError("there is no circuit to draw; find one first")
    names, masks = list(circuits), list(circuits.values())
    for mask in masks[1:]:
        masks[0].require_same_shape(mask)
    widths = masks[0].widths
    cells = [(i, j) for i, width in enumerate(widths) for j in range(width)]
    figure = go.Figure(
        go.Scatter(
            x=[j for _, j in cells],
            y=[i for i, _ in cells],
            mode="markers",
            marker={"symbol": "circle-open", "size": 20, "color": style.NEUTRAL, "opacity": 0.5},
            hoverinfo="skip",
            name="all heads",
            showlegend=False,
        )
    )
    for k, (name, mask) in enumerate(circuits.items()):
        heads = sorted(mask.kept)
        offset = (k - (len(names) - 1) / 2) * min(0.2, 0.7 / len(names))
        figure.add_scatter(
            x=[j + offset for _, j in heads],
            y=[i for i, _ in heads],
            mode="markers",
            name=f"{name} ({len(heads)} heads)",
            marker={"symbol": style.symbol(k), "size": 9, "color": style.colour(k, dark)},
            customdata=[[i, j] for i, j in heads],
            hovertemplate=f"{name}<br>layer %{{customdata[0]}}, head %{{customdata[1]}}<extra></extra>",
        )
    overlaps = [
        f"{a} and {b} share {len(circuits[a].kept & circuits[b].kept)} heads (Jaccard "
        f"{circuits[a].jaccard(circuits[b]):.2f})"
        for a, b in combinations(names, 2)
    ]
    sizes = style.listed([f"{name} has {circuits[name].num_kept} heads" for name in names])
    style.finish(
        figure,
        title=title,
        subtitle="layers down, heads across"
        + (f"; mean overlap (Jaccard) {mean_overlap(masks):.2f}" if len(masks) > 1 else ""),
        alt=f"Circuits by layer: {sizes}. {'; '.join(overlaps)}".strip() + ".",
        dark=dark,
        height=row_height(len(widths)) * len(widths) + 190,
    )
    head_axes(figure, len(widths), max(widths))
    figure.update_layout(hovermode="closest")
    return figure


def pair_matrix(
    values: Any, names: list[str], *, title: str, unit: str, digits: int = 3, dark: bool | None = None
) -> go.Figure:
    """A number for each pair of members (disagreement, KL, Jaccard), as text on colour.

    Args:
        values: (M, M).
        names: of the members.
        title: what to see.
        unit: what a value is.
        digits: decimals shown.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: the shape does not fit the names.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(names), len(names)):
        raise HydraError(f"{len(names)} names need a table of that many rows and columns, got {table.shape}")
    figure = go.Figure(
        go.Heatmap(
            z=table,
            x=names,
            y=names,
            colorscale=style.SEQUENTIAL,
            texttemplate=f"%{{z:.{digits}f}}",
            hovertemplate=f"%{{y}} against %{{x}}<br>{unit}: %{{z:.{digits}f}}<extra></extra>",
            colorbar={"title": unit, "thickness": 14},
            xgap=1,
            ygap=1,
        )
    )
    pairs = [f"{names[i]} against {names[j]} {table[i, j]:.{digits}f}" for i, j in combinations(range(len(names)), 2)]
    alt = f"Table of {unit} between members: {style.listed(pairs)}."
    style.finish(figure, title=title, subtitle=unit, alt=alt, dark=dark, height=60 * len(names) + 170, legend=False)
    figure.update_yaxes(autorange="reversed")
    return figure
