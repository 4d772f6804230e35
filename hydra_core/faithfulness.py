"""Does a ranking of heads find those that carry the task? Metrics against the heads kept, and against those removed.

Faithfulness: keep each layer's k highest-ranked heads alone; a good ranking keeps the model's behaviour with few heads.
Necessity: remove those k instead; a good ranking then loses it soon. k is the same in each layer, because members of a
Hydra Ensemble keep a number of heads in each layer. Faithfulness is a term of circuit analysis (Wang et al.,
"Interpretability in the Wild", arXiv 2211.00593).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydra_core import artefacts
from hydra_core.errors import HydraError
from hydra_core.evaluation import check_classes, evaluate_predictions
from hydra_core.jobs import Progress, report
from hydra_core.masks import HeadMask
from hydra_core.prediction import predict
from hydra_core.scoring.results import Circuit, HeadScores, check_belongs

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset

KEEP, REMOVE = "keep", "remove"
Ranking = NDArray[np.float64]
Curve = list[float | None]


@dataclass(frozen=True)
class Faithfulness:
    """Metrics along each ranking.

    Attributes:
        kept: heads kept in a layer at each point, 0 to H (a narrower layer keeps all it has).
        curves: ``curves[ranking][direction][metric]``, one value a point, where direction is ``keep`` (the k
            highest-ranked heads alone) or ``remove`` (all but those); None where a metric is undefined.
        num_samples, ood_counts: samples measured on.
        backbone_fingerprint, data_fingerprint: what it belongs to.
    """

    kept: list[int]
    curves: dict[str, dict[str, dict[str, Curve]]]
    num_samples: int
    ood_counts: dict[str, int]
    backbone_fingerprint: str
    data_fingerprint: str

    def area(self, ranking: str, direction: str, metric: str) -> float | None:
        """Area under a curve over the share of heads k / H, by trapezoids: the metric's mean along it.

        None where a value is undefined. For accuracy and AUROC: high under ``keep`` and low under ``remove`` is good.
        """
        values = self.curves[ranking][direction][metric]
        if any(value is None for value in values):
            return None
        return float(np.trapezoid(np.array(values, dtype=float), np.array(self.kept) / self.kept[-1]))

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return artefacts.to_text("hydra-faithfulness", asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Faithfulness":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(text, "hydra-faithfulness", "faithfulness curves", lambda data: cls(**data))


def ranking_of(source: "HeadScores | Circuit") -> Ranking:
    """Importance (L, max heads) that scores or a circuit give each head, higher = more important."""
    return -source.values if isinstance(source, Circuit) and source.objective == "ood_auroc" else source.values


def random_rankings(widths: Sequence[int], count: int, seed: int = 0) -> dict[str, Ranking]:
    """`count` random rankings, named ``random 0``, ``random 1`` ...; seeded."""
    if not widths:
        raise HydraError("random rankings need the heads of at least one layer, got none")
    rng = np.random.default_rng(seed)
    rows = (len(widths), max(widths))
    return {f"random {i}": rng.permuted(np.arange(float(np.prod(rows)))).reshape(rows) for i in range(count)}


def top_heads(ranking: Ranking, count: int, present: HeadMask) -> HeadMask:
    """The mask that keeps each layer's `count` highest-ranked heads; equal ones keep the lower index first.

    Args:
        ranking: (L, max heads), higher = more important; finite where `present` keeps.
        count: heads a layer; a layer with fewer keeps all it has.
        present: the heads there are, `Backbone.mask`.
    """
    keep = []
    for layer, row in enumerate(ranking):
        order = sorted(present.kept_in(layer), key=lambda head: (-row[head], head))[:count]
        keep.append([head in order for head in range(present.widths[layer])])
    return HeadMask(keep)


def faithfulness(
    backbone: "Backbone",
    dataset: "Dataset",
    rankings: Mapping[str, "Ranking | HeadScores | Circuit"],
    *,
    ood: "Mapping[str, Dataset] | None" = None,
    score: str = "msp",
    num_bins: int = 15,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Faithfulness:
    """Measure every ranking with k = 0 .. H heads kept, and removed, in each layer.

    Args:
        backbone: whole or pruned; read only.
        dataset: labelled data that no ranking was made on, else the curves flatter it.
        rankings: by name: scores, circuits, or importance (L, max heads).
        ood: OOD data by name; adds their metrics.
        score, num_bins: see :func:`hydra_core.evaluate`.
        batch_size: see :func:`hydra_core.predict`.
        progress: called after each mask.

    Raises:
        HydraError: no ranking, one of another backbone or shape, ID classes that the model does not know.
    """
    from hydra_core.pruning import prune

    check_classes(backbone, dataset)
    present = backbone.mask
    tables = {name: _checked(name, source, backbone) for name, source in rankings.items()}
    if not tables:
        raise HydraError("at least one ranking of the heads is needed: scores, a circuit, or random_rankings")
    kept = list(range(max(present.kept_per_layer) + 1))
    masks: dict[tuple[str, str, int], HeadMask] = {}
    for name, table in tables.items():
        for count in kept:
            top = top_heads(table, count, present)
            masks[name, KEEP, count], masks[name, REMOVE, count] = top, top.complement() & present
    wanted = list(dict.fromkeys(masks.values()))  # all rankings begin with the whole and end with nothing
    measured: dict[HeadMask, dict[str, float | None]] = {}
    known, counts = 0, dict[str, int]()
    for done, mask in enumerate(wanted):
        report(progress, done, len(wanted), f"{mask.num_kept} of {present.num_kept} heads kept")
        member = prune(backbone, mask)
        predictions = predict(member, dataset, batch_size=batch_size)
        others = {name: predict(member, other, batch_size=batch_size) for name, other in (ood or {}).items()}
        result = evaluate_predictions(predictions, others, score=score, num_bins=num_bins)
        measured[mask] = result.metrics
        if mask == present:
            known, counts = result.num_samples, result.ood_counts
    report(progress, len(wanted), len(wanted), "faithfulness is measured")
    curves: dict[str, dict[str, dict[str, Curve]]] = {}
    for name in tables:
        curves[name] = {
            direction: {
                metric: [measured[masks[name, direction, count]][metric] for count in kept]
                for metric in measured[wanted[0]]
            }
            for direction in (KEEP, REMOVE)
        }
    return Faithfulness(kept, curves, known, counts, backbone.fingerprint, dataset.fingerprint)


def _checked(name: str, source: "Ranking | HeadScores | Circuit", backbone: "Backbone") -> Ranking:
    if isinstance(source, HeadScores | Circuit):
        check_belongs(name, source, backbone.fingerprint)
        source = ranking_of(source)
    table = np.asarray(source, dtype=np.float64)
    expected = (backbone.num_layers, backbone.max_heads)
    if table.shape != expected:
        raise HydraError(f"the ranking {name!r} has shape {table.shape}, the backbone's heads need {expected}")
    if not all(np.isfinite(table[layer, head]) for layer, head in backbone.mask.kept):
        raise HydraError(f"the ranking {name!r} has no finite value for some heads; score them all")
    return table
