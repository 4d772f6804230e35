"""Attention of one head on a sample of the user's choice: over the picture's patches, or between the words."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import streamlit as st

from hydra_core.figures import attention_picture, attention_sentence, attention_tokens
from hydra_core.study import Study
from pages.ui import cache, charts, gallery, state

if TYPE_CHECKING:
    from hydra_core import Dataset

FIRST, UNSURE, WRONG = "as they come", "least sure first", "wrong ones"
CLASS, PATCHES = "the class token", "all patches, on average"
CHOICES = 40  # samples to choose from
STATISTICS = 64  # samples behind distance and entropy


@st.cache_data(max_entries=64, show_spinner=False)
def _sample(key: str, name: str, index: int, _study: Study) -> tuple[list[np.ndarray], Any]:
    """Attention maps (H, T, T) of each layer for one sample, and its picture as the model sees it, or its tokens."""
    backbone = cache.backbone(_study)
    inputs = backbone.prepare([cache.dataset(_study, name).items[index]])
    maps = [layer[0].float().cpu().numpy() for layer in backbone.attention_maps(inputs)]
    if backbone.patch_grid is None:
        tokens = getattr(backbone.processor, "tokens", None)
        text = cache.dataset(_study, name).items[index]
        return maps, tokens(text) if tokens else [str(i) for i in inputs["input_ids"][0].tolist()]
    pixels = inputs["pixel_values"][0].float().numpy().transpose(1, 2, 0)
    low, high = pixels.min(), pixels.max()
    return maps, (255 * (pixels - low) / max(high - low, 1e-9)).astype(np.uint8)


@st.cache_data(max_entries=4, show_spinner=False)
def _statistics(key: str, _study: Study) -> tuple[np.ndarray, np.ndarray, float]:
    """Entropy and distance (L, H) of each head on a few validation samples, and the largest entropy possible."""
    from hydra_core.attention import attention_distance, attention_entropy

    backbone = cache.backbone(_study)
    data = cache.dataset(_study, "id", cache.SELECTION).take(STATISTICS, seed=0)
    inputs = backbone.prepare(list(data.items))
    mask = backbone.network.embed.key_mask(backbone.place(inputs))
    maps = backbone.attention_maps(inputs)
    entropy = [attention_entropy(layer, mask).mean(0).cpu().numpy() for layer in maps]
    distance = [attention_distance(layer, backbone.patch_grid, mask).mean(0).cpu().numpy() for layer in maps]
    return np.array(entropy), np.array(distance), math.log(maps[0].shape[-1])


def _key(study: Study) -> str:
    config = study.config
    return f"{cache.backbone_key(config)}|{config.data}|{sorted(config.ood.items())}|{config.limit}|{config.seed}"


def draw(study: Study, layer: int, head: int) -> None:
    """The sample's choice, and what this head does on it."""
    names = {"id": f"ID: {study.config.data}", **{name: f"OOD: {name}" for name in study.config.ood}}
    left, middle, right = st.columns([2, 2, 3], vertical_alignment="bottom")
    name = left.selectbox(
        "Data", list(names), format_func=names.get, **state.bind(study, "attention set", "id", list(names))
    )
    with st.spinner("Loading the data"):
        data = cache.dataset(study, name)
    options = order(study, data, name, middle)
    if not options:
        st.markdown("No such sample.")
        return
    predictions = cache.predictions(study, "full", name)
    fits = predictions if predictions is not None and predictions.num_samples == len(data) else None
    index = right.selectbox(
        "Sample", options, format_func=lambda i: f"{i}: {gallery.caption(data, i, fits, name) or 'no label'}",
        **state.bind(study, f"attention sample {name}", options[0], options),
    )  # fmt: skip
    with st.spinner("Computing attention"):
        maps, seen = _sample(_key(study), name, int(index), study)
    where = f"sample {index} of {data.name}, layer {layer}, head {head}"
    if isinstance(seen, list):
        sentence(study, maps[layer][head], seen, where)
    else:
        picture(study, maps[layer][head], seen, where)
    statistics(study, layer, head)


def order(study: Study, data: "Dataset", name: str, place: Any) -> list[int]:
    """Indices of samples to choose from, in an order of the user's choice."""
    predictions = cache.predictions(study, "full", name)
    if predictions is None or predictions.num_samples != len(data):
        place.caption("Measure the full model (Model & data) to find its least sure and its wrong samples here.")
        return list(range(min(CHOICES, len(data))))
    labelled = name == "id" and predictions.labels is not None
    orders = [UNSURE, FIRST, *([WRONG] if labelled else [])]
    chosen = place.selectbox("Order", orders, **state.bind(study, "attention order", UNSURE, orders))
    probabilities = predictions.mean_probabilities
    if chosen == FIRST:
        return list(range(min(CHOICES, len(data))))
    if chosen == WRONG:
        wrong = np.flatnonzero(probabilities.argmax(1) != predictions.labels)
        return [int(i) for i in wrong[:CHOICES]]
    return [int(i) for i in np.argsort(probabilities.max(1), kind="stable")[:CHOICES]]


def picture(study: Study, attention: np.ndarray, image: np.ndarray, where: str) -> None:
    from hydra_core.attention import attention_over_patches

    grid = cache.backbone(study).patch_grid
    assert grid is not None
    query = st.segmented_control(
        "Attention of", [CLASS, PATCHES], required=True, **state.bind(study, "attention query", CLASS, [CLASS, PATCHES])
    )
    front = len(attention) - math.prod(grid)
    row = attention[0] if query == CLASS else attention[front:].mean(0)
    patches = attention_over_patches(row, grid)
    if max(image.shape[:2]) < gallery.SIDE:  # small pictures with their pixels as squares
        factor = -(-gallery.SIDE // max(image.shape[:2]))
        image = image.repeat(factor, axis=0).repeat(factor, axis=1)
    figure = attention_picture(patches, image, subtitle=f"{where}; attention of {query}")
    charts.draw(figure, name=f"attention-{where.replace(' ', '-')}", key=state.key("attention", "picture"))
    rest = "the class token itself" if front == 1 else f"the {front} tokens in front"
    st.caption(
        f"{patches.sum():.0%} of this attention goes to the {grid[0]} x {grid[1]} patches, the rest to {rest}. The "
        "picture is shown as the model sees it."
    )


def sentence(study: Study, attention: np.ndarray, tokens: list[str], where: str) -> None:
    query = st.selectbox(
        "Attention of the token", list(range(len(tokens))), format_func=lambda i: f"{i}: {tokens[i]}",
        **state.bind(study, "attention token", 0, list(range(len(tokens)))),
    )  # fmt: skip
    st.html(attention_sentence(attention[query].tolist(), tokens))
    top = sorted(range(len(tokens)), key=lambda i: -attention[query, i])[:3]
    st.caption(
        f"The stronger the ground, the more {tokens[query]!r} reads there. Most: "
        + ", ".join(f"{tokens[i]} ({attention[query, i]:.2f})" for i in top)
        + ". The first token is the one the classification reads."
    )
    figure = attention_tokens(attention, tokens, subtitle=where)
    charts.draw(figure, name=f"attention-{where.replace(' ', '-')}", key=state.key("attention", "tokens"))


def statistics(study: Study, layer: int, head: int) -> None:
    entropy, distance, most = _statistics(_key(study), study)
    grid = cache.backbone(study).patch_grid
    unit = "tokens" if grid is None else "patches"
    left, right = st.columns(2)
    left.metric(
        "Attention entropy (nats)", f"{entropy[layer, head]:.2f}",
        help=f"0: all attention on one token; at most {most:.2f}: the same on all. Mean over tokens.",
    )  # fmt: skip
    right.metric(
        f"Attention distance ({unit})", f"{distance[layer, head]:.2f}",
        help="How far from a token the tokens lie that it reads, weighted by attention "
        "(Dosovitskiy et al., arXiv 2010.11929, figure 7).",
    )  # fmt: skip
    count = min(STATISTICS, len(cache.dataset(study, "id", cache.SELECTION)))
    st.caption(f"Entropy and distance: mean over {count} validation samples.")
    rows = [
        {"layer": int(i), "head": int(j), "entropy_nats": entropy[i, j], f"distance_{unit}": distance[i, j]}
        for i, j in np.argwhere(np.isfinite(entropy))
    ]
    charts.downloads(pd.DataFrame(rows), "attention-of-all-heads")
