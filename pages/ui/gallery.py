"""A few samples of a data set, with what the model says of them."""

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from hydra_core.study import Study
from pages.ui import charts, state

if TYPE_CHECKING:
    from hydra_core import Dataset, Predictions

IMAGES, TEXTS, COLUMNS, SIDE = 16, 10, 8, 224
ALL, WRONG, UNSURE = "as they come", "wrong ones", "least sure first"


def draw(study: Study, data: "Dataset", name: str, predictions: "Predictions | None") -> None:
    """Samples, in an order to choose."""
    indices = list(range(len(data)))
    if predictions is not None and predictions.num_samples == len(data):
        probabilities = predictions.mean_probabilities
        labelled = name == "id" and predictions.labels is not None
        orders = [ALL, *([WRONG] if labelled else []), UNSURE]
        order = st.segmented_control("Order", orders, required=True, **state.bind(study, "gallery order", ALL, orders))
        if order == WRONG:
            indices = [i for i in indices if probabilities[i].argmax() != predictions.labels[i]]
        elif order == UNSURE:
            indices = sorted(indices, key=lambda i: probabilities[i].max())
    else:
        predictions = None
    if not indices:
        st.markdown("No such sample.")
        return
    captions = {i: caption(data, i, predictions, name) for i in indices[: max(IMAGES, TEXTS)]}
    if data.kind == "image":
        for start in range(0, min(IMAGES, len(indices)), COLUMNS):
            columns = st.columns(COLUMNS)
            for column, i in zip(columns, indices[start : start + COLUMNS], strict=False):
                column.image(enlarged(data.items[i]), caption=captions[i], width="stretch")
    else:
        rows = [{"Text": data.items[i], "": captions[i]} for i in indices[:TEXTS]]
        st.table(pd.DataFrame(rows).set_index("Text"))


def enlarged(image):
    """Small images with their pixels as squares, not as a blur."""
    if max(image.size) >= SIDE:
        return image
    factor = -(-SIDE // max(image.size))
    return image.resize((image.width * factor, image.height * factor), resample=0)


def caption(data: "Dataset", i: int, predictions: "Predictions | None", name: str) -> str:
    truth = ""
    if data.labels is not None and data.class_names:
        truth = data.class_names[int(data.labels[i])]
    if predictions is None:
        return truth
    row = predictions.mean_probabilities[i]
    top = int(row.argmax())
    said = f"{predictions.class_names[top]}, {charts.percent(float(row[top]), 0)}"
    if name != "id" or not truth:
        return f"said: {said}"
    return f"✓ {said}" if predictions.class_names[top] == truth else f"✗ {said} (is {truth})"
