"""Members: which heads each member keeps, with live numbers on a quick sample."""

import pandas as pd
import streamlit as st

from hydra_core.mask_files import selection_note
from hydra_core.masks import HeadMask
from hydra_core.study import Study
from pages.ui import cache, charts, differences, frame, grid, mask_tools, member_searches, presets, quick, state

NO_COLOUR = "none"


def draw(study: Study) -> None:
    with st.spinner("Loading the backbone"):
        facts = cache.facts(study)
    masks = study.active_masks
    if masks is None or any(mask.widths != facts.widths for mask in masks):
        first_members(study, facts)
        return
    editor(study)


def first_members(study: Study, facts: cache.Facts) -> None:
    frame.empty(
        "**No members yet.** A member is the backbone with some of its heads cut. Begin with three that "
        "keep all heads; "
        "then cut by hand, with a preset, or let a search make them.",
        "Begin with three members",
        lambda: state.set_masks(
            study, [presets.full(facts.widths)] * 3, facts.fingerprint, selection_note("all heads", [])
        ),
    )
    member_searches.make_all(study, facts)


@frame.fragment
def editor(study: Study) -> None:
    facts = cache.facts(study)
    masks = study.active_masks
    if masks is None:
        return
    toolbar(study, facts, masks)
    colours, titles = colouring(study, facts)
    grid.head_grid(
        "members",
        masks,
        on_change=lambda new, stroke: state.set_masks(study, new, facts.fingerprint, "by hand", stroke),
        current=lambda: study.active_masks or masks,
        scores=colours,
        titles=titles,
        pins=state.pins(study),
        on_pin=lambda layer, head: state.set_pin(
            study, layer, head, facts.fingerprint, pinned=(layer, head) not in state.pins(study)
        ),
    )
    pinned(study)
    warnings(masks)
    st.subheader("Live numbers")
    frame.guarded(live)(study, masks)
    st.subheader("How the members differ")
    frame.guarded(differences.draw)(study, masks)
    member_searches.make_all(study, facts)
    member_searches.fewest(study, masks)


# --- tools ---


def toolbar(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    steps = state.history(study)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        count_key = state.key("members", "count")
        st.session_state[count_key] = len(masks)
        st.number_input(
            "Members", min_value=2, max_value=mask_tools.MAX_MEMBERS, key=count_key, width=130,
            on_change=set_count, args=(study, facts, count_key), help=f"2 to {mask_tools.MAX_MEMBERS}",
        )  # fmt: skip
        with st.popover("Presets", icon=":material/auto_awesome:"):
            mask_tools.preset_form(study, facts, masks)
        st.button(
            "Undo", icon=":material/undo:", disabled=not steps.undo, key=state.key("members", "undo"),
            on_click=state.step, args=(study, facts.fingerprint), kwargs={"back": True},
        )  # fmt: skip
        st.button(
            "Redo", icon=":material/redo:", disabled=not steps.redo, key=state.key("members", "redo"),
            on_click=state.step, args=(study, facts.fingerprint), kwargs={"back": False},
        )  # fmt: skip
        with st.popover("Pins", icon=":material/keep:"):
            pin_form(study, facts)
        with st.popover("Named sets", icon=":material/bookmark:"):
            mask_tools.named_sets(study, facts, masks)
        with st.popover("Mask files", icon=":material/file_open:"):
            mask_tools.mask_files(study, facts, masks)
        st.selectbox(
            "Colour kept heads by", [NO_COLOUR, *colour_sources(study)], width=260,
            **state.bind(study, "members colour", NO_COLOUR, [NO_COLOUR, *colour_sources(study)]),
        )  # fmt: skip
    st.caption(
        "Click a head to keep or cut it, or drag over several; a layer's or head's number takes the whole row or "
        "column. Shift and a click pins a head in all members. Keyboard: Tab to a member, arrows to move, Space to "
        "toggle, P to pin."
    )


def pin_form(study: Study, facts: cache.Facts) -> None:
    """Keep a head in all members; the list of those that are kept so."""
    st.caption("A pinned head stays in every member, whatever a click, preset, file or search does.")
    left, right = st.columns(2)
    layer = left.selectbox("Layer", list(range(len(facts.widths))), key=state.key("members", "pin layer"))
    head = right.selectbox("Head", list(range(facts.widths[layer])), key=state.key("members", "pin head"))
    st.button(
        "Pin in all members", type="primary", key=state.key("members", "pin"),
        disabled=(layer, head) in state.pins(study),
        on_click=frame.safely(lambda: state.set_pin(study, layer, head, facts.fingerprint, pinned=True)),
    )  # fmt: skip
    for i, j in state.pins(study):
        st.button(
            f"Unpin layer {i}, head {j}", icon=":material/keep_off:", key=state.key("members", "unpin", i, j),
            on_click=frame.safely(lambda i=i, j=j: state.set_pin(study, i, j, facts.fingerprint, pinned=False)),
        )  # fmt: skip


def pinned(study: Study) -> None:
    """Which heads are pinned, as text."""
    held = state.pins(study)
    if held:
        names = ", ".join(f"layer {i} head {j}" for i, j in held)
        st.caption(f":material/keep: Pinned in all members: {names}. Unpin under Pins, or with Shift and a click.")


def set_count(study: Study, facts: cache.Facts, count_key: str) -> None:
    wanted = int(st.session_state[count_key])
    masks = study.active_masks or []
    more = [presets.full(facts.widths)] * max(0, wanted - len(masks))
    state.set_masks(study, [*masks[:wanted], *more], facts.fingerprint, f"{wanted} members")
    state.request_full_run()


def colour_sources(study: Study) -> list[str]:
    return [f"score: {name}" for name in study.names("scores")] + [
        f"circuit values: {name}" for name in study.names("circuits")
    ]


def colouring(study: Study, facts: cache.Facts) -> tuple[list[list[float | None]] | None, list[list[str]] | None]:
    """Colours (0..1) and tooltips of the chosen score."""
    kind, _, name = str(state.chosen(study, "members colour", NO_COLOUR)).partition(": ")
    found = study.scores(name) if kind == "score" else study.circuit(name) if kind == "circuit values" else None
    if found is None or found.values.shape[0] != len(facts.widths):
        return None, None
    values = found.values
    titles = [
        [f"layer {i}, head {j}: {values[i, j]:.4g}" for j in range(width)] for i, width in enumerate(facts.widths)
    ]
    return grid.scaled(values, per_layer=False, robust=True), titles


# --- what follows from the masks ---


def warnings(masks: list[HeadMask]) -> None:
    for i, mask in enumerate(masks):
        if mask.num_kept == 0:
            st.warning(f"Member {i} keeps no head at all: only its embedding, MLPs and output biases are left.")
        elif mask.empty_layers:
            layers = ", ".join(map(str, mask.empty_layers))
            many = "layers" if len(mask.empty_layers) > 1 else "layer"
            st.warning(f"Member {i} keeps no head in {many} {layers}: attention there adds its output bias only.")
    if len(set(masks)) == 1 and len(masks) > 1:
        st.info(
            "All members keep the same heads: their ensemble is one model. Cut different heads to make them differ."
        )


def live(study: Study, masks: list[HeadMask]) -> None:
    names = list(study.config.ood)
    ood = None
    if names:
        ood = st.segmented_control("OOD set", names, required=True, **state.bind(study, "members ood", names[0], names))
    rows = quick.table(study, masks, ood)
    ensemble = rows[-1].evaluation
    counted = f"n = {ensemble.num_samples} ID" + (f" + {ensemble.ood_counts[ood]} OOD ({ood})" if ood else "")
    lines = []
    for row in rows:
        values = row.evaluation.metrics
        lines.append(
            {
                "": row.name,
                "Accuracy": charts.percent(values["accuracy"]),
                "NLL (nats)": charts.number(values["nll"]),
                "ECE": charts.number(values["ece"]),
                "AUROC": charts.number(values.get(f"ood/{ood}/auroc")),
                "FPR95": charts.number(values.get(f"ood/{ood}/fpr95")),
                "Disagreement": charts.percent(values["disagreement"]),
                "Operations": f"{row.operations:.2f} ×",
                "Parameters": f"{row.parameters:.2f} ×",
            }
        )
    st.table(pd.DataFrame(lines).set_index(""))
    st.caption(
        f"Quick sample, {counted}, of validation data: enough to steer by; Evaluate has the test samples' numbers. "
        "ECE: top-label, "
        "15 equal-width bins. OOD score: 1 − largest mean probability, OOD is the positive class. "
        "Operations and parameters "
        "are relative to the full model; the ensemble's are those of the fused network."
    )


EXPLAIN = r"""
Each square is one attention head: layers down, heads across, numbered from 0 as in the original backbone. A
filled square with a dot is **kept**; a dashed, struck one is **cut**. A cut head's output is removed before
the output projection; a layer with no head left adds that projection's bias only.

The ensemble's prediction is the mean of its members' probabilities. **Disagreement** is the share of
samples on which a pair of members names different classes, averaged over pairs. Members that keep the same
heads agree on everything and add nothing; members that keep too little are weak: the table shows both sides
while you change them. Circuits: HeadMap (Wang et al., ICLR 2025). Taylor: Molchanov et al. (arXiv
1906.10771), Michel et al. (arXiv 1905.10650).
"""

frame.page("Members", draw, explain=EXPLAIN)
