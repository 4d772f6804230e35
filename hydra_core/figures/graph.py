"""The circuit as a graph: heads in layer rows, edges where one head reads what an earlier one writes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.figures.heads import add_targets, head_axes
from hydra_core.masks import HeadMask

MAX_EDGES = 300  # more are a grey cloud; the strongest are drawn
_CLASSES = ((2 / 3, 3.0, 0.9), (1 / 3, 1.8, 0.6), (0.0, 1.0, 0.4))  # place in the range, line width, opacity
_ROW = 64  # pixels a layer

Edge = tuple[float, int, int, int, int]  # strength, from (layer, head), to (layer, head)


def strongest_edges(strengths: Any, threshold: float, heads: HeadMask | None = None) -> list[Edge]:
    """Pairs of heads whose composition reaches `threshold`, the strongest first.

    Args:
        strengths: (L, H, L, H), NaN where there is no such pair (see :mod:`hydra_core.scoring.composition`).
        threshold: smallest strength to list.
        heads: list only edges between heads that it keeps; None lists all.
    """
    table = np.asarray(strengths, dtype=np.float64)
    if table.ndim != 4 or table.shape[:2] != table.shape[2:]:
        raise HydraError(f"strengths of shape (layers, heads, layers, heads) are needed, got {table.shape}")
    places = [(int(a), int(b), int(c), int(d)) for a, b, c, d in np.argwhere(table >= threshold)]
    found = [(float(table[place]), *place) for place in places]
    if heads is not None:
        found = [edge for edge in found if heads.keep[edge[1]][edge[2]] and heads.keep[edge[3]][edge[4]]]
    return sorted(found, key=lambda edge: (-edge[0], edge[1:]))


def circuit_graph(
    strengths: Any,
    widths: tuple[int, ...],
    *,
    threshold: float,
    circuits: Mapping[str, HeadMask] | None = None,
    only_circuits: bool = False,
    selected: tuple[int, int] | None = None,
    focus: bool = False,
    kind: str = "K",
    unrelated: float | None = None,
    title: str = "Which heads read what earlier heads write",
    dark: bool | None = None,
) -> go.Figure:
    """Heads as nodes in layer rows, edges by composition strength; trace ``heads`` carries customdata [layer, head].

    Args:
        strengths: (L, H, L, H), from 0 to 1.
        widths: heads of each layer.
        threshold: weaker edges are left out.
        circuits: name -> chosen heads, marked with one shape and colour each.
        only_circuits: leave out edges that touch a head that no circuit chose.
        selected: (layer, head) with a frame.
        focus: draw the selected head's edges alone, in colour.
        kind: of composition, for the texts: ``Q``, ``K`` or ``V``.
        unrelated: what two unrelated matrices come to, for the subtitle.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.
    """
    union = None
    if circuits and only_circuits:
        masks = list(circuits.values())
        union = HeadMask([[any(m.keep[i][j] for m in masks) for j in range(w)] for i, w in enumerate(widths)])
    edges = strongest_edges(strengths, threshold, union)
    focus = focus and selected is not None
    if focus:
        edges = [edge for edge in edges if selected in (edge[1:3], edge[3:5])]
    shown = edges[:MAX_EDGES]
    figure = go.Figure()
    _add_edges(figure, shown, threshold, style.SECOND if focus else style.NEUTRAL)
    cells = [(i, j) for i, width in enumerate(widths) for j in range(width)]
    figure.add_scatter(
        x=[j for _, j in cells],
        y=[i for i, _ in cells],
        mode="markers",
        marker={
            "symbol": "circle",
            "size": 32 if circuits else 16,
            "color": "rgba(124, 138, 135, 0.25)",  # on a light ground and a dark one
            "line": {"color": style.NEUTRAL, "width": 1},
        },
        hoverinfo="skip",
        showlegend=False,
        name="all heads",
    )
    chosen = circuits or {}
    for k, (name, mask) in enumerate(chosen.items()):
        heads = sorted(mask.kept)
        # side by side within the node, which is as wide whatever the number of heads across
        offset = (k - (len(chosen) - 1) / 2) * 0.01 * max(widths)
        figure.add_scatter(
            x=[j + offset for _, j in heads],
            y=[i for i, _ in heads],
            mode="markers",
            name=f"{name} ({len(heads)} heads)",
            marker={"symbol": style.symbol(k), "size": 9, "color": style.colour(k, dark),
                    "line": {"color": "white", "width": 1}},
            hoverinfo="skip",
        )  # fmt: skip
    if selected is not None:
        layer, head = selected
        figure.add_shape(
            type="rect", x0=head - 0.4, x1=head + 0.4, y0=layer - 0.42, y1=layer + 0.42,
            line={"color": style.SECOND, "width": 3},
        )  # fmt: skip
    _add_targets(figure, cells, edges, chosen)
    left_out = f", the {MAX_EDGES} strongest drawn" if len(edges) > MAX_EDGES else ""
    base = "" if unrelated is None else f"; unrelated matrices come to about {unrelated:.2f}"
    style.finish(
        figure,
        title=title,
        subtitle=f"{kind}-composition from the weights, {len(edges)} edges of at least {threshold:.2f}{left_out}{base}",
        alt=_says(edges, widths, kind, threshold, chosen),
        dark=dark,
        height=_ROW * len(widths) + 190,
        legend=bool(chosen),
    )
    head_axes(figure, len(widths), max(widths))
    figure.update_layout(
        hovermode="closest", clickmode="event+select", dragmode=False, legend={"y": -60 / (_ROW * len(widths))}
    )
    return figure


def _add_edges(figure: go.Figure, edges: list[Edge], threshold: float, colour: str) -> None:
    """One trace a class of strength: plotly draws one width a trace."""
    top = max((edge[0] for edge in edges), default=threshold)
    spread = max(top - threshold, 1e-12)
    for k, (low, width, opacity) in enumerate(_CLASSES):
        high = _CLASSES[k - 1][0] if k else np.inf
        part = [edge for edge in edges if low <= (edge[0] - threshold) / spread < high]
        if not part:
            continue
        x: list[float | None] = []
        y: list[float | None] = []
        for _, layer1, head1, layer2, head2 in part:
            x += [head1, head2, None]
            y += [layer1, layer2, None]
        figure.add_scatter(
            x=x, y=y, mode="lines", line={"color": colour, "width": width}, opacity=opacity, hoverinfo="skip",
            showlegend=False, name=f"from {threshold + low * spread:.2f}",
        )  # fmt: skip


def _add_targets(
    figure: go.Figure, cells: list[tuple[int, int]], edges: list[Edge], circuits: Mapping[str, HeadMask]
) -> None:
    """Invisible circles on top that can be clicked and say what a head reads and what reads it."""

    def says(layer: int, head: int) -> str:
        reads = [f"{a}.{b} ({s:.2f})" for s, a, b, c, d in edges if (c, d) == (layer, head)][:5]
        feeds = [f"{c}.{d} ({s:.2f})" for s, a, b, c, d in edges if (a, b) == (layer, head)][:5]
        of = [name for name, mask in circuits.items() if mask.keep[layer][head]]
        lines = [f"layer {layer}, head {head}", *([f"in {', '.join(of)}"] if of else [])]
        lines += [f"reads {', '.join(reads)}"] if reads else []
        lines += [f"read by {', '.join(feeds)}"] if feeds else []
        return "<br>".join(lines)

    add_targets(figure, cells, [says(*cell) for cell in cells], symbol="circle", size=32)


def _says(
    edges: list[Edge], widths: tuple[int, ...], kind: str, threshold: float, circuits: Mapping[str, HeadMask]
) -> str:
    strongest = [f"layer {a} head {b} to layer {c} head {d} ({s:.2f})" for s, a, b, c, d in edges[:3]]
    marked = f" {style.listed([f'{n} marks {m.num_kept} heads' for n, m in circuits.items()])}." if circuits else ""
    return (
        f"Graph of {sum(widths)} heads in {len(widths)} layers with {len(edges)} edges of {kind}-composition of at "
        f"least {threshold:.2f}" + (f"; strongest: {style.listed(strongest)}." if strongest else ".") + marked
    )
