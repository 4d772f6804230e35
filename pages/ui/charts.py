"""Drawing plotly figures the same way on every page: title in the figure, alt text, downloads as PNG and HTML."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from hydra_core.figures import ACCENT, MetricTable, alt_text
from pages.ui import state

_BAR = {"bgcolor": "rgba(0,0,0,0)", "color": "#7C8A87", "activecolor": ACCENT}


def config(name: str) -> dict[str, Any]:
    """The chart's tool bar: one button, which saves it as a PNG called `name`."""
    return {
        "displaylogo": False,
        "displayModeBar": True,
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "filename": name, "scale": 2},
    }


def draw(figure: Any, *, name: str, key: str) -> None:
    """A chart of hydra_core.figures to look at; its alt text comes with it."""
    figure.update_layout(modebar=_BAR)
    st.plotly_chart(figure, key=key, config=config(name), alt=alt_text(figure))
    page_download(figure, name, key)


def pick(figure: Any, *, name: str, key: str, on_pick: Callable[[Any], None]) -> None:
    """A chart whose marks can be clicked; `on_pick` gets the clicked mark's customdata, in a callback."""

    def picked() -> None:
        points = (st.session_state.get(key) or {}).get("selection", {}).get("points", [])
        # A second click on the same mark takes the selection back, which changes nothing here.
        if points and "customdata" in points[0]:
            on_pick(points[0]["customdata"])

    figure.update_layout(modebar=_BAR)
    # plotly fades all marks but the clicked one; here a click opens something and the picture stays as it is
    figure.for_each_trace(
        lambda trace: trace.update(
            unselected={"marker": {"opacity": 1 if trace.marker.opacity is None else trace.marker.opacity}}
        ),
        selector={"type": "scatter"},
    )
    st.plotly_chart(
        figure, key=key, config=config(name), alt=alt_text(figure), on_select=picked, selection_mode="points"
    )
    page_download(figure, name, key)


def page_download(figure: Any, name: str, key: str) -> None:
    """A button that takes the figure away as an HTML page that works with no network; made when it is clicked."""
    with st.container(horizontal=True, horizontal_alignment="right", key=f"html-{key}"):
        st.download_button(
            "HTML", lambda: figure.to_html(include_plotlyjs=True), file_name=f"{name}.html", mime="text/html",
            on_click="ignore", key=f"{key}/html", icon=":material/download:", type="tertiary",
            help="Save this figure as an interactive page",
        )  # fmt: skip


def table_html(table: MetricTable) -> None:
    """A metric table: best bold, second underlined, real text."""
    st.html(f'<div class="hydra-table">{table.to_html()}</div>')


def number(value: float | None, digits: int = 3) -> str:
    """A figure for a table; a dash where it is undefined."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as percent; a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def downloads(table: pd.DataFrame, name: str, text: str | None = None) -> None:
    """Buttons that take a table away as CSV and parquet, and `text` (what the study stores) as JSON, on a click."""
    files: list[tuple[str, Callable[[], str | bytes], str]] = [
        ("CSV", lambda: table.to_csv(index=False), "text/csv"),
        ("parquet", lambda: table.to_parquet(index=False), "application/vnd.apache.parquet"),
    ]
    if text is not None:
        files.append(("JSON", lambda: text, "application/json"))
    with st.container(horizontal=True, gap="small"):
        for kind, data, mime in files:
            st.download_button(
                f"Download as {kind}", data, file_name=f"{name}.{kind.lower()}", mime=mime, on_click="ignore",
                key=state.key("download", name, kind), icon=":material/download:",
            )  # fmt: skip
