"""Lines over a share or a severity, risk-coverage, and bars of one metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from hydra_core.errors import HydraError
from hydra_core.figures import style
from hydra_core.metrics.selective import RiskCoverage


@dataclass(frozen=True)
class Series:
    """One line: x and y of equal length, y None where undefined; with a band where `low` and `high` are given."""

    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def lines(
    series: Mapping[str, Series],
    *,
    title: str,
    x_title: str,
    y_title: str,
    subtitle: str = "",
    dark: bool | None = None,
) -> go.Figure:
    """Lines with markers, and bands where a series has them; undefined values leave a gap.

    Args:
        series: name -> line.
        title: what to see.
        x_title: axis with its unit.
        y_title: axis with its unit.
        subtitle: convention, unit and sample count.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no line, or lengths that differ.
    """
    if not series:
        raise HydraError("there is no line to draw")
    figure = go.Figure()
    parts = []
    for k, (name, one) in enumerate(series.items()):
        if len(one.x) != len(one.y) or not len(one.x):
            raise HydraError(
                f"the line {name!r} needs as many y as x and at least one, got {len(one.x)} and {len(one.y)}"
            )
        if one.low is not None and one.high is not None:
            figure.add_scatter(
                x=[*one.x, *reversed(one.x)],
                y=[*one.high, *reversed(one.low)],
                fill="toself",
                fillcolor=_faint(style.colour(k, dark)),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                name=f"{name}, band",
                showlegend=False,
            )
        figure.add_scatter(
            x=list(one.x),
            y=list(one.y),
            mode="lines+markers",
            line={"color": style.colour(k, dark), "dash": style.dash(k), "width": 2},
            marker={"symbol": style.symbol(k), "size": 7},
            name=name,
            hovertemplate=f"{name}<br>{x_title}: %{{x}}<br>{y_title}: %{{y:.4f}}<extra></extra>",
        )
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None]
        parts.append(
            f"{name} from {known[0][1]:.3f} at {known[0][0]:g} to {known[-1][1]:.3f} at {known[-1][0]:g}"
            if known
            else f"{name} undefined"
        )
    alt = f"Lines of {y_title} against {x_title}: {style.listed(parts)}."
    style.finish(figure, title=title, subtitle=subtitle, alt=alt, dark=dark, height=400)
    figure.update_xaxes(title=x_title)
    figure.update_yaxes(title=y_title)
    return figure


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.18)"


def faithfulness_curve(
    series: Mapping[str, Series],
    *,
    metric: str,
    subtitle: str = "",
    title: str = "Faithfulness: how much of the model a few heads carry",
    dark: bool | None = None,
) -> go.Figure:
    """A metric against the number of heads kept, for several orders of heads (circuit, Taylor, random with a band).

    Args:
        series: order's name -> line over heads kept.
        metric: its name and unit, for the axis.
        subtitle: sample count and seeds.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: as for :func:`lines`.
    """
    return lines(series, title=title, x_title="heads kept", y_title=metric, subtitle=subtitle, dark=dark)


def risk_coverage(
    curves: Mapping[str, RiskCoverage],
    *,
    title: str = "Risk and coverage: lower lines leave fewer errors",
    dark: bool | None = None,
) -> go.Figure:
    """Error among the samples answered, against the share answered, least uncertain first.

    Args:
        curves: name -> :func:`hydra_core.metrics.risk_coverage`.
        title: what to see.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: no curve.
    """
    if not curves:
        raise HydraError("there is no risk-coverage curve to draw")
    figure = go.Figure()
    for k, (name, curve) in enumerate(curves.items()):
        figure.add_scatter(
            x=100 * curve.coverage,
            y=100 * curve.risk,
            mode="lines",
            line={"color": style.colour(k, dark), "dash": style.dash(k), "width": 2},
            name=f"{name}: AURC {curve.aurc:.4f}",
            hovertemplate=f"{name}<br>answers %{{x:.1f}} %<br>%{{y:.2f}} % of them wrong<extra></extra>",
        )
    said = style.listed(
        [f"{name} AURC {curve.aurc:.4f}, error {curve.risk[-1]:.3f} at full coverage" for name, curve in curves.items()]
    )
    style.finish(
        figure,
        title=title,
        subtitle="least uncertain first; AURC is the mean risk, lower is better",
        alt=f"Risk-coverage curves: {said}.",
        dark=dark,
        height=400,
    )
    figure.update_xaxes(title="coverage (% of samples answered)", range=[0, 101])
    figure.update_yaxes(title="risk (% of answers wrong)", rangemode="tozero")
    return figure


def metric_bars(
    values: Mapping[str, float | None],
    *,
    title: str,
    axis: str,
    digits: int = 3,
    better: str | None = None,
    dark: bool | None = None,
) -> go.Figure:
    """One metric of several models as bars with their numbers; the best is in the accent colour.

    Args:
        values: name -> value, None where undefined (a word instead of a bar).
        title: what to see.
        axis: the metric's name and unit.
        digits: decimals shown.
        better: ``higher`` or ``lower``, or None where neither is.
        dark: see :func:`hydra_core.figures.style.finish`.

    Raises:
        HydraError: nothing to draw, or another word for `better`.
    """
    if not values:
        raise HydraError("there is no value to draw")
    if better not in ("higher", "lower", None):
        raise HydraError(f"better must be 'higher', 'lower' or None, got {better!r}")
    known = [value for value in values.values() if value is not None]
    best = None if not known or better is None else max(known) if better == "higher" else min(known)
    names = list(values)
    figure = go.Figure(
        go.Bar(
            x=[0.0 if value is None else value for value in values.values()],
            y=names,
            orientation="h",
            text=[style.number(value, digits) for value in values.values()],
            textposition=["outside" if value is None else "auto" for value in values.values()],
            marker={
                "color": [
                    style.colour(0, dark) if best is None or value == best else style.NEUTRAL
                    for value in values.values()
                ]
            },
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    said = style.listed([f"{name} {style.number(value, digits)}" for name, value in values.items()])
    style.finish(
        figure,
        title=title,
        subtitle=f"{better} is better" if better else "",
        alt=f"Bars of {axis}: {said}.",
        dark=dark,
        height=34 * len(names) + 150,
        legend=False,
    )
    figure.update_xaxes(title=axis)
    figure.update_yaxes(autorange="reversed")
    return figure
