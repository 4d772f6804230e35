"""Logits of many masks on one small sample, each from the first layer in which its mask is new.

A person who toggles heads changes one layer at a time: the hidden states before it are the ones of the mask before.
They are kept by the mask's layers so far, so that a toggle in layer l runs layers l to L alone (exact).
"""

import threading
from collections import OrderedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydra_core.backbones.base import Backbone
from hydra_core.batching import batch_ranges, check_batch_size, check_kind, prepared
from hydra_core.data.dataset import Dataset
from hydra_core.masks import HeadMask
from hydra_core.pruning import prune

STATE_BYTES = 512 * 1024**2

Prefix = tuple[tuple[bool, ...], ...]


class QuickSample:
    """A sample held ready for a backbone with ever new masks. Safe to share between threads.

    Args:
        backbone: read only.
        dataset: the sample; small, since it is held prepared in memory.
        batch_size: by default chosen by device and input size.
        state_bytes: memory for hidden states; past it the ones used longest ago are given up.

    Example:
        >>> sample = QuickSample(backbone, data.take(256))  # doctest: +SKIP
        >>> sample.logits(mask.toggle(3, 1))  # doctest: +SKIP
    """

    def __init__(
        self,
        backbone: Backbone,
        dataset: Dataset,
        *,
        batch_size: int | None = None,
        state_bytes: int = STATE_BYTES,
    ) -> None:
        check_kind(backbone, dataset)
        self.backbone = backbone
        self.dataset = dataset
        self.state_bytes = state_bytes
        self._lock = threading.Lock()
        self._states: OrderedDict[Prefix, list[Tensor]] = OrderedDict()
        self._held = 0
        embed = backbone.network.embed
        ranges = batch_ranges(len(dataset), check_batch_size(batch_size, backbone))
        with torch.no_grad():
            placed = [backbone.place(prepared(backbone, dataset, start, stop)) for start, stop in ranges]
            self._key_masks = [embed.key_mask(inputs) for inputs in placed]
            self._embedded: list[Tensor] = [embed(inputs)[None] for inputs in placed]

    def logits(self, mask: HeadMask, pruned: Backbone | None = None) -> NDArray[np.float32]:
        """Logits (N, C) of the backbone pruned by `mask`.

        Args:
            mask: by the backbone's head indices; HydraError where it is of another shape.
            pruned: ``prune(backbone, mask)``, where the caller has it already.
        """
        pruned = prune(self.backbone, mask) if pruned is None else pruned
        encoder, keep = pruned.network.encoder, pruned.mask.keep
        with self._lock, torch.no_grad():
            start, states = self._resume(keep)
            for layer in range(start, len(encoder)):
                states = [
                    encoder(x, key_mask=key_mask, start=layer, stop=layer + 1).last
                    for x, key_mask in zip(states, self._key_masks, strict=True)
                ]
                self._keep(keep[: layer + 1], states)
            rows = [pruned.network.readout(x)[0] for x in states]
            out: NDArray[np.float32] = torch.cat(rows).float().cpu().numpy()
        return out

    def _resume(self, keep: Prefix) -> tuple[int, list[Tensor]]:
        """The longest run of first layers whose output is held, and that output."""
        for layer in range(len(keep), 0, -1):
            states = self._states.get(keep[:layer])
            if states is not None:
                self._states.move_to_end(keep[:layer])
                return layer, states
        return 0, self._embedded

    def _keep(self, prefix: Prefix, states: list[Tensor]) -> None:
        size = _bytes(states)
        # A large model's states would push out all others at once: then running from the start is as good.
        if size > self.state_bytes // 8:
            return
        self._states[prefix] = states
        self._held += size
        while self._held > self.state_bytes:
            _, oldest = self._states.popitem(last=False)
            self._held -= _bytes(oldest)


def _bytes(states: list[Tensor]) -> int:
    return sum(state.numel() * state.element_size() for state in states)
