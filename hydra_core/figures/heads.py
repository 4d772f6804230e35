"""A value for each attention head: layers down, heads across, both counted from 0."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.masks import HeadMask, describe_widths

Floats = NDArray[np.float64]
_NUMBERS_UP_TO = 8  # heads across with room for a number in each cell


def robust_limits(values: Any) -> tuple[float, float]:
    """Colour limits that one outlier cannot stretch: the range without what lies beyond Tukey's outer fences.

    Args:
        values: any shape; NaN is left out.

    Returns:
        (low, high), low <= high: the extremes of the values within three interquartile ranges of the quartiles.

    Raises:
        HydraError: no finite value.
    """
    flat = np.asarray(values, dtype=np.float64)
    flat = flat[np.isfinite(flat)]
    if not flat.size:
        raise HydraError("there is no value to draw")
    first, third = np.quantile(flat, [0.25, 0.75])
    reach = 3 * (third - first)
    inside = flat[(flat >= first - reach) & (flat <= third + reach)]
    # Most values equal: the fences hold nothing else, and the rest is what there is to see.
    if inside.min() == inside.max():
        inside = flat
    return float(inside.min()), float(inside.max())


def _layer_scaled(values: Floats, robust: bool) -> Floats:
    """Each row scaled to 0 .. 1 by its own limits; a constant row is 0.5."""
    out = np.full_like(values, np.nan)
    for i, row in enumerate(values):
        finite = row[np.isfinite(row)]
        if not finite.size:
            continue
        low, high = robust_limits(row) if robust else (float(finite.min()), float(finite.max()))
        out[i] = np.where(np.isfinite(row), 0.5, np.nan) if low == high else (row - low) / (high - low)
    return out


def head_heatmap(
    values: Any,
    *,
    title: str,
    kept: HeadMask | None = None,
    chosen: HeadMask | None = None,
    scale: Literal["layer", "whole"] = "whole",
    robust: bool = True,
    selected: tuple[int, int] | None = None,
    unit: str = "importance",
    dark: bool | None = None,
) -> go.Figure:
    """A value for each head as colour. The trace ``heads`` carries customdata [layer, head] and can be clicked.

    Args:
        values: (L, H), NaN where a layer has no such head.
        title: what to see.
        kept: heads that are not kept are crossed out.
        chosen: heads that are chosen get a ring.
        scale: ``whole`` colours by the value; ``layer`` by its place between the layer's smallest and largest.
        robust: leave outliers out of the colour limits (they take the end colour, and the subtitle counts them).
        selected: (layer, head) with a frame.
        unit: what a value is, for the colour bar.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: `values` is no table, holds no finite value, a mask lacks a head of it, or an unknown scale.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).any():
        raise HydraError(f"a table (layers, heads) with at least one value is needed, got {table.shape}")
    if scale not in ("layer", "whole"):
        raise HydraError(f"scale must be 'layer' or 'whole', got {scale!r}")
    for mask in (kept, chosen):
        if mask is not None and not {(i, j) for i, w in enumerate(mask.widths) for j in range(w)} >= {*_cells(table)}:
            raise HydraError(
                f"the mask is of another backbone: it has {describe_widths(mask.widths)}, the values have "
                f"{table.shape[0]} layers of up to {table.shape[1]} heads"
            )
    by_layer = scale == "layer"
    shown = _layer_scaled(table, robust) if by_layer else table
    low, high = (0.0, 1.0) if by_layer else robust_limits(table) if robust else _extremes(table)
    beyond = int((np.isfinite(shown) & ((shown < low) | (shown > high))).sum())
    signed = not by_layer and low < 0 < high
    if signed:
        high = max(-low, high)
        low = -high
    equal = low == high
    if equal:
        # one colour from the middle of the scale, and numbers at the bar's ends that differ
        reach = abs(low) * 0.5 or 1.0
        low, high = low - reach, high + reach
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            zmin=low,
            zmax=high,
            colorscale=style.DIVERGING if signed else style.SEQUENTIAL,
            xgap=1,
            ygap=1,
            hoverinfo="skip",
            colorbar={
                "title": {"text": "place within<br>the layer" if by_layer else unit, "side": "top"},
                "tickformat": ".3~g",
                "thickness": 14,
            },
        )
    )
    _add_numbers(figure, table, (shown - low) / (high - low), kept, signed)
    _add_marks(figure, table, kept, chosen, selected)
    _add_buttons(figure, table, kept, chosen, unit)
    notes = [f"{table.shape[0]} layers x {table.shape[1]} heads, colour by {'layer' if by_layer else 'value'}"]
    if beyond:
        notes.append(f"{beyond} beyond the colour scale")
    if equal:
        notes.append("all values equal")
    rows = table.shape[0]
    best = np.unravel_index(int(np.nanargmax(table)), table.shape)
    worst = np.unravel_index(int(np.nanargmin(table)), table.shape)
    alt = (
        f"Heatmap of {unit} for {int(np.isfinite(table).sum())} heads in {table.shape[0]} layers: largest "
        f"{table[best]:.3g} at layer {best[0]}, head {best[1]}; smallest {table[worst]:.3g} at layer {worst[0]}, "
        f"head {worst[1]}"
        + (f"; {kept.num_kept} heads kept" if kept is not None else "")
        + (f"; {chosen.num_kept} heads chosen" if chosen is not None else "")
        + "."
    )
    style.finish(
        figure,
        title=title,
        subtitle="; ".join(notes),
        alt=alt,
        dark=dark,
        height=row_height(rows) * rows + 190,
        legend=kept is not None or chosen is not None,
    )
    head_axes(figure, *table.shape)
    # A click anywhere in a cell finds its marker.
    figure.update_layout(hovermode="closest", hoverdistance=-1, clickmode="event+select", dragmode=False)
    return figure


def _extremes(table: Floats) -> tuple[float, float]:
    return float(np.nanmin(table)), float(np.nanmax(table))


def row_height(num_layers: int) -> int:
    """Pixels a layer: generous where there are few."""
    return 34 if num_layers <= 8 else 24


def head_axes(figure: go.Figure, num_layers: int, num_heads: int) -> None:
    """Every layer and head is numbered, in a size that can be read."""
    tick = {"tickmode": "linear", "tick0": 0, "tickfont": {"size": 11}, "showgrid": False, "zeroline": False}
    figure.update_xaxes(
        title="Head", dtick=1 if num_heads <= 24 else 2, range=[-0.5, num_heads - 0.5], constrain="domain", **tick
    )
    figure.update_yaxes(title="Layer", dtick=1, range=[num_layers - 0.5, -0.5], **tick)
    figure.update_layout(legend={"y": -60 / (row_height(num_layers) * num_layers)})


def _add_numbers(figure: go.Figure, table: Floats, places: Floats, kept: HeadMask | None, signed: bool) -> None:
    """A number in each cell where there is room, none under a cross; dark on bright cells, white on dark ones.

    Args:
        places: (L, H), each cell's place on the colour scale, 0 to 1 within the limits.
        signed: the scale is the diverging one, bright in the middle, not the sequential one, bright at its end.
    """
    if table.shape[1] > _NUMBERS_UP_TO:
        return
    cells = [(i, j) for i, j in _cells(table) if kept is None or _has(kept, i, j)]
    clipped = np.clip(places, 0, 1)
    bright = np.abs(clipped - 0.5) < 0.3 if signed else clipped > 0.5
    figure.add_scatter(
        x=[j for _, j in cells],
        y=[i for i, _ in cells],
        mode="text",
        text=[f"{table[cell]:.2g}" for cell in cells],
        textfont={"color": ["#10201D" if bright[cell] else "#FFFFFF" for cell in cells], "size": 12},
        hoverinfo="skip",
        showlegend=False,
        name="numbers",
    )


def _has(mask: HeadMask, layer: int, head: int) -> bool:
    return mask.keep[layer][head]


def _cells(table: Floats) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in np.argwhere(np.isfinite(table))]


def _add_marks(
    figure: go.Figure,
    table: Floats,
    kept: HeadMask | None,
    chosen: HeadMask | None,
    selected: tuple[int, int] | None,
) -> None:
    cells = _cells(table)
    room = table.shape[1] <= _NUMBERS_UP_TO
    marks: list[tuple[str, list[tuple[int, int]], dict[str, Any]]] = []
    white = {"color": "white", "width": 2}
    if kept is not None:
        cut = [cell for cell in cells if not _has(kept, *cell)]
        marks.append(("cut", cut, {"symbol": "x", "size": 11, "color": style.SECOND, "line": {**white, "width": 1}}))
    if chosen is not None:
        ring = [cell for cell in cells if _has(chosen, *cell)]
        marks.append(("chosen", ring, {"symbol": "circle", "size": 12, "color": style.SECOND, "line": white}))
    if selected is not None:
        layer, head = selected
        corners = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
        figure.add_shape(type="rect", line={"color": style.SECOND, "width": 4}, **corners)
    for name, where, marker in marks:
        figure.add_scatter(
            # a ring stands beside the cell's number, not on it
            x=[j - 0.38 if name == "chosen" and room else j for _, j in where],
            y=[i for i, _ in where],
            mode="markers",
            name=name,
            marker=marker,
            hoverinfo="skip",
        )


def _add_buttons(figure: go.Figure, table: Floats, kept: HeadMask | None, chosen: HeadMask | None, unit: str) -> None:
    """Invisible squares, last and so on top: a heatmap itself sends no click to Streamlit."""
    cells = _cells(table)

    def says(layer: int, head: int) -> str:
        state = [] if kept is None else ["kept" if _has(kept, layer, head) else "cut"]
        state += ["chosen"] if chosen is not None and _has(chosen, layer, head) else []
        value = f"layer {layer}, head {head}<br>{unit}: {table[layer, head]:.4g}"
        return value + (f"<br>{', '.join(state)}" if state else "")

    add_targets(figure, cells, [says(*cell) for cell in cells], symbol="square", size=20)


def add_targets(
    figure: go.Figure, cells: Sequence[tuple[int, int]], texts: Sequence[str], *, symbol: str, size: int
) -> None:
    """Invisible marks, one a head, that can be clicked (customdata [layer, head]) and tell their text on hover."""
    clear = {"marker": {"color": "rgba(0,0,0,0)"}}
    figure.add_scatter(
        x=[j for _, j in cells],
        y=[i for i, _ in cells],
        customdata=[list(cell) for cell in cells],
        hovertext=list(texts),
        hoverinfo="text",
        mode="markers",
        name="heads",
        marker={"symbol": symbol, "size": size, "color": "rgba(0,0,0,0)"},
        selected=clear,
        unselected=clear,
        showlegend=False,
    )
