"""Evaluate: calibration and out-of-distribution detection, from stored predictions; nothing here runs a model."""

import json
from dataclasses import replace

import numpy as np
import streamlit as st

from hydra_core import metrics
from hydra_core.figures import MetricTable, ood_histogram, reliability_diagram
from hydra_core.mask_files import selected_with
from hydra_core.metric_columns import GENERAL, ood_columns
from hydra_core.study import Study
from pages.ui import charts, frame, jobs, paper, results, state, work
from pages.ui.results import Source

DIAGRAMS = 9
ACROSS = 4


def draw(study: Study) -> None:
    sources = results.sources(study)
    job = jobs.current(str(study.folder))
    busy = job is not None and job.active
    if not sources:
        if not busy:
            frame.empty(
                "**Nothing has been measured yet.** Evaluate reads stored predictions: the full model's come first.",
                "Measure the full model",
                lambda: work.measure_full(study),
            )
        return
    if results.outdated(study):
        st.warning(
            "These numbers were made with other weights of this backbone than it has now: measure and fuse again."
        )
        frame.link("Model & data", "Measure again")
    if results.FUSED not in sources:
        with st.container(border=True):
            st.markdown(
                "**Only the full model has been measured so far.** Fuse the members to see the ensemble beside it."
            )
            frame.link(*(("Fuse", "Fuse the members") if study.active_masks else ("Members", "Make members")))
    elif results.stale(study):
        st.warning("The masks have changed since these members were fused: the ensemble below is the one before.")
        frame.link("Fuse", "Fuse again")
    if results.stale_tuning(study):
        st.warning(
            "The masks have changed since the members were fine-tuned: below, their lines say “of earlier masks”."
        )
        frame.link("Fuse", "Fine-tune again")
    explore(study, sources)
    paper.draw()


@frame.fragment
def explore(study: Study, sources: list[Source]) -> None:
    names = list(study.config.ood)
    columns = st.columns([2, 2, 3], vertical_alignment="bottom")
    ood = None
    if names:
        ood = columns[0].segmented_control("OOD set", names, required=True, **state.bind(study, "ood", names[0], names))
    scores = list(metrics.OOD_SCORES)
    score = columns[1].selectbox("OOD score", scores, **state.bind(study, "ood score", "msp", scores))
    bins = columns[2].slider("Confidence bins", 2, 50, **state.bind_number(study, "bins", 15, 2, 50))
    calibration(study, sources, bins)
    if ood:
        detection(study, sources, ood, score)
    numbers(study, sources, score, bins)


def calibration(study: Study, sources: list[Source], bins: int) -> None:
    st.subheader("Calibration")
    known = {source.label: source for source in sources}
    first = [source.label for source in sources][:5]
    stored = [label for label in state.chosen(study, "diagrams", first) if label in known] or first
    shown = st.multiselect(
        "Side by side", list(known), max_selections=DIAGRAMS, **state.bind(study, "diagrams", stored)
    )
    models = {}
    for label in shown:
        predictions = results.predictions(study, known[label]) if label in known else None
        if predictions is not None and predictions.labels is not None:
            models[label] = metrics.reliability(predictions.mean_probabilities, predictions.labels, bins)
    if not models:
        st.markdown("Choose at least one model with labelled data.")
        return
    # Rows of at most four panels, as even as can be: five stand as three and two.
    labels = list(models)
    rows = -(-len(labels) // ACROSS)
    size = -(-len(labels) // rows)
    for row, start in enumerate(range(0, len(labels), size)):
        part = {label: models[label] for label in labels[start : start + size]}
        figure = reliability_diagram(part) if row == 0 else reliability_diagram(part, title="Reliability, continued")
        charts.draw(figure, name=f"reliability-{row}", key=state.key("evaluate", "reliability", row))


@frame.fragment
def detection(study: Study, sources: list[Source], ood: str, score: str) -> None:
    st.subheader("Out-of-distribution detection")
    labels = [source.label for source in sources]
    preferred = results.FUSED.label if results.FUSED in sources else labels[0]
    label = st.segmented_control(
        "Model", labels, required=True, **state.bind(study, "histogram model", preferred, labels)
    )
    source = sources[labels.index(label)]
    known, other = results.predictions(study, source), results.predictions(study, source, ood)
    if known is None or other is None:
        st.info(f"{label} has no predictions on {ood} yet: measure it again on Model & data, or fuse again.")
        return
    if score in metrics.ENSEMBLE_SCORES and known.num_members < 2:
        what = score.replace("_", " ").capitalize()
        st.info(f"{what} needs at least two members: choose the fused ensemble, or another score.")
        return
    inside, outside = (
        metrics.ood_score(score, logits=one.logits, member_probabilities=one.probabilities) for one in (known, other)
    )
    found = metrics.ood_metrics(inside, outside)
    both = np.concatenate([inside, outside])
    both = both[np.isfinite(both)]
    if not both.size:
        st.info("No finite score: every row has a non-finite logit.")
        return
    low, high = float(both.min()), float(both.max())
    threshold = None
    if high > low:
        at_95 = at_tpr(outside, 0.95)
        threshold = st.slider(
            "Threshold: samples with this score or more are called OOD", low, high, step=(high - low) / 500,
            format="%.4f",
            **state.bind_number(study, f"threshold {label} {ood} {score}", min(high, max(low, at_95)), low, high),
        )  # fmt: skip
    figure = ood_histogram(inside, outside, threshold=threshold, score=score, id_name="ID", ood_name=ood)
    left, right = st.columns([4, 1])
    with left:
        charts.draw(figure, name=f"ood-{ood}-{score}", key=state.key("evaluate", "histogram"))
    if threshold is not None:
        tpr, fpr = metrics.rates_at(inside, outside, threshold)
        right.metric("TPR at the threshold", charts.percent(tpr), help="Share of OOD samples that are called OOD.")
        right.metric("FPR at the threshold", charts.percent(fpr), help="Share of ID samples that are called OOD.")
    right.metric("AUROC", charts.number(found.auroc, 4))
    right.metric(
        "FPR95", charts.percent(found.fpr95), help="OOD is positive: FPR at the largest threshold with TPR ≥ 95 %."
    )
    if found.warning:
        st.warning(found.warning)
    if found.reason:
        st.info(found.reason)
    st.caption(
        f"{label}, n = {np.isfinite(inside).sum()} ID and {np.isfinite(outside).sum()} {ood} test samples. "
        f"{score}: "
        f"{metrics.OOD_SCORES[score]}. OOD is the positive class; higher = more OOD.{seen(study)}"
    )


def at_tpr(outside: np.ndarray, rate: float) -> float:
    """The largest threshold at which that share of the OOD samples is flagged."""
    finite = np.sort(outside[np.isfinite(outside)])[::-1]
    return float(finite[max(0, int(np.ceil(rate * len(finite))) - 1)]) if finite.size else 0.0


def seen(study: Study) -> str:
    """Which OOD set helped to choose the fused members' heads, as their masks say."""
    text = study.get("masks", results.FUSED_MASKS)
    note = json.loads(text).get("note", "") if text else ""
    return "" if selected_with(note) is None else f" The members' heads: {note}."


def numbers(study: Study, sources: list[Source], score: str, bins: int) -> None:
    st.subheader("All numbers")
    evaluations = {source.label: results.evaluation(study, source, score, bins) for source in sources}
    found = {label: one for label, one in evaluations.items() if one is not None}
    if not found:
        return
    first = next(iter(found.values()))
    excluded = sorted({len(one.excluded) for one in found.values()} - {0})
    counts = ", ".join(f"{count} {name}" for name, count in first.ood_counts.items())
    rows = {label: one.metrics for label, one in found.items()}
    charts.table_html(MetricTable(rows, GENERAL))
    columns = {name: [replace(c, label=f"{name}: {c.label}") for c in ood_columns(name)] for name in study.config.ood}
    for name in first.ood_counts:
        # the set's name stands once, in its first column
        charts.table_html(MetricTable(rows, [*columns[name][:1], *ood_columns(name)[1:]]))
    st.caption(
        f"n = {first.num_samples} ID{' and ' + counts if counts else ''} test samples; OOD score {score}; "
        f"{bins} equal-width bins, top label. Best bold, second underlined. FPR95 with OOD positive is the paper's; "
        "with ID positive, OpenOOD's."
        + (f" Rows with a non-finite logit are left out: {', '.join(map(str, excluded))}." if excluded else "")
    )
    every = [*GENERAL, *(column for part in columns.values() for column in part)]
    table = MetricTable(rows, every, f"n = {first.num_samples} ID; OOD score {score}; {bins} bins")
    with st.container(horizontal=True):
        st.download_button(
            "Table as CSV", table.to_csv(), file_name=f"{study.name}.csv", mime="text/csv",
            icon=":material/download:",
            key=state.key("evaluate", "csv"), on_click="ignore",
        )  # fmt: skip
        st.download_button(
            "Table as LaTeX", table.to_latex(), file_name=f"{study.name}.tex", mime="text/x-tex",
            icon=":material/download:",
            key=state.key("evaluate", "tex"), on_click="ignore",
        )  # fmt: skip


EXPLAIN = r"""
**Reliability**: samples are binned by the largest mean probability; a bar is the accuracy in that bin. On
the dashed diagonal, a model that says 80 % is right in 80 % of the cases. ECE (top-label) is the mean gap,
weighted by the counts shown beneath: $\sum_b \frac{n_b}{N}\,|\mathrm{acc}_b - \mathrm{conf}_b|$, bins $[lo,
hi)$ with the last one closed.

**OOD detection**: each sample gets a score, higher = more unusual; ID and OOD samples should not overlap.
The threshold calls everything at or above it OOD: TPR is the share of OOD samples caught, FPR the share of
ID samples falsely flagged. FPR95 is the FPR at the largest threshold with TPR of at least 95 %; AUROC needs
no threshold.

The ensemble's probabilities are the mean of its members' softmax; energy and max logit are means over
members. NLL in nats; Brier is summed over classes, 0 to 2.
"""

frame.page("Evaluate", draw, explain=EXPLAIN)
