"""Fuse: merge the members into one network, check that it computes the same, and time it."""

import pandas as pd
import streamlit as st

from hydra_core.study import Study
from pages.ui import frame, jobs, results, state, tuning, work
from pages.ui.equivalence import Equivalence

BATCHES = (1, 8, 32)
FORMS = {"eager": "eager", "compile": "torch.compile", "cuda_graph": "CUDA graph"}
FORMATS = ("float32", "bfloat16")
DIVERSITY = ("disagreement", "pairwise_kl", "mutual_information")
TOLERANCE = {"float32": 1e-5, "float64": 1e-10, "bfloat16": 0.05, "float16": 0.01}


def draw(study: Study) -> None:
    masks = study.active_masks
    if not masks:
        with st.container(border=True):
            st.markdown("**There are no members to fuse yet.** Make them first: each keeps its own heads.")
            frame.link("Members", "Make members")
        return
    job = jobs.current(str(study.folder))
    busy = job is not None and job.active
    check, stale = stored_check(study), results.stale(study)
    if check is None or stale:
        why = (
            "**The masks have changed since these members were fused.** Fuse again to bring the numbers up to date."
            if stale
            else "**The stored predictions are there; the check and the timing are not.** Fuse here to see them."
            if "fused" in study.prediction_models()
            else f"**{len(masks)} members are ready to be fused** into one network that gives all their answers "
            "in one pass."
        )
        with st.container(border=True):
            st.markdown(why)
            st.button(
                f"Fuse {len(masks)} members", type="primary", icon=":material/merge:",
                key=state.key("fuse", "go"),
                disabled=busy, on_click=work.fuse, args=(study,),
            )  # fmt: skip
    if check is not None:
        if stale:
            st.caption("The figures from here on are of the members that were fused before.")
        exactness(check)
        cost(check)
        timing(study, busy, check)
    tuning.section(study, check, job)
    if check is None or stale:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        frame.link("Evaluate", "Next: see the ensemble's uncertainty")
        st.button("Fuse again", key=state.key("fuse", "again"), disabled=busy, on_click=work.fuse, args=(study,))


def stored_check(study: Study) -> Equivalence | None:
    text = study.get("fusion", "check")
    return Equivalence.from_json(text) if text else None


def exactness(check: Equivalence) -> None:
    st.subheader("Does the fused network compute the same?")
    worst = max(check.masked_fused + check.masked_pruned)
    limit = TOLERANCE.get(check.dtype, 1e-5) * max(1.0, check.scale)
    left, right = st.columns([1, 3])
    left.metric(
        "Largest difference",
        f"{worst:.1e}",
        help="Largest |logit difference| over all members, samples and classes.",
    )
    rows = [
        {"Member": f"{i}", "Masked − pruned": f"{a:.1e}", "Masked − fused": f"{b:.1e}"}
        for i, (a, b) in enumerate(zip(check.masked_pruned, check.masked_fused, strict=True))
    ]
    right.table(pd.DataFrame(rows).set_index("Member"))
    text = (
        f"n = {check.num_samples} test samples, {check.dtype} on {check.device}; largest |logit| "
        f"{check.scale:.3g}, "
        f"so up to {limit:.1e} is rounding."
    )
    (st.caption if worst <= limit else st.warning)(text)
    if check.diversity:
        (a, b), (c, d), (e, f) = (check.diversity[name] for name in DIVERSITY)
        st.caption(
            f"How much the members differ before → after fusion, on the same samples: disagreement {100 * a:.1f} → "
            f"{100 * b:.1f} %, mean pairwise KL {c:.4f} → {d:.4f} nats, mutual information {e:.4f} → {f:.4f} nats."
        )


def cost(check: Equivalence) -> None:
    st.subheader("What it costs")
    columns = st.columns(4)
    columns[0].metric("Operations, against the full model", f"{check.operations:.2f} ×")
    columns[1].metric(
        "Parameters, against the full model", f"{check.parameters:.2f} ×", help=f"{check.num_parameters:,}"
    )
    columns[2].metric(
        "Shared first layers", str(check.report.get("shared_layers", 0)),
        help="Layers before the first in which members differ: one stream serves all members there, exactly.",
    )  # fmt: skip
    columns[3].metric("Embeddings", str(check.report.get("embeddings", "shared")))
    gap = float(check.report.get("mlp_max_difference", 0) or 0)
    if gap:
        st.markdown(f"The members' MLPs were averaged; a weight differs from its mean by up to {gap:.2e}.")
    st.info(
        "**What fusion saves, honestly.** Queries, keys, values and attention cost what the heads that are "
        "kept cost; the MLP costs as "
        "often as there are members. At a share of 1/M of the heads a member, attention costs what ONE "
        "full network costs; at 5 of 6 heads "
        "it costs far more.\n\n"
        "Pruned members run one after another need the same operations: fusion itself saves kernel "
        "launches, memory traffic and the "
        "shared prefix, which is large on a GPU at small batch and little on a CPU.",
        icon=":material/balance:",
    )


def timing(study: Study, busy: bool, check: Equivalence) -> None:
    from hydra_core.timing import FusionTiming

    members = len(check.masked_fused)
    st.subheader("How long it takes")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        batch = st.segmented_control(
            "Batch size", BATCHES, required=True, **state.bind(study, "timing batch", BATCHES[1], BATCHES)
        )
        own, on_cpu = study.config.dtype, check.device.startswith("cpu")
        formats = [own, *(one for one in FORMATS if one != own)]
        chosen = st.pills(
            "Number formats", formats, selection_mode="multi", **state.bind(study, "timing formats", [own]),
            format_func=lambda one: f"{one} (slow on many CPUs)" if one == "bfloat16" and on_cpu else one,
            help="Several are timed one after the other, each with all three in turns.",
        )  # fmt: skip
        forms = [one for one in FORMS if one != "cuda_graph" or not on_cpu]
        form = st.segmented_control(
            "Run as", forms, required=True, format_func=FORMS.get, **state.bind(study, "timing form", "eager", forms),
            help="All three networks run in this form; each is compared with its eager forward first. Compiling takes "
            "a minute or more.",
        )  # fmt: skip
        st.button(
            "Time it", key=state.key("fuse", "time"), disabled=busy or results.stale(study) or not chosen,
            icon=":material/timer:",
            on_click=work.time_fusion, args=(study, batch, [one for one in formats if one in chosen], form),
        )  # fmt: skip
    rows = []
    stored = [study.get("fusion", name) for name in study.names("fusion") if name.startswith("timing ")]
    found = [FusionTiming.from_json(text) for text in stored if text]
    for t in sorted(found, key=lambda t: (t.batch_size, t.dtype != own, t.dtype, t.form)):
        rows.append(
            {
                "Batch": f"{t.batch_size}",
                "Format": t.dtype,
                "Run as": FORMS.get(t.form, t.form),
                "Single (ms)": f"{1000 * t.single:.1f}",
                f"{members} one after another (ms)": f"{1000 * t.one_after_another:.1f}",
                "Fused (ms)": f"{1000 * t.fused:.1f}",
                "Fused / single": f"{t.fused_over_single:.2f}",
                "Operations say": f"{t.operations_ratio:.2f}",
                "Fused / one after another": f"{t.fused_over_one_after_another:.2f}",
                "Where": f"{t.device}, {t.threads} thread{'s' if t.threads != 1 else ''}",
            }
        )
    if not rows:
        st.markdown("Not timed yet on this machine.")
        return
    st.table(pd.DataFrame(rows).set_index("Batch"))
    st.caption(
        "Medians over 15 rounds in which the three take turns; ratios are medians of the per-round ratios. "
        "The paper reports 1.07 × "
        "(fused over single, BF16 on a GPU, 1/M of the heads a member) and 2.99 × for deep ensembles: the "
        "paper's figures, not measured here."
    )


EXPLAIN = r"""
The members' token streams lie side by side. Queries, keys, values and the output projection are **grouped
fully-connected layers**: group $m$ maps member $m$'s inputs with member $m$'s own weights, and all members'
heads run in one attention call. One MLP is shared: its weights are the mean of the members'. Where nobody
was fine-tuned the members' MLPs are identical, so the fused network computes exactly what the members
compute; the table above checks it, up to rounding.

Fine-tuned members' MLPs differ, so their mean is an approximation: its cost is the difference between the
lines *members apart* and *fused*. Training: AdamW in batches of 64, a tenth of the steps to warm up, then a
cosine to 0; the epoch with the lowest validation NLL is kept, and two epochs without a lower one stop it.

*Masked*: the full backbone with the cut heads' outputs set to 0. *Pruned*: the heads are really gone.
*Fused*: all members in one network. Operations are counted as 2 a multiply-add over the whole network, as
really run. Source: Hydra Ensembles, arXiv 2510.18358.
"""

frame.page("Fuse", draw, explain=EXPLAIN)
