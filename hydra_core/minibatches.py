"""Seeded mini-batches for training: images held ready where they fit, texts of like length together."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydra_core.backbones.base import Model
from hydra_core.batching import batch_ranges, length_order, prepared
from hydra_core.data.dataset import Dataset

PREPARED_BYTES = 512 * 1024**2  # prepared images kept between epochs; past it they are prepared again
LENGTH_POOL = 16  # batches of texts that are sorted by length together, so that batches hold little padding

Batch = tuple[dict[str, Tensor], Tensor]


class Minibatches:
    """Mini-batches of `dataset` for `model`.

    Args:
        model: prepares and places the inputs.
        dataset: the samples.
        labels: (N,) the model's class indices.
        size: samples a batch.
    """

    def __init__(self, model: Model, dataset: Dataset, labels: NDArray[np.int64], size: int) -> None:
        self.model, self.dataset, self.size = model, dataset, size
        self.labels = torch.tensor(labels, device=model.device)
        self._held: dict[str, Tensor] | None = None
        if dataset.kind == "image":
            one = prepared(model, dataset, 0, 1)
            if len(dataset) * sum(t.numel() * t.element_size() for t in one.values()) <= PREPARED_BYTES:
                parts = [prepared(model, dataset, *ends) for ends in batch_ranges(len(dataset), 256)]
                self._held = {name: torch.cat([part[name] for part in parts]) for name in one}

    def __len__(self) -> int:
        return math.ceil(len(self.dataset) / self.size)

    def shuffled(self, seed: int, epoch: int) -> Iterator[Batch]:
        """All samples once, in the order of this seed and epoch (each epoch's own, so that a run can resume)."""
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(self.dataset))
        if self.dataset.kind == "text":
            lengths = np.array([len(str(text)) for text in self.dataset.items])
            pools = np.split(order, range(LENGTH_POOL * self.size, len(order), LENGTH_POOL * self.size))
            order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
        ranges = batch_ranges(len(order), self.size)
        for start, stop in (ranges[i] for i in rng.permutation(len(ranges))):
            yield self._batch(order[start:stop])

    def in_order(self) -> Iterator[Batch]:
        """All samples once, texts by length; for measuring."""
        order = length_order(self.dataset)
        for start, stop in batch_ranges(len(order), self.size):
            yield self._batch(order[start:stop])

    def _batch(self, rows: NDArray[np.int64]) -> Batch:
        if self._held is None:
            part = self.dataset.subset(rows)
            inputs = prepared(self.model, part, 0, len(part))
        else:
            index = torch.as_tensor(rows)
            inputs = {name: tensor[index] for name, tensor in self._held.items()}
        return self.model.place(inputs), self.labels[torch.as_tensor(rows, device=self.labels.device)]
