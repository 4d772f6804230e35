"""Fine-tuning of a (pruned) backbone or a fused ensemble: AdamW, linear warm-up and cosine decay, seeded, resumable."""

import copy
import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hydra_core.backbones.base import Backbone, Model, fingerprint_of
from hydra_core.backbones.network import Network
from hydra_core.batching import check_batch_size, check_kind, required_labels
from hydra_core.checkpoint import load_checkpoint, save_checkpoint
from hydra_core.checks import instance, whole_number
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.fusion import FusedEnsemble
from hydra_core.jobs import Progress, report
from hydra_core.minibatches import Minibatches

BATCH_SIZE = 64
WEIGHT_DECAY = 0.01
WARM_UP = 0.1  # share of the steps
MAX_GRADIENT_NORM = 1.0

Tuned = TypeVar("Tuned", Backbone, FusedEnsemble)


@dataclass(frozen=True)
class Epoch:
    """How one epoch went.

    Attributes:
        number, of: from 1; epochs asked for.
        train_loss: mean cross-entropy over the epoch's samples, before each step (nats).
        validation_nll: negative log-likelihood of the mean probabilities after it (nats); None without validation data.
        best: whether no epoch before had a lower one.
    """

    number: int
    of: int
    train_loss: float
    validation_nll: float | None
    best: bool


@dataclass(frozen=True)
class _Settings:
    epochs: int
    learning_rate: float
    batch_size: int
    seed: int
    lora_rank: int | None
    patience: int


def fine_tune(
    model: Tuned,
    dataset: Dataset,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int | None = None,
    seed: int = 0,
    lora_rank: int | None = None,
    validation: Dataset | None = None,
    patience: int = 2,
    checkpoint: str | os.PathLike[str] | None = None,
    keep_checkpoint: bool = False,
    epoch_done: Callable[[Epoch], None] | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Train a copy of `model`; `model` itself stays bitwise as it was.

    Args:
        model: a Backbone, whole or pruned, or a FusedEnsemble, whose loss is the mean of its members' losses.
        dataset: labelled training data.
        epochs: passes over the data, at least 1.
        learning_rate: peak rate of AdamW, reached after a linear warm-up, then cosine to 0.
        batch_size: samples a step; 64 by default.
        seed: of the order of the samples and of LoRA's start.
        lora_rank: None trains all weights; a number trains low-rank updates of the attention's and the MLP's matrices
            (Hu et al., "LoRA", arXiv 2106.09685, by peft; alpha = 2 x rank) and the read-out, and merges them.
        validation: labelled data; the weights of the epoch with the lowest validation NLL are returned.
        patience: epochs without a lower validation NLL after which training stops.
        checkpoint: a file; the state is kept there after each epoch, and a call with the same arguments goes on from
            it, to the same result. It is deleted when training is done.
        keep_checkpoint: the file stays instead, with the trained weights alone: the same call then returns them.
        epoch_done: told of each epoch; of one that resumes also of those before, so that its curve is whole.
        progress: called after each step; may raise Cancelled.

    Returns:
        A new model of the same kind with the same heads.

    Raises:
        HydraError: no labels, classes the model does not know, a number out of range, a checkpoint of another run, or
            a loss that is no longer finite.
    """
    instance("model", model, (Backbone, FusedEnsemble), "hydra.load_backbone, hydra.prune or hydra.fuse")
    check_kind(model, dataset)
    labels = required_labels(model, dataset, "fine-tuning")
    width = model.network.encoder.layer(0).shape.width
    settings = _Settings(
        whole_number("epochs", epochs, 1), _rate_of(learning_rate),
        check_batch_size(BATCH_SIZE if batch_size is None else batch_size, model), whole_number("seed", seed, 0),
        None if lora_rank is None else whole_number("lora_rank (up to the network's width)", lora_rank, 1, width),
        whole_number("patience", patience, 1),
    )  # fmt: skip
    held_out = None
    if validation is not None:
        check_kind(model, validation, "the validation data")
        targets = required_labels(model, validation, "early stopping")
        held_out = Minibatches(model, validation, targets, settings.batch_size)
    batches = Minibatches(model, dataset, labels, settings.batch_size)
    tell = epoch_done or (lambda _: None)
    if checkpoint is not None:
        instance("checkpoint", checkpoint, (str, os.PathLike), "the file that keeps the run")
    path = None if checkpoint is None else Path(checkpoint)
    facts = json.dumps(
        [model.fingerprint, dataset.fingerprint, validation and validation.fingerprint, asdict(settings)]
    )
    key = hashlib.sha256(facts.encode()).hexdigest()
    stored = None if path is None else load_checkpoint(path, key)
    if stored is not None:
        for known in stored[1].get("history", []):  # a checkpoint of before has none
            tell(Epoch(**known))
        if stored[1].get("finished"):
            network = copy.deepcopy(model.network)
            network.load_state_dict(stored[0])
            return _around(model, network)
    run = _Run(model, settings)
    if stored is not None:
        run.restore(*stored)
    steps = epochs * len(batches)
    while run.epoch < epochs and not run.stalled:
        loss = run.train_epoch(batches, steps, progress)
        nll = None if held_out is None else run.validate(held_out)
        told = run.finish_epoch(loss, nll)
        if path is not None:
            save_checkpoint(path, key, *run.state())
        tell(told)
    network = run.result()
    if path is not None and keep_checkpoint:
        save_checkpoint(path, key, network.state_dict(), {"history": run.told, "finished": True})
    elif path is not None:
        path.unlink(missing_ok=True)
    report(progress, steps, steps, "fine-tuned")
    return _around(model, network)


def _around(model: Tuned, network: Network) -> Tuned:
    fingerprint = fingerprint_of(network)
    if isinstance(model, FusedEnsemble):
        return model.with_network(network, fingerprint=fingerprint)
    return model.with_network(network, mask=model.mask, fingerprint=fingerprint)


class _Run:
    """The network in training, its optimizer, and the best weights so far."""

    def __init__(self, model: Model, settings: _Settings) -> None:
        self.settings = settings
        self.network = copy.deepcopy(model.network)
        self.tuner = None
        if settings.lora_rank is None:
            self.network.requires_grad_(True)
        else:
            self.tuner = _with_lora(self.network, settings.lora_rank, settings.seed)
        self.trained = {name: p for name, p in self.network.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.trained.values(), lr=settings.learning_rate, weight_decay=WEIGHT_DECAY)
        self.history: list[Epoch] = []
        self.epoch, self.since_best = 0, 0
        self.best_nll: float | None = None
        self.best: dict[str, Tensor] | None = None

    @property
    def stalled(self) -> bool:
        """Whether the validation NLL has not fallen for `patience` epochs."""
        return self.since_best >= self.settings.patience

    def train_epoch(self, batches: Minibatches, steps: int, progress: Progress | None) -> float:
        """One pass; returns the mean loss over its samples."""
        total, done = 0.0, self.epoch * len(batches)
        for inputs, target in batches.shuffled(self.settings.seed, self.epoch):
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * _share_of_peak(done, steps)
            with torch.enable_grad():
                logits = self.network(inputs).float()  # (M, B, C)
                members = len(logits)
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.repeat(members))
                if not bool(torch.isfinite(loss)):
                    raise HydraError(
                        f"the loss is no longer finite in epoch {self.epoch + 1} at learning_rate "
                        f"{self.settings.learning_rate:g}; choose a smaller one"
                    )
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
            nn.utils.clip_grad_norm_(self.trained.values(), MAX_GRADIENT_NORM)
            self.optimizer.step()
            done += 1
            total += loss.item() * len(target)
            note = f"fine-tuning, epoch {self.epoch + 1} of {self.settings.epochs}, loss {loss.item():.3f}"
            report(progress, done, steps, note)
        return total / len(batches.dataset)

    @torch.no_grad()
    def validate(self, batches: Minibatches) -> float:
        """NLL (nats) of the mean of the members' probabilities."""
        total = 0.0
        for inputs, target in batches.in_order():
            mean = self.network(inputs).double().log_softmax(-1).logsumexp(0) - math.log(self.network.num_members)
            total -= float(mean[torch.arange(len(target)), target].sum())
        return total / len(batches.dataset)

    def finish_epoch(self, loss: float, nll: float | None) -> Epoch:
        """Count the epoch, and keep its weights where they are the best so far."""
        self.epoch += 1
        better = nll is None or self.best_nll is None or nll < self.best_nll
        self.since_best = 0 if better else self.since_best + 1
        if nll is not None and better:
            self.best_nll = nll
            self.best = {name: p.detach().clone() for name, p in self.trained.items()}
        self.history.append(Epoch(self.epoch, self.settings.epochs, loss, nll, better))
        return self.history[-1]

    @property
    def told(self) -> list[dict[str, Any]]:
        """The epochs so far as plain values."""
        return [asdict(epoch) for epoch in self.history]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a resumed run needs."""
        tensors: dict[str, Tensor] = {f"now/{name}": p for name, p in self.trained.items()}
        tensors |= {f"best/{name}": p for name, p in (self.best or {}).items()}
        for name, p in self.trained.items():
            for key, value in self.optimizer.state[p].items():
                tensors[f"optimizer/{key}/{name}"] = value
        facts = {"epoch": self.epoch, "since_best": self.since_best, "best_nll": self.best_nll, "history": self.told}
        return tensors, facts

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.history = [Epoch(**fields) for fields in facts.get("history", [])]
        best = {}
        for name, p in self.trained.items():
            p.copy_(tensors[f"now/{name}"])
            if (kept := tensors.get(f"best/{name}")) is not None:
                best[name] = kept.to(p.device)
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"optimizer/step/{name}" in tensors:  # what had no gradient (a layer without heads) has no state
                held = {key: tensors[f"optimizer/{key}/{name}"] for key in keys}
                self.optimizer.state[p] = {k: v if k == "step" else v.to(p.device) for k, v in held.items()}
        self.epoch, self.since_best, self.best_nll = facts["epoch"], facts["since_best"], facts["best_nll"]
        self.best = best or None

    @torch.no_grad()
    def result(self) -> Network:
        """The network with the best weights, LoRA merged."""
        for name, tensor in (self.best or {}).items():
            self.trained[name].copy_(tensor)
        network: Network = self.network if self.tuner is None else self.tuner.merge_and_unload()
        return network.requires_grad_(False).eval()


def _with_lora(network: Network, rank: int, seed: int) -> Any:
    """Low-rank updates beside the frozen weights of attention and MLP; returns peft's tuner."""
    from peft import LoraConfig, LoraModel

    encoder = network.encoder
    matrices = []
    for index in range(len(encoder)):
        if any(encoder.layer(index).counts):  # a layer without heads has nothing to update there
            matrices += [f"encoder.blocks.{index}.qkv.weight", f"encoder.blocks.{index}.out.weight"]
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["fc1", "fc2"], target_parameters=matrices or None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tuner = LoraModel(network, config, "default")
    network.readouts.requires_grad_(True)
    return tuner


def _rate_of(value: object) -> float:
    if not (isinstance(value, int | float) and 0 < value < 1):
        raise HydraError(f"learning_rate must lie between 0 and 1, got {value!r}")
    return float(value)


def _share_of_peak(step: int, steps: int) -> float:
    """Share of the peak rate at `step`: linear warm-up, then cosine to 0."""
    warm = max(1, int(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
