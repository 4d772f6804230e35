"""The head grid: buttons to keep or cut each head of each member. Its look and keys are in assets/head_grid/."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import streamlit as st

from hydra_core.figures import robust_limits
from hydra_core.masks import HeadMask
from hydra_core.paths import ASSETS
from pages.ui import state

_GRID = ASSETS / "head_grid"
_component = st.components.v2.component(
    "hydra_head_grid",
    css=(_GRID / "head_grid.css").read_text(encoding="utf-8"),
    js=(_GRID / "head_grid.js").read_text(encoding="utf-8"),
)


def apply_events(masks: Sequence[HeadMask], events: Sequence[dict[str, Any]]) -> list[HeadMask]:
    """The masks after the grid's events, in order; an event for a head that does not exist changes nothing."""
    out = list(masks)
    for event in events:
        member, layer, head = event["member"], event["layer"], event["head"]
        if not 0 <= member < len(out):
            continue
        widths = out[member].widths
        if 0 <= layer < len(widths) and 0 <= head < widths[layer]:
            change = out[member].including if event["keep"] else out[member].without
            out[member] = change([(layer, head)])
    return out


def scaled(values: np.ndarray, *, per_layer: bool, robust: bool) -> list[list[float | None]]:
    """Scores (L, H) to 0..1 for colours, over the whole table or each layer alone; None where there is no score.

    `robust`: limits that one outlier does not stretch, the same as the heatmap's. Equal scores are all 0.5.
    """

    def limits(block: np.ndarray) -> tuple[float, float]:
        finite = block[np.isfinite(block)]
        if not finite.size:
            return 0.0, 0.0
        return robust_limits(finite) if robust else (float(finite.min()), float(finite.max()))

    rows: list[list[float | None]] = []
    whole = limits(values)
    for row in values:
        low, high = limits(row) if per_layer else whole
        span = high - low
        rows.append(
            [None if not np.isfinite(v) else (float(np.clip((v - low) / span, 0, 1)) if span > 0 else 0.5) for v in row]
        )
    return rows


def head_grid(
    name: str,
    masks: Sequence[HeadMask],
    *,
    on_change: Callable[[list[HeadMask], str], None],
    current: Callable[[], Sequence[HeadMask]],
    on_pin: Callable[[int, int], None],
    scores: list[list[float | None]] | None = None,
    titles: list[list[str]] | None = None,
    pins: Sequence[tuple[int, int]] = (),
) -> None:
    """Draw one grid a member.

    Args:
        name: names the grid within the study.
        masks: what it shows.
        on_change: called with the new masks and the stroke's name, once a stroke.
        current: the masks now (read again when events come: two may arrive between two drawings).
        on_pin: called with the (layer, head) that a person pins in all members, or frees again.
        scores: 0..1 or None a head, for the colours of kept heads.
        titles: a tooltip a head.
        pins: (layer, head) pairs that stay in all members.
    """
    component_key = state.key("grid", name)

    def take(events: list[dict[str, Any]]) -> None:
        for stroke, group in groupby(events, key=lambda event: str(event.get("stroke", ""))):
            changes = list(group)
            for event in changes:
                if event.get("pin"):
                    on_pin(int(event["layer"]), int(event["head"]))
            toggles = [event for event in changes if not event.get("pin")]
            if toggles:
                on_change(apply_events(current(), toggles), stroke)

    def events_changed() -> None:
        sent = st.session_state.get(component_key) or {}
        state.take_events(component_key, sent.get("events"), take)

    _component(
        key=component_key,
        data={
            "id": component_key,
            "nonce": state.nonce(),
            "ack": state.acknowledged(component_key),
            "layers": masks[0].num_layers,
            "heads": list(masks[0].widths),
            "members": [{"name": f"Member {i}", "keep": rows} for i, rows in enumerate(state.pack_masks(list(masks)))],
            "scores": scores,
            "titles": titles,
            "pins": [list(one) for one in pins],
        },
        on_events_change=events_changed,
    )
