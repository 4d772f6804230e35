"""OOD scores: histograms with a threshold, ROC and precision-recall curves."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.metrics.ood import Curve, ood_metrics, rates_at


def _finite(scores: Any) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=np.float64).ravel()
    return values[np.isfinite(values)]


def ood_histogram(
    id_scores: Any,
    ood_scores: Any,
    *,
    threshold: float | None = None,
    score: str = "msp",
    id_name: str = "ID",
    ood_name: str = "OOD",
    num_bins: int = 40,
    title: str = "OOD scores: the less the two overlap, the better",
    dark: bool | None = None,
) -> go.Figure:
    """ID and OOD scores over one another, as shares of each set, with the threshold and what it does.

    Bars carry customdata [0 for ID or 1 for OOD, lower edge, upper edge]. Non-finite scores are left out; one
    side may be empty.

    Args:
        id_scores: (N,) higher = more OOD.
        ood_scores: (K,).
        threshold: samples with this score or more are called OOD; a line with TPR and FPR.
        score: its name, for the axis.
        id_name: of the ID set.
        ood_name: of the OOD set.
        num_bins: bins over the common range, at least 1.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no finite score at all, or no bin.
    """
    inside, outside = _finite(id_scores), _finite(ood_scores)
    both = np.concatenate([inside, outside])
    if not both.size or num_bins < 1:
        raise HydraError("there is no finite score to draw" if not both.size else "at least one bin is needed")
    low, high = float(both.min()), float(both.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, num_bins + 1)
    figure = go.Figure()
    for k, (name, values) in enumerate(((id_name, inside), (ood_name, outside))):
        if not values.size:
            continue
        counts, _ = np.histogram(values, bins=edges)
        figure.add_bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=100 * counts / values.size,
            width=np.diff(edges),
            name=f"{name} (n = {values.size})",
            marker={
                "color": style.colour(k, dark),
                "opacity": 0.6,
                "pattern": {"shape": ("", "/")[k], "solidity": 0.25, "fgcolor": "white"},
            },
            customdata=[[k, float(a), float(b)] for a, b in itertools.pairwise(edges)],
            hovertemplate=(
                f"{name}: %{{y:.1f}} % of its samples<br>{score} %{{customdata[1]:.4f}} to "
                "%{customdata[2]:.4f}<extra></extra>"
            ),
        )
    quality = ood_metrics(inside, outside)
    alt = (
        f"Histogram of the score {score} for {inside.size} samples of {id_name} and {outside.size} of {ood_name}: "
        f"AUROC {style.number(quality.auroc)}, FPR95 {style.number(quality.fpr95)}."
    )
    subtitle = f"share of each set; score {score}, higher = more OOD"
    if threshold is not None:
        tpr, fpr = rates_at(inside, outside, threshold)
        said = f"TPR {style.number(tpr)}, FPR {style.number(fpr)}"
        figure.add_vline(x=threshold, line={"color": style.NEUTRAL, "width": 2, "dash": "dash"})
        subtitle += f"; at {threshold:.4g}: {said}"
        alt += f" At threshold {threshold:.4g}: {said}."
    if quality.reason:
        subtitle += f"; {quality.reason}"
    style.finish(figure, title=title, subtitle=subtitle, alt=alt, dark=dark, height=380)
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(title=f"{score} (higher = more OOD)")
    figure.update_yaxes(title="% of the set's samples", rangemode="tozero")
    return figure


def roc_curve(
    curves: Mapping[str, Curve],
    *,
    aurocs: Mapping[str, float | None] | None = None,
    title: str = "ROC: nearer to the upper left corner is better",
    dark: bool | None = None,
) -> go.Figure:
    """TPR against FPR, OOD positive; one line a model.

    Args:
        curves: name -> :func:`hydra_core.metrics.roc_points`.
        aurocs: name -> AUROC for the legend; by default the area under the points.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no curve.
    """
    values = dict(aurocs or {})
    for name, curve in curves.items():
        values.setdefault(name, float(np.trapezoid(curve.y, curve.x)))
    figure = _curves(curves, {name: f"AUROC {style.number(values[name])}" for name in curves}, dark)
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"dash": "dot", "color": style.NEUTRAL, "width": 1},
        name="chance (AUROC 0.5)",
        hoverinfo="skip",
    )
    said = style.listed([f"{name} AUROC {style.number(values[name])}" for name in curves])
    style.finish(
        figure, title=title, subtitle="OOD is the positive class", alt=f"ROC curves: {said}.", dark=dark, height=420
    )
    figure.update_xaxes(title="false positive rate (ID called OOD)", range=[-0.01, 1.01])
    figure.update_yaxes(title="true positive rate (OOD found)", range=[-0.01, 1.01])
    return figure


def pr_curve(
    curves: Mapping[str, Curve],
    *,
    share_ood: float | None = None,
    title: str = "Precision and recall: nearer to the upper right corner is better",
    dark: bool | None = None,
) -> go.Figure:
    """Precision against recall, OOD positive; one line a model, with its average precision.

    Args:
        curves: name -> :func:`hydra_core.metrics.pr_points`.
        share_ood: share of OOD samples, the precision of chance, as a dotted line.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no curve.
    """
    values = {name: float(-np.sum(np.diff(curve.x) * curve.y[:-1])) for name, curve in curves.items()}
    figure = _curves(curves, {name: f"AUPR {value:.3f}" for name, value in values.items()}, dark)
    if share_ood is not None:
        figure.add_scatter(
            x=[0, 1],
            y=[share_ood, share_ood],
            mode="lines",
            line={"dash": "dot", "color": style.NEUTRAL, "width": 1},
            name=f"chance ({share_ood:.2f})",
            hoverinfo="skip",
        )
    said = style.listed([f"{name} AUPR {value:.3f}" for name, value in values.items()])
    style.finish(
        figure,
        title=title,
        subtitle="OOD is the positive class; AUPR is average precision",
        alt=f"Precision-recall curves: {said}.",
        dark=dark,
        height=420,
    )
    figure.update_xaxes(title="recall (OOD found)", range=[-0.01, 1.01])
    figure.update_yaxes(title="precision (of those called OOD)", range=[-0.01, 1.03])
    return figure


def _curves(curves: Mapping[str, Curve], notes: Mapping[str, str], dark: bool | None) -> go.Figure:
    if not curves:
        raise HydraError("there is no curve to draw: both ID and OOD scores are needed")
    figure = go.Figure()
    for k, (name, curve) in enumerate(curves.items()):
        figure.add_scatter(
            x=curve.x,
            y=curve.y,
            mode="lines",
            line={"color": style.colour(k, dark), "dash": style.dash(k), "width": 2, "shape": "linear"},
            name=f"{name}: {notes[name]}",
            customdata=curve.thresholds,
            hovertemplate=f"{name}<br>%{{x:.3f}}, %{{y:.3f}}<br>threshold %{{customdata:.4g}}<extra></extra>",
        )
    return figure
