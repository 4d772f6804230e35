"""Strategies that make M different head masks for the members of an ensemble."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import comb, prod

import numpy as np

from hydra_core.backbones.base import Backbone
from hydra_core.batching import check_kind, required_labels
from hydra_core.checks import instance, share, whole_number
from hydra_core.data.dataset import Dataset, named_sets
from hydra_core.errors import HydraError
from hydra_core.greedy import GOALS, greedy_members
from hydra_core.jobs import Progress, report
from hydra_core.masks import HeadMask
from hydra_core.prediction import predict
from hydra_core.pruning import prune
from hydra_core.scoring import find_circuit, score_heads
from hydra_core.scoring.headmap import check_heads_per_layer

STRATEGIES = ("circuit", "taylor", "random", "greedy")
MAX_MEMBERS = 32
# Shards and draws that are tried before a strategy gives up on finding another mask that fits.
MAX_TRIES = 64


def make_members(
    backbone: Backbone,
    dataset: Dataset,
    *,
    ood: Dataset | Mapping[str, Dataset] | None = None,
    num_members: int = 3,
    strategy: str,
    heads_per_layer: int | Sequence[int],
    max_overlap: float | None = None,
    goal: str = "nll",
    score: str = "msp",
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[HeadMask]:
    """Make `num_members` different masks.

    Args:
        backbone: read only.
        dataset: validation data; the test data must be others.
        ood: OOD validation data for `circuit`: one set, or several by name.
        num_members: M, 1 to 32.
        strategy: `circuit` (HeadMap circuits; members differ by objective and OOD set: loss, then ood_auroc and
            average for each OOD set, then the same on shards of the data), `taylor` (Taylor scores on shards of the
            data), `random` (drawn with `seed`), `greedy` (those of a pool of such circuits and Taylor masks whose
            ensemble is best on the same data, see :func:`hydra_core.greedy.greedy_members`).
        heads_per_layer: heads each member keeps in each layer: one number, or one a layer.
        max_overlap: largest Jaccard overlap allowed between two members' kept heads; None: they must only differ.
        goal: what `greedy` makes best: `nll` of the ensemble, or `ood_auroc`, the mean over the OOD sets.
        score: OOD score of the circuits' objectives and of `ood_auroc`.
        batch_size: see :func:`hydra_core.find_circuit`.
        seed: of shards and draws.
        progress: `done` counts thousandths of all members.

    Raises:
        HydraError: an unknown strategy, or so many different masks cannot be had (the reason is named).
    """
    if strategy not in STRATEGIES:
        raise HydraError(f"the strategy {strategy!r} is not known; expected one of {', '.join(STRATEGIES)}")
    instance("backbone", backbone, Backbone, "hydra.load_backbone")
    whole_number("num_members", num_members, 1, MAX_MEMBERS)
    whole_number("seed", seed, 0)
    others = named_sets(ood)
    counts = check_heads_per_layer(heads_per_layer, backbone)
    possible = prod(comb(have, keep) for have, keep in zip(backbone.num_heads, counts, strict=True))
    if possible < num_members:
        raise HydraError(
            f"{num_members} different members cannot be made: keeping {counts} of {backbone.num_heads} heads a layer "
            f"allows {possible} mask{'s' if possible != 1 else ''}; change heads_per_layer or num_members"
        )
    if max_overlap is not None:
        share("max_overlap", max_overlap, "a Jaccard overlap from 0 to 1")
        least = _least_overlap(backbone.num_heads, counts)
        # Before a search that takes long; the others find out at once, and say how near they came.
        if strategy in ("circuit", "greedy") and num_members > 1 and max_overlap < least:
            raise HydraError(
                f"keeping {counts} of {backbone.num_heads} heads a layer, two members overlap by at least {least:.2f} "
                f"(Jaccard), and max_overlap is {max_overlap:g}; raise it, or keep fewer heads"
            )
    if goal not in GOALS:
        raise HydraError(f"the goal {goal!r} is not known; expected one of {', '.join(GOALS)}")
    if strategy == "greedy":
        check_kind(backbone, dataset)
        if goal == "ood_auroc" and not others:
            raise HydraError("goal='ood_auroc' needs OOD validation data to choose with; give ood, or take goal='nll'")
        pool = _pool(backbone, dataset, others, counts, num_members, score, batch_size, seed, progress)
        return _best_of(pool, backbone, dataset, others, num_members, max_overlap, goal, score, batch_size, progress)
    members: list[HeadMask] = []

    def step(done: int, total: int, note: str) -> None:
        share = (len(members) + done / max(total, 1)) / num_members
        report(progress, min(999, int(1000 * share)), 1000, f"member {len(members) + 1} of {num_members}: {note}")

    candidates: Iterator[HeadMask]
    if strategy == "random":
        candidates = _random(backbone, counts, seed)
    elif strategy == "taylor":
        check_kind(backbone, dataset)
        candidates = _taylor(backbone, dataset, counts, num_members, batch_size, seed, step)
    else:
        check_kind(backbone, dataset)
        candidates = _circuits(backbone, dataset, others, counts, score, batch_size, seed, step)
    closest = None
    for mask in candidates:
        overlaps = [mask.jaccard(other) for other in members]
        if mask in members or (max_overlap is not None and overlaps and max(overlaps) > max_overlap):
            worst = max(overlaps, default=0.0)
            closest = worst if closest is None else min(closest, worst)
            continue
        members.append(mask)
        if len(members) == num_members:
            report(progress, 1000, 1000, "members are ready")
            return members
    raise HydraError(_why(strategy, len(members), num_members, max_overlap, closest))


def _least_overlap(have: Sequence[int], keep: Sequence[int]) -> float:
    """The smallest Jaccard overlap of two masks that keep so many heads of each layer: the fewest shared, over all."""
    shared = sum(max(0, 2 * k - n) for n, k in zip(have, keep, strict=True))
    union = 2 * sum(keep) - shared
    return shared / union if union else 1.0


def _pool(
    backbone: Backbone,
    dataset: Dataset,
    ood: Mapping[str, Dataset],
    counts: Sequence[int],
    members: int,
    score: str,
    batch_size: int | None,
    seed: int,
    progress: Progress | None,
) -> list[HeadMask]:
    """Different candidates: every objective's circuit on the whole data and on two shards, Taylor on shards."""
    circuits, taylors = 3 * (1 + 2 * len(ood)), members + 1
    pool: list[HeadMask] = []
    made = 0

    def step(done: int, total: int, note: str) -> None:
        share = (made + done / max(total, 1)) / (circuits + taylors)
        report(progress, min(899, int(900 * share)), 1000, f"candidate {made + 1} of {circuits + taylors}: {note}")

    searched = _circuits(backbone, dataset, ood, counts, score, batch_size, seed, step)
    ranked = _taylor(backbone, dataset, counts, taylors, batch_size, seed, step)
    for source, wanted in ((searched, circuits), (ranked, taylors)):
        for mask in islice(source, wanted):
            made += 1
            if mask not in pool:
                pool.append(mask)
    return pool


def _best_of(
    pool: Sequence[HeadMask],
    backbone: Backbone,
    dataset: Dataset,
    ood: Mapping[str, Dataset],
    num_members: int,
    max_overlap: float | None,
    goal: str,
    score: str,
    batch_size: int | None,
    progress: Progress | None,
) -> list[HeadMask]:
    """The greedy choice from `pool`, each candidate run once on all data."""
    known, others = [], [list[np.ndarray]() for _ in ood]
    for i, mask in enumerate(pool):
        report(progress, 900 + int(99 * i / len(pool)), 1000, f"running candidate {i + 1} of {len(pool)}")
        pruned = prune(backbone, mask)
        known.append(predict(pruned, dataset, batch_size=batch_size).logits[0])
        for rows, data in zip(others, ood.values(), strict=True):
            rows.append(predict(pruned, data, batch_size=batch_size).logits[0])

    def allowed(taken: Sequence[int], candidate: int) -> bool:
        return max_overlap is None or all(pool[candidate].jaccard(pool[i]) <= max_overlap for i in taken)

    try:
        chosen = greedy_members(
            np.stack(known), required_labels(backbone, dataset, "choosing members"), num_members=num_members, goal=goal,
            ood_logits=[np.stack(rows) for rows in others], score=score, allowed=allowed,
        )  # fmt: skip
    except HydraError as error:
        raise HydraError(f"{error}. Raise max_overlap, keep fewer heads, or ask for fewer members") from None
    report(progress, 1000, 1000, "members are ready")
    return [pool[i] for i in chosen]


def _why(strategy: str, found: int, wanted: int, max_overlap: float | None, closest: float | None) -> str:
    limit = "" if max_overlap is None else f" with an overlap of at most {max_overlap:g}"
    nearest = "" if closest is None else f"; the next best mask overlaps by {closest:.2f} (Jaccard)"
    return (
        f"the strategy {strategy!r} found {found} different member{'s' if found != 1 else ''} of {wanted}{limit}"
        f"{nearest}. Raise max_overlap, keep fewer heads, ask for fewer members, or give more data or OOD sets"
    )


def _random(backbone: Backbone, counts: Sequence[int], seed: int) -> Iterator[HeadMask]:
    rng = np.random.default_rng(seed)
    for _ in range(MAX_TRIES * MAX_MEMBERS):
        rows = []
        for layer, count in enumerate(counts):
            chosen = rng.choice(backbone.mask.kept_in(layer), size=count, replace=False).tolist() if count else []
            rows.append([j in chosen for j in range(backbone.mask.widths[layer])])
        yield HeadMask(rows)


def _shards(dataset: Dataset, parts: int, seed: int) -> Iterator[Dataset]:
    """Disjoint stratified shards; then, with new seeds, halves, so that there is always another one to try."""
    rest = dataset
    for left in range(parts, 1, -1):
        if len(rest) < 2 * left:
            break
        shard, rest = rest.split(1.0 / left, seed=seed)
        yield shard
    yield rest
    for draw in range(1, MAX_TRIES):
        if len(dataset) < 4:
            return
        yield dataset.split(0.5, seed=seed + draw)[0]


def keep_highest(values: np.ndarray, counts: Sequence[int], backbone: Backbone) -> HeadMask:
    """The mask that keeps each layer's highest-scored heads; equal scores keep the lower head index.

    Args:
        values: (L, max heads), NaN where there is no head.
        counts: heads to keep in each layer.
        backbone: gives the layers' original widths.
    """
    rows = []
    for layer, (width, count) in enumerate(zip(backbone.mask.widths, counts, strict=True)):
        scores = values[layer, :width]
        order = np.lexsort((np.arange(width), -scores))  # NaN sorts last
        kept = set(order[:count].tolist())
        rows.append([j in kept for j in range(width)])
    return HeadMask(rows)


def _taylor(
    backbone: Backbone,
    dataset: Dataset,
    counts: Sequence[int],
    members: int,
    batch_size: int | None,
    seed: int,
    progress: Progress,
) -> Iterator[HeadMask]:
    for shard in _shards(dataset, members, seed):
        scores = score_heads(backbone, shard, method="taylor", batch_size=batch_size, progress=progress)
        yield keep_highest(scores.values, counts, backbone)


def _circuits(
    backbone: Backbone,
    dataset: Dataset,
    ood: Mapping[str, Dataset],
    counts: Sequence[int],
    score: str,
    batch_size: int | None,
    seed: int,
    progress: Progress,
) -> Iterator[HeadMask]:
    def search(data: Dataset, others: Mapping[str, Dataset]) -> Iterator[HeadMask]:
        goals: list[tuple[str, Dataset | None]] = [("loss", None)]
        for name in others:
            goals += [("ood_auroc", others[name]), ("average", others[name])]
        for objective, other in goals:
            yield find_circuit(
                backbone, data, ood=other, objective=objective, heads_per_layer=counts, score=score,
                batch_size=batch_size, progress=progress,
            ).keep  # fmt: skip

    # A generator: each search runs only when its turn comes.
    yield from search(dataset, ood)
    others = {name: _shards(data, 2, seed) for name, data in ood.items()}
    for shard in _shards(dataset, 2, seed):
        parts = {name: part for name, parts in others.items() if (part := next(parts, None)) is not None}
        yield from search(shard, parts)
