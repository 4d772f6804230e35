"""Masking every head of a layer in turn, over whole data sets, without running the layers before it again.

A sweep holds each batch's hidden state at the layer under test (with the heads chosen so far masked). For one layer,
all heads' outputs and their projected sum are computed once; the candidate without head h is that sum minus head h's
own contribution (exact up to rounding), and only what comes after the attention runs for every candidate. In the last
layer only the read-out's tokens are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hydra_core import metrics
from hydra_core.backbones.base import Backbone
from hydra_core.batching import batch_ranges, in_chunks, length_order, prepared
from hydra_core.data.dataset import Dataset
from hydra_core.jobs import Progress, report
from hydra_core.scoring.objective import Floats, Objective

STATE_BYTES = 2 * 1024**3  # hidden states kept between layers; past that they are computed again
CANDIDATE_ROWS_CPU = 3200  # tokens that one pass over a layer's candidates holds at once
CANDIDATE_ROWS_GPU = 65536


@dataclass
class _Batch:
    """One batch: where it lies in its data set, its labels, and its hidden state at the layer under test."""

    dataset: Dataset
    start: int
    stop: int
    labels: Tensor | None
    state: Tensor | None = None  # (1, B, T, D)
    key_mask: Tensor | None = None


class Sweep:
    """Measures all heads of one layer after another.

    Args:
        backbone: read only.
        dataset: ID data.
        labels: (N,) class indices, or None where the objective needs no loss.
        ood: OOD data, or None.
        objective: what to measure.
        batch_size: samples a batch.
        progress: called after each batch of each layer.
        state_bytes: memory for hidden states between layers.
    """

    def __init__(
        self,
        backbone: Backbone,
        dataset: Dataset,
        labels: np.ndarray | None,
        ood: Dataset | None,
        objective: Objective,
        *,
        batch_size: int,
        progress: Progress | None = None,
        state_bytes: int = STATE_BYTES,
    ) -> None:
        self.backbone = backbone
        self.objective = objective
        self.progress = progress
        self.chosen = torch.ones(1, backbone.num_layers, backbone.max_heads)  # gates of the layers before
        rows = CANDIDATE_ROWS_GPU if backbone.device.startswith("cuda") else CANDIDATE_ROWS_CPU
        self.candidate_rows = rows
        self.id_batches = self._batches(dataset, labels, batch_size)
        self.ood_batches = [] if ood is None else self._batches(ood, None, batch_size)
        everything = self.id_batches + self.ood_batches
        self.done, self.total = 0, len(everything) * (backbone.num_layers + 1)
        self.keep_states = self._state_size(len(dataset) + (len(ood) if ood else 0)) <= state_bytes
        self.baseline = self._measure_baseline()

    def _batches(self, dataset: Dataset, labels: np.ndarray | None, batch_size: int) -> list[_Batch]:
        order = length_order(dataset)
        dataset, labels = dataset.subset(order), None if labels is None else labels[order]
        return [
            _Batch(dataset, start, stop, None if labels is None else torch.tensor(labels[start:stop]))
            for start, stop in batch_ranges(len(dataset), batch_size)
        ]

    def _state_size(self, samples: int) -> int:
        shape = self.backbone.network.encoder.layer(0).shape
        tokens = self.backbone.network.embed.num_tokens() or 128
        return samples * tokens * shape.width * self.backbone.parameter.element_size()

    def _tick(self, note: str) -> None:
        self.done += 1
        report(self.progress, self.done, self.total, note)

    # --- hidden states -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _enter(self, batch: _Batch, layer: int) -> tuple[Tensor, Tensor | None]:
        """The batch's input to `layer` and its key mask, from the kept state or computed again."""
        if batch.state is not None:
            return batch.state, batch.key_mask
        network = self.backbone.network
        inputs = self.backbone.place(prepared(self.backbone, batch.dataset, batch.start, batch.stop))
        mask = network.embed.key_mask(inputs)
        gates = self.chosen.to(self.backbone.device)
        state = network.encoder(network.embed(inputs), key_mask=mask, gates=gates, stop=layer).last
        if self.keep_states:
            batch.state, batch.key_mask = state, mask
        return state, mask

    @torch.no_grad()
    def advance(self, layer: int, masked: Sequence[int]) -> None:
        """Go past `layer` with the heads `masked` (original indices) cut in it."""
        self.chosen[0, layer, list(masked)] = 0.0
        if layer + 1 == self.backbone.num_layers:
            return
        gates = self.chosen[:, layer].to(self.backbone.device)
        for batch in (*self.id_batches, *self.ood_batches):
            if batch.state is not None:
                block = self.backbone.network.encoder.layer(layer)
                batch.state, _ = block(batch.state, batch.key_mask, gates.to(batch.state.dtype))

    # --- measuring -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _measure_baseline(self) -> float | None:
        """The objective with no head masked; None for `average`, which compares the heads of one layer."""
        parts: dict[bool, list[tuple[Floats, Floats]]] = {True: [], False: []}
        for batch in (*self.id_batches, *self.ood_batches):
            state, mask = self._enter(batch, 0)
            network = self.backbone.network
            logits = network.readout(network.encoder(state, key_mask=mask).last)[0]
            parts[batch.dataset is self.id_batches[0].dataset].append(self._samples(logits[None], batch))
            self._tick("all heads")
        if self.objective.name == "average":
            return None
        losses, id_scores = _joined(parts[True])
        _, ood_scores = _joined(parts[False])
        return float(self.objective.values(losses, id_scores, ood_scores)[0])

    @torch.no_grad()
    def measure(self, layer: int) -> Floats:
        """The objective (max heads,) with each head of `layer` masked beside the chosen ones; NaN where none is."""
        heads = self.backbone.network.encoder.layer(layer).shape.heads[0]
        note = f"layer {layer + 1} of {self.backbone.num_layers}"
        values = np.full(self.backbone.max_heads, np.nan)
        if not heads:
            return values
        id_parts: list[tuple[Floats, Floats]] = []
        ood_parts: list[tuple[Floats, Floats]] = []
        for into, batches in ((id_parts, self.id_batches), (ood_parts, self.ood_batches)):
            for batch in batches:
                into.append(self._candidates(batch, layer))
                self._tick(note)
        losses, id_scores = _joined(id_parts)
        _, ood_scores = _joined(ood_parts)
        values[list(heads)] = self.objective.values(losses, id_scores, ood_scores)
        return values

    def _candidates(self, batch: _Batch, layer: int) -> tuple[Floats, Floats]:
        """Per-sample losses and scores (H, B) with each head of `layer` masked."""
        network = self.backbone.network
        encoder, block = network.encoder, network.encoder.layer(layer)
        count = len(block.shape.heads[0])
        state, mask = self._enter(batch, layer)
        queries = encoder.queries_of(layer)
        heads = block.head_outputs(state, mask, queries)  # (B, H, Q, dh)
        total = block.project(heads)  # (1, B, Q, D)
        entering = state if queries is None else state[:, :, :queries]
        weight = block.out.weight.view(count, block.shape.head_dim, block.shape.width)

        def run(start: int, stop: int) -> tuple[Floats, Floats]:
            # (K, B, Q, D): what each candidate's head adds to the residual stream
            own = torch.einsum("bhqd,hdw->hbqw", heads[:, start:stop], weight[start:stop])
            folded = (total - own).flatten(0, 1)[None]  # (1, K*B, Q, D)
            k = stop - start
            x = block.finish(entering.repeat(1, k, 1, 1), folded)
            repeated = None if mask is None else mask.repeat(k, 1)
            logits = network.readout(encoder(x, key_mask=repeated, start=layer + 1).last)[0]
            return self._samples(logits.view(k, -1, logits.shape[-1]), batch)

        at_once = max(1, self.candidate_rows // (state.shape[1] * state.shape[2]))
        chunks = in_chunks(count, at_once, run)
        return np.concatenate([c[0] for c in chunks]), np.concatenate([c[1] for c in chunks])

    def _samples(self, logits: Tensor, batch: _Batch) -> tuple[Floats, Floats]:
        """Logits (K, B, C) -> per-sample losses and OOD scores (K, B); (K, 0) where not needed."""
        k, size, classes = logits.shape
        values = logits.double().cpu()
        losses = np.zeros((k, 0))
        if batch.labels is not None and self.objective.needs_loss:
            target = batch.labels.repeat(k)
            flat = torch.nn.functional.cross_entropy(values.reshape(-1, classes), target, reduction="none")
            flat[~torch.isfinite(values.reshape(-1, classes)).all(-1)] = torch.nan
            losses = flat.view(k, size).numpy()
        scores = np.zeros((k, 0))
        if self.objective.needs_ood:
            rows = values.reshape(1, -1, classes)
            scores = metrics.ood_score(
                self.objective.score, logits=rows.numpy(), member_probabilities=rows.softmax(-1).numpy()
            ).reshape(k, size)
        return losses, scores


def _joined(parts: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    if not parts:
        return np.zeros((1, 0)), np.zeros((1, 0))
    return np.concatenate([p[0] for p in parts], axis=1), np.concatenate([p[1] for p in parts], axis=1)
