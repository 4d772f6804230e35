"""Figures: what they draw, not how it looks. The numbers are compared with what went in."""

import csv
import io
from typing import Any

import numpy as np
import pytest

from hydra_core import figures, metrics
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask


def trace(figure: Any, name: str) -> Any:
    return next(one for one in figure.data if one.name == name)


def heatmap(figure: Any) -> Any:
    return next(one for one in figure.data if one.type == "heatmap")


def every_figure(dark: bool | None = None) -> list[Any]:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=50)
    y = rng.integers(0, 4, 50)
    inside, outside = rng.random(30), rng.random(20) + 0.3
    mask = HeadMask(rng.random((3, 4)) < 0.5)
    table = figures.MetricTable({"a": {"x": 0.5}, "b": {}}, [figures.Column("x", "X", "higher")], "n = 50")
    return [
        figures.head_heatmap(rng.random((3, 4)), title="t", kept=mask, chosen=mask, selected=(1, 2), dark=dark),
        figures.reliability_diagram({"m": metrics.reliability(p, y)}, dark=dark),
        figures.ood_histogram(inside, outside, threshold=0.5, dark=dark),
        figures.roc_curve({"m": metrics.roc_points(inside, outside)}, dark=dark),
        figures.pr_curve({"m": metrics.pr_points(inside, outside)}, share_ood=0.4, dark=dark),
        figures.risk_coverage({"m": metrics.risk_coverage(1 - p.max(1), p.argmax(1) == y)}, dark=dark),
        figures.circuit_layers({"loss": mask, "other": mask.complement()}, title="t", dark=dark),
        figures.faithfulness_curve({"c": figures.Series([0, 1], [0.1, None])}, metric="accuracy", dark=dark),
        figures.metric_bars({"a": 0.5, "b": None}, title="t", axis="AUROC", better="higher", dark=dark),
        figures.pair_matrix(np.eye(2), ["a", "b"], title="t", unit="KL (nats)", dark=dark),
        table.figure(title="t", dark=dark),
    ]


@pytest.mark.parametrize("dark", [None, False, True])
def test_every_figure_has_a_title_axis_names_alt_text_and_a_clear_ground(dark: bool | None) -> None:
    for figure in every_figure(dark):
        assert figure.layout.title.text
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
        alt = figures.alt_text(figure)
        assert alt.endswith(".")
        assert any(letter.isdigit() for letter in alt)
        kinds = {one.type for one in figure.data}
        if kinds & {"scatter", "bar"}:
            texts = [axis.title.text for axis in [*figure.select_xaxes(), *figure.select_yaxes()]]
            assert sum(bool(text) for text in texts) >= (1 if figure.layout.xaxis.title.text == "AUROC" else 2)
        figure.to_json()  # what goes to the browser


# --- heads ---


def test_each_head_has_one_clickable_marker_with_its_indices() -> None:
    values = np.arange(12, dtype=float).reshape(3, 4)
    values[1, 3] = np.nan  # this layer has three heads
    buttons = trace(figures.head_heatmap(values, title="t"), "heads")
    expected = [[i, j] for i in range(3) for j in range(4) if (i, j) != (1, 3)]
    assert [list(map(int, pair)) for pair in buttons.customdata] == expected
    assert [[int(y), int(x)] for x, y in zip(buttons.x, buttons.y, strict=True)] == expected
    assert "layer 2, head 1" in buttons.hovertext[expected.index([2, 1])]
    assert "9" in buttons.hovertext[expected.index([2, 1])]
    figure = figures.head_heatmap(values, title="t")
    # it lies on top, looks like nothing, chosen or not, and gets the click from anywhere in the cell
    assert figure.data[-1].name == "heads"
    assert buttons.marker.color == buttons.unselected.marker.color == buttons.selected.marker.color == "rgba(0,0,0,0)"
    assert figure.layout.hoverdistance == -1
    assert heatmap(figure).hoverinfo == "skip"


@pytest.mark.parametrize(("layers", "heads"), [(24, 16), (32, 16), (6, 6), (12, 32)])
def test_b31_large_grids_number_every_layer_in_readable_size(layers: int, heads: int) -> None:
    figure = figures.head_heatmap(np.random.default_rng(0).random((layers, heads)), title="t")
    assert figure.layout.yaxis.dtick == 1
    assert figure.layout.xaxis.dtick == (1 if heads <= 24 else 2)
    assert figure.layout.yaxis.tickfont.size >= 10
    room = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    assert room / layers >= 20
    assert heatmap(figure).showscale is not False
    assert heatmap(figure).colorbar.tickformat


@pytest.mark.parametrize("value", [0.0, 0.3, -2.0, 1e-9])
@pytest.mark.parametrize("scale", ["layer", "whole"])
def test_b31_equal_values_get_one_middle_colour(value: float, scale: Any) -> None:
    drawn = heatmap(figures.head_heatmap(np.full((3, 4), value), title="t", scale=scale))
    z = np.asarray(drawn.z, dtype=float)
    assert np.isfinite(z).all()
    assert drawn.zmin < drawn.zmax
    np.testing.assert_allclose((z - drawn.zmin) / (drawn.zmax - drawn.zmin), 0.5)


def test_b31_one_outlier_does_not_wash_out_the_rest() -> None:
    values = np.random.default_rng(0).uniform(1, 2, (24, 16))
    values[3, 4] = 1000.0
    figure = figures.head_heatmap(values, title="t")
    drawn = heatmap(figure)
    rest = np.delete(values.ravel(), 3 * 16 + 4)
    assert drawn.zmin == rest.min()
    assert drawn.zmax == rest.max()
    assert "1 beyond" in figure.layout.title.subtitle.text
    assert "1e+03" in figures.alt_text(figure)  # but it is said
    plain = heatmap(figures.head_heatmap(values, title="t", robust=False))
    assert plain.zmax == 1000.0
    row = np.asarray(heatmap(figures.head_heatmap(values, title="t", scale="layer")).z, dtype=float)[3]
    inside = np.delete(row, 4)
    assert inside.min() == 0.0
    assert inside.max() == 1.0


def test_limits_when_most_values_are_equal() -> None:
    assert figures.robust_limits([0.0] * 20 + [1.0]) == (0.0, 1.0)
    assert figures.robust_limits([5.0]) == (5.0, 5.0)
    assert figures.robust_limits([1.0, np.nan, 2.0]) == (1.0, 2.0)


def test_signed_values_have_zero_in_the_middle() -> None:
    drawn = heatmap(figures.head_heatmap([[-1.0, 0.5], [0.2, 3.0]], title="t"))
    assert drawn.zmin == -drawn.zmax


def test_layer_scale_runs_from_0_to_1_in_each_layer() -> None:
    values = np.array([[1.0, 2.0, 3.0], [10.0, 30.0, 20.0], [7.0, 7.0, 7.0]])
    z = np.asarray(heatmap(figures.head_heatmap(values, title="t", scale="layer")).z, dtype=float)
    np.testing.assert_allclose(z, [[0, 0.5, 1], [0, 1, 0.5], [0.5, 0.5, 0.5]])


def test_cut_and_chosen_heads_are_marked() -> None:
    kept = HeadMask([[True, False], [True, True]])
    chosen = HeadMask([[False, False], [False, True]])
    figure = figures.head_heatmap([[1.0, 2.0], [3.0, 4.0]], title="t", kept=kept, chosen=chosen, selected=(1, 0))
    cut = trace(figure, "cut")
    assert list(zip(cut.y, cut.x, strict=True)) == [(0, 1)]
    ring = trace(figure, "chosen")
    assert [(y, round(x)) for x, y in zip(ring.x, ring.y, strict=True)] == [(1, 1)]
    frame = figure.layout.shapes[0]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, 0.5, 0.5, 1.5)
    hover = trace(figure, "heads").hovertext
    assert "cut" in hover[1]
    assert "chosen" in hover[3]


def test_circuits_lie_over_one_another_in_their_cells() -> None:
    a, b = HeadMask([[True, False], [True, True]]), HeadMask([[True, True], [False, False]])
    figure = figures.circuit_layers({"loss": a, "auroc": b}, title="t")
    for one, mask in zip(figure.data[1:], (a, b), strict=True):
        assert {(int(i), int(j)) for i, j in one.customdata} == set(mask.kept)
        assert all(abs(x - j) < 0.5 and y == i for (i, j), x, y in zip(one.customdata, one.x, one.y, strict=True))
    assert "Jaccard 0.25" in figures.alt_text(figure)  # 1 shared of 4
    assert figure.data[1].marker.symbol != figure.data[2].marker.symbol


# --- calibration ---


def test_reliability_bars_are_the_bins_and_empty_bins_have_none() -> None:
    bins = metrics.reliability([[0.62, 0.38], [0.64, 0.36]], [0, 0])
    figure = figures.reliability_diagram({"one": bins, "two": bins})
    for bars, key in (("accuracy", "accuracy"), ("samples", "count")):
        for bar in (one for one in figure.data if one.name == bars):
            filled = [one for one in bins if one.count]
            assert list(bar.y) == [getattr(one, key) for one in filled]
            np.testing.assert_allclose(bar.x, [(one.lower + one.upper) / 2 for one in filled])
            assert [int(pair[1]) for pair in bar.customdata] == [9]
    accuracies = [one for one in figure.data if one.name == "accuracy"]
    assert [int(one.customdata[0][0]) for one in accuracies] == [0, 1]
    assert "calibration error 0.370" in figures.alt_text(figure)
    assert {note.text for note in figure.layout.annotations} >= {"one", "two"}


def test_reliability_of_many_models_keeps_every_panel() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), size=60), rng.integers(0, 3, 60)
    models = {f"m{k}": metrics.reliability(p, y) for k in range(6)}
    figure = figures.reliability_diagram(models)
    assert sum(one.name == "accuracy" for one in figure.data) == 6
    assert {note.text for note in figure.layout.annotations} >= set(models)


# --- OOD ---


def test_ood_histogram_holds_every_finite_score_once() -> None:
    inside, outside = np.array([0.0, 0.1, 0.1, np.nan, 0.9]), np.array([1.0, 0.5, np.inf])
    figure = figures.ood_histogram(inside, outside, threshold=0.5, ood_name="MNIST", num_bins=10)
    first, second = figure.data
    assert np.sum(first.y) == pytest.approx(100)
    assert np.sum(second.y) == pytest.approx(100)
    assert "n = 4" in first.name
    assert "n = 2" in second.name
    np.testing.assert_allclose(first.x, second.x)  # the same bins
    assert np.asarray(first.y)[:2].tolist() == [25.0, 50.0]
    assert [int(first.customdata[0][0]), int(second.customdata[0][0])] == [0, 1]
    assert figure.layout.shapes[0].x0 == 0.5
    assert "TPR 1.000, FPR 0.250" in figure.layout.title.subtitle.text
    assert "TPR 1.000, FPR 0.250" in figures.alt_text(figure)


def test_m6_one_side_only_still_draws_and_says_why_there_is_no_auroc() -> None:
    figure = figures.ood_histogram([0.1, 0.2], [], threshold=0.15)
    assert len(figure.data) == 1
    assert "no OOD" in figure.layout.title.subtitle.text
    assert "undefined" in figures.alt_text(figure)


def test_m7_all_scores_equal_have_a_bar() -> None:
    figure = figures.ood_histogram([0.5] * 5, [0.5] * 5)
    assert np.max(figure.data[0].y) == 100


def test_roc_and_pr_hold_the_points_and_the_areas() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=60), rng.normal(1, size=40)
    quality = metrics.ood_metrics(inside, outside)
    roc, pr = metrics.roc_points(inside, outside), metrics.pr_points(inside, outside)
    assert roc is not None
    assert pr is not None
    figure = figures.roc_curve({"full": roc})
    np.testing.assert_array_equal(figure.data[0].x, roc.x)
    assert f"AUROC {quality.auroc:.3f}" in figure.data[0].name
    figure = figures.pr_curve({"full": pr})
    np.testing.assert_array_equal(figure.data[0].y, pr.y)
    assert f"AUPR {quality.aupr_ood:.3f}" in figure.data[0].name


# --- lines, bars, tables ---


def test_lines_have_bands_and_gaps() -> None:
    band = figures.Series([0, 1, 2], [1.0, 2.0, 3.0], [0.5, 1.5, 2.5], [1.5, 2.5, 3.5])
    gap = figures.Series([0, 1, 2], [1.0, None, 3.0])
    figure = figures.lines({"r": band, "g": gap}, title="t", x_title="x", y_title="y")
    area = trace(figure, "r, band")
    assert list(area.x) == [0, 1, 2, 2, 1, 0]
    assert list(area.y) == [1.5, 2.5, 3.5, 2.5, 1.5, 0.5]
    assert list(trace(figure, "g").y) == [1.0, None, 3.0]
    assert trace(figure, "r").line.dash != trace(figure, "g").line.dash  # not told apart by colour alone


def test_risk_coverage_is_in_percent() -> None:
    curve = metrics.risk_coverage([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 0])
    drawn = figures.risk_coverage({"m": curve}).data[0]
    assert list(drawn.x) == [25, 50, 75, 100]
    assert drawn.y[-1] == 25


def test_bars_show_the_best_and_name_the_undefined() -> None:
    bar = figures.metric_bars({"a": 0.7, "b": 0.9, "c": None}, title="t", axis="AUROC", better="higher").data[0]
    assert list(bar.text) == ["0.700", "0.900", "undefined"]
    assert bar.marker.color[1] == figures.ACCENT
    assert bar.marker.color[0] != figures.ACCENT
    bar = figures.metric_bars({"a": 0.7, "b": 0.9}, title="t", axis="ECE", better="lower").data[0]
    assert bar.marker.color[0] == figures.ACCENT


COLUMNS = [
    figures.Column("acc", "Accuracy (%)", "higher", 1, percent=True),
    figures.Column("ece", "ECE", "lower"),
    figures.Column("heads", "Heads", None, 0),
]
TABLE = figures.MetricTable(
    {
        "full": {"acc": 0.8711, "ece": 0.05, "heads": 36.0},
        "Taylor & co": {"acc": 0.85, "ece": None, "heads": 24.0},
        "Hydra_3": {"acc": 0.8709, "ece": 0.0301, "heads": 24.0},
        "random": {"acc": 0.8, "ece": 0.04},
    },
    COLUMNS,
    "n = 2000",
)


def test_table_ranks_by_what_is_shown() -> None:
    # 87.11 and 87.09 both show as 87.1: both best; 85.0 is second
    assert TABLE.ranks(COLUMNS[0]) == {"full": 1, "Hydra_3": 1, "Taylor & co": 2}
    assert TABLE.ranks(COLUMNS[1]) == {"Hydra_3": 1, "random": 2}
    assert TABLE.ranks(COLUMNS[2]) == {}


def test_table_as_csv_reads_back() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.to_csv())))
    assert rows[0] == ["model", "Accuracy (%)", "ECE", "Heads"]
    assert [float(row[1]) for row in rows[1:]] == [0.8711, 0.85, 0.8709, 0.8]
    assert rows[2][2] == ""
    assert rows[4][3] == ""


def test_table_as_latex_and_html() -> None:
    latex = TABLE.to_latex()
    assert r"full & \textbf{87.1} & 0.050 & 36 \\" in latex
    assert r"Taylor \& co & \underline{85.0} & -- & 24 \\" in latex
    assert r"Hydra\_3 & \textbf{87.1} & \textbf{0.030} & 24 \\" in latex
    assert r"Accuracy (\%) $\uparrow$ & ECE $\downarrow$ & Heads \\" in latex
    page = TABLE.to_html()
    assert "Taylor &amp; co" in page
    assert "<b>87.1</b>" in page
    assert "<u>85.0</u>" in page
    figure = TABLE.figure(title="t")
    assert figure.data[0].cells["values"][1][0] == "<b>87.1</b>"
    assert "best ECE 0.030 (Hydra_3)" in figures.alt_text(figure)


def test_what_cannot_be_drawn_is_refused() -> None:
    nothing: dict[str, Any] = {}
    mask, other = HeadMask([[True, True]]), HeadMask([[True, True], [True, True]])
    cases = [
        (lambda: figures.head_heatmap([[np.nan]], title="t"), "at least one value"),
        (lambda: figures.head_heatmap([1.0], title="t"), "table"),
        (lambda: figures.head_heatmap([[1.0]], title="t", scale="row"), "scale"),  # type: ignore[arg-type]
        (lambda: figures.head_heatmap([[1.0] * 3], title="t", kept=mask), "another backbone"),
        (lambda: figures.circuit_layers(nothing, title="t"), "no circuit"),
        (lambda: figures.circuit_layers({"a": mask, "b": other}, title="t"), "different backbones"),
        (lambda: figures.pair_matrix(np.eye(3), ["a"], title="t", unit="u"), "1 names"),
        (lambda: figures.reliability_diagram(nothing), "no model"),
        (lambda: figures.ood_histogram([np.nan], []), "no finite score"),
        (lambda: figures.roc_curve(nothing), "no curve"),
        (lambda: figures.risk_coverage(nothing), "no risk"),
        (lambda: figures.lines(nothing, title="t", x_title="x", y_title="y"), "no line"),
        (lambda: figures.faithfulness_curve({"a": figures.Series([1], [])}, metric="m"), "as many y"),
        (lambda: figures.metric_bars(nothing, title="t", axis="a"), "no value"),
        (lambda: figures.metric_bars({"a": 1.0}, title="t", axis="a", better="best"), "better"),
        (lambda: figures.MetricTable(nothing, COLUMNS), "at least one row"),
        (lambda: figures.robust_limits([np.nan]), "no value"),
    ]
    for draw, message in cases:
        with pytest.raises(HydraError, match=message):
            draw()
