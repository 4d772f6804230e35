"""The long jobs that pages start: each runs the core and, as its last step, writes its result into the study."""

from hydra_core.jobs import Progress
from hydra_core.study import Study
from pages.ui import cache, equivalence, jobs, results, state

STRATEGIES = {
    "circuit": "Circuits (HeadMap), by objective and OOD set",
    "taylor": "Taylor importance, by data shard",
    "random": "Random heads",
}


def make_members(study: Study, strategy: str, count: int, heads: int) -> None:
    """Start a search that makes all members' masks."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra

        backbone = cache.backbone(study)
        data = cache.dataset(study, "id", cache.SELECTION)
        ood = {name: cache.dataset(study, name, cache.SELECTION) for name in study.config.ood}
        masks = hydra.make_members(
            backbone, data, ood=ood, num_members=count, strategy=strategy, heads_per_layer=heads,
            seed=study.config.seed, progress=progress,
        )  # fmt: skip
        state.set_masks(study, masks, backbone.fingerprint, f"{strategy}, {heads} heads a layer")
        return f"{count} members made: {STRATEGIES[strategy]}, {heads} heads a layer"

    jobs.start(str(study.folder), f"Making {count} members", work)


def measure_full(study: Study) -> None:
    """Start predicting with the full model on all test data."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra

        progress(0, 0, "loading the backbone")
        cache.facts(study)
        backbone = cache.backbone(study)
        names = ["id", *study.config.ood]
        found = {}
        for i, name in enumerate(names):
            data = cache.dataset(study, name)
            found[name] = hydra.predict(backbone, data, progress=_part(progress, i, len(names)))
        for name, predictions in found.items():
            study.save_predictions("full", name, predictions)
        return f"The full model is measured on {len(names)} data sets"

    jobs.start(str(study.folder), "Measuring the full model", work)


def _part(progress: Progress, index: int, count: int) -> Progress:
    """Progress of part `index` of `count`, each counted as a thousand steps."""

    def report(done: int, total: int, note: str) -> None:
        progress(index * 1000 + (1000 * done // total if total else 0), count * 1000, note)

    return report


def fuse(study: Study) -> None:
    """Start fusing the members: check masked = pruned = fused, then predict with the fused network on all data."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra

        progress(0, 0, "pruning and fusing")
        masks = study.active_masks
        if not masks:
            raise hydra.HydraError("there are no members yet; make them on the Members page")
        backbone = cache.backbone(study)
        fused = cache.fused(study, masks)
        check = equivalence.compare(study, masks)
        names = ["id", *study.config.ood]
        found = {}
        for i, name in enumerate(names):
            found[name] = hydra.predict(fused, cache.dataset(study, name), progress=_part(progress, i, len(names)))
        # From here on nothing can be cancelled: what is stored belongs together.
        study.remove_predictions("fused")
        for name in study.names("fusion"):
            study.remove("fusion", name)
        study.put("fusion", "check", check.to_json())
        study.save_masks(results.FUSED_MASKS, masks, backbone.fingerprint, "what the fused ensemble is made of")
        for name, predictions in found.items():
            study.save_predictions("fused", name, predictions)
        return f"{len(masks)} members fused and run on {len(names)} data sets"

    jobs.start(str(study.folder), "Fusing", work)


def time_fusion(study: Study, batch_size: int) -> None:
    """Start timing single, one-after-another and fused forwards of one batch."""

    def work(progress: Progress) -> str:
        import hydra_core as hydra
        from hydra_core.timing import time_fusion as run

        progress(0, 0, "pruning and fusing")
        masks = study.active_masks or []
        backbone = cache.backbone(study)
        members = [hydra.prune(backbone, mask) for mask in masks]
        data = cache.dataset(study)
        inputs = backbone.prepare([data.items[i % len(data)] for i in range(batch_size)])
        timing = run(backbone, members, cache.fused(study, masks), inputs, progress=progress)
        study.put("fusion", f"timing {batch_size}", timing.to_json())
        return f"Timed at batch {batch_size}"

    jobs.start(str(study.folder), f"Timing at batch {batch_size}", work)
