"""Model & data: choose a backbone and data, and see what they are and how the full model does."""

import pandas as pd
import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.study import Study, StudyConfig, studies_root
from pages.ui import cache, charts, frame, gallery, jobs, results, state, work

DEMO_SETS = {
    "demo/vit": ("demo/fashion-mnist", {"mnist": "demo/mnist", "patches": "demo/patches"}),
    "demo/bert": ("demo/movies", {"nyt": "demo/nyt", "amazon": "demo/amazon"}),
    "demo/clip": ("demo/fashion-mnist", {"mnist": "demo/mnist", "patches": "demo/patches"}),
}
DEMO, OWN = "A demo backbone", "My own"


def draw(study: Study | None) -> None:
    if study is None:
        st.markdown("**No study is open.** Start one here: choose a backbone and the data to measure it on.")
        new_study()
        return
    with st.spinner("Loading the backbone"):
        facts = cache.facts(study)
    describe(study, facts)
    measured = "full" in study.prediction_models()
    outdated = measured and results.outdated(study)
    if not measured or outdated:
        job = jobs.current(str(study.folder))
        if job is None or not job.active:
            frame.empty(
                "**The stored numbers were made with other weights of this backbone than it has now.**"
                if outdated
                else "**The full model has not been measured yet.** Every member is compared with its numbers.",
                "Measure the full model",
                lambda: work.measure_full(study),
            )
    if measured and not outdated:
        baseline(study)
    frame.guarded(samples)(study, measured)
    with st.expander("Another backbone or other data", icon=":material/add:"):
        st.markdown("A new study is started; this one stays as it is, under Start.")
        new_study()


# --- what the study is about ---


def describe(study: Study, facts: cache.Facts) -> None:
    st.subheader("The backbone")
    columns = st.columns(5)
    widest, layers = max(facts.widths), len(facts.widths)
    columns[0].metric("Layers × heads", f"{layers} × {widest}", help=f"Each head is {facts.head_dim} wide.")
    columns[1].metric("Parameters", millions(facts.num_parameters), help=f"{facts.num_parameters:,}")
    columns[2].metric(
        "Operations",
        f"{millions(facts.flops)}",
        help="One input, 2 a multiply-add, the whole network as really run.",
    )
    columns[3].metric("Device", facts.device, help=f"Number format: {facts.dtype}")
    if facts.parity:
        columns[4].metric(
            "Parity", f"{facts.parity['max_difference']:.1e}",
            help=f"Largest |logit difference| between the original library's model and ours on "
            f"{facts.parity['num_samples']:.0f} "
            f"probe inputs in float32; up to {facts.parity['tolerance']:.1e} is accepted.",
        )  # fmt: skip
        st.caption(
            f"{study.config.backbone} ({facts.family}, {len(facts.class_names)} classes). Checked on "
            "loading: our logits equal the "
            f"original library's within {facts.parity['max_difference']:.1e} (limit "
            f"{facts.parity['tolerance']:.1e}, float32). "
            f"Backbones in memory: {cache.backbones_in_memory()}."
        )
    if facts.family == "clip":
        st.info(
            "CLIP classifies by text prompts and was not fine-tuned for these classes. Of the demo CLIP it "
            "is fair to say: its class "
            "names were seen in training, its prompt templates were not."
        )


def millions(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.2f} G"
    return f"{count / 1e6:.2f} M" if count >= 1e5 else f"{count:,}"


def baseline(study: Study) -> None:
    st.subheader("The full model on the test data")
    evaluation = results.evaluation(study, results.FULL)
    if evaluation is None:
        return
    values = evaluation.metrics
    columns = st.columns(4)
    columns[0].metric("Accuracy", charts.percent(values["accuracy"]))
    columns[1].metric("NLL (nats)", charts.number(values["nll"]), help="Negative log-likelihood, lower is better")
    columns[2].metric("ECE", charts.number(values["ece"]), help="Top-label, 15 equal-width bins, lower is better")
    columns[3].metric("Brier", charts.number(values["brier"]), help="Sum over classes, 0 to 2, lower is better")
    rows = [
        {
            "OOD set": name,
            "AUROC": charts.number(values[f"ood/{name}/auroc"]),
            "AUPR, OOD positive": charts.number(values[f"ood/{name}/aupr_ood"]),
            "FPR95, OOD positive": charts.number(values[f"ood/{name}/fpr95"]),
            "n": evaluation.ood_counts[name],
        }
        for name in evaluation.ood_counts
    ]
    if rows:
        st.table(pd.DataFrame(rows).set_index("OOD set"))
    left_out = f" {len(evaluation.excluded)} rows with a non-finite logit are left out." if evaluation.excluded else ""
    st.caption(f"n = {evaluation.num_samples} ID test samples. OOD score: 1 − largest probability.{left_out}")


def samples(study: Study, measured: bool) -> None:
    st.subheader("The data")
    names = {
        "id": f"ID: {study.config.data}",
        **{name: f"OOD: {ref}" for name, ref in study.config.ood.items()},
    }
    chosen = st.segmented_control(
        "Show samples of", list(names), format_func=names.get, required=True,
        **state.bind(study, "gallery set", "id", list(names)),
    )  # fmt: skip
    with st.spinner("Loading the data"):
        data = cache.dataset(study, chosen)
    st.caption(f"{len(data):,} test samples in {data.name}.")
    skipped(data.skipped)
    gallery.draw(study, data, chosen, cache.predictions(study, "full", chosen) if measured else None)


def skipped(rows: tuple[tuple[object, str], ...]) -> None:
    if not rows:
        return
    with st.expander(f"{len(rows)} rows or files were skipped", icon=":material/warning:"):
        st.dataframe(pd.DataFrame(rows, columns=["Row or file", "Reason"]).astype(str), hide_index=True)


# --- a new study ---


def new_study() -> None:
    kind = st.segmented_control("Backbone", [DEMO, OWN], default=DEMO, required=True, key=state.key("new", "kind"))
    config = demo_form() if kind == DEMO else own_form()
    left, right = st.columns(2)
    name = left.text_input(
        "Name of the study", value=free_name(config.backbone), key=state.key("new", "name", config.backbone)
    )
    limit = right.number_input(
        "Samples of each set (0: all)", 0, 1_000_000, value=0, step=100, key=state.key("new", "limit"),
        help="Fewer samples are faster and give wider intervals.",
    )  # fmt: skip
    if st.button("Start this study", type="primary", key=state.key("new", "start"), disabled=not config.data):
        begin(name, config, int(limit) or None)


def free_name(ref: str) -> str:
    base = "".join(c if c.isalnum() or c in "-_" else "-" for c in ref.split("/")[-1]).strip("-") or "study"
    taken = {path.name for path in studies_root().glob("*")}
    return next(name for name in [base, *(f"{base}-{i}" for i in range(2, 10_000))] if name not in taken)


def demo_form() -> StudyConfig:
    ref = st.selectbox("Demo", list(DEMO_SETS), key=state.key("new", "demo"))
    data, ood = DEMO_SETS[ref]
    sets = st.multiselect(
        "Out-of-distribution sets", list(ood), default=list(ood), key=state.key("new", "ood", ref),
        help="What the model should notice as unknown.",
    )  # fmt: skip
    choose = selection_sets(sets, sets[:1])
    st.caption(
        f"In-distribution data: {data}. Heads are selected on its validation part, numbers come from its test part."
    )
    return StudyConfig(ref, data, {name: ood[name] for name in sets}, selection_ood=choose)


def selection_sets(names: list[str], default: list[str]) -> tuple[str, ...] | None:
    if not names:
        return None
    chosen = st.multiselect(
        "Of these, sets that may choose heads", names, default=default, key=state.key("new", "selection", *names),
        help="Their validation part may be used to search heads. The others stay unseen: test on them.",
    )  # fmt: skip
    return tuple(chosen)


def own_form() -> StudyConfig:
    backbone = st.text_input(
        "Backbone reference", key=state.key("new", "ref"), placeholder="/path/to/a/hugging-face/folder",
        help="A local Hugging Face folder (ViT, DeiT, BERT, DistilBERT, RoBERTa), hf:<repo id>, "
        "or open_clip:<arch>:<tag or file>.",
    )  # fmt: skip
    data = st.text_input(
        "In-distribution data", key=state.key("new", "data"), placeholder="/path/to/folder, .zip, .csv, "
        ".jsonl or .parquet",
        help="A folder or zip with one sub-folder a class, or a table with the columns text or image, and label.",
    )  # fmt: skip
    ood = st.text_area(
        "Out-of-distribution sets, one a line: name = reference", key=state.key("new", "ood text"),
        placeholder="mnist = demo/mnist", height=90,
    )  # fmt: skip
    classes = st.text_input("Class names, comma-separated (CLIP only)", key=state.key("new", "classes"))
    templates = st.text_area(
        "Prompt templates, one a line, {} for the class name (CLIP only)",
        key=state.key("new", "templates"),
        height=90,
    )
    sets = {}
    for line in filter(None, map(str.strip, ood.splitlines())):
        name, _, ref = line.partition("=")
        sets[name.strip()] = ref.strip() or name.strip()
    choose = selection_sets(list(sets), list(sets)[:1])
    names = tuple(filter(None, map(str.strip, classes.split(",")))) or None
    lines = tuple(filter(None, map(str.strip, templates.splitlines()))) or None
    return StudyConfig(
        backbone.strip(),
        data.strip() if backbone.strip() else "",
        sets,
        class_names=names,
        templates=lines,
        selection_ood=choose,
    )


def begin(name: str, config: StudyConfig, limit: int | None) -> None:
    """Create the study and measure the full model; a study whose backbone cannot be opened is not kept."""
    import dataclasses

    before = state.study()
    study = Study.create(studies_root(), name, dataclasses.replace(config, limit=limit))
    try:
        with st.spinner("Loading the backbone and the data"):
            if before is not None and cache.backbone_key(before.config) != cache.backbone_key(study.config):
                cache.release_backbone(before.config)
            cache.facts(study)
            for one in ("id", *config.ood):
                cache.dataset(study, one)
    except HydraError:
        study.delete()
        raise
    state.open_study(study.name)
    work.measure_full(study)
    st.rerun()


EXPLAIN = r"""
A **backbone** is the one pretrained transformer that everything here is made from: a ViT, a BERT or CLIP's
image tower. It is read into one canonical encoder, and its logits are compared with the original library's
before it is used (**parity**).

**ID** (in-distribution) data are of the kind the model was trained on; **OOD** (out-of-distribution) data
are not, and a good model is unsure about them. Heads are selected on one part of the data (validation), all
numbers come from another (test).

Accuracy: share of right top classes. NLL: $-\frac1N\sum_i \log p(y_i \mid x_i)$. ECE: $\sum_b
\frac{n_b}{N}\,|\mathrm{acc}_b - \mathrm{conf}_b|$ over 15 equal-width bins of the top probability. AUROC:
the chance that an OOD sample gets a higher uncertainty score than an ID sample. FPR95: the share of ID
samples flagged when 95 % of the OOD samples are.
"""

frame.open_page("Model & data", draw, explain=EXPLAIN)
