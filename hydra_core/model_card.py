"""The model card of an exported ensemble: what it is, what was measured on which data, under which licence.

The front matter is the Hugging Face model card's (https://huggingface.co/docs/hub/model-cards), written by its library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hydra_core import licences
from hydra_core.conventions import CONVENTIONS
from hydra_core.evaluation import OOD_TITLES, Evaluation, evaluate_predictions
from hydra_core.markdown import escaped, markdown_table
from hydra_core.masks import mean_overlap
from hydra_core.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from hydra_core.fusion import FusedEnsemble
    from hydra_core.prediction import Predictions
    from hydra_core.study import Study

FULL, ENSEMBLE = "full model", "this ensemble"
TASKS = {"vit": "image-classification", "clip": "image-classification", "bert": "text-classification"}
GENERAL = {
    "accuracy": "Accuracy", "nll": "NLL (nats)", "brier": "Brier (0 to 2)", "ece": "ECE", "ace": "ACE", "mce": "MCE",
    "mutual_information": "Mutual information (nats)", "disagreement": "Disagreement",
}  # fmt: skip


@dataclass(frozen=True)
class CardFacts:
    """What a card says beside the network itself.

    Attributes:
        data: reference of the ID data.
        ood: reference of each OOD set, by its name in the tables.
        chosen_on: what the masks' note says of how they were chosen, and on which OOD sets.
        backbone_fingerprint: sha256 of the backbone's weights.
        data_fingerprint: sha256 of the ID test data, where it was measured.
        evaluations: by what was measured: the full model, this ensemble.
    """

    data: str
    ood: Mapping[str, str] = field(default_factory=dict)
    chosen_on: str = ""
    backbone_fingerprint: str = ""
    data_fingerprint: str = ""
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)


def study_facts(study: "Study", fingerprint: str) -> CardFacts:
    """What a study knows of the ensemble with that fingerprint; metrics are of its stored predictions."""
    from hydra_core.artefacts import parse_json

    config = study.config
    text = study.get("masks", "current")
    masks = parse_json(text, "a mask file") if text else {}
    found: dict[str, Evaluation] = {}
    data_fingerprint = ""
    for title, model in ((FULL, "full"), (ENSEMBLE, _model_of(study, fingerprint))):
        known = None if model is None else study.predictions(model, "id")
        if model is None or known is None:
            continue
        others: dict[str, Predictions] = {}
        for name in config.ood:
            if (one := study.predictions(model, name)) is not None:
                others[name] = one
        found[title] = evaluate_predictions(known, others)
        data_fingerprint = known.data_fingerprint
    return CardFacts(
        config.data, dict(config.ood), str(masks.get("note", "")), str(masks.get("fingerprint", "")), data_fingerprint,
        found,
    )  # fmt: skip


def _model_of(study: "Study", fingerprint: str) -> str | None:
    """The stored predictions that this very network made."""
    for model in study.prediction_models():
        known = study.predictions(model, "id")
        if known is not None and known.model_fingerprint == fingerprint:
            return model
    return None


def model_card(fused: "FusedEnsemble", facts: CardFacts | None = None, extra: str = "") -> str:
    """The card as Markdown with its front matter.

    Args:
        fused: the ensemble.
        facts: what was measured; None says that nothing was.
        extra: Markdown that is added at the end.
    """
    weights = licences.of_weights(fused.ref)
    heads = "\n".join(
        f"| {i} | {mask.num_kept} of {sum(mask.widths)} | {', '.join(map(str, mask.kept_per_layer))} |"
        for i, mask in enumerate(fused.masks)
    )
    overlap = mean_overlap(fused.masks)
    report = fused.report
    return f"""---
{_front_matter(fused, facts, weights.spdx)}
---

# Hydra Ensemble of {fused.num_members} members

{fused.num_members} members of `{_code(fused.ref)}`, each with its own attention heads, fused into one network that
gives all their answers in one pass, after Hydra Ensembles (arXiv 2510.18358), with hydra_core {__version__}.
Family {fused.family}, {len(fused.class_names)} classes, {fused.num_parameters:,} parameters, {fused.dtype}.

| member | heads kept | by layer |
| ---: | ---: | --- |
{heads}

Mean overlap of the members' heads (Jaccard): {"one member" if overlap is None else f"{overlap:.3f}"}. Layers that one
stream serves: {report.get("shared_layers")}. Embeddings {report.get("embeddings")}, read-outs
{report.get("readouts")}; largest difference between a member's MLP weight and the shared mean:
{float(report.get("mlp_max_difference") or 0.0):.3g}.

Classes: {", ".join(escaped(name) for name in fused.class_names)}.

## Use

```python
import hydra_core as hydra

ensemble = hydra.load_ensemble("this folder")
probabilities = ensemble.probabilities(ensemble.prepare(items))  # mean of the members' softmax, (N, C)
```

It answers with one of its classes whatever it is shown. The uncertainty tells how far to trust an answer only on data
like those below; it was not measured on others.

## Metrics

{_metrics(facts)}

## Data

{_data(facts)}

## Licence

- Weights: {escaped(weights.words)}.
{_data_licences(facts)}

## What the numbers mean

{chr(10).join(f"- {line}" for line in CONVENTIONS)}

## Fingerprints

- this ensemble: `{fused.fingerprint}`
- the backbone: `{(facts and facts.backbone_fingerprint) or "not known"}`
- the ID test data: `{(facts and facts.data_fingerprint) or "not measured"}`
{extra}"""


def _front_matter(fused: "FusedEnsemble", facts: CardFacts | None, licence: str | None) -> str:
    from huggingface_hub import ModelCardData

    measured = facts.evaluations.get(ENSEMBLE) if facts else None
    results = []
    if facts is not None and measured is not None:
        named = {"accuracy": "Accuracy", "nll": "NLL", "ece": "ECE"}
        for key, title in named.items():
            value = measured.metrics.get(key)
            if value is not None:
                results.append(_result(fused, facts.data, key, title, value))
        for name, ref in facts.ood.items():
            value = measured.metrics.get(f"ood/{name}/auroc")
            if value is not None:
                results.append(_result(fused, ref, "roc_auc", "AUROC, OOD positive", value))
    data = ModelCardData(
        license=licence or "other",
        license_name=None if licence else "that of the weights it was made from",
        library_name="hydra_core",
        pipeline_tag=TASKS.get(fused.family),
        tags=["hydra-ensembles", "attention-head-pruning", "uncertainty", "ood-detection"],
        base_model=fused.ref.removeprefix("hf:") if fused.ref.startswith("hf:") else None,
        model_name=f"Hydra Ensemble of {fused.ref}" if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml()).strip()


def _result(fused: "FusedEnsemble", data: str, key: str, title: str, value: float) -> "EvalResult":
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type=TASKS.get(fused.family, "other"), dataset_type="other", dataset_name=data, dataset_split="test",
        metric_type=key, metric_name=title, metric_value=value,
    )  # fmt: skip


def _metrics(facts: CardFacts | None) -> str:
    if facts is None or ENSEMBLE not in facts.evaluations:
        return "Not measured: no predictions of this very network were stored when it was exported."
    parts = [_table(facts.evaluations, GENERAL, "")]
    for name in facts.evaluations[ENSEMBLE].ood_counts:
        parts.append(f"Against {escaped(name)}:\n\n" + _table(facts.evaluations, OOD_TITLES, f"ood/{name}/"))
    notes = []
    for title, one in facts.evaluations.items():
        counts = "".join(f", {count} {escaped(name)}" for name, count in one.ood_counts.items())
        left = f"; {len(one.excluded)} with a non-finite logit left out" if one.excluded else ""
        notes.append(
            f"- {title}: n = {one.num_samples} ID{counts} test samples{left}; OOD score {one.score}; "
            f"{one.num_bins} bins"
        )
        notes += [f"- {title}, {escaped(key)}: {escaped(why)}" for key, why in one.reasons.items()]
    return "\n\n".join([*parts, "\n".join(notes)])


def _table(evaluations: Mapping[str, Evaluation], titles: Mapping[str, str], prefix: str) -> str:
    rows = [
        [title, *(_number(one.metrics.get(f"{prefix}{key}")) for key in titles)] for title, one in evaluations.items()
    ]
    return markdown_table(["", *titles.values()], rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _data(facts: CardFacts | None) -> str:
    if facts is None:
        return "Not recorded."
    lines = [f"- in distribution: `{_code(facts.data)}`"]
    lines += [f"- out of distribution, {escaped(name)}: `{_code(ref)}`" for name, ref in facts.ood.items()]
    chosen = escaped(facts.chosen_on) or "not recorded"
    return "\n".join(lines) + (
        f"\n\nHow the heads were chosen: {chosen}. Heads are chosen on validation samples and measured on test "
        "samples, which share none with them."
    )


def _data_licences(facts: CardFacts | None) -> str:
    refs: Sequence[str] = [] if facts is None else [facts.data, *facts.ood.values()]
    return "\n".join(f"- Data `{_code(ref)}`: {escaped(licences.of_data(ref).words)}." for ref in dict.fromkeys(refs))


def _code(text: str) -> str:
    """`text` for between back-ticks: on one line and without one of its own."""
    return " ".join(text.replace("`", "'").split())
