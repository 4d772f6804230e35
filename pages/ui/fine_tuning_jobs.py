"""The job that fine-tunes the members: train each, fuse, measure what merging cost, perhaps train the fused network on.

Each epoch is kept in a hidden part of the study, so that a run that was stopped goes on where it stood.
"""

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from hydra_core.errors import HydraError
from hydra_core.jobs import Cancelled, Progress
from hydra_core.masks import fused_fingerprint
from hydra_core.study import Study
from pages.ui import cache, equivalence, jobs, results, tuned, work

if TYPE_CHECKING:
    from hydra_core import Dataset, FusedEnsemble, Predictions
    from hydra_core.finetune import Epoch

LABEL = "Fine-tuning the members"
TRAINED_SHARE = 0.8  # of the validation half of data that have no training part
TRAINING_COST = 5  # forward passes that training on a sample takes, about


def start(study: Study, settings: tuned.Settings) -> None:
    """Start from the beginning; what an earlier run left is thrown away."""
    _start(study, settings, resume=False)


def resume(study: Study) -> None:
    """Go on with the run that was stopped."""
    run = tuned.unfinished(study)
    if run is None:
        raise HydraError("there is no stopped fine-tuning to go on with; start a new one")
    _start(study, run.settings, resume=True)


def discard(study: Study) -> None:
    """Throw away what a stopped run left."""
    study.remove(tuned.KIND, tuned.UNFINISHED)
    study.remove_unfinished(tuned.KIND)


def _start(study: Study, settings: tuned.Settings, *, resume: bool) -> None:
    def run(progress: Progress) -> str:
        if not resume:
            discard(study)
        try:
            return _Tuning(study, settings, progress).run()
        except Cancelled:
            if tuned.unfinished(study) is None:
                raise
            raise Cancelled("The epochs that were done are kept: Resume on Fuse goes on from there.") from None

    jobs.start(str(study.folder), LABEL, run)


class Plan:
    """Progress of parts of unequal length as one."""

    def __init__(self, progress: Progress, weights: list[float]) -> None:
        self._progress, self._weights = progress, [max(1.0, weight) for weight in weights]
        self._begun, self._done = -1, 0.0

    def next(self, what: str, skipped: float = 0.0) -> Progress:
        """Begin the next part; returns the callable for its own progress.

        `skipped`: the share of it that an earlier run did, which its weight does not hold.
        """
        if self._begun >= 0:
            self._done += self._weights[self._begun]
        self._begun += 1
        weight, before, whole = self._weights[self._begun], self._done, sum(self._weights)

        def inner(done: int, total: int, note: str) -> None:
            share = done / total if total else 0.0
            share = max(0.0, (share - skipped) / (1 - skipped)) if skipped < 1 else 1.0
            now = before + weight * min(1.0, share)
            self._progress(round(1000 * now / whole), 1000, f"{what}: {note}" if note else what)

        inner(0, 1, "")
        return inner


class _Tuning:
    """One run of the job."""

    def __init__(self, study: Study, settings: tuned.Settings, progress: Progress) -> None:
        import hydra_core as hydra

        progress(0, 0, "loading the backbone and the data")
        self.study, self.settings, self.begun = study, settings, time.monotonic()
        masks, backbone = study.active_masks, cache.backbone(study)
        if not masks:
            raise HydraError("there are no members yet; make them on the Members page")
        self.pruned = [hydra.prune(backbone, mask) for mask in masks]
        base = fused_fingerprint([member.fingerprint for member in self.pruned])
        if base != study.active_fingerprint:
            raise HydraError("these masks were made on other weights of the backbone; make the members again")
        self.training, self.held_out = training_data(study, settings.samples)
        self.data = work.study_data(study)
        before = tuned.unfinished(study)
        if before is not None and before.base != base:
            raise HydraError("the stopped fine-tuning belongs to other masks; start a new one")
        self.earlier = {} if before is None else before.curves
        self.seconds = 0.0 if before is None else before.seconds
        self.record = tuned.Run(
            base, settings, self.earlier, training=len(self.training), validation=len(self.held_out),
            device=backbone.device, dtype=backbone.dtype,
        )  # fmt: skip
        self.names = settings.names(len(masks))
        self.needs_fusing = results.FUSED not in results.sources(study) or results.stale(study)
        self.plan = Plan(progress, self._weights())
        self._keep()

    def _skipped(self, name: str) -> float:
        """The share of a part of the training that an earlier run did."""
        known = [one for one in self.names if one in self.earlier]
        if name not in known:
            return 0.0
        return 1.0 if name != known[-1] else len(self.earlier[name]) / self.settings.epochs_of(name)

    def _weights(self) -> list[float]:
        """Forward passes of one member in each part, about."""
        members = len(self.pruned)
        tested = len(self.data.known.test) + sum(len(part.test) for part in self.data.ood.values())
        epoch = TRAINING_COST * len(self.training) + len(self.held_out)
        trained = [self.settings.epochs_of(name) * epoch * (1 - self._skipped(name)) for name in self.names]
        fusing = [members * tested] if self.needs_fusing else []
        network = [members * trained[-1], members * tested] if self.settings.fused_epochs else []
        return [*fusing, *trained[:members], *[tested] * members, members * tested, *network]

    def run(self) -> str:
        import hydra_core as hydra
        from hydra_core.pipeline import predict_parts

        if self.needs_fusing:
            work.fuse_now(self.study, self.plan.next("fusing the members as pruned"))
        members = [
            self._tune(member, name, self.settings.seed + i)
            for i, (member, name) in enumerate(zip(self.pruned, self.names, strict=False))
        ]
        fused = {"fine-tuned": hydra.fuse(members)}
        alone = [predict_parts(m, self.data, self.plan.next(f"testing member {i}")) for i, m in enumerate(members)]
        found = {
            tuned.APART: {part: hydra.stack_members([one[part] for one in alone]) for part in alone[0]},
            tuned.FUSED: predict_parts(fused["fine-tuned"], self.data, self.plan.next("testing the fused network")),
        }
        if self.settings.fused_epochs:
            network = self._tune(fused["fine-tuned"], tuned.NETWORK, self.settings.seed + len(members))
            fused["fine-tuned, tuned again"] = network
            found[tuned.AGAIN] = predict_parts(network, self.data, self.plan.next("testing the tuned fused network"))
        self._store(fused, found)
        return f"{len(members)} members fine-tuned, fused and tested on {len(found[tuned.FUSED])} data sets"

    def _tune(self, model: Any, name: str, seed: int) -> Any:
        """One model trained, or taken as an earlier run left it."""
        import hydra_core as hydra

        heard: list[dict[str, Any]] = []

        def epoch_done(epoch: "Epoch") -> None:  # also told of those of an earlier run
            heard.append(dataclasses.asdict(epoch))
            self.record = dataclasses.replace(self.record, curves={**self.record.curves, name: list(heard)})
            self._keep()

        return hydra.fine_tune(
            model, self.training, epochs=self.settings.epochs_of(name), learning_rate=self.settings.learning_rate,
            seed=seed, lora_rank=self.settings.lora_rank, validation=self.held_out,
            checkpoint=self.study.unfinished(tuned.KIND) / f"{name}.safetensors", keep_checkpoint=True,
            epoch_done=epoch_done, progress=self.plan.next(name, self._skipped(name)),
        )  # fmt: skip

    def _keep(self) -> None:
        """Store how far the run is, and show it."""
        self.study.unfinished(tuned.KIND).mkdir(parents=True, exist_ok=True)
        self.record = dataclasses.replace(self.record, seconds=self.seconds + time.monotonic() - self.begun)
        self.study.put(tuned.KIND, tuned.UNFINISHED, self.record.to_json())
        jobs.show(str(self.study.folder), self.record)

    def _store(self, fused: "dict[str, FusedEnsemble]", found: "dict[str, dict[str, Predictions]]") -> None:
        """Put the results in the place of the last run's; nothing can be cancelled from here on."""
        gaps = {
            name: _gap(found[tuned.APART], found[name]) for name in (tuned.FUSED, tuned.AGAIN) if name in found
        }  # fmt: skip
        study = self.study
        study.remove(tuned.KIND, tuned.LATEST)  # until all is written, nothing is claimed
        for name in tuned.MODELS:
            study.remove_predictions(name)
        for name in tuned.ENSEMBLES:
            study.remove_ensemble(name)
        for name, network in fused.items():
            study.save_ensemble(name, network)
        for model, parts in found.items():
            for part, predictions in parts.items():
                study.save_predictions(model, part, predictions)
        record = dataclasses.replace(
            self.record, gap=gaps[tuned.FUSED], again=gaps.get(tuned.AGAIN),
            diversity={model: equivalence.diversity(parts["id"].probabilities) for model, parts in found.items()},
            fingerprints={name: network.fingerprint for name, network in fused.items()},
            seconds=self.seconds + time.monotonic() - self.begun,
        )  # fmt: skip
        study.put(tuned.KIND, tuned.LATEST, record.to_json())
        discard(study)


def _gap(before: "dict[str, Predictions]", after: "dict[str, Predictions]") -> Any:
    from hydra_core.merging import merge_gap_of

    others = ({name: one for name, one in side.items() if name != "id"} for side in (before, after))
    return merge_gap_of(before["id"], after["id"], *others)


def has_training_part(study: Study) -> bool:
    """Whether the study's data have a training part of their own, as the demos do."""
    return study.config.data.startswith("demo/")


def training_data(study: Study, samples: int) -> "tuple[Dataset, Dataset]":
    """At most `samples` to train on, and the validation samples that stop it early; test samples are in neither.

    A demo's training part trains and its validation part stops. A folder or file has neither: of the half that chose
    heads, four fifths train and one fifth stops.
    """
    import hydra_core as hydra

    config = study.config
    if has_training_part(study):
        names = list(cache.backbone(study).class_names)
        training = hydra.load_dataset(config.data, split="train", limit=samples, seed=config.seed, class_names=names)
        return training, cache.dataset(study, "id", cache.SELECTION)
    training, held_out = cache.dataset(study, "id", cache.SELECTION).split(TRAINED_SHARE, seed=config.seed)
    return training.take(min(samples, len(training)), seed=config.seed), held_out
