"""Plotly figures from plain numbers, testable without a browser; each says in words what it shows (`alt_text`)."""

from hydra_core.figures.attention import attention_picture, attention_sentence, attention_tokens
from hydra_core.figures.calibration import reliability_diagram
from hydra_core.figures.circuits import circuit_layers, pair_matrix
from hydra_core.figures.curves import Series, faithfulness_curve, lines, metric_bars, risk_coverage
from hydra_core.figures.graph import circuit_graph, strongest_edges
from hydra_core.figures.heads import head_heatmap, robust_limits
from hydra_core.figures.ood import ood_histogram, pr_curve, roc_curve
from hydra_core.figures.style import ACCENT, PALETTE, alt_text
from hydra_core.figures.tables import Column, MetricTable

__all__ = [
    "ACCENT",
    "PALETTE",
    "Column",
    "MetricTable",
    "Series",
    "alt_text",
    "attention_picture",
    "attention_sentence",
    "attention_tokens",
    "circuit_graph",
    "circuit_layers",
    "faithfulness_curve",
    "head_heatmap",
    "lines",
    "metric_bars",
    "ood_histogram",
    "pair_matrix",
    "pr_curve",
    "reliability_diagram",
    "risk_coverage",
    "robust_limits",
    "roc_curve",
    "strongest_edges",
]
