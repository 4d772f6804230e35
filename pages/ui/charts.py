"""Drawing plotly figures the same way on every page: title in the figure, alt text, a PNG download in its corner."""

from typing import Any

import streamlit as st


def config(name: str) -> dict[str, Any]:
    """The chart's tool bar: one button, which saves it as a PNG called `name`."""
    return {
        "displaylogo": False,
        "displayModeBar": True,
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": name, "scale": 2},
    }


def draw(figure: Any, *, name: str, alt: str, key: str) -> None:
    """A chart to look at."""
    st.plotly_chart(figure, key=key, config=config(name), alt=alt)


def number(value: float | None, digits: int = 3) -> str:
    """A figure for a table; a dash where it is undefined."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percent; a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"
