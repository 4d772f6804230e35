"""Attention over a picture, and over the tokens of a sentence."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hydra_core.errors import HydraError
from hydra_core.figures import style

MAX_TOKENS = 48  # beside one another, with room to read them


def attention_picture(
    picture: Any,
    image: Any,
    *,
    title: str = "Where this head looks",
    subtitle: str = "",
    unit: str = "attention",
    dark: bool | None = None,
) -> go.Figure:
    """A picture beside the same picture under a head's attention to its patches.

    Args:
        picture: (rows, columns) attention to each patch, at least 0.
        image: (height, width, 3) uint8, as the person sees it; the grid covers all of it.
        title: what to see.
        subtitle: sample, head and query token.
        unit: what a patch's value is.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no table of attention, or no RGB picture.
    """
    weights, pixels = np.asarray(picture, dtype=np.float64), np.asarray(image)
    if weights.ndim != 2 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise HydraError(
            f"attention (rows, columns) and a picture (height, width, 3) are needed, got {weights.shape} and "
            f"{pixels.shape}"
        )
    height, width = pixels.shape[:2]
    step = height / weights.shape[0], width / weights.shape[1]
    figure = make_subplots(cols=2, rows=1, horizontal_spacing=0.06)
    for column in (1, 2):
        figure.add_trace(go.Image(z=pixels, hoverinfo="skip"), row=1, col=column)
    figure.add_trace(
        go.Heatmap(
            z=weights,
            x0=step[1] / 2 - 0.5,
            dx=step[1],
            y0=step[0] / 2 - 0.5,
            dy=step[0],
            zmin=0,
            zmax=float(weights.max()) or 1.0,
            colorscale=style.SEQUENTIAL,
            opacity=0.7,
            colorbar={"title": {"text": unit, "side": "top"}, "thickness": 14, "tickformat": ".2~g"},
            customdata=np.stack(np.meshgrid(*map(np.arange, weights.shape), indexing="ij"), axis=-1),
            hovertemplate="patch row %{customdata[0]}, column %{customdata[1]}<br>"
            f"{unit}: %{{z:.3f}}<extra></extra>",
        ),
        row=1,
        col=2,
    )
    most = np.unravel_index(int(weights.argmax()), weights.shape)
    alt = (
        f"A picture, and {unit} over its {weights.shape[0]} x {weights.shape[1]} patches: most, {weights.max():.3f}, "
        f"at row {most[0]}, column {most[1]}; {weights.sum():.2f} of the attention goes to patches."
    )
    style.finish(figure, title=title, subtitle=subtitle, alt=alt, dark=dark, height=360, legend=False)
    hidden = {"showticklabels": False, "showgrid": False, "zeroline": False, "automargin": False}
    figure.update_xaxes(**hidden, range=[-0.5, width - 0.5], constrain="domain")
    figure.update_yaxes(**hidden, range=[height - 0.5, -0.5], constrain="domain")
    figure.update_yaxes(scaleanchor="x", row=1, col=1)
    figure.update_yaxes(scaleanchor="x2", row=1, col=2)
    figure.update_layout(margin={"l": 10, "r": 10, "t": 84, "b": 10})
    return figure


def attention_tokens(
    attention: Any,
    tokens: Sequence[str],
    *,
    title: str = "Which words this head reads for which",
    subtitle: str = "",
    dark: bool | None = None,
) -> go.Figure:
    """A head's attention between the tokens of a sentence: query down, key across.

    Args:
        attention: (T, T), rows sum to 1.
        tokens: T tokens; past ``MAX_TOKENS`` the rest is left out, and the subtitle says so.
        title: what to see.
        subtitle: sample and head.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: the table does not fit the tokens.
    """
    table = np.asarray(attention, dtype=np.float64)
    if table.shape != (len(tokens), len(tokens)):
        raise HydraError(f"{len(tokens)} tokens need a table of that many rows and columns, got {table.shape}")
    shown = list(tokens[:MAX_TOKENS])
    part = table[: len(shown), : len(shown)]
    labels = [f"{i} {token}" for i, token in enumerate(shown)]  # a word that comes twice needs two names
    figure = go.Figure(
        go.Heatmap(
            z=part,
            x=labels,
            y=labels,
            zmin=0,
            colorscale=style.SEQUENTIAL,
            colorbar={"title": {"text": "attention", "side": "top"}, "thickness": 14},
            hovertemplate="%{y} reads %{x}<br>attention: %{z:.3f}<extra></extra>",
        )
    )
    row, column = np.unravel_index(int(part.argmax()), part.shape)
    cut = f"; the first {len(shown)} of {len(tokens)} tokens" if len(shown) < len(tokens) else ""
    alt = (
        f"Attention between {len(shown)} tokens: strongest {part.max():.2f}, {shown[row]} reads {shown[column]}; the "
        f"first token, {shown[0]}, reads {shown[int(part[0].argmax())]} most ({part[0].max():.2f})."
    )
    style.finish(
        figure, title=title, subtitle=f"{subtitle}{cut}", alt=alt, dark=dark, height=18 * len(shown) + 240, legend=False
    )
    figure.update_xaxes(title="key: read from", tickangle=-60, showgrid=False, dtick=1)
    figure.update_yaxes(title="query: for", autorange="reversed", showgrid=False, dtick=1)
    return figure


def attention_sentence(weights: Sequence[float], tokens: Sequence[str]) -> str:
    """The sentence as HTML, each token on a ground as strong as the attention it gets; the text itself is escaped.

    Args:
        weights: T values, at least 0.
        tokens: T tokens.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (len(tokens),):
        raise HydraError(f"{len(tokens)} tokens need as many weights, got {values.shape}")
    top = float(values.max()) or 1.0
    red, green, blue = (int(style.ACCENT[i : i + 2], 16) for i in (1, 3, 5))
    spans = [
        f'<span title="{value:.3f}" style="background: rgba({red}, {green}, {blue}, {0.75 * value / top:.2f}); '
        f'border-radius: 4px; padding: 0.1em 0.3em; line-height: 2">{html.escape(token)}</span>'
        for token, value in zip(tokens, values, strict=True)
    ]
    return " ".join(spans)
