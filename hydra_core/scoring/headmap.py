"""HeadMap: layer-conditioned search for a circuit of heads.

Wang et al., "HeadMap: Locating and Enhancing Knowledge Circuits in LLMs", ICLR 2025, Algorithm 1, with the objectives
of Hydra Ensembles (arXiv 2510.18358). For each layer in turn, with the heads chosen in the layers before masked out,
every head is masked, the objective is measured over the whole data set, and the n heads whose masking hurts most are
chosen. The chosen heads are the circuit: a member keeps them and loses the rest.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hydra_core.backbones.base import Backbone
from hydra_core.batching import check_batch_size, check_kind, required_labels
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress
from hydra_core.masks import HeadMask
from hydra_core.scoring.objective import Objective
from hydra_core.scoring.race import race_ends, race_layer
from hydra_core.scoring.results import Circuit
from hydra_core.scoring.sweep import STATE_BYTES, Sweep

SEARCHES = ("exact", "race")
LayerDone = Callable[[int, list[int], np.ndarray], None]


def find_circuit(
    backbone: Backbone,
    dataset: Dataset,
    *,
    ood: Dataset | Mapping[str, Dataset] | None = None,
    objective: str = "loss",
    heads_per_layer: int | Sequence[int],
    score: str = "msp",
    batch_size: int | None = None,
    progress: Progress | None = None,
    search: str = "exact",
    confidence: float = 0.9,
    tolerance: float = 0.25,
    seed: int = 0,
    state_bytes: int = STATE_BYTES,
    layer_done: LayerDone | None = None,
) -> Circuit:
    """Find a circuit (HeadMap, Algorithm 1).

    Args:
        backbone: read only.
        dataset: validation data; labels are needed for `loss` and `average`.
        ood: OOD validation data, for `ood_auroc` and `average`.
        objective: `loss` (masking hurts by raising it), `ood_auroc` (by lowering it), or `average` (in each layer
            the mean of min-max(loss) and min-max(1 - AUROC) over its heads; a constant column counts 0).
        heads_per_layer: heads to choose in each layer: one number, or one a layer.
        score: OOD score: msp, max_logit, energy or entropy.
        batch_size: the result does not depend on it beyond rounding.
        progress: called after each batch of each layer.
        search: `exact`, or `race`: measure a head on more samples only while its place is in doubt (see
            :mod:`hydra_core.scoring.race`). A race's values rest on the samples in `Circuit.measured`.
        confidence: of a race: how sure a layer's early decisions together must be, 0.5 to 1 (excluded).
        tolerance: of a race: how much less a chosen head's masking may hurt than that of a head left out, as a share
            (0 to 1) of the spread of the objective over the layer's heads. 0 asks for the exact search's heads and
            measures most samples.
        seed: of a race: the order in which samples are seen.
        state_bytes: memory for hidden states kept between layers; past it they are computed again.
        layer_done: called with each layer's index, its chosen heads (most harmful
            to mask first in an exact search) and its row of `Circuit.values` when it is done.

    Returns:
        The circuit; equal values choose the lower head index first.

    Raises:
        HydraError: an objective that needs OOD data or labels that are not there, a number of heads that a layer
            does not have, data of another kind or with unknown classes.
    """
    ood_name = next(iter(ood), None) if isinstance(ood, Mapping) else None if ood is None else ood.name
    ood = one_ood_set(ood)
    check_backbone(backbone)
    goal = Objective.check(objective, score, ood is not None)
    counts = check_heads_per_layer(heads_per_layer, backbone)
    labels = check_data(backbone, dataset, ood, goal)
    if search not in SEARCHES:
        raise HydraError(f"the search {search!r} is not known; expected one of {', '.join(SEARCHES)}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise HydraError(f"seed must be a whole number of at least 0, got {seed!r}")
    if not isinstance(confidence, int | float) or not 0.5 <= confidence < 1:
        raise HydraError(f"confidence must be at least 0.5 and below 1, got {confidence!r}")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance <= 1:
        raise HydraError(f"tolerance must be from 0 to 1, a share of the layer's spread, got {tolerance!r}")
    used = ood if goal.needs_ood else None
    ends = race_ends(len(dataset), 0 if used is None else len(used)) if search == "race" else None
    sweep = Sweep(
        backbone, dataset, labels, used, goal, batch_size=check_batch_size(batch_size, backbone), progress=progress,
        state_bytes=state_bytes, stage_ends=ends, seed=seed,
    )  # fmt: skip
    rows, chosen, baseline = [], [], None
    measured = None if ends is None else np.zeros((backbone.num_layers, backbone.max_heads), dtype=np.int64)
    for layer, count in enumerate(counts):
        stages = None
        if ends is None or measured is None:
            values = sweep.measure(layer)
            heads = most_harmful(goal.harm(values), count)
        else:
            heads, values, measured[layer], stages = _race(sweep, layer, count, ends, confidence, tolerance)
        if layer == 0:
            baseline = sweep.measure_baseline(stages)
        rows.append(values)
        chosen.append(heads)
        sweep.choose(layer, heads)
        if layer_done is not None:
            layer_done(layer, heads, values)
    keep = HeadMask(
        [[j in heads for j in range(width)] for heads, width in zip(chosen, backbone.mask.widths, strict=True)]
    )
    return Circuit(
        keep, np.array(rows), objective, counts, sweep.counted, backbone.fingerprint, dataset.fingerprint,
        ood_fingerprint=None if used is None else used.fingerprint, num_ood=0 if used is None else len(used),
        score=score if goal.needs_ood else None, baseline=baseline, search=search, measured=measured,
        source_fingerprint=dataset.source_fingerprint, ood_name=None if used is None else ood_name,
    )  # fmt: skip


def _race(
    sweep: Sweep, layer: int, count: int, ends: Sequence[tuple[int, int]], confidence: float, tolerance: float
) -> tuple[list[int], np.ndarray, np.ndarray, int]:
    """One layer's race: the heads chosen, (max heads,) values and numbers of ID samples behind them, stages run."""
    heads = list(sweep.heads_of(layer))
    values, numbers = np.full(sweep.backbone.max_heads, np.nan), np.zeros(sweep.backbone.max_heads, dtype=np.int64)
    if not heads:
        return [], values, numbers, 1

    def measure(stage: int, wanted: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return list(zip(*sweep.measure_stage(layer, wanted, stage), strict=True))

    raced = race_layer(heads, count, sweep.objective, measure, ends, confidence, tolerance)
    values[heads], numbers[heads] = raced.values, raced.num_samples
    return raced.chosen, values, numbers, raced.num_stages


def most_harmful(harm: np.ndarray, count: int) -> list[int]:
    """Indices of the `count` largest values, equal ones by lower index first; NaN is no head."""
    order = np.lexsort((np.arange(len(harm)), -harm))  # NaN sorts last
    return [int(i) for i in order[:count]]


def one_ood_set(ood: Dataset | Mapping[str, Dataset] | None) -> Dataset | None:
    """The one OOD set a search works with; HydraError for several."""
    if not isinstance(ood, Mapping):
        return ood
    if len(ood) > 1:
        raise HydraError(f"one search works with one OOD set, got {len(ood)} ({', '.join(ood)}); choose one")
    return next(iter(ood.values()), None)


def check_data(backbone: Backbone, dataset: Dataset, ood: Dataset | None, goal: Objective) -> np.ndarray | None:
    """Check kinds, and return the labels where the objective needs them."""
    check_kind(backbone, dataset)
    if ood is not None and goal.needs_ood:
        check_kind(backbone, ood, "the OOD data")
    return required_labels(backbone, dataset, f"the objective {goal.name!r}") if goal.needs_loss else None


def check_backbone(model: object) -> None:
    """HydraError where heads of something else than a Backbone are to be scored."""
    if not isinstance(model, Backbone):
        raise HydraError(
            f"heads are scored of one backbone (hydra.load_backbone or hydra.prune), got a {type(model).__name__}"
        )


def check_heads_per_layer(heads_per_layer: int | Sequence[int] | None, backbone: Backbone) -> tuple[int, ...]:
    """One count a layer, each between 0 and the heads the layer has."""
    if heads_per_layer is None:
        raise HydraError("heads_per_layer is needed: how many heads of each layer a member keeps")
    given = [heads_per_layer] if not isinstance(heads_per_layer, Sequence) else list(heads_per_layer)
    if isinstance(heads_per_layer, str) or not all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) for n in given
    ):
        raise HydraError(f"heads_per_layer must be a whole number or one a layer, got {heads_per_layer!r}")
    counts = (
        tuple(int(n) for n in heads_per_layer)
        if isinstance(heads_per_layer, Sequence)
        else (int(heads_per_layer),) * backbone.num_layers
    )
    if len(counts) != backbone.num_layers:
        raise HydraError(f"heads_per_layer has {len(counts)} numbers, the backbone has {backbone.num_layers} layers")
    for layer, (count, available) in enumerate(zip(counts, backbone.num_heads, strict=True)):
        if not 0 <= count <= available:
            raise HydraError(
                f"heads_per_layer asks for {count} heads in layer {layer}; it has {available}: choose 0 to {available}"
            )
    return counts
