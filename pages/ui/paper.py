"""The figures that the paper reports, always labelled as the paper's."""

import pandas as pd
import streamlit as st

_ROWS = [
    ("ImageNet-1K, ViT-B/16", "Accuracy", "80.88", "82.19", ""),
    ("", "OOD AUROC", "86.29", "85.48", "Taylor single 84.38, CircAvg single 85.71, Hydra (Taylor) 85.36"),
    ("", "FPR95", "47.62", "46.93", ""),
    ("CIFAR-100", "AUROC / FPR95", "89.43 / 36.44", "86.08 / 38.67", ""),
    ("SST-2, BERT", "AUROC / FPR95", "77.60 / 55.06", "74.81 / 62.69", ""),
    (
        "ImageNet zero-shot, OpenCLIP",
        "AUROC / FPR95 / AUPR",
        "76.82 / 68.05 / 47.85",
        "–",
        "ViLU 75.38 / 71.59 / 43.81",
    ),
    ("Time over one network, BF16 on a GPU", "ratio", "1.07", "2.99", ""),
]


def draw() -> None:
    """An expander with the published table."""
    with st.expander("What the paper reports (published figures, not measured here)", icon=":material/article:"):
        table = pd.DataFrame(_ROWS, columns=["Setting", "Metric", "Hydra (circuits)", "Deep Ensembles", "Other"])
        st.table(table.set_index("Setting"))
        st.caption(
            "In percent, except for the ratio of times. Source: Gabetni et al., arXiv 2510.18358 (ICLR "
            "2026). Other models and data than the demos: "
            "compare the direction, not the numbers."
        )
