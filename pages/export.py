"""Export: masks, the fused model, the study, and the Python lines that reproduce it."""

import streamlit as st

from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import frame, recipe, state, takeaway


def draw(study: Study) -> None:
    masks = study.active_masks
    st.subheader("Masks")
    if not masks:
        with st.container(border=True):
            st.markdown("**There are no members yet**, so there is nothing to take away but the study itself.")
            frame.link("Members", "Make members")
    else:
        name = f"{study.name}-masks.json"
        st.markdown(
            f"Which heads each of the {len(masks)} members keeps, with the backbone's fingerprint: the "
            "file is refused on another backbone."
        )
        st.download_button(
            "Download the masks (JSON)", study.get("masks", CURRENT_MASKS) or "", file_name=name,
            mime="application/json",
            icon=":material/download:", key=state.key("export", "masks"), on_click="ignore",
        )  # fmt: skip
        model(study)
    st.subheader("The whole study")
    st.markdown("Scores, circuits, masks, predictions and settings in one zip, which opens again under Start.")
    st.download_button(
        "Download the study (zip)", study.to_zip, file_name=f"{study.name}.zip", mime="application/zip",
        icon=":material/folder_zip:", key=state.key("export", "study"), on_click="ignore",
    )  # fmt: skip
    st.subheader("The same in Python")
    st.markdown("These lines make the same members, fuse them, evaluate them and save the model; they need no browser.")
    code = recipe.python_lines(study)
    st.code(code, language="python")
    st.download_button(
        "Download the script (.py)", code, file_name=f"{recipe.file_name(study.name)}.py",
        mime="text/x-python",
        icon=":material/code:", key=state.key("export", "code"), on_click="ignore",
    )  # fmt: skip


def model(study: Study) -> None:
    st.subheader("The fused model")
    st.markdown(
        "A zip with safetensors weights, config, the masks and a model card. `hydra.load_ensemble(folder)` "
        "opens it in a new process, without the "
        "original backbone and without a network."
    )

    def build() -> bytes:
        return takeaway.model_zip(study)

    st.download_button(
        "Download the fused model (zip)", build, file_name=f"{study.name}-fused.zip",
        mime="application/zip", type="primary",
        icon=":material/download:", key=state.key("export", "model"), on_click="ignore",
    )  # fmt: skip


EXPLAIN = """
Everything that is taken away can be checked: a mask file names the backbone by the sha256 of its weights,
the model folder holds the masks and what it was made from, and the Python lines call the same library that
this app calls. Head indices are the original backbone's, from 0.
"""

frame.page("Export", draw, explain=EXPLAIN)
