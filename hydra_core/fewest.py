"""The fewest heads that keep accuracy: backward elimination with the ranking made anew as heads go.

Recursive elimination (Guyon et al., "Gene selection for cancer classification using support vector machines", Machine
Learning 46, 2002, with heads for features). Cutting one head changes what the others are worth, so one ranking is not
enough; ranking anew after every cut would cost the square of the number of heads. Here a quarter of the heads that are
left goes between two rankings, and every single cut is checked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hydra_core.backbones.base import Backbone
from hydra_core.batching import check_kind, required_labels
from hydra_core.checks import instance, share, whole_number
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report
from hydra_core.masks import HeadMask
from hydra_core.metrics import accuracy, negative_log_likelihood, softmax
from hydra_core.quick_sample import QuickSample

SHARE_BETWEEN_RANKINGS = 0.25


@dataclass(frozen=True)
class FewestHeads:
    """What was found.

    Attributes:
        mask: the heads that are left; without any one more of them (that may go) accuracy falls below the floor.
        accuracy, full_accuracy: of that mask and of all heads, on the same samples, 0 to 1.
        num_samples: samples that counted.
        num_forwards: masks that were run.
    """

    mask: HeadMask
    accuracy: float
    full_accuracy: float
    num_samples: int
    num_forwards: int


def fewest_heads(
    backbone: Backbone,
    dataset: Dataset,
    *,
    max_drop: float,
    min_heads_per_layer: int = 1,
    pinned: Iterable[tuple[int, int]] = (),
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> FewestHeads:
    """Cut heads while accuracy stays within `max_drop` of the full model's.

    Heads are tried in the order of the loss that each alone would cost (lowest first; equal: the lower layer, then the
    lower head). The result is minimal in that no single further head can go; no search but the full one could promise
    that no smaller set exists.

    Args:
        backbone: read only.
        dataset: labelled validation data; a few hundred samples, which are held in memory.
        max_drop: share of accuracy that may be lost, e.g. 0.01 for one point; 0 to 1.
        min_heads_per_layer: heads that stay in each layer.
        pinned: (layer, head) pairs that stay.
        batch_size: by default chosen by device and input size.
        progress: `done` counts cut heads; may raise :class:`~hydra_core.jobs.Cancelled`.

    Raises:
        HydraError: no labels, a number out of range, or a pinned head that does not exist.
    """
    instance("backbone", backbone, Backbone, "hydra.load_backbone")
    share("max_drop", max_drop, "a share of accuracy from 0 to 1 (0.01 is one point)")
    whole_number("min_heads_per_layer", min_heads_per_layer, 0, max(backbone.num_heads))
    stay = _heads(pinned)
    backbone.mask.including(stay)  # refuses a head that does not exist
    check_kind(backbone, dataset)
    search = _Search(backbone, dataset, batch_size)
    mask, total = backbone.mask, backbone.mask.num_kept
    full, _ = search.value(mask)
    floor, now = full - max_drop - 1e-12, full
    while True:
        kept = mask.kept_per_layer
        may_go = [(i, j) for i, j in sorted(mask.kept) if (i, j) not in stay and kept[i] > min_heads_per_layer]
        losses = {}
        for one in may_go:
            losses[one] = search.value(mask.without([one]))[1]
            note = f"{mask.num_kept} of {total} heads left, accuracy {now:.1%}: ranking"
            report(progress, total - mask.num_kept, total, note)
        quota, gone = max(1, int(SHARE_BETWEEN_RANKINGS * mask.num_kept)), 0
        for layer, head in sorted(may_go, key=lambda one: (losses[one], one)):
            if gone == quota:
                break
            if mask.kept_per_layer[layer] <= min_heads_per_layer:
                continue
            fewer = mask.without([(layer, head)])
            reached, _ = search.value(fewer)
            if reached >= floor:
                mask, now, gone = fewer, reached, gone + 1
                note = f"{mask.num_kept} of {total} heads left, accuracy {now:.1%}"
                report(progress, total - mask.num_kept, total, note)
        if not gone:
            report(progress, total, total, f"{mask.num_kept} of {total} heads are left")
            return FewestHeads(mask, now, full, search.num_samples, len(search.known))


def _heads(pinned: Any) -> frozenset[tuple[int, int]]:
    try:
        pairs = [(layer, head) for layer, head in pinned]
    except (TypeError, ValueError):
        pairs = None
    numbers = None if pairs is None else [number for pair in pairs for number in pair]
    if numbers is None or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise HydraError(f"pinned takes (layer, head) pairs of whole numbers, e.g. [(0, 3)]; got {pinned!r:.60}")
    return frozenset(pairs or ())


class _Search:
    """Accuracy and loss of masks on one sample; each mask runs once, from its first layer that is new."""

    def __init__(self, backbone: Backbone, dataset: Dataset, batch_size: int | None) -> None:
        self.labels = required_labels(backbone, dataset, "keeping accuracy")
        self.sample = QuickSample(backbone, dataset, batch_size=batch_size)
        self.known: dict[HeadMask, tuple[float, float]] = {}
        self.num_samples = len(dataset)

    def value(self, mask: HeadMask) -> tuple[float, float]:
        """Accuracy (0 to 1) and negative log-likelihood (nats)."""
        if mask not in self.known:
            probabilities = softmax(self.sample.logits(mask))
            self.num_samples = int(np.isfinite(probabilities).all(axis=1).sum())
            self.known[mask] = (
                accuracy(probabilities, self.labels), negative_log_likelihood(probabilities, self.labels)
            )  # fmt: skip
        return self.known[mask]
