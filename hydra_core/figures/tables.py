"""A table of metrics: best bold, second underlined; as CSV, LaTeX, HTML, and as a figure to save as PNG."""

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from hydra_core.errors import HydraError
from hydra_core.figures import style

_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Column:
    """One metric.

    Attributes:
        key: in each row's values.
        label: with its unit.
        better: ``higher``, ``lower``, or None where neither is.
        digits: decimals shown; what is equal when shown ranks equal.
        percent: show 100 times the value.
    """

    key: str
    label: str
    better: Literal["higher", "lower"] | None = None
    digits: int = 3
    percent: bool = False

    def show(self, value: float | None) -> str:
        """The value as it stands in the table; a dash where it is undefined."""
        return "–" if value is None else f"{value * (100 if self.percent else 1):.{self.digits}f}"


@dataclass(frozen=True)
class MetricTable:
    """Rows of models, columns of metrics.

    Attributes:
        rows: name -> values by column key; a missing or None value is undefined.
        columns: what is shown, in order.
        caption: sample count, seeds, conventions.
    """

    rows: Mapping[str, Mapping[str, float | None]]
    columns: Sequence[Column]
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.rows or not self.columns:
            raise HydraError("a table needs at least one row and one column")

    def ranks(self, column: Column) -> dict[str, int]:
        """Row name -> 1 (best) or 2 (second) by the value as shown; none where `better` is None."""
        if column.better is None:
            return {}
        shown = {
            name: float(column.show(value))
            for name, row in self.rows.items()
            if (value := row.get(column.key)) is not None
        }
        order = sorted(set(shown.values()), reverse=column.better == "higher")[:2]
        return {name: order.index(value) + 1 for name, value in shown.items() if value in order}

    def cells(self, bold: tuple[str, str], underline: tuple[str, str]) -> list[list[str]]:
        """The shown values row by row, best and second wrapped in the given marks."""
        ranks = [self.ranks(column) for column in self.columns]
        marks = {1: bold, 2: underline}
        rows = []
        for name, row in self.rows.items():
            cells = []
            for column, rank in zip(self.columns, ranks, strict=True):
                before, after = marks.get(rank.get(name, 0), ("", ""))
                cells.append(f"{before}{column.show(row.get(column.key))}{after}")
            rows.append(cells)
        return rows

    def to_csv(self) -> str:
        """Full precision, an empty field where undefined."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["model", *[column.label for column in self.columns]])
        for name, row in self.rows.items():
            values = [row.get(column.key) for column in self.columns]
            writer.writerow([name, *["" if value is None else repr(float(value)) for value in values]])
        return out.getvalue()

    def to_latex(self) -> str:
        """A tabular with booktabs rules."""
        arrows = {"higher": r" $\uparrow$", "lower": r" $\downarrow$", None: ""}
        head = [f"{_escape(column.label)}{arrows[column.better]}" for column in self.columns]
        lines = [rf"\begin{{tabular}}{{l{'r' * len(head)}}}", r"\toprule", " & ".join(["Model", *head]) + r" \\"]
        lines.append(r"\midrule")
        for name, cells in zip(self.rows, self.cells((r"\textbf{", "}"), (r"\underline{", "}")), strict=True):
            lines.append(" & ".join([_escape(name), *[cell.replace("–", "--") for cell in cells]]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.caption:
            lines.append(f"% {self.caption}")
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """A table element with a caption, readable by a screen reader."""
        head = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in ["Model", *self._labels()])
        body = "".join(
            f'<tr><th scope="row">{html.escape(name)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
            for name, cells in zip(self.rows, self.cells(("<b>", "</b>"), ("<u>", "</u>")), strict=True)
        )
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _labels(self) -> list[str]:
        arrows = {"higher": " ↑", "lower": " ↓", None: ""}
        return [column.label + arrows[column.better] for column in self.columns]

    def figure(self, *, title: str, dark: bool | None = None) -> go.Figure:
        """The table as a figure, to save as PNG."""
        ink = style.text_colour(bool(dark))
        cells = self.cells(("<b>", "</b>"), ("<u>", "</u>"))
        columns = [list(self.rows), *[list(column) for column in zip(*cells, strict=True)]]
        line = {"color": style.NEUTRAL, "width": 0.5}
        clear = "rgba(0,0,0,0)"
        align = ["left", *["right"] * len(self.columns)]
        figure = go.Figure(
            go.Table(
                columnwidth=[2.2, *[1] * len(self.columns)],
                header={
                    "values": [f"<b>{text}</b>" for text in ["Model", *self._labels()]],
                    "align": align,
                    "fill": {"color": clear},
                    "line": line,
                    "font": {"color": ink, "size": 12},
                },
                cells={
                    "values": columns,
                    "align": align,
                    "fill": {"color": clear},
                    "line": line,
                    "font": {"color": ink, "size": 12},
                    "height": 26,
                },
            )
        )
        parts = []
        for column in self.columns:
            best = [name for name, rank in self.ranks(column).items() if rank == 1]
            if best:
                value = column.show(self.rows[best[0]].get(column.key))
                parts.append(f"best {column.label} {value} ({style.listed(best)})")
        alt = f"Table of {len(self.rows)} models and {len(self.columns)} metrics: {style.listed(parts)}."
        note = "best bold, second underlined" + (f"; {self.caption}" if self.caption else "")
        height = 26 * len(self.rows) + 200
        return style.finish(figure, title=title, subtitle=note, alt=alt, dark=dark, height=height, legend=False)


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
