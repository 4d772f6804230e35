"""Head importance: a score for each head, by several methods, and what one head is worth."""

import numpy as np
import pandas as pd
import streamlit as st

from hydra_core.agreement import rank_correlation
from hydra_core.figures import head_heatmap
from hydra_core.scoring.results import HeadScores
from hydra_core.study import Study
from pages.ui import cache, charts, fitting, frame, head_card, jobs, objective, state, work

METHODS = {
    "taylor": "Taylor: mean |gradient × gate|",
    "taylor_squared": "Taylor, squared",
    "ablation": "Ablation: without this head alone",
    "headmap": "HeadMap: layer by layer",
    "captum:integrated_gradients": "Captum: integrated gradients",
    "captum:shapley_sampling": "Captum: Shapley sampling (slow)",
    "captum:feature_ablation": "Captum: feature ablation",
    "captum:input_x_gradient": "Captum: input × gradient",
}
SAMPLES = 500


def draw(study: Study) -> None:
    stored = study.score_sets()
    if not stored:
        job = jobs.current(str(study.folder))
        if job is None or not job.active:
            frame.empty(
                "**No head has been scored yet.** Taylor scores need one backward pass and take seconds.",
                "Compute Taylor scores",
                lambda: work.score_heads(study, "taylor", "taylor", objective.Goal(), SAMPLES, None),
            )
    with st.expander("Compute scores", icon=":material/calculate:", expanded=bool(stored) and len(stored) < 2):
        form(study)
    if stored:
        explore(study, stored)


def form(study: Study) -> None:
    facts = cache.facts(study)
    left, middle, right = st.columns(3)
    method = left.selectbox(
        "Method", list(METHODS), format_func=METHODS.get, **state.bind(study, "score method", "taylor", list(METHODS))
    )
    samples = right.slider(
        "Validation samples", 50, 2000, step=50, **state.bind_number(study, "score samples", SAMPLES, 50, 2000),
        help="Of the validation part, drawn with the study's seed. More samples give steadier scores.",
    )  # fmt: skip
    heads = None
    goal = objective.Goal()
    if method in ("ablation", "headmap"):
        goal = objective.choose(study, "score", st.columns(3))
    if method == "headmap":
        widest = max(facts.widths)
        heads = middle.slider(
            "Heads a layer that the search chooses", 1, widest,
            **state.bind_number(study, "score heads", max(1, round(widest * 5 / 6)), 1, widest),
        )  # fmt: skip
    name = method if goal.ood is None else f"{method} {goal.label}"
    job = jobs.current(str(study.folder))
    st.button(
        "Score the heads", type="primary", key=state.key("scores", "go"), disabled=job is not None and job.active,
        on_click=work.score_heads, args=(study, name, method, goal, samples, heads),
    )  # fmt: skip


@frame.fragment
def explore(study: Study, stored: dict[str, HeadScores]) -> None:
    stored = fitting.fitting(study, stored)
    if not stored:
        st.info("No stored scores belong to this backbone and these data: compute some above.")
        return
    names = list(stored)
    left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom")
    name = left.selectbox("Scores shown", names, **state.bind(study, "scores shown", names[0], names))
    scores = stored[name]
    scales = ["layer"] if scores.within_layers else ["whole", "layer"]
    scale = middle.segmented_control(
        "Colours by", scales, required=True, format_func={"whole": "value", "layer": "place in the layer"}.get,
        **state.bind(study, "score scale", scales[0], scales),
        help="These values compare heads of one layer alone." if scores.within_layers else None,
    )  # fmt: skip
    robust = right.toggle(
        "Robust limits", **state.bind(study, "score robust", True),
        help="One outlier does not wash out the rest: it takes the end colour.",
    )  # fmt: skip
    cells = [(int(i), int(j)) for i, j in np.argwhere(np.isfinite(scores.values))]
    head = head_card.selected(study, cells)
    figure = head_heatmap(
        scores.values, title=heading(scores, scale), scale=scale, robust=robust, selected=head,
        unit=scores.method,
    )  # fmt: skip
    charts.pick(
        figure, name=f"head-scores-{name}", key=state.key("scores", "heatmap"),
        on_pick=lambda place: head_card.choose(study, place),
    )  # fmt: skip
    st.caption(f"{scores.convention}. Higher = more important. {counted(scores)}. Click a head for its card.")
    head_card.draw(study, stored, cells)
    agreement(stored)
    table(name, scores)


def heading(scores: HeadScores, scale: str) -> str:
    if scale == "whole" and np.nanmin(scores.values) < 0:
        return "The greener a head, the more it matters; the model is better without brown ones"
    return "The brighter a head, the more it matters" + (" in its layer" if scale == "layer" else "")


def counted(scores: HeadScores) -> str:
    ood = f" + {scores.num_ood} OOD" if scores.num_ood else ""
    told = f" by {objective.SCORES.get(scores.score, scores.score)}" if scores.score else ""
    return f"n = {scores.num_samples} validation samples{ood}, objective {scores.objective}{told}, seed {scores.seed}"


# --- all heads ---


def agreement(stored: dict[str, HeadScores]) -> None:
    if len(stored) < 2:
        return
    st.subheader("Do the methods agree?")
    within = any(scores.within_layers for scores in stored.values())
    found = rank_correlation({name: scores.values for name, scores in stored.items()}, within_layers=within)
    table_ = pd.DataFrame(found, list(stored), list(stored))
    st.table(table_.map(lambda value: "–" if np.isnan(value) else f"{value:.2f}"))
    heads = int(np.isfinite(next(iter(stored.values())).values).sum())
    places = "of the places within each layer (HeadMap's values compare no further), " if within else ""
    counts = ", ".join(f"{name} {scores.num_samples}" for name, scores in stored.items())
    st.caption(
        f"Spearman rank correlation {places}over {heads} heads: 1 = the same order, 0 = unrelated, −1 = the opposite "
        f"order; –: all heads are equal. Validation samples: {counts}."
    )
    charts.downloads(table_.reset_index(names="scores"), "agreement-of-methods")


def table(name: str, scores: HeadScores) -> None:
    with st.expander("All scores as a table", icon=":material/table:"):
        frame_ = pd.DataFrame(
            scores.values,
            index=[f"layer {i}" for i in range(scores.values.shape[0])],
            columns=[f"head {j}" for j in range(scores.values.shape[1])],
        )
        st.dataframe(frame_.map(lambda value: None if np.isnan(value) else float(f"{value:.4g}")))
        charts.downloads(long_table(scores), f"head-scores-{name}", scores.to_json())


def long_table(scores: HeadScores) -> pd.DataFrame:
    """One row a head, with the error that sampling leaves where there is one."""
    rows = []
    for layer, head in np.argwhere(np.isfinite(scores.values)):
        row = {"layer": int(layer), "head": int(head), "value": float(scores.values[layer, head])}
        if scores.standard_error is not None:
            row["standard_error"] = float(scores.standard_error[layer, head])
        rows.append({**row, "method": scores.method, "objective": scores.objective, "samples": scores.num_samples})
    return pd.DataFrame(rows)


EXPLAIN = r"""
A **gate** $g$ multiplies each head's output before the output projection; $g = 1$ keeps the head, $g = 0$
removes it.

- **Taylor** (Michel et al., arXiv 1905.10650): $\frac1N\sum_i |\partial L_i / \partial g \cdot g|$ at $g =
  1$, the first-order change of the loss when the gate closes.
- **Taylor, squared** (Molchanov et al., arXiv 1906.10771): the mean of its square.
- **Ablation**: how much the objective really worsens with that head alone removed.
- **HeadMap** (Wang et al., ICLR 2025): the same, layer by layer, with the heads chosen in earlier layers
  already removed.
- **Captum** (arXiv 2009.07896), with the gates as inputs and no head as the baseline: the mean signed
  attribution of the true class's log-probability. Integrated gradients (arXiv 1703.01365) follow the gates from 0
  to 1; Shapley sampling averages over orders in which heads join, with the sampling error it leaves; input ×
  gradient is the signed Taylor term. A negative value: the head lowers the true class.

A high score says that the method expects harm when the head goes. Methods can disagree: the rank
correlation shows how much, and the head's card shows what really happens on a quick sample. Scores come
from validation data, never from the test data that Evaluate reports on.
"""

frame.page("Head importance", draw, explain=EXPLAIN)
