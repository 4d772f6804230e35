"""The zero-shot table: full model, single pruned models and fused ensembles, none of them fine-tuned.

Heads are chosen on validation parts, results come from test parts. The first OOD set of each demo has a
validation part that circuits are searched with; the second is never used for choosing heads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydra_core import pipeline
from hydra_core.jobs import Progress, Stages
from hydra_core.markdown import markdown_table
from hydra_core.study import StudyConfig

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.masks import HeadMask
    from hydra_core.prediction import Predictions

FULL_MODEL, TAYLOR_SINGLE = "full model", "Taylor single"


@dataclass(frozen=True)
class Demo:
    """One demo of the table: what it loads, and how many heads of each layer a member keeps."""

    backbone: str
    data: str
    selected: tuple[str, str]  # name and reference of the OOD set that circuits are searched with
    unseen: tuple[str, str]
    heads_per_layer: int
    num_members: int = 3
    validation_limit: int | None = None  # validation samples of each set; a search of a long text model is slow


DEMOS = {
    "vit": Demo("demo/vit", "demo/fashion-mnist", ("mnist", "demo/mnist"), ("patches", "demo/patches"), 4),
    "bert": Demo("demo/bert", "demo/movies", ("nyt", "demo/nyt"), ("amazon", "demo/amazon"), 9, validation_limit=200),
    "clip": Demo("demo/clip", "demo/fashion-mnist", ("mnist", "demo/mnist"), ("patches", "demo/patches"), 3),
}


def zero_shot(
    demo: Demo,
    *,
    seed: int = 0,
    device: str = "auto",
    heads_per_layer: int | tuple[int, ...] | None = None,
    validation_limit: int | None = None,
    test_limit: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the table of one demo.

    Args:
        demo: one of :data:`DEMOS`.
        seed: of shards, random masks and samples taken.
        device: see :func:`hydra_core.load_backbone`.
        heads_per_layer: in place of the demo's own number.
        validation_limit: validation samples to take of each set, in place of the demo's own limit.
        test_limit: test samples to take of each set; None takes all.
        progress: see :mod:`hydra_core.jobs`.

    Returns:
        Plain values: settings, sample counts, and under `rows` one entry a model with its metrics.
    """
    config = StudyConfig(
        demo.backbone, demo.data, dict([demo.selected, demo.unseen]), device=device, seed=seed, limit=test_limit
    )
    heads = demo.heads_per_layer if heads_per_layer is None else heads_per_layer
    stages = Stages(progress, 3)
    stages.next("loading")
    backbone = pipeline.load_study_backbone(config)
    data = pipeline.load_study_data(config, backbone.class_names, validation_limit or demo.validation_limit)
    models = _models(backbone, data, demo, heads, seed, stages.next("choosing heads"))
    rows = _rows(models, backbone, data, stages.next("predicting"))
    return {
        "backbone": demo.backbone,
        "data": demo.data,
        "ood": dict(config.ood),
        "selected_with": demo.selected[0],
        "never_seen": demo.unseen[0],
        "seed": seed,
        "heads_per_layer": list(heads) if isinstance(heads, tuple) else heads,
        "heads_of_full_model": list(backbone.num_heads),
        "num_validation": len(data.known.validation),
        "num_validation_ood": len(data.ood[demo.selected[0]].validation),
        "num_test": len(data.known.test),
        "num_test_ood": {name: len(part.test) for name, part in data.ood.items()},
        "score": "msp",
        "rows": rows,
    }


def _models(
    backbone: "Backbone",
    data: pipeline.StudyData,
    demo: Demo,
    heads: int | tuple[int, ...],
    seed: int,
    progress: Progress,
) -> "dict[str, list[HeadMask]]":
    """The members' masks of each row."""
    from hydra_core.members import keep_highest
    from hydra_core.scoring import score_heads
    from hydra_core.scoring.headmap import check_heads_per_layer

    def chosen(strategy: str, note: str, found: Any = None) -> "list[HeadMask]":
        selection = pipeline.Selection(
            strategy, (demo.selected[0],), num_members=demo.num_members, heads_per_layer=heads
        )
        return pipeline.choose_masks(backbone, data, selection, seed=seed, found=found, progress=stages.next(note))

    stages = Stages(progress, 4)
    counts = check_heads_per_layer(heads, backbone)
    scores = score_heads(backbone, data.known.validation, method="taylor", progress=stages.next("Taylor scores"))
    circuits: dict[str, list[HeadMask]] = {}

    def keep(name: str, circuit: Any) -> None:
        circuits[f"circuit ({circuit.objective})"] = [circuit.keep]

    fused_circuits = chosen("circuit", "circuits", keep)
    count = demo.num_members
    return {
        FULL_MODEL: [backbone.mask],
        TAYLOR_SINGLE: [keep_highest(scores.values, counts, backbone)],
        **circuits,
        f"Hydra Taylor ({count})": chosen("taylor", "Taylor members"),
        f"Hydra circuit ({count})": fused_circuits,
        f"random masks, fused ({count})": chosen("random", "random masks"),
    }


def _rows(
    models: "Mapping[str, list[HeadMask]]", backbone: "Backbone", data: pipeline.StudyData, progress: Progress
) -> list[dict[str, Any]]:
    """One row a model. A single pruned model that is a member too is not run again: fusion is exact (see tests)."""
    from hydra_core.fusion import fuse
    from hydra_core.pruning import prune

    stages = Stages(progress, len(models))
    of_members: dict[HeadMask, dict[str, Predictions]] = {}
    rows = {}
    for name, masks in sorted(models.items(), key=lambda item: -len(item[1])):
        note = stages.next(name)
        pruned = [prune(backbone, mask) for mask in masks]
        model = pruned[0] if len(pruned) == 1 else fuse(pruned)
        known = of_members.get(masks[0]) if len(masks) == 1 else None
        predictions = known or pipeline.predict_parts(model, data, note)
        if len(masks) > 1:
            for i, mask in enumerate(masks):
                of_members[mask] = {part: values.member(i) for part, values in predictions.items()}
        rows[name] = {
            "name": name,
            "num_members": len(masks),
            "heads_kept": [list(mask.kept_per_layer) for mask in masks],
            "operations_ratio": model.flops() / backbone.flops(),
            "parameters_ratio": model.num_parameters / backbone.num_parameters,
            "metrics": pipeline.evaluate_parts(predictions, "msp").metrics,
        }
    return [rows[name] for name in models]


def markdown(result: dict[str, Any]) -> str:
    """The table of :func:`zero_shot` with the sentence that says what it rests on."""
    header = ["model", "accuracy", "NLL", "ECE"]
    keys = ["accuracy", "nll", "ece"]
    for name in result["ood"]:
        seen = "seen in selection" if name == result["selected_with"] else "never seen"
        header += [f"AUROC {name} ({seen})", f"FPR95 {name}"]
        keys += [f"ood/{name}/auroc", f"ood/{name}/fpr95"]
    header.append("operations")
    rows = []
    for row in result["rows"]:
        values = [row["metrics"][key] for key in keys]
        cells = ["undefined" if value is None else f"{value:.3f}" for value in values]
        rows.append([row["name"], *cells, f"{row['operations_ratio']:.2f}x"])
    heads, of = result["heads_per_layer"], result["heads_of_full_model"]
    tested = ", ".join(f"{count} {name}" for name, count in result["num_test_ood"].items())
    caption = (
        f"`{result['backbone']}` on `{result['data']}`, zero-shot (nobody fine-tuned), seed {result['seed']}. Each "
        f"member keeps {_together(heads)} of {_together(of)} heads a layer. Heads chosen on "
        f"{result['num_validation']} ID and {result['num_validation_ood']} {result['selected_with']} validation "
        f"samples; {result['never_seen']} was never used for choosing. Tested on {result['num_test']} ID, {tested}. "
        "OOD score: MSP, OOD positive; ECE: 15 bins; NLL in nats."
    )
    return f"{markdown_table(header, rows)}\n\n{caption}"


def _together(numbers: int | Sequence[int]) -> str:
    """``[6, 6, 6]`` as ``6``."""
    if isinstance(numbers, int):
        return str(numbers)
    return str(numbers[0]) if len(set(numbers)) == 1 else "/".join(map(str, numbers))
