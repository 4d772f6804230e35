"""Circuits: search the heads that carry a task, layer by layer, and lay circuits over one another."""

import pandas as pd
import streamlit as st

from hydra_core.figures import circuit_layers, head_heatmap
from hydra_core.scoring.results import Circuit
from hydra_core.study import Study
from pages.ui import cache, charts, frame, jobs, state, work

OBJECTIVES = {"loss": "Task loss", "ood_auroc": "OOD detection (AUROC)", "average": "Average of both"}
SAMPLES = 512
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
            lambda: work.find_circuit(study, "loss", None, default, SAMPLES),
        )
    with st.expander("Search a circuit", icon=":material/search:", expanded=bool(circuits)):
        form(study, max(facts.widths), default, busy)
    if circuits:
        overlay(study, circuits, facts)
        one(study, circuits)


def form(study: Study, widest: int, default: int, busy: bool) -> None:
    names = work.selectable(study)
    objectives = list(OBJECTIVES) if names else ["loss"]
    columns = st.columns(4)
    objective = columns[0].selectbox(
        "Objective",
        objectives,
        format_func=OBJECTIVES.get,
        **state.bind(study, "circuit objective", "loss", objectives),
    )
    heads = columns[1].slider(
        "Heads a layer", 1, widest, **state.bind_number(study, "circuit heads", default, 1, widest),
        help="So many heads of each layer are chosen: a member keeps them and loses the rest.",
    )  # fmt: skip
    samples = columns[2].slider(
        "Validation samples", 64, 2000, step=64, **state.bind_number(study, "circuit samples", SAMPLES, 64, 2000)
    )
    ood = None
    if objective != "loss":
        ood = columns[3].selectbox(
            "OOD set", names, **state.bind(study, "circuit ood", names[0], names),
            help="Its validation part is used. A set that helped to choose heads is not unseen any more.",
        )  # fmt: skip
    st.button(
        "Search", type="primary", key=state.key("circuits", "go"), disabled=busy,
        on_click=work.find_circuit, args=(study, objective, ood, heads, samples),
    )  # fmt: skip


def overlay(study: Study, circuits: dict[str, Circuit], facts: cache.Facts) -> None:
    st.subheader("Circuits over one another")
    names = [name for name, circuit in circuits.items() if circuit.keep.widths == facts.widths]
    if not names:
        st.info("The stored circuits belong to another backbone.")
        return
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
    seen = sorted({name for name in study.config.ood if any(name in one.split() for one in names)})
    note = f"circuits {', '.join(names)}, selected with {', '.join(seen) or 'no OOD set'}"
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
        on_click=frame.safely(lambda: study.remove("circuits", name)),
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
    st.caption(f"Value: {what}.{start} n = {circuit.num_samples} validation samples{ood}.")


EXPLAIN = r"""
**HeadMap** (Wang et al., ICLR 2025, Algorithm 1), as Hydra Ensembles use it. For layer $l = 1, \dots, L$,
with the heads chosen in the layers before masked out: mask each head of layer $l$ in turn, measure the
objective over the whole validation set, choose the $n$ heads whose masking hurts most, and go on. The
chosen heads are the circuit: a member **keeps** them and loses the rest.

Objectives: **task loss** (masking hurts by raising it), **OOD detection** (masking hurts by lowering the
AUROC of 1 − largest probability between ID and OOD validation data), and the **average** (the paper's
CircAvg: in each layer the mean of min-max-scaled loss and min-max-scaled 1 − AUROC). Equal values: the
lower head first.
"""

frame.page("Circuits", draw, explain=EXPLAIN)
