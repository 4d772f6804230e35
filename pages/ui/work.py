"""The long jobs that pages start: each runs the core and, as its last step, writes its result into the study."""

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hydra_core.errors import HydraError
from hydra_core.jobs import Progress
from hydra_core.masks import HeadMask
from hydra_core.study import CURRENT_MASKS, Study
from pages.ui import cache, ensemble, equivalence, jobs, results, state

if TYPE_CHECKING:
    from hydra_core import Circuit, Dataset
    from hydra_core.pipeline import StudyData
    from pages.ui.objective import Goal


def selectable(study: Study) -> list[str]:
    """OOD sets whose validation part may be used to choose heads; the others are kept for testing alone."""
    allowed = study.config.selection_ood
    return [name for name in study.config.ood if allowed is None or name in allowed]


def measure_full(study: Study) -> None:
    """Start predicting with the full model on all test data."""

    def work(progress: Progress) -> str:
        from hydra_core.pipeline import predict_parts

        progress(0, 0, "loading the backbone")
        cache.facts(study)
        found = predict_parts(cache.backbone(study), study_data(study), progress)
        for name, predictions in found.items():
            study.save_predictions("full", name, predictions)
        return f"The full model is measured on {len(found)} data sets"

    jobs.start(str(study.folder), "Measuring the full model", work)


def fuse(study: Study) -> None:
    """Start fusing the members: check masked = pruned = fused, then predict with the fused network on all data."""
    jobs.start(str(study.folder), "Fusing", lambda progress: fuse_now(study, progress))


def fuse_now(study: Study, progress: Progress) -> str:
    """The work of :func:`fuse`, for a job that goes on from there."""
    from hydra_core.pipeline import predict_parts

    progress(0, 0, "pruning and fusing")
    masks = study.active_masks
    fused = ensemble.fused(study)
    check = equivalence.compare(study, masks or [])
    found = predict_parts(fused, study_data(study), progress)
    # From here on nothing can be cancelled: what is stored belongs together.
    study.remove_predictions("fused")
    for name in study.names("fusion"):
        study.remove("fusion", name)
    study.put("fusion", "check", check.to_json())
    for name in study.names("evaluations"):
        if name == "fused":  # of the predictions before
            study.remove("evaluations", name)
    # with the note that says which OOD sets were seen in choosing
    study.put("masks", results.FUSED_MASKS, study.get("masks", CURRENT_MASKS) or "")
    for name, predictions in found.items():
        study.save_predictions("fused", name, predictions)
    return f"{fused.num_members} members fused and run on {len(found)} data sets"


def time_fusion(study: Study, batch_size: int, formats: list[str] | None = None, form: str = "eager") -> None:
    """Start timing single, one-after-another and fused forwards of one batch, in each number format."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra
        from hydra_core.jobs import Stages
        from hydra_core.timing import time_fusion as run

        masks, data = study.active_masks or [], cache.dataset(study)
        chosen = formats or [study.config.dtype]
        stages = Stages(progress, len(chosen))
        for dtype in chosen:
            part = stages.next(dtype)
            part(0, 1, "pruning and fusing")
            # Nothing of this is kept: a second copy of the weights in memory is only held while it is timed.
            own = dtype == study.config.dtype
            backbone = cache.backbone(study) if own else cache.converted(study, dtype)
            members = [hydra.prune(backbone, mask) for mask in masks]
            inputs = backbone.prepare([data.items[i % len(data)] for i in range(batch_size)])
            timing = run(backbone, members, hydra.fuse(members), inputs, form=form, progress=part)
            name = " ".join([f"timing {batch_size}", *([] if own else [dtype]), *([] if form == "eager" else [form])])
            study.put("fusion", name, timing.to_json())
        return f"Timed at batch {batch_size} in {' and '.join(chosen)}"

    jobs.start(str(study.folder), f"Timing at batch {batch_size}", work)


def score_heads(study: Study, name: str, method: str, goal: "Goal", samples: int, heads: int | None) -> None:
    """Start scoring all heads."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra

        progress(0, 0, "loading the backbone and the data")
        other = None if goal.ood is None else cache.dataset(study, goal.ood, cache.SELECTION)
        data = cache.dataset(study, "id", cache.SELECTION)
        scores = hydra.score_heads(
            cache.backbone(study), data, method=method, ood=other, objective=goal.objective, heads_per_layer=heads,
            score=goal.score, num_samples=min(samples, len(data)), seed=study.config.seed, progress=progress,
        )  # fmt: skip
        study.save_scores(name, scores)
        state.push(study, "scores shown", name)
        return f"Scores {name!r} on {scores.num_samples} validation samples"

    jobs.start(str(study.folder), f"Scoring heads: {name}", work)


@dataclass(frozen=True)
class Filling:
    """A circuit's search so far: (L, max heads) values, NaN where not measured yet, and the heads chosen."""

    values: np.ndarray
    chosen: HeadMask
    layers: int


def find_circuit(study: Study, goal: "Goal", heads: int, samples: int, search: str = "exact") -> None:
    """Start HeadMap's search for one circuit on the validation data."""
    base = goal.label if search == "exact" else f"{goal.label}, {search}"
    known = study.circuit(base)
    name = base if known is None or set(known.heads_per_layer) == {heads} else f"{base}, {heads} heads a layer"

    def work(progress: Progress) -> str:
        import hydra_core as hydra

        progress(0, 0, "loading the backbone and the data")
        other = None if goal.ood is None else cache.dataset(study, goal.ood, cache.SELECTION)
        data = cache.dataset(study, "id", cache.SELECTION)
        backbone = cache.backbone(study)
        widths, rows, chosen = backbone.mask.widths, list[np.ndarray](), list[list[int]]()

        def layer_done(layer: int, found: list[int], values: np.ndarray) -> None:
            rows.append(values)
            chosen.append(found)
            table = np.full((len(widths), max(widths)), np.nan)
            table[: layer + 1] = rows
            keep = [[j in chosen[i] if i <= layer else False for j in range(width)] for i, width in enumerate(widths)]
            jobs.show(str(study.folder), Filling(table, HeadMask(keep), layer + 1))

        circuit = hydra.find_circuit(
            backbone, data.take(min(samples, len(data)), seed=study.config.seed),
            ood=None if other is None else {goal.ood: other.take(min(samples, len(other)), seed=study.config.seed)},
            objective=goal.objective, heads_per_layer=heads, score=goal.score, search=search, seed=study.config.seed,
            progress=progress, layer_done=layer_done,
        )  # fmt: skip
        study.save_circuit(name, circuit)
        state.push(study, "circuit shown", name)
        # A new circuit joins those that are laid over one another.
        known = [other for other in study.circuits() if other != name]
        shown = [other for other in state.chosen(study, "circuits laid over", known[:3]) if other in known]
        state.push(study, "circuits laid over", [*shown, name])
        return f"Circuit {name!r}: {circuit.keep.num_kept} heads chosen"

    jobs.start(str(study.folder), f"Searching the circuit {name!r}", work)


def ood_of(study: Study, name: str, circuit: "Circuit") -> str | None:
    """The study's OOD set that a circuit was searched with; of an older study, the one that its name holds."""
    if circuit.objective == "loss":
        return None
    if circuit.ood_name in study.config.ood:
        return circuit.ood_name
    words = name.partition(",")[0].split(maxsplit=1)
    return next((other for other in study.config.ood if words[1:] and words[1].startswith(other)), None)


def measure_faithfulness(study: Study, scores: list[str], circuits: list[str], draws: int, samples: int) -> None:
    """Start measuring how few heads carry the task, by each ranking and by `draws` random ones, on test data."""

    def work(progress: Progress) -> str:
        from hydra_core.faithfulness import faithfulness, random_rankings

        progress(0, 0, "loading the backbone and the data")
        backbone, config = cache.backbone(study), study.config

        def taken(name: str) -> "Dataset":
            data = cache.dataset(study, name)
            return data.take(min(samples, len(data)), seed=config.seed)

        rankings: dict[str, Any] = {f"circuit {name}": study.circuit(name) for name in circuits}
        rankings |= {name: study.scores(name) for name in scores}
        rankings |= random_rankings(backbone.mask.widths, draws, seed=config.seed)
        found = faithfulness(
            backbone, taken("id"), {name: one for name, one in rankings.items() if one is not None},
            ood={name: taken(name) for name in config.ood}, progress=progress,
        )  # fmt: skip
        study.put("faithfulness", "latest", found.to_json())
        return f"Faithfulness of {len(rankings)} rankings on {found.num_samples} test samples"

    jobs.start(str(study.folder), "Measuring faithfulness", work)


def measure_stability(study: Study, name: str, resamples: int, samples: int) -> None:
    """Start searching a circuit again on bootstrap samples of the validation data."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra
        from hydra_core.agreement import stability

        progress(0, 0, "loading the backbone and the data")
        backbone, circuit = cache.backbone(study), study.circuit(name)
        if circuit is None:
            raise HydraError(f"the circuit {name!r} is gone; search it again")
        ood = ood_of(study, name, circuit)

        def choose(data: "Dataset", other: "Dataset | None", part: Progress | None) -> HeadMask:
            return hydra.find_circuit(
                backbone, data, ood=other, objective=circuit.objective, heads_per_layer=circuit.heads_per_layer,
                score=circuit.score or "msp", search=circuit.search, progress=part,
            ).keep  # fmt: skip

        def taken(which: str) -> "Dataset":
            data = cache.dataset(study, which, cache.SELECTION)
            return data.take(min(samples, len(data)), seed=study.config.seed)

        other = None if circuit.objective == "loss" or ood is None else taken(ood)
        found = stability(
            choose, taken("id"), other, num_resamples=resamples, seed=study.config.seed, progress=progress
        )
        study.put("stability", name, dataclasses.replace(found, made_for=circuit.digest).to_json())
        return f"Circuit {name!r} on {resamples} resamples: mean overlap {found.mean_overlap:.2f}"

    jobs.start(str(study.folder), f"Stability of the circuit {name!r}", work)


def export_fused(study: Study, format: str, variant: str = ensemble.AS_PRUNED) -> None:
    """Start writing a fused network as one file that needs no hydra_core; it is checked before it is offered."""

    def work(progress: Progress) -> str:
        from hydra_core.model_export import FORMATS, export_model

        progress(0, 0, "making the network")
        fused = ensemble.fused(study, variant)
        told = export_model(
            fused, study.folder / "exports" / f"{ensemble.file_stem(variant)}{FORMATS[format]}", format=format,
            progress=progress,
        )  # fmt: skip
        facts = {
            "fingerprint": fused.fingerprint, "max_difference": told.max_difference, "tolerance": told.tolerance,
            "batches": told.batches, "file": told.path.name, "variant": variant,
        }  # fmt: skip
        study.put("exports", ensemble.export_name(format, variant), json.dumps(facts))
        return f"Exported as {format}: loaded again, its logits differ by at most {told.max_difference:.1e}"

    jobs.start(str(study.folder), f"Exporting as {format}", work)


def study_data(study: Study) -> "StudyData":
    """All data of the study, from the cache, in the parts that the pipeline names."""
    from hydra_core.pipeline import Parts, StudyData

    def parts(name: str) -> Parts:
        return Parts(cache.dataset(study, name, cache.SELECTION), cache.dataset(study, name))

    return StudyData(parts("id"), {name: parts(name) for name in study.config.ood})
