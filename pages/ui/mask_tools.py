"""What sets many heads at once: presets, named sets, and mask files."""

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask, read_mask_file, write_mask_file
from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import cache, fitting, frame, presets, state

MAX_MEMBERS = 8
FULL, TOP, CIRCUIT, RANDOM, COMPLEMENT, INVERT = (
    "All heads", "Top heads by score", "A circuit", "Random heads", "Complement of another member", "Invert",
)  # fmt: skip


def preset_form(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    scores = fitting.fitting(study, study.score_sets())
    circuits = fitting.fitting(study, study.circuits())
    kinds = [FULL, *([TOP] if scores else []), *([CIRCUIT] if circuits else []), RANDOM, COMPLEMENT, INVERT]
    kind = st.selectbox("Preset", kinds, **state.bind(study, "preset", RANDOM, kinds))
    members = ["all members", *(f"member {i}" for i in range(len(masks)))]
    target = st.selectbox("For", members, **state.bind(study, "preset target", members[0], members))
    widest = max(facts.widths)
    heads, source, other, seed = 0, "", 0, 0
    if kind in (TOP, RANDOM):
        heads = st.slider(
            "Heads a layer", 0, widest, **state.bind(study, "preset heads", max(1, round(widest * 2 / 3)))
        )
    if kind == TOP:
        source = st.selectbox(
            "Score", list(scores), **state.bind(study, "preset score", next(iter(scores)), list(scores))
        )
    if kind == CIRCUIT:
        source = st.selectbox(
            "Circuit",
            list(circuits),
            **state.bind(study, "preset circuit", next(iter(circuits)), list(circuits)),
        )
        st.caption("For all members: each takes another circuit, in the order of the list.")
    if kind == RANDOM:
        seed = int(st.number_input("Seed", 0, 10_000, **state.bind(study, "preset seed", 0)))
    if kind == COMPLEMENT:
        names = [f"member {i}" for i in range(len(masks))]
        other = names.index(st.selectbox("Of", names, **state.bind(study, "preset other", names[0], names)))
    if not scores:
        st.caption("Scores from Head importance and circuits from Circuits appear here once they are computed.")

    def new_mask(member: int) -> HeadMask:
        if kind == TOP:
            return presets.top_heads(scores[source].values, heads, facts.widths)
        if kind == CIRCUIT:
            order = list(circuits)
            shift = member if target == members[0] else 0
            return circuits[order[(order.index(source) + shift) % len(order)]].keep
        if kind == RANDOM:
            return presets.random_heads(heads, facts.widths, seed + member)
        if kind == COMPLEMENT:
            return masks[other].complement()
        return masks[member].complement() if kind == INVERT else presets.full(facts.widths)

    def apply() -> None:
        chosen = range(len(masks)) if target == members[0] else [members.index(target) - 1]
        new = [new_mask(i) if i in chosen else mask for i, mask in enumerate(masks)]
        state.set_masks(study, new, facts.fingerprint, f"preset: {kind}")

    st.button("Apply", type="primary", key=state.key("members", "apply"), on_click=frame.safely(apply))


def named_sets(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    name = st.text_input("Save these masks as", key=state.key("members", "set name"), max_chars=60)
    st.button(
        "Save", key=state.key("members", "save set"), disabled=not name.strip() or name.strip() == CURRENT_MASKS,
        on_click=frame.safely(lambda: study.save_masks(name.strip(), masks, facts.fingerprint, "saved by hand")),
    )  # fmt: skip
    sets = {key: value for key, value in study.mask_sets().items() if key != CURRENT_MASKS}
    if not sets:
        st.caption("No named sets yet.")
        return
    chosen = st.selectbox("Stored sets", list(sets), key=state.key("members", "stored set"))
    left, right = st.columns(2)
    left.button(
        "Load", key=state.key("members", "load set"), type="primary",
        on_click=frame.safely(lambda: state.set_masks(study, sets[chosen], facts.fingerprint, f"set: {chosen}")),
    )  # fmt: skip
    right.button(
        "Delete",
        key=state.key("members", "delete set"),
        on_click=frame.safely(lambda: study.remove("masks", chosen)),
    )


def mask_files(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    """Masks taken away, and brought back or from elsewhere."""
    st.download_button(
        "Download these masks (JSON)", write_mask_file(masks, facts.fingerprint, study.config.backbone),
        file_name=f"{study.name}-masks.json", mime="application/json", on_click="ignore",
        key=state.key("members", "download"), icon=":material/download:",
    )  # fmt: skip
    given = st.file_uploader(
        "A mask file for this backbone", type="json", key=state.key("members", "upload"),
        help="What this app or hydra.write_mask_file wrote. Masks of another backbone are refused.",
    )  # fmt: skip

    def take() -> None:
        assert given is not None
        try:
            text = given.getvalue().decode()
        except UnicodeDecodeError:
            raise HydraError(f"{given.name} is no mask file: it is not text") from None
        found = read_mask_file(text, cache.backbone(study))
        if not 2 <= len(found) <= MAX_MEMBERS:
            raise HydraError(f"{given.name} holds {len(found)} members; this page takes 2 to {MAX_MEMBERS}")
        state.set_masks(study, found, facts.fingerprint, f"file: {given.name}")
        state.flash("success", f"{len(found)} members taken from {given.name}. Undo brings the ones before back.")

    st.button(
        "Use this file", type="primary", key=state.key("members", "use file"), disabled=given is None,
        on_click=frame.safely(take),
    )  # fmt: skip
