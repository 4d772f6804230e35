"""Masking every head of a layer in turn, over whole data sets, without running the layers before it again.

A sweep holds each batch's hidden state at the layer under test (with the heads chosen so far masked). For one layer,
all heads' outputs and their projected sum are computed once; the candidate without head h is that sum minus head h's
own contribution (exact up to rounding), and only what comes after the attention runs for every candidate. In the last
layer only the read-out's tokens are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
# Tokens that one pass holds at once. On CPU so few that a layer's activations stay in the cache: 1,600 of width 384.
CANDIDATE_ELEMENTS_CPU = 614_400
CANDIDATE_ROWS_GPU = 65536
TYPICAL_TEXT = 64  # tokens, for the size of a batch


@dataclass
class _Batch:
    """One batch: where it lies in its data set, its labels, and its hidden state at the layer under test."""

    dataset: Dataset
    start: int
    stop: int
    labels: Tensor | None
    layer: int = 0  # that `state` is the input of
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
        batch_size: samples a batch, at most: on CPU fewer, where a layer would else outgrow the cache.
        progress: called after each batch of each layer.
        state_bytes: memory for hidden states between layers.
        stage_ends: for a race, where the stages end in the ID data and in the OOD data, which are then shuffled with
            `seed`; None for one stage, with texts of like length beside one another.
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
        stage_ends: Sequence[tuple[int, int]] | None = None,
        seed: int = 0,
    ) -> None:
        self.backbone = backbone
        self.objective = objective
        self.progress = progress
        self.counted = len(dataset)  # ID samples whose logits were finite with every head of every layer masked
        self.chosen = torch.ones(1, backbone.num_layers, backbone.max_heads)  # gates of the layers before
        shape = backbone.network.encoder.layer(0).shape
        on_gpu = backbone.device.startswith("cuda")
        self.rows = CANDIDATE_ROWS_GPU if on_gpu else max(1, CANDIDATE_ELEMENTS_CPU // shape.width)
        batch_size = min(batch_size, max(1, self.rows // (backbone.network.embed.num_tokens() or TYPICAL_TEXT)))
        ends = stage_ends or [(len(dataset), len(ood) if ood else 0)]
        shuffle = None if stage_ends is None else np.random.default_rng(seed)
        self.id_stages = _stages(dataset, labels, batch_size, [end[0] for end in ends], shuffle)
        self.ood_stages = _stages(ood, None, batch_size, [end[1] for end in ends], shuffle)
        self.num_batches = sum(len(stage) for stage in (*self.id_stages, *self.ood_stages))
        self.done, self.total = 0, self.num_batches * (backbone.num_layers + 1)
        self.keep_states = self._state_size(len(dataset) + (len(ood) if ood else 0)) <= state_bytes

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
        """The batch's input to `layer`, with the heads chosen before masked, and its key mask.

        It goes on from the state that was kept last, or from the inputs.
        """
        network = self.backbone.network
        state, mask, start = batch.state, batch.key_mask, batch.layer
        if state is None:
            inputs = self.backbone.place(prepared(self.backbone, batch.dataset, batch.start, batch.stop))
            state, mask, start = network.embed(inputs)[None], network.embed.key_mask(inputs), 0
        gates = self.chosen.to(self.backbone.device)
        state = network.encoder(state, key_mask=mask, gates=gates, start=start, stop=layer).last
        if self.keep_states:
            batch.state, batch.key_mask, batch.layer = state, mask, layer
        return state, mask

    def choose(self, layer: int, heads: Sequence[int]) -> None:
        """Mask `heads` (original indices) of `layer` from here on, for the layers behind it."""
        self.chosen[0, layer, list(heads)] = 0.0
        self.done = self.num_batches * (layer + 2)  # a race may have left batches of this layer out

    # --- measuring -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def measure_baseline(self, stages: int | None = None) -> float | None:
        """The objective with no head masked, over the first `stages` stages; all of them by default.

        None for `average`, which compares the heads of one layer. To be called before heads of the first layer are
        chosen: it goes on from the states that the first layer's sweep has left.
        """

        def whole(batch: _Batch) -> tuple[Floats, Floats]:
            state, mask = self._enter(batch, 0)
            network = self.backbone.network
            logits = network.readout(network.encoder(state, key_mask=mask).last)[0]
            self._tick("all heads")
            return self._samples(logits[None], batch)

        if self.objective.name == "average":
            return None
        losses, id_scores = _joined([whole(batch) for stage in self.id_stages[:stages] for batch in stage])
        _, ood_scores = _joined([whole(batch) for stage in self.ood_stages[:stages] for batch in stage])
        return float(self.objective.values(losses, id_scores, ood_scores)[0])

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """The heads that `layer` has, by their original indices."""
        return self.backbone.network.encoder.layer(layer).shape.heads[0]

    def measure(self, layer: int) -> Floats:
        """The objective (max heads,) with each head of `layer` masked beside the chosen ones; NaN where none is."""
        values = np.full(self.backbone.max_heads, np.nan)
        if heads := self.heads_of(layer):
            stages = [self.measure_stage(layer, heads, stage) for stage in range(len(self.id_stages))]
            parts = [np.concatenate(part, axis=1) for part in zip(*stages, strict=True)]
            values[list(heads)] = self.objective.values(*parts)
            known = parts[0] if self.objective.needs_loss else parts[1]
            self.counted = min(self.counted, int(np.isfinite(known).all(axis=0).sum()))
        return values

    @torch.no_grad()
    def measure_stage(self, layer: int, heads: Sequence[int], stage: int) -> tuple[Floats, Floats, Floats]:
        """Losses (K, n), ID scores (K, n) and OOD scores (K, n') of one stage's samples with each of K heads masked.

        What the objective does not need has no columns.
        """
        note = f"layer {layer + 1} of {self.backbone.num_layers}"
        sides = []
        for batches in (self.id_stages[stage], self.ood_stages[stage]):
            parts = []
            for batch in batches:
                parts.append(self._candidates(batch, layer, heads))
                self._tick(note)
            sides.append(_joined(parts, len(heads)))
        (losses, id_scores), (_, ood_scores) = sides
        return losses, id_scores, ood_scores

    def _candidates(self, batch: _Batch, layer: int, wanted: Sequence[int]) -> tuple[Floats, Floats]:
        """Per-sample losses and scores (K, B) with each of the `wanted` heads of `layer` masked."""
        network = self.backbone.network
        encoder, block = network.encoder, network.encoder.layer(layer)
        picked = [self.heads_of(layer).index(head) for head in wanted]
        state, mask = self._enter(batch, layer)
        queries = encoder.queries_of(layer)
        heads = block.head_outputs(state, mask, queries)  # (B, H, Q, dh)
        total = block.project(heads)  # (1, B, Q, D)
        entering = state if queries is None else state[:, :, :queries]
        weight = block.out.weight.view(heads.shape[1], block.shape.head_dim, block.shape.width)

        def run(start: int, stop: int) -> tuple[Floats, Floats]:
            # (K, B, Q, D): what each candidate's head adds to the residual stream
            own = torch.einsum("bhqd,hdw->hbqw", heads[:, picked[start:stop]], weight[picked[start:stop]])
            folded = (total - own).flatten(0, 1)[None]  # (1, K*B, Q, D)
            k = stop - start
            x = block.finish(entering if k == 1 else entering.repeat(1, k, 1, 1), folded)
            repeated = None if mask is None else mask.repeat(k, 1)
            logits = network.readout(encoder(x, key_mask=repeated, start=layer + 1).last)[0]
            return self._samples(logits.view(k, -1, logits.shape[-1]), batch)

        at_once = max(1, self.rows // (state.shape[1] * state.shape[2]))
        return _joined(in_chunks(len(picked), at_once, run), axis=0)

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


def _stages(
    dataset: Dataset | None,
    labels: np.ndarray | None,
    batch_size: int,
    ends: Sequence[int],
    shuffle: np.random.Generator | None,
) -> list[list[_Batch]]:
    """The batches of each stage; within a stage, texts of like length lie beside one another."""
    if dataset is None:
        return [[] for _ in ends]
    order = np.arange(len(dataset)) if shuffle is None else shuffle.permutation(len(dataset))
    stages = []
    for begin, end in pairwise([0, *ends]):
        rows = order[begin:end]
        rows = rows[length_order(dataset.subset(rows))]
        part, targets = dataset.subset(rows), None if labels is None else torch.tensor(labels[rows])
        stages.append(
            [
                _Batch(part, start, stop, None if targets is None else targets[start:stop])
                for start, stop in batch_ranges(len(part), batch_size)
            ]
        )
    return stages


def _joined(parts: Sequence[tuple[Floats, Floats]], heads: int = 1, axis: int = 1) -> tuple[Floats, Floats]:
    if not parts:
        return np.zeros((heads, 0)), np.zeros((heads, 0))
    return np.concatenate([p[0] for p in parts], axis=axis), np.concatenate([p[1] for p in parts], axis=axis)
