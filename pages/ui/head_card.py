"""The card of one head: what the methods say of it, what happens without it, and what it attends to."""

import numpy as np
import pandas as pd
import streamlit as st

from hydra_core.masks import HeadMask
from hydra_core.scoring.results import HeadScores
from hydra_core.study import Study
from pages.ui import attention, cache, charts, frame, quick, state

Head = tuple[int, int]


def label(head: Head) -> str:
    return f"layer {head[0]}, head {head[1]}"


def selected(study: Study, cells: list[Head]) -> Head:
    """The head that was chosen last, on whatever page."""
    wanted = state.chosen(study, "head", "")
    return next((cell for cell in cells if label(cell) == wanted), cells[0])


def choose(study: Study, place: list[int]) -> None:
    """Take over a head that was clicked in a chart."""
    state.choose(study, "head", label((int(place[0]), int(place[1]))))


def draw(study: Study, stored: dict[str, HeadScores], cells: list[Head]) -> None:
    with st.container(border=True):
        options = [label(cell) for cell in cells]
        chosen = st.selectbox("Head", options, **state.bind(study, "head", options[0], options), width=260)
        layer, head = cells[options.index(chosen)]
        left, right = st.columns([2, 3])
        with left:
            st.markdown("**What the methods say**")
            values(stored, layer, head)
        with right:
            st.markdown("**What happens without it**")
            frame.guarded(without)(study, layer, head)
        st.markdown("**What it attends to**")
        frame.guarded(attention.draw)(study, layer, head)


def values(stored: dict[str, HeadScores], layer: int, head: int) -> None:
    rows = [
        {
            "Scores": name,
            "Value": f"{scores.values[layer, head]:.4g}{error(scores, layer, head)}",
            "Rank": place(scores, layer, head),
        }
        for name, scores in stored.items()
        if scores.values.shape[0] > layer and scores.values.shape[1] > head
    ]
    if rows:
        st.table(pd.DataFrame(rows).set_index("Scores"))
    else:
        st.caption("No scores yet: compute some on Head importance.")


def error(scores: HeadScores, layer: int, head: int) -> str:
    return "" if scores.standard_error is None else f" ± {scores.standard_error[layer, head]:.2g}"


def place(scores: HeadScores, layer: int, head: int) -> str:
    """Its rank among all heads, or in its layer where only heads of one layer compare."""
    table = scores.values[[layer]] if scores.within_layers else scores.values
    known = table[np.isfinite(table)]
    rank = int((known > scores.values[layer, head]).sum()) + 1
    return f"{rank} of {len(known)}" + (" in its layer" if scores.within_layers else "")


def without(study: Study, layer: int, head: int) -> None:
    names = list(study.config.ood)
    ood = names[0] if names else None
    full = HeadMask([[True] * width for width in cache.facts(study).widths])
    with st.spinner("Running the quick sample"):
        before, after = (row.evaluation for row in quick.table(study, [full.without([(layer, head)])], ood))
    keys = {"accuracy": "Accuracy", "nll": "NLL (nats)", "ece": "ECE"}
    if ood:
        keys[f"ood/{ood}/auroc"] = f"AUROC against {ood}"
    rows = []
    for key, text in keys.items():
        a, b = before.metrics[key], after.metrics[key]
        change = "–" if a is None or b is None else f"{b - a:+.4f}"
        rows.append({"": text, "All heads": charts.number(a, 4), "Without it": charts.number(b, 4), "Change": change})
    st.table(pd.DataFrame(rows).set_index(""))
    count = f" + {before.ood_counts[ood]} OOD" if ood else ""
    st.caption(f"Quick sample of validation data, n = {before.num_samples} ID{count}.")
