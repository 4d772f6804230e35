"""A study as one HTML page that stands alone: no network, no server; it can be printed, sent and kept."""

import html
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from hydra_core import metrics, published
from hydra_core.artefacts import parse_json
from hydra_core.conventions import CONVENTIONS
from hydra_core.errors import HydraError
from hydra_core.evaluation import evaluate_predictions
from hydra_core.figures import (
    MetricTable,
    alt_text,
    circuit_layers,
    head_heatmap,
    ood_histogram,
    reliability_diagram,
    roc_curve,
)
from hydra_core.masks import HeadMask, mean_overlap
from hydra_core.metric_columns import GENERAL, ood_columns
from hydra_core.recipe import python_lines
from hydra_core.report_style import STYLE
from hydra_core.study import Study
from hydra_core.version import __version__

if TYPE_CHECKING:
    from hydra_core.prediction import Predictions

MODELS_SHOWN = 4  # reliability diagrams beside one another
TITLES = {"full": "Full model", "fused": "Fused ensemble"}


def study_report(study: Study) -> str:
    """The whole study as HTML: settings, scores, circuits, members, results with figures, conventions, Python lines.

    What the study lacks, and what cannot be read, is said in its place. Everything that comes from the study is
    escaped. Plotly's script is inside, so the page is about 5 MB.
    """
    from plotly.offline import get_plotlyjs

    sections: list[tuple[str, Callable[[Study], str]]] = [
        ("What was studied", _settings),
        ("Results", _results),
        ("Members", _members),
        ("Fusion", _fusion),
        ("Head scores", _scores),
        ("Circuits", _circuits),
        ("What the numbers mean", _conventions),
        ("What the paper reports", _paper),
        ("The same in Python", _lines),
    ]
    parts = []
    for title, write in sections:
        try:
            body = write(study)
        except HydraError as error:
            body = _missing(f"This part cannot be shown: {error}")
        parts.append(f"<section><h2>{title}</h2>\n{body}\n</section>")
    name = html.escape(study.name)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Hydra study {name}</title>\n<style>{STYLE}</style>\n<script>{get_plotlyjs()}</script>\n</head>\n"
        "<body>\n"
        f"<h1>Hydra study {name}</h1>\n<p>Written {now} by hydra_core {__version__}, an implementation of Hydra "
        f"Ensembles (arXiv 2510.18358).</p>\n{''.join(parts)}\n</body>\n</html>\n"
    )


def _settings(study: Study) -> str:
    config = study.config
    masks = study.get("masks", "current")
    rows = [
        ("Backbone", config.backbone),
        ("Backbone's fingerprint", _fingerprint(masks)),
        ("In-distribution data", config.data),
        *((f"Out of distribution: {name}", ref) for name, ref in config.ood.items()),
        ("Samples of each set", "all" if config.limit is None else f"at most {config.limit}"),
        ("Seed", str(config.seed)),
        ("Number format", config.dtype),
    ]
    return _words(("", ""), rows)


def _fingerprint(text: str | None) -> str:
    return str(parse_json(text, "a mask file").get("fingerprint", "not known")) if text else "not known"


def _results(study: Study) -> str:
    models = {TITLES.get(name, name): name for name in study.prediction_models()}
    order = sorted(models, key=lambda title: (models[title] != "full", models[title] != "fused", title))
    known = {title: one for title in order if (one := study.predictions(models[title], "id")) is not None}
    if not known:
        return _missing("Nothing has been measured yet: measure the full model, make members and fuse them.")
    strange = {title: _others(study, models[title]) for title in known}
    found = {title: evaluate_predictions(one, strange[title]) for title, one in known.items()}
    rows = {title: one.metrics for title, one in found.items()}
    counts = {title: f"{one.num_samples} ID" for title, one in found.items()}
    excluded = sum(len(one.excluded) for one in found.values())
    n = ", ".join(sorted(set(counts.values())))
    caption = f"n = {n} test samples; OOD score msp; 15 bins. Best bold, second underlined."
    if excluded:
        caption += f" {excluded} rows with a non-finite logit are left out."
    parts = [_missing(_STALE)] if _stale(study, known.get(TITLES["fused"])) else []
    parts.append(_wide(MetricTable(rows, GENERAL, caption).to_html()))
    for name in study.config.ood:
        size = {one.ood_counts[name] for one in found.values() if name in one.ood_counts}
        if size:
            note = f"Against {name}, n = {', '.join(map(str, sorted(size)))}; OOD score msp."
            parts.append(_wide(MetricTable(rows, ood_columns(name), note).to_html()))
    labelled = {title: one for title, one in known.items() if one.labels is not None}
    shown = list(labelled)[:MODELS_SHOWN]
    if shown:
        bins = {t: metrics.reliability(labelled[t].mean_probabilities, labelled[t].labels) for t in shown}
        parts.append(_figure(reliability_diagram(bins, dark=False)))
    last = "Fused ensemble" if "Fused ensemble" in known else order[0]
    for name, other in strange[last].items():
        parts += _ood_figures(last, name, known[last], other)
    return "\n".join(parts)


_STALE = (
    "The members' masks have changed since they were fused: what is called fused below is the ensemble of the masks "
    "before. Fuse again for numbers of the masks as they are now."
)


def _stale(study: Study, fused: "Predictions | None") -> bool:
    """Whether the fused predictions are of other masks than the study has now."""
    now = study.active_fingerprint
    return fused is not None and now is not None and fused.model_fingerprint != now


def _others(study: Study, model: str) -> "dict[str, Predictions]":
    return {name: one for name in study.config.ood if (one := study.predictions(model, name)) is not None}


def _ood_figures(title: str, name: str, known: "Predictions", other: "Predictions") -> list[str]:
    inside, outside = (metrics.ood_score("msp", member_probabilities=one.probabilities) for one in (known, other))
    found = metrics.ood_metrics(inside, outside)
    if found.reason:
        return [_missing(f"{title} against {name}: {found.reason}")]
    figures = [
        ood_histogram(
            inside, outside, threshold=found.threshold, ood_name=name, dark=False,
            title=f"{title} against {name}: the less the two overlap, the better",
        )
    ]  # fmt: skip
    curve = metrics.roc_points(inside, outside)
    if curve is not None:
        figures.append(roc_curve({f"{title}, {name}": curve}, aurocs={f"{title}, {name}": found.auroc}, dark=False))
    warning = [_missing(found.warning)] if found.warning else []
    return [*map(_figure, figures), *warning]


def _members(study: Study) -> str:
    masks = study.active_masks
    if not masks:
        return _missing("There are no members yet.")
    note = parse_json(study.get("masks", "current") or "{}", "a mask file").get("note") or "not recorded"
    overlap = mean_overlap(masks)
    grids = "".join(_grid(i, mask) for i, mask in enumerate(masks))
    shared = "" if overlap is None else f" Mean overlap of their heads (Jaccard): {overlap:.2f}."
    return f'<p>How they were chosen: {html.escape(str(note))}.{shared}</p>\n<div class="grids">{grids}</div>'


def _grid(member: int, mask: HeadMask) -> str:
    heads = "".join(f'<th scope="col">{h}</th>' for h in range(max(mask.widths)))
    rows = "".join(
        f'<tr><th scope="row">L{layer}</th>'
        + "".join(f'<td class="{"kept" if keep else "cut"}">{"●" if keep else "–"}</td>' for keep in row)
        + "</tr>"
        for layer, row in enumerate(mask.keep)
    )
    return (
        f'<table class="grid"><caption>Member {member}: {mask.num_kept} of {sum(mask.widths)} heads kept (●)</caption>'
        f'<thead><tr><th scope="col">head</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    )


def _fusion(study: Study) -> str:
    text = study.get("fusion", "check")
    if not text:
        return _missing("The check of the fused network and its costs are not stored: fuse on the Fuse page.")
    check = parse_json(text, "a fusion check")
    try:
        worst = max([*check["masked_pruned"], *check["masked_fused"]])
        rows = [
            (
                "Masked, pruned and fused members differ by at most",
                f"{worst:.1e} in a logit (largest |logit| {check['scale']:.3g}, n = {check['num_samples']}, "
                f"{check['dtype']} on {check['device']})",
            ),
            ("Operations over the full model's", f"{check['operations']:.2f}"),
            ("Parameters over the full model's", f"{check['parameters']:.2f}"),
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise HydraError(f"the stored fusion check is of another version ({error}); fuse again") from None
    return _words(("", ""), rows)


def _scores(study: Study) -> str:
    found = study.score_sets()
    if not found:
        return _missing("No head has been scored yet.")
    parts = []
    for name, scores in found.items():
        figure = head_heatmap(scores.values, title=f"{name}: which heads matter", dark=False)
        parts.append(_figure(figure, f"Method {scores.method}, n = {scores.num_samples} validation samples."))
    return "\n".join(parts)


def _circuits(study: Study) -> str:
    found = study.circuits()
    if not found:
        return _missing("No circuit has been searched yet.")
    keep = {name: one.keep for name, one in found.items()}
    figure = circuit_layers(keep, title="The circuits' heads, layer by layer", dark=False)
    rows = [
        (name, one.objective, ", ".join(map(str, one.keep.kept_per_layer)), one.ood_name or "–")
        for name, one in found.items()
    ]
    return _figure(figure) + _words(("Circuit", "Objective", "Heads by layer", "OOD set"), rows)


def _conventions(study: Study) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in CONVENTIONS) + "</ul>"


def _paper(study: Study) -> str:
    table = _words(published.HEADER, published.ROWS)
    return f"<p>Published figures, not measured here.</p>{table}<p>{html.escape(published.NOTE)}</p>"


def _lines(study: Study) -> str:
    return f"<pre><code>{html.escape(python_lines(study))}</code></pre>"


def _words(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts, escaped; an empty header leaves it out."""
    cells = partial(map, html.escape)
    head = "".join(f'<th scope="col">{cell}</th>' for cell in cells(header)) if any(header) else ""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells(row))}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="wide"><table class="words">{top}<tbody>{body}</tbody></table></div>'


def _wide(table: str) -> str:
    return f'<div class="wide">{table}</div>'


def _figure(figure: Any, note: str = "") -> str:
    alt = html.escape(alt_text(figure), quote=True)
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    caption = f"<figcaption>{html.escape(note)}</figcaption>" if note else ""
    return f'<figure role="img" aria-label="{alt}">{drawn}{caption}</figure>'


def _missing(text: str) -> str:
    return f'<p class="missing">{html.escape(text)}</p>'
