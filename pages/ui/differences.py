"""How the members differ: their heads and their answers, pair by pair, on the quick sample."""

import itertools

import numpy as np
import pandas as pd
import streamlit as st

from hydra_core import metrics
from hydra_core.masks import HeadMask, mean_overlap
from hydra_core.study import Study
from pages.ui import charts, quick


def draw(study: Study, masks: list[HeadMask]) -> None:
    """Means over pairs, then each pair; computed from predictions that the live numbers hold."""
    overlap = mean_overlap(masks)
    if overlap is None:
        return
    probabilities, labels = quick.member_probabilities(study, masks)
    different = metrics.pairwise_disagreement(probabilities)
    divergence = metrics.pairwise_kl(probabilities)
    errors = None if labels is None else metrics.error_correlation(probabilities, labels)
    pairs = list(itertools.combinations(range(len(masks)), 2))

    def mean(table: np.ndarray) -> float | None:
        values = [table[i, j] for i, j in pairs]
        return None if np.isnan(values).any() else float(np.mean(values))

    both_ways = (divergence + divergence.T) / 2
    information = float(np.nanmean(metrics.mutual_information(probabilities)))
    columns = st.columns(5)
    columns[0].metric(
        "Overlap", f"{overlap:.2f}", help="Jaccard: shared kept heads over heads that either keeps. 1: the same heads."
    )
    columns[1].metric(
        "Disagreement",
        charts.percent(mean(different)),
        help="Share of samples on which two members name other classes.",
    )
    columns[2].metric(
        "KL (nats)", charts.number(mean(both_ways)),
        help="Kullback-Leibler divergence between two members' probabilities, mean of both directions.",
    )  # fmt: skip
    columns[3].metric(
        "Error correlation", charts.number(None if errors is None else mean(errors)),
        help="Correlation of two members' mistakes. 0: independent; 1: the same samples, where averaging cannot help.",
    )  # fmt: skip
    columns[4].metric(
        "Mutual information (nats)", charts.number(information),
        help="Entropy of the mean probabilities minus the members' mean entropy. 0: all members say the same.",
    )  # fmt: skip
    undefined = errors is not None and bool(np.isnan(errors).any())
    rows = [
        {
            "Members": f"{i} and {j}",
            "Overlap (Jaccard)": masks[i].jaccard(masks[j]),
            "Disagreement": different[i, j],
            "KL, both ways (nats)": both_ways[i, j],
            "Error correlation": float("nan") if errors is None else errors[i, j],
        }
        for i, j in pairs
    ]
    table = pd.DataFrame(rows).set_index("Members")
    shown = table.map(lambda value: charts.number(None if np.isnan(value) else value))
    st.table(shown.assign(Disagreement=[charts.percent(share) for share in table["Disagreement"]]))
    st.caption(
        f"Means over {len(pairs)} pairs above. Quick sample, n = {probabilities.shape[1]} ID validation samples."
        + (" A member that makes no mistake there has no error correlation." if undefined else "")
    )
    charts.downloads(table.reset_index(), f"{study.name}-member-pairs")
