"""Circuits: search the heads that carry a task, layer by layer, and lay circuits over one another."""

from typing import Any

import pandas as pd
import streamlit as st

from hydra_core.figures import circuit_layers, head_heatmap
from hydra_core.mask_files import selection_note
from hydra_core.scoring.results import Circuit
from hydra_core.study import Study
from pages.ui import cache, charts, fitting, frame, jobs, objective, state, trust, work

SEARCHES = {"exact": "exact: every head on every sample", "race": "race: as few samples as decide"}
SAMPLES = 500
HEADS, GRAPH, FAITHFULNESS, STABILITY = VIEWS = ("Heads", "Graph", "Faithfulness", "Stability and overlap")
MAX_MEMBERS = 8


def draw(study: Study) -> None:
    circuits = study.circuits()
    job = jobs.current(str(study.folder))
    busy = job is not None and job.active
    facts = cache.facts(study)
    default = max(1, round(max(facts.widths) * 5 / 6))
    if not circuits and not busy:
        frame.empty(
            "**No circuit has been searched yet.** A circuit is the heads whose removal hurts an objective "
            "most, chosen layer by layer.",
            "Find the circuit of the task loss",
            lambda: work.find_circuit(study, objective.Goal(), default, SAMPLES),
        )
    with st.expander("Search a circuit", icon=":material/search:", expanded=bool(circuits)):
        form(study, max(facts.widths), default, busy)
    if job is not None and job.active:
        jobs.watch(job, filling)
    if circuits:
        views(study, circuits, facts)


def filling(found: Any) -> None:
    """The search as it fills layer by layer."""
    if not isinstance(found, work.Filling):
        return
    figure = head_heatmap(
        found.values, title=f"Searching: {found.layers} of {len(found.values)} layers are chosen", chosen=found.chosen,
        scale="layer", unit="objective",
    )  # fmt: skip
    charts.draw(figure, name="search", key=state.key("circuits", "filling"))


@frame.fragment
def views(study: Study, circuits: dict[str, Circuit], facts: cache.Facts) -> None:
    view = st.segmented_control("View", VIEWS, required=True, **state.bind(study, "circuit view", HEADS, VIEWS))
    circuits = fitting.fitting(study, circuits)
    if not circuits:
        st.info("No stored circuit belongs to this backbone and these data: search one above.")
    elif view == GRAPH:
        trust.graph(study, circuits, facts)
    elif view == FAITHFULNESS:
        trust.faithfulness(study, circuits)
    elif view == STABILITY:
        trust.stability(study, circuits)
    else:
        overlay(study, circuits, facts)
        one(study, circuits)


def form(study: Study, widest: int, default: int, busy: bool) -> None:
    goal = objective.choose(study, "circuit", st.columns(3))
    columns = st.columns(3)
    heads = columns[0].slider(
        "Heads a layer", 1, widest, **state.bind_number(study, "circuit heads", default, 1, widest),
        help="So many heads of each layer are chosen: a member keeps them and loses the rest.",
    )  # fmt: skip
    samples = columns[1].slider(
        "Validation samples", 50, 2000, step=50, **state.bind_number(study, "circuit samples", SAMPLES, 50, 2000)
    )
    search = columns[2].selectbox(
        "Search", list(SEARCHES), format_func=SEARCHES.get,
        **state.bind(study, "circuit search", "exact", list(SEARCHES)),
        help="A race measures a head on more samples only while its place in the layer is in doubt. A head it chooses "
        "may be less important than one left out by a quarter of the spread within the layer, at 90 % confidence.",
    )  # fmt: skip
    st.button(
        "Search", type="primary", key=state.key("circuits", "go"), disabled=busy,
        on_click=work.find_circuit, args=(study, goal, heads, samples, search),
    )  # fmt: skip


def overlay(study: Study, circuits: dict[str, Circuit], facts: cache.Facts) -> None:
    st.subheader("Circuits over one another")
    names = list(circuits)
    stored = [name for name in state.chosen(study, "circuits laid over", names[:3]) if name in names]
    shown = st.multiselect("Circuits", names, **state.bind(study, "circuits laid over", stored or names[:3]))
    shown = [name for name in shown if name in names]
    if not shown:
        st.markdown("Choose at least one circuit.")
        return
    figure = circuit_layers(
        {name: circuits[name].keep for name in shown},
        title="Where marks stand together, the circuits share a head",
    )
    left, right = st.columns([3, 2])
    with left:
        charts.draw(figure, name="circuits", key=state.key("circuits", "overlay"))
    rows = []
    for layer in range(len(facts.widths)):
        row = {"Layer": str(layer)}
        for name in shown:
            row[name] = ", ".join(map(str, circuits[name].keep.kept_in(layer))) or "none"
        rows.append(row)
    right.markdown("**Chosen heads by layer**")
    right.table(pd.DataFrame(rows).set_index("Layer"))
    if 2 <= len(shown) <= MAX_MEMBERS:
        right.button(
            f"Make {len(shown)} members of these circuits", type="primary", icon=":material/groups:",
            key=state.key("circuits", "members"), on_click=frame.safely(lambda: use(study, circuits, shown, facts)),
        )  # fmt: skip
    else:
        right.caption("Choose two to eight circuits to make members of them.")


def use(study: Study, circuits: dict[str, Circuit], names: list[str], facts: cache.Facts) -> None:
    seen = sorted(set(filter(None, (work.ood_of(study, name, circuits[name]) for name in names))))
    note = selection_note(f"circuits {', '.join(names)}", seen)
    state.set_masks(study, [circuits[name].keep for name in names], facts.fingerprint, note)
    state.flash(
        "success", f"{len(names)} members keep the heads of {', '.join(names)}. Members and Fuse go on from here."
    )


def one(study: Study, circuits: dict[str, Circuit]) -> None:
    st.subheader("One circuit's values")
    names = list(circuits)
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    name = left.selectbox("Circuit", names, **state.bind(study, "circuit shown", names[0], names))
    circuit = circuits[name]
    right.button(
        "Delete this circuit", key=state.key("circuits", "delete"), icon=":material/delete:",
        on_click=frame.safely(lambda: forget(study, name)),
    )  # fmt: skip
    what = {
        "loss": "loss (nats) without the head; the highest are chosen",
        "ood_auroc": "AUROC without the head; the lowest are chosen",
        "average": "mean of scaled loss and scaled 1 − AUROC without the head; the highest are chosen",
    }[circuit.objective]
    unit = {"loss": "loss (nats)", "ood_auroc": "AUROC", "average": "scaled mean"}[circuit.objective]
    figure = head_heatmap(
        circuit.values, title="Ringed heads are chosen: their removal hurts most in their layer", chosen=circuit.keep,
        scale=state.chosen(study, "circuit scale", "layer"), unit=unit,
    )  # fmt: skip
    st.segmented_control(
        "Colours by", ["layer", "whole"], required=True,
        format_func={"whole": "value", "layer": "place in the layer"}.get,
        **state.bind(study, "circuit scale", "layer", ["layer", "whole"]),
    )  # fmt: skip
    charts.draw(figure, name=f"circuit-{name}", key=state.key("circuits", "values"))
    start = "" if circuit.baseline is None else f" With no head masked: {circuit.baseline:.4f}."
    ood = f" + {circuit.num_ood} OOD" if circuit.num_ood else ""
    raced = ""
    if circuit.measured is not None:
        share = circuit.measured.sum() / (sum(circuit.keep.widths) * circuit.num_samples)
        raced = f" A race: values rest on {share:.0%} of these samples on average."
    st.caption(f"Value: {what}.{start} n = {circuit.num_samples} validation samples{ood}.{raced}")
    charts.downloads(long_table(circuit), f"circuit-{name}", circuit.to_json())


def forget(study: Study, name: str) -> None:
    study.remove("circuits", name)
    if name in study.names("stability"):
        study.remove("stability", name)


def long_table(circuit: Circuit) -> pd.DataFrame:
    """One row a head: the objective without it, and whether it was chosen."""
    return pd.DataFrame(
        [
            {
                "layer": i,
                "head": j,
                "value": circuit.values[i, j],
                "chosen": keep,
                "objective": circuit.objective,
                "ood": circuit.ood_name or "",
                "score": circuit.score or "",
                "search": circuit.search,
                "samples": circuit.num_samples if circuit.measured is None else int(circuit.measured[i, j]),
            }
            for i, row in enumerate(circuit.keep.keep)
            for j, keep in enumerate(row)
        ]
    )


EXPLAIN = r"""
**HeadMap** (Wang et al., ICLR 2025, Algorithm 1), as Hydra Ensembles use it. For layer $l = 1, \dots, L$,
with the heads chosen in the layers before masked out: mask each head of layer $l$ in turn, measure the
objective over the whole validation set, choose the $n$ heads whose masking hurts most, and go on. The
chosen heads are the circuit: a member **keeps** them and loses the rest.

Objectives: **task loss** (masking hurts by raising it), **OOD detection** (masking hurts by lowering the
AUROC of the OOD score between ID and OOD validation data), and the **average** (the paper's
CircAvg: in each layer the mean of min-max-scaled loss and min-max-scaled 1 − AUROC). Equal values: the
lower head first.

**Race**: a head is measured on more samples only while a confidence bound leaves its place in the layer open.
**Graph**: Q-, K- and V-composition (Elhage et al., 2021), the Frobenius norm of a later head's reading matrix times
an earlier head's writing matrix, over the product of their norms. **Faithfulness**: the metric with only the k
highest-ranked heads of each layer, and without them, on test data. **Stability**: the share of bootstrap samples of
the validation data whose search chooses a head.
"""

frame.page("Circuits", draw, explain=EXPLAIN)
