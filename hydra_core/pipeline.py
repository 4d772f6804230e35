"""The whole path in one call: load, choose heads, prune, fuse, predict, evaluate, save.

The app walks it step by step; the command line and the zero-shot table run it through.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, Stages
from hydra_core.mask_files import selection_note
from hydra_core.study import CURRENT_MASKS, Study, StudyConfig

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset
    from hydra_core.evaluation import Evaluation
    from hydra_core.fusion import FusedEnsemble
    from hydra_core.masks import HeadMask
    from hydra_core.prediction import Predictions
    from hydra_core.scoring.results import Circuit

FULL, FUSED, ID = "full", "fused", "id"


@dataclass(frozen=True)
class Selection:
    """How the members' heads are chosen.

    Attributes:
        strategy: ``circuit``, ``taylor``, ``random`` or ``greedy``.
        select_ood: names of the OOD sets whose validation part is used to choose heads; the others stay
            unseen.
        heads_per_layer: heads each member keeps: one number, or one a layer.
        score: OOD score that circuits are searched, and results evaluated, with.
        max_overlap: largest Jaccard overlap of two members' heads.
        goal: what ``greedy`` makes best on validation data: ``nll`` or ``ood_auroc``.
        validation_limit: validation samples to take of each set; None takes all.
    """

    strategy: str = "circuit"
    select_ood: tuple[str, ...] = ()
    num_members: int = 3
    heads_per_layer: int | tuple[int, ...] = 1
    score: str = "msp"
    max_overlap: float | None = None
    goal: str = "nll"
    validation_limit: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Parts:
    """What a study's data are used for: heads are chosen on `validation`, results come from `test`."""

    validation: "Dataset"
    test: "Dataset"


@dataclass(frozen=True)
class StudyData:
    """The ID data and each OOD set by name, in parts that share no sample."""

    known: Parts
    ood: dict[str, Parts]


@dataclass(frozen=True)
class Walked:
    """What the whole path made."""

    backbone: "Backbone"
    masks: "list[HeadMask]"
    fused: "FusedEnsemble"
    evaluations: "dict[str, Evaluation]"


def load_parts(
    ref: str,
    *,
    seed: int,
    validation_limit: int | None = None,
    test_limit: int | None = None,
    class_names: Sequence[str] | None = None,
) -> Parts:
    """The validation and test part of a data set.

    A demo set has its own fixed parts. A folder or file has none: one half of it (stratified, by `seed`)
    chooses heads, the other half tests.

    Raises:
        HydraError: see :func:`hydra_core.load_dataset`; too few samples to halve.
    """
    from hydra_core.data import load_dataset

    if ref.startswith("demo/"):
        validation = load_dataset(ref, split="validation", limit=validation_limit, seed=seed, class_names=class_names)
        return Parts(validation, load_dataset(ref, split="test", limit=test_limit, seed=seed, class_names=class_names))
    validation, test = load_dataset(ref, class_names=class_names).split(0.5, seed=seed)
    return Parts(
        validation if validation_limit is None else validation.take(validation_limit, seed=seed),
        test if test_limit is None else test.take(test_limit, seed=seed),
    )


def load_study_backbone(config: StudyConfig) -> "Backbone":
    """The backbone that a study names."""
    from hydra_core.backbones.registry import load_backbone

    return load_backbone(
        config.backbone,
        device=config.device,
        dtype=config.dtype,
        class_names=config.class_names,
        templates=config.templates,
    )


def load_study_data(config: StudyConfig, class_names: Sequence[str], validation_limit: int | None = None) -> StudyData:
    """All data of a study; `config.limit` bounds each test part (and the validation part, where no other limit is)."""
    limit = config.limit if validation_limit is None else validation_limit

    def parts(ref: str, names: Sequence[str] | None) -> Parts:
        return load_parts(ref, seed=config.seed, validation_limit=limit, test_limit=config.limit, class_names=names)

    return StudyData(parts(config.data, class_names), {name: parts(ref, None) for name, ref in config.ood.items()})


def with_selection(config: StudyConfig, selection: Selection) -> StudyConfig:
    """`config` that says which OOD sets choose heads; HydraError where one is not among the study's."""
    check_selection(config, selection)
    return replace(config, selection_ood=selection.select_ood)


def check_selection(config: StudyConfig, selection: Selection) -> None:
    """HydraError where an OOD set that selection should use is not among the study's."""
    for name in selection.select_ood:
        if name not in config.ood:
            known = ", ".join(config.ood) or "none was given"
            raise HydraError(f"the OOD set {name!r} for selecting heads is not among the OOD sets ({known})")


def choose_masks(
    backbone: "Backbone",
    data: StudyData,
    selection: Selection,
    *,
    seed: int,
    found: "Callable[[str, Circuit], None] | None" = None,
    progress: Progress | None = None,
) -> "list[HeadMask]":
    """The members' masks, as :func:`hydra_core.make_members` makes them from the validation parts.

    Args:
        backbone: read only.
        data: validation parts are used, and no others.
        selection: strategy and its settings.
        seed: of shards and draws.
        found: told of each circuit by name, where the strategy searches for some.
        progress: see :mod:`hydra_core.jobs`.
    """
    from hydra_core.members import make_members

    ood = {name: data.ood[name].validation for name in selection.select_ood}
    if selection.strategy == "circuit" and found is not None and selection.max_overlap is None:
        # The first members are these very circuits: searched here, they can be shown as well.
        searches = circuit_searches(ood)[: selection.num_members]
        stages = Stages(progress, len(searches))
        masks = []
        for name, objective, other in searches:
            circuit = search(backbone, data.known.validation, other, objective, selection, stages.next(name))
            found(name, circuit)
            masks.append(circuit.keep)
        if len(set(masks)) == selection.num_members:
            return masks
    return make_members(
        backbone,
        data.known.validation,
        ood=ood,
        num_members=selection.num_members,
        strategy=selection.strategy,
        heads_per_layer=selection.heads_per_layer,
        max_overlap=selection.max_overlap,
        goal=selection.goal,
        score=selection.score,
        batch_size=selection.batch_size,
        seed=seed,
        progress=progress,
    )


def circuit_searches(ood: "Mapping[str, Dataset]") -> "list[tuple[str, str, Dataset | None]]":
    """Name, objective and OOD set of each circuit that members are made from, in their order."""
    searches: list[tuple[str, str, Dataset | None]] = [("loss", "loss", None)]
    for name, other in ood.items():
        searches += [(f"{objective} {name}", objective, other) for objective in ("ood_auroc", "average")]
    return searches


def search(
    backbone: "Backbone",
    known: "Dataset",
    other: "Dataset | None",
    objective: str,
    selection: Selection,
    progress: Progress | None = None,
) -> "Circuit":
    """One circuit with the settings of `selection`."""
    from hydra_core.scoring import find_circuit

    return find_circuit(
        backbone,
        known,
        ood=other,
        objective=objective,
        heads_per_layer=selection.heads_per_layer,
        score=selection.score,
        batch_size=selection.batch_size,
        progress=progress,
    )


def predict_parts(
    model: "Backbone | FusedEnsemble", data: StudyData, progress: Progress | None = None
) -> "dict[str, Predictions]":
    """Predictions on the test part of the ID data ("id") and of each OOD set."""
    from hydra_core.evaluation import check_classes
    from hydra_core.prediction import predict

    check_classes(model, data.known.test)
    parts = {ID: data.known.test, **{name: part.test for name, part in data.ood.items()}}
    stages = Stages(progress, len(parts))
    return {name: predict(model, part, progress=stages.next(name)) for name, part in parts.items()}


def evaluate_parts(predictions: "Mapping[str, Predictions]", score: str, num_bins: int = 15) -> "Evaluation":
    """Metrics of what :func:`predict_parts` returned."""
    from hydra_core.evaluation import evaluate_predictions

    others = {name: value for name, value in predictions.items() if name != ID}
    return evaluate_predictions(predictions[ID], others, score=score, num_bins=num_bins)


def walk(
    study: Study,
    selection: Selection,
    *,
    num_bins: int = 15,
    with_weights: bool = True,
    progress: Progress | None = None,
) -> Walked:
    """Walk the whole path and save each step in `study`, a new one.

    Args:
        study: its configuration says backbone, data and seed (see :func:`with_selection`).
        selection: how heads are chosen.
        num_bins: bins of the calibration errors.
        with_weights: store the fused ensemble too; without it, the masks rebuild it.
        progress: see :mod:`hydra_core.jobs`; where it raises, the study is left half-filled: give one that the
            caller throws away (see :meth:`hydra_core.study.Study.build`).
    """
    from hydra_core.fusion import fuse
    from hydra_core.pruning import prune
    from hydra_core.scoring import score_heads

    config = study.config
    check_selection(config, selection)
    stages = Stages(progress, 5)
    stages.next(f"loading {config.backbone} and its data")
    backbone = load_study_backbone(config)
    data = load_study_data(config, backbone.class_names, selection.validation_limit)
    scores = score_heads(
        backbone,
        data.known.validation,
        method="taylor",
        batch_size=selection.batch_size,
        progress=stages.next("Taylor scores"),
    )
    study.save_scores("taylor", scores)
    masks = choose_masks(
        backbone,
        data,
        selection,
        seed=config.seed,
        found=study.save_circuit,
        progress=stages.next(f"members ({selection.strategy})"),
    )
    note = selection_note(f"{selection.strategy}, seed {config.seed}", selection.select_ood)
    for name in (CURRENT_MASKS, FUSED, selection.strategy):
        study.save_masks(name, masks, backbone.fingerprint, note)
    fused = fuse([prune(backbone, mask) for mask in masks])
    if with_weights:
        study.save_ensemble(FUSED, fused)
    evaluations = {}
    for name, model in ((FULL, backbone), (FUSED, fused)):
        predictions = predict_parts(model, data, stages.next(f"predicting with the {name} model"))
        for part, values in predictions.items():
            study.save_predictions(name, part, values)
        evaluations[name] = evaluate_parts(predictions, selection.score, num_bins)
        study.save_evaluation(name, evaluations[name])
    return Walked(backbone, masks, fused, evaluations)
