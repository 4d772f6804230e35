"""Do methods, objectives and samples agree on the heads? Rank correlation, overlap, and stability under resampling."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydra_core import artefacts
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report
from hydra_core.masks import HeadMask, mean_overlap

if TYPE_CHECKING:
    from hydra_core.data.dataset import Dataset

Table = NDArray[np.float64]


def rank_correlation(rankings: Mapping[str, Table], *, within_layers: bool = False) -> Table:
    """Spearman's rank correlation of every two rankings, over the heads that both have.

    Args:
        rankings: importance (L, max heads) by name, NaN where there is no head.
        within_layers: compare places within each head's layer (0 to 1) in place of values, for rankings whose values
            differ from layer to layer by what they are (`HeadScores.within_layers`).

    Returns:
        (n, n) in the mapping's order, from -1 to 1; NaN where one of the two is constant.

    Raises:
        HydraError: tables of different shapes: rankings of different backbones.
    """
    from scipy.stats import spearmanr

    tables = list(rankings.values())
    shapes = {table.shape for table in tables}
    if len(shapes) > 1:
        raise HydraError(f"the rankings are of different backbones: their tables have the shapes {sorted(shapes)}")
    if within_layers:
        tables = [_places(table) for table in tables]
    found = np.eye(len(tables))
    for i in range(len(tables)):
        for j in range(i):
            both = np.isfinite(tables[i]) & np.isfinite(tables[j])
            a, b = tables[i][both], tables[j][both]
            # a constant column has no ranks to correlate, and SciPy would warn
            constant = len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0
            found[i, j] = found[j, i] = np.nan if constant else float(spearmanr(a, b).statistic)
    return found


def _places(table: Table) -> Table:
    """Each value's rank within its row, 0 (lowest) to 1; ties share their mean."""
    from scipy.stats import rankdata

    ranks = rankdata(table, axis=1, nan_policy="omit") - 1
    last = np.maximum(np.isfinite(table).sum(axis=1, keepdims=True) - 1, 1)
    places: Table = ranks / last
    return places


def overlaps(masks: Mapping[str, HeadMask]) -> Table:
    """Jaccard overlap of every two masks' kept heads, (n, n) in the mapping's order, 0 to 1."""
    chosen = list(masks.values())
    return np.array([[a.jaccard(b) for b in chosen] for a in chosen])


@dataclass(frozen=True)
class Stability:
    """How often resampled data choose each head.

    Attributes:
        frequency: (L, max heads) share of resamples, 0 to 1; None where a layer has no such head.
        num_resamples, num_samples: resamples drawn, and samples in each.
        mean_overlap: mean Jaccard overlap of two resamples' choices; 1: they never differ.
        made_for: `Circuit.digest` of the circuit whose search was repeated; None where that is not known.
    """

    frequency: list[list[float | None]]
    num_resamples: int
    num_samples: int
    mean_overlap: float
    seed: int
    made_for: str | None = None

    @property
    def values(self) -> Table:
        """`frequency` as an array with NaN."""
        return np.array([[np.nan if v is None else v for v in row] for row in self.frequency], dtype=np.float64)

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return artefacts.to_text("hydra-stability", asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Stability":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(text, "hydra-stability", "a stability table", lambda data: cls(**data))


def stability(
    choose: "Callable[[Dataset, Dataset | None, Progress | None], HeadMask]",
    dataset: "Dataset",
    ood: "Dataset | None" = None,
    *,
    num_resamples: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> Stability:
    """Choose heads again on bootstrap samples of the data (Efron, 1979).

    Args:
        choose: ``choose(dataset, ood, progress)`` gives the mask, e.g. ``find_circuit(...).keep``.
        dataset, ood: resampled with replacement to their own size.
        num_resamples: at least 2.
        seed: of the resamples.
        progress: `done` counts thousandths of all resamples.
    """
    if isinstance(num_resamples, bool) or not isinstance(num_resamples, int) or num_resamples < 2:
        raise HydraError(f"num_resamples must be a whole number of at least 2, got {num_resamples!r}")
    rng = np.random.default_rng(seed)
    masks: list[HeadMask] = []

    def step(done: int, total: int, note: str) -> None:
        share = (len(masks) + done / max(total, 1)) / num_resamples
        report(progress, min(999, int(1000 * share)), 1000, f"resample {len(masks) + 1} of {num_resamples}: {note}")

    def resampled(data: "Dataset") -> "Dataset":
        return data.subset(rng.integers(0, len(data), len(data)))

    for _ in range(num_resamples):
        masks.append(choose(resampled(dataset), None if ood is None else resampled(ood), step))
    widths = masks[0].widths
    frequency: list[list[float | None]] = [
        [float(np.mean([mask.keep[layer][head] for mask in masks])) if head < width else None
         for head in range(max(widths))]
        for layer, width in enumerate(widths)
    ]  # fmt: skip
    report(progress, 1000, 1000, "stability is measured")
    overlap = mean_overlap(masks)
    return Stability(frequency, num_resamples, len(dataset), 1.0 if overlap is None else overlap, seed)
