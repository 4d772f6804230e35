"""How far a circuit can be trusted: the graph of its heads, faithfulness, stability and overlap."""

import numpy as np
import pandas as pd
import streamlit as st

from hydra_core.agreement import Stability, overlaps
from hydra_core.errors import HydraError
from hydra_core.faithfulness import KEEP, REMOVE, Faithfulness
from hydra_core.figures import Series, circuit_graph, faithfulness_curve, head_heatmap, strongest_edges
from hydra_core.scoring.results import Circuit
from hydra_core.study import Study
from pages.ui import cache, charts, fitting, head_card, jobs, state, work

KINDS = {"q": "Q: as its query", "k": "K: as its key", "v": "V: as its value"}
EDGES = 60  # that the graph begins with
DRAWS = 5  # random rankings behind the band
TITLES = {  # by whether a higher metric is better
    True: ("The ranked heads alone: high early is faithful", "Without the ranked heads: low early is necessary"),
    False: ("The ranked heads alone: low early is faithful", "Without the ranked heads: high early is necessary"),
}
METRICS = {"accuracy": "accuracy", "ece": "ECE", "nll": "NLL (nats)"}


# --- graph ---


@st.cache_resource(max_entries=4, show_spinner=False)
def _composition(key: str, _study: Study) -> dict[str, np.ndarray]:
    from hydra_core.scoring.composition import composition

    found = composition(cache.backbone(_study))
    return {"q": found.q, "k": found.k, "v": found.v, "unrelated": np.array(found.unrelated)}


def graph(study: Study, circuits: dict[str, Circuit], facts: cache.Facts) -> None:
    with st.spinner("Computing composition from the weights"):
        found = _composition(cache.backbone_key(study.config), study)
    left, middle, right = st.columns([2, 3, 2], vertical_alignment="bottom")
    kind = left.selectbox(
        "A later head reads an earlier one", list(KINDS), format_func=KINDS.get,
        **state.bind(study, "graph kind", "k", list(KINDS)),
    )  # fmt: skip
    table = found[kind]
    if not np.isfinite(table).any():
        st.info("A graph needs at least two layers with heads.")
        return
    low, high = float(np.nanmin(table)), float(np.nanmax(table))
    edges = strongest_edges(table, low)
    start = edges[min(EDGES, len(edges)) - 1][0]
    threshold = middle.slider(
        "Show edges from this strength on", low, high, step=(high - low) / 200 or 0.01, format="%.3f",
        **state.bind_number(study, f"graph threshold {kind}", start, low, high),
    )  # fmt: skip
    only = right.toggle(
        "Only heads of the circuits", disabled=not circuits, **state.bind(study, "graph circuits", False),
    )  # fmt: skip
    focus = right.toggle("Only the chosen head's edges", **state.bind(study, "graph focus", False))
    cells = [(i, j) for i, width in enumerate(facts.widths) for j in range(width)]
    head = head_card.selected(study, cells)
    shown = {name: circuits[name].keep for name in circuits}
    figure = circuit_graph(
        table, facts.widths, threshold=threshold, circuits=shown, only_circuits=only and bool(shown),
        selected=head, focus=focus, kind=kind.upper(), unrelated=float(found["unrelated"]),
    )  # fmt: skip
    charts.pick(
        figure, name="circuit-graph", key=state.key("circuits", "graph"),
        on_pick=lambda place: head_card.choose(study, place),
    )  # fmt: skip
    st.caption(
        "From the weights alone (Elhage et al., 2021): how much of what an earlier head writes a later one reads. "
        "LayerNorm gains on the way are counted, MLPs are not. Click a head for its card."
    )
    charts.downloads(edges_table(found), "composition")
    head_card.draw(study, fitting.fitting(study, study.score_sets()), cells)


def edges_table(found: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row an edge and kind of composition."""
    parts = []
    for kind in KINDS:
        places = np.argwhere(np.isfinite(found[kind]))
        part = pd.DataFrame(places, columns=["from_layer", "from_head", "to_layer", "to_head"])
        parts.append(part.assign(kind=kind.upper(), strength=found[kind][tuple(places.T)]))
    return pd.concat(parts, ignore_index=True)


# --- faithfulness ---


def faithfulness(study: Study, circuits: dict[str, Circuit]) -> None:
    stored = read(study, "faithfulness", "latest", Faithfulness.from_json)
    with st.expander("Measure", icon=":material/straighten:", expanded=stored is None):
        job = jobs.current(str(study.folder))
        left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom")
        scores = left.multiselect(
            "Scores", study.names("scores"), **state.bind(study, "faithfulness scores", study.names("scores")[:2])
        )
        chosen = middle.multiselect(
            "Circuits", list(circuits), **state.bind(study, "faithfulness circuits", list(circuits)[:2])
        )
        samples = right.number_input(
            "Test samples of each set",
            50,
            10_000,
            step=50,
            **state.bind_number(study, "faithfulness n", 400, 50, 10_000),
        )
        scores = [name for name in scores if name in study.names("scores")]
        chosen = [name for name in chosen if name in circuits]
        st.button(
            "Measure faithfulness", type="primary", key=state.key("trust", "faithfulness"),
            disabled=(job is not None and job.active) or not (scores or chosen),
            on_click=work.measure_faithfulness, args=(study, scores, chosen, DRAWS, int(samples)),
        )  # fmt: skip
    if stored is None:
        st.markdown(
            "Keep only each layer's k highest-ranked heads, or remove them: a ranking that finds what carries the task "
            "keeps the metric high with few heads, and loses it soon without them."
        )
        return
    if stored.backbone_fingerprint != cache.facts(study).fingerprint:
        st.warning("These curves belong to another backbone; measure them again.")
    metrics = {**METRICS, **{f"ood/{name}/auroc": f"AUROC against {name}" for name in stored.ood_counts}}
    metric = st.selectbox(
        "Metric",
        list(metrics),
        format_func=metrics.get,
        **state.bind(study, "faithfulness metric", "accuracy", list(metrics)),
    )
    counts = ", ".join(f"{count} {name}" for name, count in stored.ood_counts.items())
    note = f"test data, n = {stored.num_samples} ID" + (f" + {counts}" if counts else "")
    for column, direction, title in zip(
        st.columns(2), (KEEP, REMOVE),
        TITLES[metric not in ("ece", "nll")],
        strict=True,
    ):  # fmt: skip
        with column:
            figure = faithfulness_curve(
                curves(stored, direction, metric), metric=metrics[metric], title=title,
                subtitle=f"{note}; random: mean and range of {DRAWS} draws",
            )  # fmt: skip
            figure.update_xaxes(title=f"heads a layer {'kept' if direction == KEEP else 'removed'}")
            charts.draw(figure, name=f"faithfulness-{direction}", key=state.key("trust", direction))
    areas(stored, metric)


def random_names(stored: Faithfulness) -> list[str]:
    return [name for name in stored.curves if name.startswith("random ")]


def curves(stored: Faithfulness, direction: str, metric: str) -> dict[str, Series]:
    """One line a ranking; the random ones as one, with their range."""
    drawn = random_names(stored)
    found = {
        name: Series(stored.kept, stored.curves[name][direction][metric]) for name in stored.curves if name not in drawn
    }
    rows = [stored.curves[name][direction][metric] for name in drawn]
    if rows and not any(value is None for row in rows for value in row):
        values = np.array(rows, dtype=float)
        found["random"] = Series(stored.kept, values.mean(0).tolist(), values.min(0).tolist(), values.max(0).tolist())
    return found


def areas(stored: Faithfulness, metric: str) -> None:
    drawn = random_names(stored)
    rows = []
    for name in [name for name in stored.curves if name not in drawn]:
        rows.append({"Ranking": name, **{d: charts.number(stored.area(name, d, metric)) for d in (KEEP, REMOVE)}})
    row = {"Ranking": f"random, mean of {len(drawn)} (range)"}
    for direction in (KEEP, REMOVE):
        found = [area for name in drawn if (area := stored.area(name, direction, metric)) is not None]
        row[direction] = f"{np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})" if found else "–"
    table = pd.DataFrame([*rows, row]).set_index("Ranking")
    table.columns = ["Area, heads kept alone", "Area, heads removed"]
    st.table(table)
    st.caption("Area under the curve over the share of heads: the metric's mean along it.")
    charts.downloads(long_table(stored), "faithfulness", stored.to_json())


def long_table(stored: Faithfulness) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"ranking": name, "direction": direction, "metric": metric, "heads": k, "value": value}
            for name, directions in stored.curves.items()
            for direction, by_metric in directions.items()
            for metric, values in by_metric.items()
            for k, value in zip(stored.kept, values, strict=True)
        ]
    )


# --- stability and overlap ---


def stability(study: Study, circuits: dict[str, Circuit]) -> None:
    if len(circuits) > 1:
        st.markdown("**Do the objectives choose the same heads?** Jaccard overlap: 1 = the same, 0 = none shared.")
        table = pd.DataFrame(
            overlaps({name: one.keep for name, one in circuits.items()}), list(circuits), list(circuits)
        )
        st.table(table.map(lambda value: f"{value:.2f}"))
        charts.downloads(table.reset_index(names="circuit"), "overlap-of-circuits")
    st.markdown("**Would other samples choose the same heads?**")
    names = list(circuits)
    left, middle, right, last = st.columns([2, 1, 1, 1], vertical_alignment="bottom")
    name = left.selectbox("Circuit", names, **state.bind(study, "stability circuit", names[0], names))
    resamples = middle.number_input("Resamples", 2, 100, **state.bind_number(study, "resamples", 10, 2, 100))
    samples = right.number_input(
        "Samples in each", 50, 10_000, step=50, **state.bind_number(study, "stability n", 256, 50, 10_000)
    )
    job = jobs.current(str(study.folder))
    last.button(
        "Search again", type="primary", key=state.key("trust", "stability"), disabled=job is not None and job.active,
        on_click=work.measure_stability, args=(study, name, int(resamples), int(samples)),
    )  # fmt: skip
    stored = read(study, "stability", name, Stability.from_json)
    if stored is None:
        st.caption("Not measured for this circuit yet: each resample searches the circuit again.")
        return
    if stored.made_for not in (None, circuits[name].digest):
        st.warning(f"{name!r} has been searched anew since this was measured: search the resamples again.")
        return
    figure = head_heatmap(
        stored.values, title="The share of resamples that choose each head", chosen=circuits[name].keep, robust=False,
        unit="share of resamples",
    )  # fmt: skip
    charts.draw(figure, name=f"stability-{name}", key=state.key("trust", "heatmap"))
    st.caption(
        f"{stored.num_resamples} bootstrap samples of {stored.num_samples} validation samples; ringed: the circuit "
        f"itself. Two resamples share {stored.mean_overlap:.2f} of their heads (mean Jaccard overlap). Search: "
        f"{circuits[name].search}."
    )
    rows = [
        {"layer": i, "head": j, "share": share, "chosen": circuits[name].keep.keep[i][j]}
        for i, row in enumerate(stored.frequency)
        for j, share in enumerate(row)
        if share is not None
    ]
    charts.downloads(pd.DataFrame(rows), f"stability-{name}", stored.to_json())


def read(study: Study, kind: str, name: str, parse):
    """A stored artefact, or None where there is none or it is damaged (the page says so)."""
    try:
        text = study.get(kind, name)
        return None if text is None else parse(text)
    except HydraError as error:
        st.warning(f"The stored {kind} cannot be read and must be measured again: {error}")
        return None
