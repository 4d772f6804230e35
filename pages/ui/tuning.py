"""The Fuse page's section on fine-tuning: choices, live curves, going on after a stop, and what merging cost."""

from typing import Any

import pandas as pd
import streamlit as st

from hydra_core.figures import Column, MetricTable, Series, lines
from hydra_core.study import Study
from pages.ui import charts, fine_tuning_jobs, frame, jobs, results, state, tuned
from pages.ui.equivalence import Equivalence
from pages.ui.tuned import Run, Settings

ALL, LORA = "All weights", "LoRA"
DIVERSITY = [
    Column("disagreement", "Disagreement (%)", None, 2, percent=True),
    Column("pairwise_kl", "Mean pairwise KL (nats)", None, 4),
    Column("mutual_information", "Mutual information (nats)", None, 4),
]


def section(study: Study, check: Equivalence | None, job: jobs.Job | None) -> None:
    """All of it; `check` (of these masks, where there is one) times a forward pass, `job` is the study's."""
    st.subheader("Fine-tune the members")
    if job is not None and job.active and job.label == fine_tuning_jobs.LABEL:
        st.caption("Cancel above keeps the epochs that are done: Resume goes on from there.")
        jobs.watch(job, lambda found: live(job, found))
        return
    busy = job is not None and job.active
    st.markdown(
        "Each pruned member is trained on labelled data, then all are fused again. The members' MLPs then differ, and "
        "the fused network has their mean: what that costs is measured below."
    )
    stopped, run = tuned.unfinished(study), tuned.current(study)
    if stopped is not None:
        go_on(study, stopped, busy)
    with st.expander("Train", icon=":material/model_training:", expanded=run is None and stopped is None):
        ready = run is None and stopped is None and check is not None and not results.stale(study)
        form(study, check, busy, next_step=ready)
    if run is None and results.stale_tuning(study):
        st.warning("**The masks have changed since members were fine-tuned**: fine-tune these to see their numbers.")
    if run is not None:
        merging(study, run)


def live(job: jobs.Job, found: Run) -> None:
    """The run that is under way."""
    left = job.time_left()
    st.markdown(f"{job.note}" + ("" if left is None else f", about {jobs.duration(left)} left for all"))
    st.caption(f"Asked for: {found.settings.words}.")
    curves(found, "live")


def go_on(study: Study, stopped: Run, busy: bool) -> None:
    """A run that was stopped: resume it, or throw it away."""
    fits = stopped.base == study.active_fingerprint
    with st.container(border=True):
        done = ", ".join(
            f"{name}: {len(rows)} of {stopped.settings.epochs_of(name)}" for name, rows in stopped.curves.items()
        )
        st.markdown(
            f"**A fine-tuning was stopped.** Epochs done: {done or 'none yet'}. Asked for: {stopped.settings.words}."
            + ("" if fits else " It belongs to other masks: undo the change on Members to go on with it.")
        )
        with st.container(horizontal=True):
            st.button(
                "Resume", type="primary", icon=":material/play_arrow:", key=state.key("tuning", "resume"),
                disabled=busy or not fits, on_click=frame.safely(lambda: fine_tuning_jobs.resume(study)),
            )  # fmt: skip
            st.button(
                "Discard it", key=state.key("tuning", "discard"), disabled=busy,
                on_click=frame.safely(lambda: throw_away(study)),
            )  # fmt: skip
        if stopped.curves:
            with st.expander("Its curves so far"):
                curves(stopped, "stopped")


def throw_away(study: Study) -> None:
    fine_tuning_jobs.discard(study)
    jobs.dismiss(str(study.folder))  # its message says that the run can be resumed


# --- choices ---


def form(study: Study, check: Equivalence | None, busy: bool, *, next_step: bool) -> None:
    top, bottom = st.columns(4, vertical_alignment="bottom"), st.columns(4, vertical_alignment="bottom")
    epochs = top[0].number_input("Epochs", 1, 1000, **state.bind_number(study, "tuning epochs", 2, 1, 1000))
    rate = top[1].number_input(
        "Learning rate", 1e-6, 0.1, step=1e-4, format="%.1e",
        help="The peak of AdamW's rate, after a warm-up; it then falls to 0. LoRA bears a larger one, 1e-3 say.",
        **state.bind_number(study, "tuning rate", 3e-4, 1e-6, 0.1),
    )  # fmt: skip
    how = top[2].segmented_control(
        "What is trained", (ALL, LORA), required=True, **state.bind(study, "tuning weights", ALL, (ALL, LORA)),
        help="LoRA trains low-rank updates of the attention's and the MLP's matrices, and the read-out: it needs less "
        "memory and moves the members less far apart.",
    )  # fmt: skip
    rank = None
    if how == LORA:
        rank = int(top[3].number_input("Rank", 1, 256, **state.bind_number(study, "tuning rank", 8, 1, 256)))
    samples = bottom[0].number_input(
        "Training samples, at most", 8, 10_000_000, step=500,
        **state.bind_number(study, "tuning samples", 2000, 8, 10_000_000),
    )  # fmt: skip
    seed = bottom[1].number_input(
        "Seed", 0, 2**31, help="Member i trains with the seed + i: another order of the samples.",
        **state.bind_number(study, "tuning seed", study.config.seed, 0, 2**31),
    )  # fmt: skip
    after = bottom[2].toggle(
        "Train on after fusing", **state.bind(study, "tuning after", False),
        help="A short fine-tuning of the fused network: its one MLP gets used to all members.",
    )  # fmt: skip
    fused_epochs = 0
    if after:
        fused_epochs = int(
            bottom[3].number_input("Its epochs", 1, 1000, **state.bind_number(study, "tuning after epochs", 1, 1, 1000))
        )
    settings = Settings(int(epochs), float(rate), rank, int(samples), int(seed), fused_epochs)
    members = len(study.active_masks or [])
    st.caption(where_from(study) + " " + duration(study, settings, members, check))
    st.button(
        f"Fine-tune {members} members", type="primary" if next_step else "secondary", icon=":material/model_training:",
        key=state.key("tuning", "start"), disabled=busy, on_click=fine_tuning_jobs.start, args=(study, settings),
    )  # fmt: skip


def where_from(study: Study) -> str:
    """Which samples train and which stop."""
    if fine_tuning_jobs.has_training_part(study):
        return (
            f"Trains on the training part of {study.config.data}, stops early by the NLL on its validation part. "
            "Test samples are in neither."
        )
    return (
        "These data have no training part: of the half that chose heads, four fifths train and one fifth stops "
        "training early by its NLL. The other half is for testing alone."
    )


def duration(study: Study, settings: Settings, members: int, check: Equivalence | None) -> str:
    """About how long it takes, from the forward pass that fusing timed."""
    full = results.predictions(study, results.FULL)
    if check is None or not check.forward_seconds or full is None:
        return "The time left is shown once it runs."
    tested = full.num_samples * (1 + len(study.config.ood))
    each = fine_tuning_jobs.TRAINING_COST * settings.samples + (study.config.limit or tested)
    passes = members * ((settings.epochs + settings.fused_epochs) * each + (3 if settings.fused_epochs else 2) * tested)
    return (
        f"About {jobs.duration(passes * check.forward_seconds)} if no epoch is spared, reckoned from a forward pass "
        f"timed on {check.device}."
    )


# --- curves ---


def curves(run: Run, place: str) -> None:
    """Loss and validation NLL by epoch, as lines and as numbers."""
    if not run.curves:
        st.caption("The first epoch is under way.")
        return
    columns = st.columns(2)
    for column, field, title in (
        (columns[0], "train_loss", "Training loss"),
        (columns[1], "validation_nll", "Validation NLL: its lowest epoch is kept"),
    ):
        drawn = {
            name: Series([row["number"] for row in rows], [row[field] for row in rows])
            for name, rows in run.curves.items()
        }
        figure = lines(
            drawn, title=title, x_title="epoch", y_title="nats",
            subtitle=f"n = {run.training if field == 'train_loss' else run.validation} samples",
        )  # fmt: skip
        figure.update_xaxes(dtick=max(1, max(len(rows) for rows in run.curves.values()) // 10))
        with column:
            charts.draw(figure, name=field, key=state.key("tuning", place, field))
    last = max(len(rows) for rows in run.curves.values())
    table = pd.DataFrame(
        {
            f"Epoch {number}": [_epoch(rows, number) for rows in run.curves.values()]
            for number in range(max(1, last - 7), last + 1)
        },
        index=pd.Index(run.curves, name="Training loss / validation NLL"),
    )
    st.table(table)


def _epoch(rows: list[dict[str, Any]], number: int) -> str:
    if number > len(rows):
        return "–"
    row = rows[number - 1]
    return f"{charts.number(row['train_loss'])} / {charts.number(row['validation_nll'])}"


# --- what merging cost ---


def merging(study: Study, run: Run) -> None:
    """Before and after the members' MLPs were averaged."""
    if run.gap is None:
        return
    before, after = run.gap.before, run.gap.after
    st.markdown("**What averaging the MLPs cost**")
    st.markdown(sentence(run))
    rows: dict[str, dict[str, float | None]] = {}
    if not results.stale(study) and results.FUSED in results.sources(study):
        known = results.evaluation(study, results.FUSED)
        if known is not None and known.num_samples == before.num_samples:
            rows["Fused, not fine-tuned"] = known.metrics
    rows["Fine-tuned, members apart"] = before.metrics
    rows["Fine-tuned, fused"] = {**after.metrics, "moved": run.gap.mean_difference}
    if run.again is not None:
        rows["Fine-tuned, fused, tuned again"] = {**run.again.after.metrics, "moved": run.again.mean_difference}
    columns = [
        Column("accuracy", "Accuracy (%)", "higher", 2, percent=True),
        Column("nll", "NLL (nats)", "lower"),
        Column("ece", "ECE", "lower", 4),
        Column("moved", "Mean |Δp|", None, 4),
        *(
            column
            for name in before.ood_counts
            for column in (
                Column(f"ood/{name}/auroc", f"{name}: AUROC", "higher", 4),
                Column(f"ood/{name}/fpr95", f"{name}: FPR95", "lower", 4),
            )
        ),
    ]
    charts.table_html(MetricTable(rows, columns))
    counts = ", ".join(f"{count} {name}" for name, count in before.ood_counts.items())
    st.caption(
        f"n = {before.num_samples} ID{' and ' + counts if counts else ''} test samples; {before.num_bins} bins; OOD "
        f"score {before.score}, OOD positive. Best bold, second underlined. |Δp|: the ensemble's probabilities against "
        f"those of the members apart, mean over samples and classes. {run.training} training and {run.validation} "
        f"validation samples, {run.settings.words}; {jobs.duration(run.seconds)} on {run.device}, {run.dtype}."
    )
    if any(run.diversity.values()):
        st.markdown("**How much the members differ**")
        table = {f"{name[0].upper()}{name[1:]}": values for name, values in run.diversity.items()}
        charts.table_html(MetricTable(table, DIVERSITY))
        st.caption(
            f"n = {before.num_samples} ID test samples. Disagreement: share of samples on which a pair of members "
            "answers differently. KL: mean over samples and ordered pairs."
        )
    with st.expander("Training curves", icon=":material/show_chart:"):
        curves(run, "latest")


def sentence(run: Run) -> str:
    """What merging did, in plain words."""
    assert run.gap is not None
    parts = []
    before, after = (_figures(one.metrics) for one in (run.gap.before, run.gap.after))
    if before is not None and after is not None:
        parts = [
            f"{name} stays at {a}{unit}" if a == b else f"{name} goes from {a} to {b}{unit}"
            for name, unit, a, b in zip(("accuracy", "NLL"), (" %", " nats"), before, after, strict=True)
        ]
    parts.append(f"the ensemble's probabilities move by {run.gap.mean_difference:.4f} on average")
    text = f"With the MLPs averaged, {', '.join(parts)} (n = {run.gap.before.num_samples} test samples)."
    again = None if run.again is None else _figures(run.again.after.metrics)
    return text if again is None else f"{text} Trained on, the fused network reaches {again[0]} % and {again[1]} nats."


def _figures(metrics: dict[str, float | None]) -> tuple[str, str] | None:
    accuracy, nll = metrics["accuracy"], metrics["nll"]
    return None if accuracy is None or nll is None else (f"{100 * accuracy:.2f}", f"{nll:.3f}")
