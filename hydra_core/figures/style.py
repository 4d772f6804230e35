"""What all figures share: colours, backgrounds, titles, and the sentence that says what is in them."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

ACCENT = "#0F766E"  # teal; at least 3:1 against the app's light and dark grounds
SECOND = "#D55E00"  # vermilion (Okabe and Ito's colour-blind-safe set): OOD, and the second of two
NEUTRAL = "#7C8A87"
# Told apart by people who are colour-blind; dashes and markers differ too, so colour is never alone.
PALETTE = (ACCENT, SECOND, "#0072B2", "#B0578D", "#8A6D0B", NEUTRAL)
DARK_PALETTE = ("#2DB5A8", "#F08A3C", "#56B4E9", "#E59BC4", "#D9B84A", "#9AA8A5")  # the same hues, lighter
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
SEQUENTIAL = "Viridis"
DIVERGING = "BrBG"  # brown below zero, teal above

_TEXT = {False: "#17211F", True: "#E8EFED"}
_TEMPLATE = {False: "plotly_white", True: "plotly_dark"}
_GRID = "rgba(124, 138, 135, 0.25)"


def text_colour(dark: bool) -> str:
    """Ink on that ground, for what plotly does not colour by its template (tables)."""
    return _TEXT[dark]


def colour(index: int, dark: bool | None) -> str:
    """The colour of the `index`-th series on that ground; starts again after the last."""
    palette = DARK_PALETTE if dark else PALETTE
    return palette[index % len(palette)]


def dash(index: int) -> str:
    """The line style of the `index`-th series."""
    return DASHES[index % len(DASHES)]


def symbol(index: int) -> str:
    """The marker of the `index`-th series."""
    return SYMBOLS[index % len(SYMBOLS)]


def finish(
    figure: go.Figure, *, title: str, subtitle: str, alt: str, dark: bool | None, height: int, legend: bool = True
) -> go.Figure:
    """Titles, transparent ground, margins and alt text; every figure ends here.

    Args:
        figure: what was drawn.
        title: what to see, as a person would say it.
        subtitle: convention, unit and sample count.
        alt: one sentence with the figure's numbers.
        dark: True or False sets the text's colour for that ground; None leaves it to the page around the figure.
        height: pixels.
        legend: show one.
    """
    figure.update_layout(
        title={
            "text": title,
            "subtitle": {"text": subtitle, "font": {"size": 12}},
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 10},
            "font": {"size": 16},
        },
        template=_TEMPLATE[bool(dark)],
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=height,
        margin={"l": 60, "r": 20, "t": 84, "b": 50},
        showlegend=legend,
        legend={"orientation": "h", "x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top"},
        meta={"alt": alt},
    )
    if dark is not None:
        figure.update_layout(font_color=_TEXT[dark])
    figure.update_xaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    figure.update_yaxes(gridcolor=_GRID, zerolinecolor=_GRID, automargin=True)
    return figure


def alt_text(figure: go.Figure) -> str:
    """The sentence that tells a figure of this package to someone who cannot see it, with its numbers."""
    meta: Any = figure.layout.meta
    return str(meta["alt"]) if meta and "alt" in meta else ""


def listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else "nothing"


def number(value: float | None, digits: int = 3) -> str:
    """A value for a text; a word where it is undefined."""
    return "undefined" if value is None else f"{value:.{digits}f}"
