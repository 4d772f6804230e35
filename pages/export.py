"""Export: masks, the fused model, the study, and the Python lines that reproduce it."""

import json
from typing import Any

import streamlit as st

from hydra_core import recipe
from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import ensemble, frame, jobs, state, takeaway, work

FILES = {
    "onnx": ("ONNX", "for onnxruntime and most inference servers."),
    "torch": ("torch.export", "for `torch.export.load` in Python or C++."),
}


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
        with st.container(horizontal=True):
            st.download_button(
                "Download the masks (JSON)", study.get("masks", CURRENT_MASKS) or "", file_name=name,
                mime="application/json",
                icon=":material/download:", key=state.key("export", "masks"), on_click="ignore",
            )  # fmt: skip
            st.download_button(
                "Download as head lists (JSON)", lambda: takeaway.head_lists(study),
                file_name=f"{study.name}-heads.json", mime="application/json", icon=":material/download:",
                key=state.key("export", "lists"), on_click="ignore",
                help="The heads to keep and to prune by layer, as other tools take them (transformers 4: "
                "prune_heads). This app reads both files.",
            )  # fmt: skip
        variant = which(study)
        model(study, variant)
        single_file(study, variant)
    st.subheader("A report to read")
    st.markdown(
        "Settings, results with figures, members, scores, circuits and conventions on one HTML page that needs no "
        "network."
    )
    st.download_button(
        "Download the report (HTML, about 5 MB)", lambda: takeaway.report(study), file_name=f"{study.name}-report.html",
        mime="text/html", icon=":material/download:", key=state.key("export", "report"), on_click="ignore",
    )  # fmt: skip
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


def which(study: Study) -> str:
    """The fused ensemble that leaves; a choice only where members were fine-tuned."""
    known = ensemble.variants(study)
    if len(known) < 2:
        return known[0]
    return st.segmented_control(
        "Which fused ensemble", known, required=True, **state.bind(study, "export variant", known[-1], known)
    )


def model(study: Study, variant: str) -> None:
    st.subheader("The fused model")
    st.markdown(
        "A zip with safetensors weights, config, the masks and a model card with metrics, data, licences and "
        "conventions. `hydra.load_ensemble(folder)` opens it in a new process, without the original backbone and "
        "without a network."
    )

    def build() -> bytes:
        return takeaway.model_zip(study, variant)

    st.download_button(
        "Download the fused model (zip)", build,
        file_name=f"{study.name}-{ensemble.file_stem(variant)}.zip",
        mime="application/zip", type="primary",
        icon=":material/download:", key=state.key("export", "model"), on_click="ignore",
    )  # fmt: skip


def single_file(study: Study, variant: str) -> None:
    """The fused network as ONNX or torch.export: made by a job, offered once it is checked."""
    st.subheader("One file for other programs")
    st.markdown(
        "The fused network alone, with any batch size: prepared inputs go in, each member's logits and the mean "
        "probabilities come out. It needs no hydra_core. The file is loaded again and compared before it is offered."
    )
    job = jobs.current(str(study.folder))
    for column, (format, (title, how)) in zip(st.columns(2), FILES.items(), strict=True):
        with column.container(border=True):
            st.markdown(f"**{title}** {how}")
            known = made(study, format, variant)
            st.button(
                "Make it again" if known else f"Make the {title} file", key=state.key("export", "make", format),
                type="secondary" if known else "primary", disabled=job is not None and job.active,
                on_click=work.export_fused, args=(study, format, variant),
            )  # fmt: skip
            if known is None:
                continue
            path = study.folder / "exports" / str(known["file"])
            st.download_button(
                f"Download {title} ({path.stat().st_size / 1e6:.1f} MB)", path.read_bytes,
                file_name=f"{study.name}-{path.name}", mime="application/octet-stream", type="primary",
                icon=":material/download:", key=state.key("export", "file", format), on_click="ignore",
            )  # fmt: skip
            st.caption(
                f"Loaded again at batch sizes {', '.join(map(str, known['batches']))}: logits differ from the "
                f"network's by at most {known['max_difference']:.1e} (limit {known['tolerance']:.1e})."
            )


def made(study: Study, format: str, variant: str) -> dict[str, Any] | None:
    """What is known of the file of that ensemble as it is now; None where there is none."""
    now = ensemble.fingerprint(study, variant)
    try:
        known = json.loads(study.get("exports", ensemble.export_name(format, variant)) or "null")
        fits = known is not None and known["fingerprint"] == now
        fits = fits and (study.folder / "exports" / known["file"]).is_file()
    except (ValueError, KeyError, TypeError):
        return None  # damaged: it is made again
    return known if fits else None


EXPLAIN = """
Everything that is taken away can be checked: a mask file names the backbone by the sha256 of its weights,
the model folder holds the masks and what it was made from, and the Python lines call the same library that
this app calls. Head indices are the original backbone's, from 0.
"""

frame.page("Export", draw, explain=EXPLAIN)
