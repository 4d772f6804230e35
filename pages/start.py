"""Start: what this is, the demo studies, recent studies. Imports no torch, so it comes at once."""

import datetime

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.study import Study, StudySummary, import_zip, list_studies, studies_root
from pages.ui import demos, frame, state

MAX_RECENT = 8


def draw(study: Study | None) -> None:
    st.title("Hydra studio")
    st.markdown(
        "A transformer looks at its input through many attention heads, and each task needs only some of "
        "them: its "
        "**circuit**. "
        "Prune one model into several members that keep different heads, fuse them into **one network**, "
        "and it gives "
        "not one opinion but several: where they disagree, it is unsure. "
        "Here you find the circuits, choose the heads, fuse the members and **measure what it does for "
        "calibration and "
        "for noticing unknown data**."
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if st.button(
            "Open the demo study",
            type="primary",
            icon=":material/play_arrow:",
            key=state.key("start", "demo"),
        ):
            open_and_go("demo-vit")
        st.markdown("A small ViT on Fashion-MNIST against MNIST, all results computed: opens in a second.")
    st.subheader("Demo studies")
    columns = st.columns(len(demos.DEMOS))
    for column, demo in zip(columns, demos.DEMOS, strict=True):
        with column.container(border=True, height="stretch", vertical_alignment="distribute"):
            st.markdown(f"**{demo.title}**")
            st.markdown(demo.text)
            if st.button(f"Open {demo.title}", key=state.key("start", demo.folder)):
                open_and_go(demo.folder)
    st.subheader("Your studies")
    recent(study)


def open_and_go(folder: str) -> None:
    demos.open_demo(folder)
    lead_on()


def lead_on() -> None:
    study = state.study()
    frame.go("Evaluate" if study and "fused" in study.prediction_models() else frame.next_step(study)[0])


def recent(study: Study | None) -> None:
    studies = list_studies(studies_root())
    if not studies:
        st.markdown("None yet. Open a demo, or start one with your own backbone and data:")
        frame.link("Model & data", "Start a study of your own")
        upload()
        return
    for row in studies[:MAX_RECENT]:
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            entry(row, is_open=study is not None and row.folder == study.folder)
    if len(studies) > MAX_RECENT:
        st.caption(f"and {len(studies) - MAX_RECENT} older ones in the studies folder")
    frame.link("Model & data", "Start a study of your own")
    upload()


def upload() -> None:
    with st.expander("Open a study from a zip", icon=":material/folder_zip:"):
        file = st.file_uploader(
            "A study that Export wrote", type="zip", key=state.key("start", "zip"),
            help="Nothing outside the studies folder is written; a zip that would unpack to far more is refused.",
        )  # fmt: skip
        if file is not None and st.button("Open it", key=state.key("start", "unzip"), type="primary"):
            state.open_study(import_zip(studies_root(), file.getvalue()).name)
            lead_on()


def entry(row: StudySummary, *, is_open: bool) -> None:
    changed = datetime.datetime.fromtimestamp(row.modified).strftime("%d %b %Y, %H:%M")
    if row.error:
        st.markdown(f"**{row.name}** – :orange[cannot be opened:] {row.error}")
    else:
        if st.button(
            "Continue" if is_open else "Open",
            key=state.key("recent", row.name),
            help=f"Open the study {row.name}",
        ):
            state.open_study(row.folder.name)
            lead_on()
        mark = " (open now)" if is_open else ""
        st.markdown(f"**{row.name}**{mark} · {row.backbone} · {changed}", width="stretch")
    manage(row)


def manage(row: StudySummary) -> None:
    """Rename, duplicate, delete."""
    with st.popover("Manage", icon=":material/more_horiz:"):
        if not row.error:
            new = st.text_input("New name", value=row.name, key=state.key("rename", row.name))
            left, right = st.columns(2)
            if left.button("Rename", key=state.key("do-rename", row.name), disabled=new == row.name):
                change(lambda: Study.open(row.folder).rename(new).name, row)
            if right.button("Duplicate", key=state.key("duplicate", row.name), disabled=new == row.name):
                change(lambda: Study.open(row.folder).duplicate(new).name, None)
        st.markdown("Deleting cannot be undone.")
        sure = st.checkbox(f"Yes, delete {row.name}", key=state.key("sure", row.name))
        if st.button("Delete", key=state.key("delete", row.name), disabled=not sure, type="primary"):
            Study(row.folder).delete()
            change(lambda: None, row)


def change(act, row: StudySummary | None) -> None:
    """Do it, follow the open study to its new name, and draw the page again."""
    now = state.study()
    try:
        new = act()
    except HydraError as error:
        state.flash("error", str(error))
    else:
        if row is not None and now is not None and now.folder == row.folder:
            state.open_study(new)
    st.rerun()


EXPLAIN = r"""
**The method** is Hydra Ensembles (Gabetni, Curci, Pilzer, Roy, Ricci, Franchi: *Ensembling Pruned Attention
Heads For Uncertainty-Aware Efficient Transformers*, arXiv 2510.18358, ICLR 2026). Circuits are found with
HeadMap (Wang et al., ICLR 2025).

With $M$ members, each keeping its own heads, the prediction is the mean of the members' probabilities,
$\bar p(y \mid x) = \frac1M \sum_{m=1}^{M} \mathrm{softmax}(z_m(x))$.

The eight places in the sidebar follow the method from left to right: a model and data, which heads matter,
circuits, members, one fused network, its evaluation, and taking it away. Each place works when it is opened
first: it says what it needs.
"""

frame.open_page("Start", draw, explain=EXPLAIN)
