"""The circuit graph and the attention figures: what is drawn is what the numbers say."""

import numpy as np
import pytest

import hydra_core as hydra
from hydra_core.figures import (
    alt_text,
    attention_picture,
    attention_sentence,
    attention_tokens,
    circuit_graph,
    head_heatmap,
    strongest_edges,
)


def strengths() -> np.ndarray:
    table = np.full((3, 2, 3, 2), np.nan)
    table[0, :, 1] = [[0.5, 0.1], [0.2, 0.3]]
    table[0, :, 2] = [[0.05, 0.06], [0.9, 0.07]]
    table[1, :, 2] = [[0.4, 0.08], [0.09, 0.11]]
    return table


def drawn(figure) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """Edges ((layer, head), (layer, head)) of the line traces."""
    found = set()
    for trace in figure.data:
        if trace.mode == "lines":
            points = list(zip(trace.y, trace.x, strict=True))
            found |= {(points[i], points[i + 1]) for i in range(0, len(points), 3)}
    return found


def test_edges_reach_the_threshold_and_come_strongest_first():
    edges = strongest_edges(strengths(), 0.3)
    assert edges == [(0.9, 0, 1, 2, 0), (0.5, 0, 0, 1, 0), (0.4, 1, 0, 2, 0), (0.3, 0, 1, 1, 1)]
    mask = hydra.HeadMask([[True, False], [True, True], [True, True]])
    assert [edge[1:] for edge in strongest_edges(strengths(), 0.3, mask)] == [(0, 0, 1, 0), (1, 0, 2, 0)]
    with pytest.raises(hydra.HydraError, match=r"\(layers, heads, layers, heads\) are needed, got \(2, 2\)"):
        strongest_edges(np.ones((2, 2)), 0.5)


def test_graph_draws_those_edges_the_circuits_and_what_is_selected():
    mask = hydra.HeadMask([[True, False], [True, False], [True, True]])
    options = {"threshold": 0.3, "circuits": {"loss": mask}, "kind": "Q"}
    figure = circuit_graph(strengths(), (2, 2, 2), **options)
    assert drawn(figure) == {((0, 1), (2, 0)), ((0, 0), (1, 0)), ((1, 0), (2, 0)), ((0, 1), (1, 1))}
    marks = next(trace for trace in figure.data if trace.name == "loss (4 heads)")
    assert sorted(zip(marks.y, marks.x, strict=True)) == sorted(mask.kept)
    only = circuit_graph(strengths(), (2, 2, 2), only_circuits=True, **options)
    assert drawn(only) == {((0, 0), (1, 0)), ((1, 0), (2, 0))}
    one = circuit_graph(strengths(), (2, 2, 2), selected=(1, 1), focus=True, **options)
    assert drawn(one) == {((0, 1), (1, 1))}
    targets = figure.data[-1]
    assert [list(c) for c in targets.customdata] == [[i, j] for i in range(3) for j in range(2)]
    assert "reads 0.1 (0.90), 1.0 (0.40)" in targets.hovertext[4]
    assert "4 edges of Q-composition of at least 0.30; strongest: layer 0 head 1 to layer 2 head 0" in alt_text(figure)


def test_the_picture_and_its_attention_lie_on_one_another():
    weights = np.array([[0.1, 0.2, 0.0], [0.0, 0.5, 0.1]])
    figure = attention_picture(weights, np.zeros((40, 90, 3), dtype=np.uint8))
    overlay = figure.data[2]
    # centres of 20 x 30 pixel patches, pixel 0 from -0.5 to 0.5
    assert (overlay.x0, overlay.dx, overlay.y0, overlay.dy) == (14.5, 30, 9.5, 20)
    np.testing.assert_array_equal(overlay.z, weights)
    assert "most, 0.500, at row 1, column 1; 0.90 of the attention goes to patches" in alt_text(figure)
    with pytest.raises(hydra.HydraError, match=r"a picture \(height, width, 3\) are needed"):
        attention_picture(weights, np.zeros((40, 90)))


def test_a_sentence_keeps_its_words_and_hides_no_markup():
    html = attention_sentence([0.0, 0.5, 0.25], ["[CLS]", "<b>", "good"])
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "0.75" in html.split("&lt;b&gt;")[0].rsplit("rgba", 1)[1]  # the strongest has the strongest ground
    with pytest.raises(hydra.HydraError, match="2 tokens need as many weights"):
        attention_sentence([1.0], ["a", "b"])


def test_tokens_that_come_twice_and_long_texts():
    table = np.full((60, 60), 1 / 60)
    figure = attention_tokens(table, ["the"] * 60)
    assert len(set(figure.data[0].x)) == 48
    assert "the first 48 of 60 tokens" in figure.layout.title.subtitle.text
    with pytest.raises(hydra.HydraError, match="3 tokens need a table"):
        attention_tokens(np.ones((2, 2)), ["a", "b", "c"])


@pytest.mark.parametrize("shape", [(24, 16), (32, 16)])
def test_large_heatmaps_label_every_layer_and_one_outlier_washes_nothing_out(shape):
    """B31."""
    values = np.random.default_rng(0).random(shape)
    values[3, 5] = 1e6
    figure = head_heatmap(values, title="x")
    heat = figure.data[0]
    assert heat.zmax <= 1.0
    assert figure.layout.yaxis.dtick == 1
    assert figure.layout.height / shape[0] >= 20  # pixels a layer: a label needs about 12
    assert "1 beyond the colour scale" in figure.layout.title.subtitle.text
    equal = head_heatmap(np.full(shape, 0.25), title="x")
    assert equal.data[0].zmin < 0.25 < equal.data[0].zmax
    assert "all values equal" in equal.layout.title.subtitle.text
