"""Fine-tuning of a (pruned) backbone on labelled data: AdamW, linear warm-up and cosine decay, seeded."""

import copy
import math

import numpy as np
import torch

from hydra_core.backbones.base import Backbone, fingerprint_of
from hydra_core.batching import check_batch_size, check_kind, prepared, required_labels
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report

WEIGHT_DECAY = 0.01
WARM_UP = 0.1  # share of the steps
MAX_GRADIENT_NORM = 1.0


def fine_tune(
    backbone: Backbone,
    dataset: Dataset,
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Backbone:
    """Train all weights of a copy of `backbone`; `backbone` itself stays bitwise as it was.

    Args:
        backbone: whole or pruned.
        dataset: labelled training data.
        epochs: passes over the data, at least 1.
        learning_rate: peak rate of AdamW, reached after a linear warm-up, then cosine to 0.
        batch_size: samples a step; 64 by default.
        seed: of the order of the samples.
        progress: called after each step.

    Returns:
        A new Backbone with the same heads.

    Raises:
        HydraError: no labels, classes the model does not know, epochs or a rate out of range, or a loss that is no
            longer finite.
    """
    check_kind(backbone, dataset)
    labels = required_labels(backbone, dataset, "fine-tuning")
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise HydraError(f"epochs must be a whole number of at least 1, got {epochs!r}")
    if not (isinstance(learning_rate, int | float) and 0 < learning_rate < 1):
        raise HydraError(f"learning_rate must lie between 0 and 1, got {learning_rate!r}")
    size = check_batch_size(64 if batch_size is None else batch_size, backbone)
    network = copy.deepcopy(backbone.network).requires_grad_(True)
    target = torch.tensor(labels, device=backbone.device)
    inputs = backbone.place(prepared(backbone, dataset, 0, len(dataset)))
    steps = epochs * math.ceil(len(dataset) / size)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    rng = np.random.default_rng(seed)
    done = 0
    for epoch in range(epochs):
        order = torch.as_tensor(rng.permutation(len(dataset)), device=backbone.device)
        for start in range(0, len(dataset), size):
            index = order[start : start + size]
            with torch.enable_grad():
                logits = network({name: tensor[index] for name, tensor in inputs.items()})[0]
                loss = torch.nn.functional.cross_entropy(logits.float(), target[index])
                if not bool(torch.isfinite(loss)):
                    raise HydraError(
                        f"the loss is no longer finite in epoch {epoch + 1} at learning_rate {learning_rate:g}; "
                        "choose a smaller one"
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            schedule.step()
            done += 1
            report(progress, done, steps, f"fine-tuning, epoch {epoch + 1} of {epochs}, loss {loss.item():.3f}")
    network.requires_grad_(False).eval()
    return backbone.with_network(network, mask=backbone.mask, fingerprint=fingerprint_of(network))


def _rate(step: int, steps: int) -> float:
    """Share of the peak rate at `step`: linear warm-up, then cosine to 0."""
    warm = max(1, int(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
