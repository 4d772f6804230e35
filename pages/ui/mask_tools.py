"""What sets many heads at once: presets, named sets, and mask files."""

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.mask_files import parse_mask_file, read_mask_file, selected_with, selection_note
from hydra_core.masks import HeadMask
from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import cache, fitting, frame, presets, results, state, work

MAX_MEMBERS = 8
RESERVED = (CURRENT_MASKS, results.FUSED_MASKS)
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
        used = [source, *(list(circuits) if target == members[0] else [])] if kind == CIRCUIT else []
        seen = [work.ood_of(study, name, circuits[name]) for name in used]
        whole = target == members[0] and kind in (FULL, TOP, CIRCUIT, RANDOM)
        before = [] if whole else selected_with(state.note_of(study)) or []
        of_score = [f"the OOD set of {source!r}"] if kind == TOP and scores[source].num_ood else []
        note = selection_note(f"preset: {kind}", [*before, *filter(None, seen), *of_score])
        state.set_masks(study, new, facts.fingerprint, note)

    st.button("Apply", type="primary", key=state.key("members", "apply"), on_click=frame.safely(apply))


def named_sets(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    name = st.text_input("Save these masks as", key=state.key("members", "set name"), max_chars=60).strip()
    if name in RESERVED:
        st.caption(f"{name!r} is the app's own record; choose another name.")

    def save() -> None:
        study.save_masks(name, masks, facts.fingerprint, state.note_of(study))
        state.flash("success", f"These masks are saved as {name!r}.")

    st.button(
        "Save", key=state.key("members", "save set"), disabled=not name or name in RESERVED,
        on_click=frame.safely(save),
    )  # fmt: skip
    sets = {key: value for key, value in study.mask_sets().items() if key != CURRENT_MASKS}
    if not sets:
        st.caption("No named sets yet.")
        return
    chosen = st.selectbox("Stored sets", list(sets), key=state.key("members", "stored set"))
    left, right = st.columns(2)
    left.button(
        "Load", key=state.key("members", "load set"), type="primary",
        on_click=frame.safely(lambda: load(study, facts, chosen, sets[chosen])),
    )  # fmt: skip
    right.button(
        "Delete",
        key=state.key("members", "delete set"),
        disabled=chosen in RESERVED,
        on_click=frame.safely(lambda: study.remove("masks", chosen)),
    )


def load(study: Study, facts: cache.Facts, name: str, masks: list[HeadMask]) -> None:
    """Take a stored set, with what its own note says of how it was selected."""
    note = state.note_of(study, name)
    state.set_masks(study, masks, facts.fingerprint, note if selected_with(note) is not None else f"set: {name}")


def mask_files(study: Study, facts: cache.Facts, masks: list[HeadMask]) -> None:
    """Masks taken away, and brought back or from elsewhere."""
    st.download_button(
        "Download these masks (JSON)", study.get("masks", CURRENT_MASKS) or "",
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
        found, known = read_mask_file(text, cache.backbone(study)), parse_mask_file(text)[1]
        if not 2 <= len(found) <= MAX_MEMBERS:
            raise HydraError(f"{given.name} holds {len(found)} members; this page takes 2 to {MAX_MEMBERS}")
        seen = selected_with(str(known.get("note", "")))
        how = f"file: {given.name}"
        note = selection_note(how, ["sets that the file does not name"] if seen is None else seen)
        state.set_masks(study, found, facts.fingerprint, note)
        state.flash("success", f"{len(found)} members taken from {given.name}. Undo brings the ones before back.")

    st.button(
        "Use this file", type="primary", key=state.key("members", "use file"), disabled=given is None,
        on_click=frame.safely(take),
    )  # fmt: skip
