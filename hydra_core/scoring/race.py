"""HeadMap as a race: a head is measured on few samples first, on more only while its place is in doubt.

Racing: Maron and Moore, "Hoeffding Races", NIPS 1993. A layer's n heads are chosen among its candidates. After each
stage they are split into the n that are worst to mask as measured so far and the rest; one of the n is taken once a
confidence bound says that no head of the rest is worse to mask by more than a tolerance, and one of the rest is
dropped once none of the n is less bad to mask by more than that (the indifference zone of Kalyanakrishnan et al.,
"PAC Subset Selection in Stochastic Multi-armed Bandits", ICML 2012; tolerance 0: the exact search's own heads). The
bound is the normal one on the mean of paired differences between two candidates over the same samples, with the
finite-population correction (a stage draws without replacement from the data set, whose own value the exact search
would find) and Bonferroni's correction over the layer's pairs and stages.
For an AUROC a sample's part is its placement value (DeLong et al., 1988); `average` takes each layer's present ranges
of loss and AUROC as fixed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from hydra_core.scoring.objective import Floats, Objective, auroc, mean_losses

FIRST_STAGE, GROWTH = 64, 1.5  # samples of the first stage; how much each stage grows the samples seen
LEAST = 16  # samples of either set in the first stage, where it has as many


def race_ends(num_id: int, num_ood: int) -> list[tuple[int, int]]:
    """ID and OOD samples seen after each stage: from ``FIRST_STAGE`` of the larger set on, growing to all of both."""
    largest = max(num_id, num_ood)
    count = 1 + max(0, int(np.log(max(1.0, largest / FIRST_STAGE)) / np.log(GROWTH)))
    shares = [GROWTH ** (stage + 1 - count) for stage in range(count)]

    def seen(share: float, size: int) -> int:
        return min(size, max(LEAST, round(share * size)))  # of a small set a few at once, never none

    return [(seen(share, num_id), seen(share, num_ood)) for share in shares]


def placements(id_scores: Floats, ood_scores: Floats) -> tuple[Floats, Floats]:
    """Each sample's part in the AUROC (OOD positive), whose mean over either set is the AUROC.

    Args:
        id_scores: (N,), ood_scores: (N',); higher = more OOD. Ties count a half.

    Returns:
        For each ID sample the share of OOD scores above it; for each OOD sample the share of ID scores below it.
    """

    def share_below(values: Floats, others: Floats) -> Floats:
        ordered = np.sort(others[np.isfinite(others)])
        both = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
        return np.where(np.isfinite(values), both / (2.0 * max(1, len(ordered))), np.nan)

    return 1.0 - share_below(id_scores, ood_scores), share_below(ood_scores, id_scores)


@dataclass
class Candidate:
    """One head in the race: losses (n,) and scores (n,), (n',) of the samples it was measured on, in their order."""

    head: int
    losses: Floats = field(default_factory=lambda: np.zeros(0))
    id_scores: Floats = field(default_factory=lambda: np.zeros(0))
    ood_scores: Floats = field(default_factory=lambda: np.zeros(0))

    def extend(self, losses: Floats, id_scores: Floats, ood_scores: Floats) -> None:
        """Add another stage's samples."""
        self.losses = np.concatenate([self.losses, losses])
        self.id_scores = np.concatenate([self.id_scores, id_scores])
        self.ood_scores = np.concatenate([self.ood_scores, ood_scores])


@dataclass(frozen=True)
class LayerRace:
    """How one layer's race ended.

    Attributes:
        chosen: the heads, ascending.
        values: the objective with each candidate masked, on the samples that it was measured on.
        num_samples: ID samples that each candidate was measured on.
        num_stages: stages that were run.
    """

    chosen: list[int]
    values: Floats
    num_samples: NDArray[np.int64]
    num_stages: int


Measure = Callable[[int, Sequence[int]], Sequence[tuple[Floats, Floats, Floats]]]


def race_layer(
    heads: Sequence[int],
    count: int,
    objective: Objective,
    measure: Measure,
    sizes: Sequence[tuple[int, int]],
    confidence: float,
    tolerance: float = 0.0,
) -> LayerRace:
    """Race one layer's heads.

    Args:
        heads: the candidates, by their original indices.
        count: how many of them to choose.
        objective: what is measured.
        measure: ``measure(stage, heads)`` gives for each of these heads its losses, ID and OOD scores on that stage.
        sizes: ID and OOD samples seen after each stage; after the last, all of them.
        confidence: that no decision of this layer before its last stage is worse than the tolerance allows, 0 to 1.
        tolerance: by how much a head that was taken may be less harmful to mask than one that was left, as a share
            of the spread (largest less smallest, as measured so far) of the harm over the layer's heads.
    """
    runners = [Candidate(head) for head in heads]
    running, chosen = list(runners), list[int]()
    decisions = max(1, len(heads) * (len(heads) - 1) // 2 * (len(sizes) - 1))
    # One-sided: of a pair, only one head can be left out wrongly.
    bound = float(norm.ppf(1 - (1 - confidence) / decisions))
    values, stage = np.full(len(heads), np.nan), 0
    for stage, size in enumerate(sizes):
        for runner, parts in zip(running, measure(stage, [r.head for r in running]), strict=True):
            runner.extend(*parts)
        values, parts_of = _harms(objective, runners)
        harm = dict(zip(heads, objective.harm(values), strict=True))
        left = count - len(chosen)
        running.sort(key=lambda r: (-harm[r.head], r.head))
        inside, outside = running[:left], running[left:]
        if stage == len(sizes) - 1:  # everything was seen: what is still open is decided by value, as exactly
            chosen += [r.head for r in inside]
            break
        zone = tolerance * _spread(np.array(list(harm.values())))
        sure = _not_better(
            [parts_of(r) for r in inside], [parts_of(r) for r in outside], size, sizes[-1], bound, zone
        )  # fmt: skip
        taken, dropped = [bool(row.all()) for row in sure], [bool(column.all()) for column in sure.T]
        chosen += [r.head for r, yes in zip(inside, taken, strict=True) if yes]
        if len(chosen) == count or all(dropped):
            chosen += [r.head for r, yes in zip(inside, taken, strict=True) if not yes]
            break
        running = [r for r, gone in zip(running, [*taken, *dropped], strict=True) if not gone]
    numbers = np.array([max(len(r.losses), len(r.id_scores)) for r in runners])
    return LayerRace(sorted(chosen), values, numbers, stage + 1)


Parts = tuple[Floats, Floats]


def _harms(objective: Objective, runners: Sequence[Candidate]) -> tuple[Floats, Callable[[Candidate], Parts]]:
    """The objective of each candidate (K,), and a function from a candidate to its samples' parts in its harm.

    The mean of the parts over the ID samples is the harm (up to a constant); the parts of the OOD samples vary around
    the same AUROC and add to the variance alone.
    """
    losses = mean_losses_of(runners) if objective.needs_loss else np.zeros(len(runners))
    aurocs = losses
    if objective.needs_ood:
        aurocs = np.array([auroc(r.id_scores, r.ood_scores) for r in runners])
    scales = {"loss": (1.0, 0.0), "ood_auroc": (0.0, 1.0), "average": (_scale(losses) / 2, _scale(aurocs) / 2)}
    of_loss, of_auroc = scales[objective.name]

    def parts(runner: Candidate) -> Parts:
        id_part, ood_part = np.zeros(max(len(runner.losses), len(runner.id_scores))), np.zeros(0)
        if objective.needs_loss:
            id_part = id_part + of_loss * runner.losses
        if objective.needs_ood:
            above, below = placements(runner.id_scores, runner.ood_scores)
            id_part, ood_part = id_part - of_auroc * above, -of_auroc * below
        return id_part, ood_part

    return objective.combined(losses, aurocs), parts


def mean_losses_of(runners: Sequence[Candidate]) -> Floats:
    """Each candidate's mean loss over its own samples, (K,)."""
    return np.concatenate([mean_losses(runner.losses[None]) for runner in runners])


def _scale(values: Floats) -> float:
    spread = _spread(values)
    return 0.0 if spread == 0 else 1.0 / spread


def _spread(values: Floats) -> float:
    """Largest less smallest finite value; 0 where there is none."""
    finite = values[np.isfinite(values)]
    return float(finite.max() - finite.min()) if len(finite) else 0.0


def _not_better(
    inside: Sequence[Parts],
    outside: Sequence[Parts],
    seen: tuple[int, int],
    whole: tuple[int, int],
    bound: float,
    zone: float,
) -> NDArray[np.bool_]:
    """(inside, outside): whether, beyond the bound, masking the one inside is at most `zone` less harmful."""
    sure = np.zeros((len(inside), len(outside)), dtype=bool)
    for i, j in np.ndindex(sure.shape):
        means, variance = [0.0, 0.0], 0.0
        for side in (0, 1):
            paired = inside[i][side] - outside[j][side]
            paired = paired[np.isfinite(paired)]
            if len(paired) > 1:
                means[side] = float(paired.mean())
                variance += float(paired.var(ddof=1)) / len(paired) * (1 - seen[side] / whole[side])
        sure[i, j] = means[0] + zone > bound * variance**0.5
    return sure
