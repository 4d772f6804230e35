"""What each command of the command line does: arguments in, files and a plain dict out (printed by ``--json``)."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra_core import pipeline
from hydra_core.cli.shared import (
    config_of,
    fused_of,
    keep,
    load,
    masks_of,
    on_device,
    selection_ood,
    study_and_config,
    write_ensemble,
)
from hydra_core.cli.text import evaluation_table, heads_table, listed
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, Stages
from hydra_core.study import Study
from hydra_core.study.files import write_bytes

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.fusion import FusedEnsemble

Command = Callable[[argparse.Namespace, Progress], dict[str, Any]]


# --- commands ----------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The whole path; leaves a study."""
    config = config_of(arguments)
    names = list(config.ood)
    chosen = arguments.select_ood if arguments.select_ood is not None else names[:1]
    if arguments.strategy != "circuit" and arguments.select_ood is None:
        chosen = []  # Taylor scores and random draws look at no OOD data
    selection = pipeline.Selection(
        strategy=arguments.strategy,
        select_ood=tuple(dict.fromkeys(chosen)),
        num_members=arguments.members,
        heads_per_layer=arguments.heads_per_layer,
        score=arguments.score,
        max_overlap=arguments.max_overlap,
        goal=arguments.goal,
        validation_limit=arguments.validation_limit,
        batch_size=arguments.batch_size,
    )
    config = pipeline.with_selection(config, selection)
    target = Path(arguments.out).expanduser().resolve()
    walked: list[pipeline.Walked] = []

    def fill(study: Study) -> None:
        walked.append(
            pipeline.walk(
                study,
                selection,
                num_bins=arguments.bins,
                with_weights=not arguments.without_weights,
                progress=progress,
            )
        )

    study = Study.build(target.parent, target.name, config, fill, replace=arguments.replace)
    result = walked[0]
    print(evaluation_table(result.evaluations, config.ood))
    unseen = [name for name in names if name not in selection.select_ood]
    print(f"Heads were chosen with {', '.join(selection.select_ood) or 'no OOD set'}; never seen: {listed(unseen)}.")
    print(f"Study: {study.folder} (in the app: HYDRA_STUDIES={study.folder.parent} make app)")
    return {
        "study": str(study.folder),
        "backbone": config.backbone,
        "data": config.data,
        "ood": dict(config.ood),
        "select_ood": list(selection.select_ood),
        "strategy": selection.strategy,
        "seed": config.seed,
        "num_members": len(result.masks),
        "heads_per_layer": [list(mask.kept_per_layer) for mask in result.masks],
        "operations_ratio": result.fused.flops() / result.backbone.flops(),
        "parameters_ratio": result.fused.num_parameters / result.backbone.num_parameters,
        "num_samples": result.evaluations[pipeline.FULL].num_samples,
        "ood_counts": result.evaluations[pipeline.FULL].ood_counts,
        "metrics": {name: evaluation.metrics for name, evaluation in result.evaluations.items()},
    }


def score(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Head scores on the validation part."""
    from hydra_core.scoring import score_heads

    study, config = study_and_config(arguments)
    backbone, data = load(config, arguments)
    ood = selection_ood(config, data) if arguments.objective != "loss" else None
    scores = score_heads(
        backbone,
        data.known.validation,
        method=arguments.method,
        ood=ood,
        objective=arguments.objective,
        score=arguments.score,
        heads_per_layer=arguments.heads_per_layer,
        num_samples=arguments.num_samples,
        batch_size=arguments.batch_size,
        seed=config.seed,
        progress=progress,
    )
    if study is not None:
        study.save_scores(arguments.name or arguments.method, scores)
    print(heads_table(scores.values))
    print(f"{scores.method}, {scores.num_samples} samples: {scores.convention}; higher = more important.")
    return keep(scores.to_json(), arguments.out)


def circuit(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """One circuit on the validation parts."""
    from hydra_core.scoring.headmap import one_ood_set

    study, config = study_and_config(arguments)
    backbone, data = load(config, arguments)
    needed = selection_ood(config, data) if arguments.objective != "loss" else {}
    other = one_ood_set(needed)
    selection = pipeline.Selection(
        heads_per_layer=arguments.heads_per_layer, score=arguments.score, batch_size=arguments.batch_size
    )
    found = pipeline.search(backbone, data.known.validation, other, arguments.objective, selection, progress)
    if study is not None:
        study.save_circuit(arguments.name or " ".join([arguments.objective, *needed]), found)
    for layer in range(found.keep.num_layers):
        print(f"layer {layer}: keeps {listed([str(head) for head in found.keep.kept_in(layer)])}")
    return keep(found.to_json(), arguments.out)


def evaluate(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Metrics on the test parts: of a saved ensemble, of a study's members fused, or of a backbone."""
    study, config = study_and_config(arguments)
    name = pipeline.FULL
    model: Backbone | FusedEnsemble
    if arguments.ensemble is not None:
        from hydra_core.ensemble_io import load_ensemble

        model, name = load_ensemble(arguments.ensemble, device=config.device), "ensemble"
    else:
        model = pipeline.load_study_backbone(config)
        if study is not None:
            model, name = fused_of(model, masks_of(study, "current")), pipeline.FUSED
    data = pipeline.load_study_data(config, model.class_names)
    evaluation = pipeline.evaluate_parts(pipeline.predict_parts(model, data, progress), arguments.score, arguments.bins)
    print(evaluation_table({name: evaluation}, config.ood))
    return keep(evaluation.to_json(), arguments.out)


def export(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """A study's masks or head lists as a file, its fused ensemble as a folder or zip, a report as HTML."""
    from hydra_core.mask_files import parse_mask_file, write_head_lists

    study = Study.open(Path(arguments.study))
    wanted = {key: getattr(arguments, key) for key in ("masks", "head_lists", "ensemble", "report")}
    targets = {key: Path(path).expanduser().resolve() for key, path in wanted.items() if path is not None}
    if not targets:
        raise HydraError(
            "nothing to export: give --masks FILE, --head-lists FILE, --ensemble PATH or --report FILE, or several"
        )
    masks = masks_of(study, arguments.masks_name) if targets.keys() - {"report"} else []
    for target in targets.values():
        if target.exists() and not arguments.replace:
            raise HydraError(f"{target} exists: choose another name, or replace it with --replace")
    text = study.get("masks", arguments.masks_name) or ""
    if "masks" in targets:
        write_bytes(targets["masks"], text.encode())
    if "head_lists" in targets:
        _, known = parse_mask_file(text)
        lists = write_head_lists(masks, known["fingerprint"], known["backbone"], known.get("note", ""))
        write_bytes(targets["head_lists"], lists.encode())
    if "ensemble" in targets:
        config = study.config
        progress(0, 1, f"loading {config.backbone}")
        backbone = pipeline.load_study_backbone(on_device(config, arguments.device))
        write_ensemble(fused_of(backbone, masks), targets["ensemble"], study)
    if "report" in targets:
        from hydra_core.report import study_report

        write_bytes(targets["report"], study_report(study).encode())
    written = {key: str(path) for key, path in targets.items()}
    for key, path in written.items():
        print(f"{key}: {path}")
    return written


def bench(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Time of single, one-after-another and fused forwards of one batch of the study's data."""
    from hydra_core.pruning import prune
    from hydra_core.timing import time_fusion

    study = Study.open(Path(arguments.study))
    masks = masks_of(study, "current")
    config = on_device(study.config, arguments.device)
    backbone = pipeline.load_study_backbone(config)
    data = pipeline.load_parts(config.data, seed=config.seed, class_names=backbone.class_names).test
    items = [data.items[index % len(data)] for index in range(arguments.batch_size)]
    members = [prune(backbone, mask) for mask in masks]
    timing = time_fusion(
        backbone,
        members,
        fused_of(backbone, masks),
        backbone.prepare(items),
        rounds=arguments.rounds,
        progress=progress,
    )
    study.put("fusion", f"timing {arguments.batch_size}", timing.to_json())
    print(
        f"batch {timing.batch_size}, {timing.num_members} members, {timing.rounds} rounds, {timing.device}, "
        f"{timing.dtype}, {timing.threads} threads\n"
        f"single {1000 * timing.single:.1f} ms, one after another {1000 * timing.one_after_another:.1f} ms, "
        f"fused {1000 * timing.fused:.1f} ms\n"
        f"fused / single {timing.fused_over_single:.2f} (operations {timing.operations_ratio:.2f}, parameters "
        f"{timing.parameters_ratio:.2f}); fused / one after another {timing.fused_over_one_after_another:.2f}"
    )
    result: dict[str, Any] = json.loads(timing.to_json())
    return result


def table(arguments: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The zero-shot table of the demos."""
    from hydra_core.zero_shot import DEMOS, markdown, zero_shot

    results: dict[str, Any] = {}
    chosen = arguments.demo or list(DEMOS)
    stages = Stages(progress, len(chosen))
    for name in chosen:
        result = zero_shot(
            DEMOS[name],
            seed=arguments.seed,
            device=arguments.device,
            heads_per_layer=arguments.heads_per_layer,
            validation_limit=arguments.validation_limit,
            test_limit=arguments.test_limit,
            progress=stages.next(f"demo/{name}"),
        )
        results[name] = result
        text = markdown(result)
        print(text + "\n")
        if arguments.out is not None:
            folder = Path(arguments.out)
            write_bytes(folder / f"zero_shot_{name}.json", (json.dumps(result, indent=1) + "\n").encode())
            write_bytes(folder / f"zero_shot_{name}.md", (text + "\n").encode())
    return results
