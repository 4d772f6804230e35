"""Reliability diagrams."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.metrics.calibration import Bin

_MAX_ACROSS = 4


def reliability_diagram(
    models: Mapping[str, Sequence[Bin]],
    *,
    title: str = "Reliability: bars under the dashed line mean over-confidence",
    kind: str = "top-label",
    dark: bool | None = None,
) -> go.Figure:
    """Accuracy against confidence by bin, one panel a model, with the number of samples of each bin beneath.

    An empty bin has no bar. Bars carry customdata [model's position, bin's index].

    Args:
        models: name -> bins of :func:`hydra_core.metrics.reliability`.
        title: what to see.
        kind: what was binned, for the subtitle.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no model.
    """
    if not models:
        raise HydraError("there is no model to draw a reliability diagram of")
    names = list(models)
    across = min(len(names), _MAX_ACROSS)
    blocks = -(-len(names) // across)
    padded = names + [""] * (across * blocks - len(names))
    titles: list[str] = []
    for block in range(blocks):
        titles += padded[block * across : (block + 1) * across] + [""] * across
    figure = make_subplots(
        rows=2 * blocks,
        cols=across,
        row_heights=[0.75, 0.25] * blocks,
        vertical_spacing=0.04 if blocks == 1 else 0.09 / blocks,
        horizontal_spacing=0.3 / across / 2.5,
        subplot_titles=titles,
        shared_xaxes=True,
    )
    parts = []
    for k, name in enumerate(names):
        row, column = 2 * (k // across) + 1, k % across + 1
        bins = list(models[name])
        _add_panel(figure, bins, row, column, k, dark)
        # the axis is named under the lowest panel of each column
        if k + across >= len(names):
            figure.update_xaxes(title="confidence", showticklabels=True, row=row + 1, col=column)
        parts.append(_describe(name, bins))
    counts = {sum(one.count for one in bins) for bins in models.values()}
    n = f"n = {counts.pop()}" if len(counts) == 1 else "n differs, see the counts"
    style.finish(
        figure,
        title=title,
        subtitle=f"{kind}, {len(next(iter(models.values())))} equal-width bins, {n}; counts beneath",
        alt=f"Reliability diagram. {' '.join(parts)}",
        dark=dark,
        height=420 * blocks,
        legend=False,
    )
    figure.update_layout(barmode="overlay", bargap=0)
    return figure


def _add_panel(figure: go.Figure, bins: list[Bin], row: int, column: int, position: int, dark: bool | None) -> None:
    place = {"row": row, "col": column}
    filled = [(i, one) for i, one in enumerate(bins) if one.accuracy is not None and one.confidence is not None]
    centres = [(one.lower + one.upper) / 2 for _, one in filled]
    widths = [(one.upper - one.lower) * 0.92 for _, one in filled]
    data = [[position, i] for i, _ in filled]
    figure.add_bar(
        x=centres,
        y=[one.accuracy for _, one in filled],
        width=widths,
        marker={"color": style.colour(0, dark), "opacity": 0.85},
        customdata=data,
        hovertext=[
            f"confidence {one.lower:.3f} to {one.upper:.3f}<br>accuracy {one.accuracy:.3f}<br>mean confidence "
            f"{one.confidence:.3f}<br>{one.count} samples"
            for _, one in filled
        ],
        hoverinfo="text",
        name="accuracy",
        **place,
    )
    figure.add_scatter(
        x=[one.confidence for _, one in filled],
        y=[one.confidence for _, one in filled],
        mode="markers",
        marker={"symbol": "line-ew-open", "size": 12, "color": style.colour(1, dark), "line": {"width": 2}},
        hoverinfo="skip",
        name="mean confidence",
        **place,
    )
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"dash": "dash", "color": style.NEUTRAL, "width": 1.5},
        hoverinfo="skip",
        name="calibrated",
        **place,
    )
    figure.add_bar(
        x=centres,
        y=[one.count for _, one in filled],
        width=widths,
        marker={"color": style.NEUTRAL},
        customdata=data,
        hovertemplate="%{y} samples<extra></extra>",
        name="samples",
        row=row + 1,
        col=column,
    )
    figure.update_xaxes(range=[0, 1], row=row, col=column)
    figure.update_xaxes(range=[0, 1], row=row + 1, col=column)
    first = column == 1
    figure.update_yaxes(range=[0, 1], title="accuracy" if first else None, row=row, col=column)
    figure.update_yaxes(title="samples" if first else None, rangemode="tozero", nticks=3, row=row + 1, col=column)


def _describe(name: str, bins: list[Bin]) -> str:
    total = sum(one.count for one in bins)
    filled = [one for one in bins if one.gap is not None]
    if not filled:
        return f"{name}: no samples."
    error = sum(one.count * (one.gap or 0.0) for one in filled) / total
    worst = max(filled, key=lambda one: one.gap or 0.0)
    return (
        f"{name}: calibration error {error:.3f} over {total} samples in {len(filled)} of {len(bins)} bins; largest gap "
        f"{worst.gap:.3f} where confidence is {worst.lower:.2f} to {worst.upper:.2f}."
    )
