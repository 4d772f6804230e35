"""Captum's attribution methods with the heads' gates as inputs.

The explained function is the true class's log-probability as a function of the gates (B, L, H); the input is all ones,
the baseline all zeros (every head removed; output biases stay). Attributions are signed: a positive value means the
head raises the true class's log-probability. Captum: Kokhlikyan et al., arXiv 2009.07896; integrated gradients:
Sundararajan et al., arXiv 1703.01365; Shapley sampling: Castro et al., 2009.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hydra_core.backbones.base import Backbone
from hydra_core.batching import in_chunks, prepared
from hydra_core.data.dataset import Dataset
from hydra_core.jobs import Progress, report
from hydra_core.scoring.objective import Floats

METHODS = ("integrated_gradients", "feature_ablation", "shapley_sampling")
STEPS = 32  # integration steps (Gauss-Legendre)
PERMUTATIONS = 25  # Shapley sampling


def captum_samples(
    backbone: Backbone,
    dataset: Dataset,
    labels: np.ndarray,
    method: str,
    *,
    batch_size: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Floats:
    """Attribution of each sample, (N, L, max heads) in nats; rows with a non-finite logit are NaN.

    Args:
        backbone: read only.
        dataset: labelled data.
        labels: (N,) class indices of the backbone.
        method: one of ``METHODS``.
        batch_size: samples at once.
        seed: of the permutations of Shapley sampling.
        progress: called after each batch.
    """
    size, done = len(dataset), 0
    torch.manual_seed(seed)  # Captum draws its permutations from torch's global generator

    def run(start: int, stop: int) -> Floats:
        nonlocal done
        inputs = backbone.place(prepared(backbone, dataset, start, stop))
        target = torch.tensor(labels[start:stop], device=backbone.device)
        values = _attribute(backbone, inputs, target, method, batch_size)
        done = stop
        report(progress, done, size, f"Captum {method}")
        return values

    return np.concatenate(in_chunks(size, batch_size, run))


def _attribute(backbone: Backbone, inputs: dict[str, Tensor], target: Tensor, method: str, rows: int) -> Floats:
    batch = len(target)
    index = torch.arange(batch, device=target.device)

    def log_probability(gates: Tensor, which: Tensor) -> Tensor:
        # Captum repeats the gates and, alike, the sample numbers: so each row finds its own sample.
        logits = backbone.logits({k: v[which] for k, v in inputs.items()}, gates)
        return logits.log_softmax(-1).gather(1, target[which][:, None])[:, 0]

    shape = (batch, backbone.num_layers, backbone.max_heads)
    gates = torch.ones(shape, device=target.device, dtype=backbone.parameter.dtype)
    explain = _explainer(method, log_probability, max(batch, rows))
    values: Floats = explain(gates, index).detach().double().cpu().numpy()
    with torch.no_grad():
        finite = torch.isfinite(log_probability(gates, index)).cpu().numpy()
    values[~finite] = np.nan
    return values


def _explainer(method: str, function: Callable[..., Tensor], rows: int) -> Callable[[Tensor, Tensor], Tensor]:
    from captum import attr

    if method == "integrated_gradients":
        explainer: Any = attr.IntegratedGradients(function)
        extra: dict[str, Any] = {"n_steps": STEPS, "internal_batch_size": rows, "method": "gausslegendre"}
    elif method == "feature_ablation":
        explainer, extra = attr.FeatureAblation(function), {}
    else:
        explainer, extra = attr.ShapleyValueSampling(function), {"n_samples": PERMUTATIONS}

    def explain(gates: Tensor, index: Tensor) -> Tensor:
        result: Tensor = explainer.attribute(
            gates, baselines=torch.zeros_like(gates), additional_forward_args=(index,), **extra
        )
        return result

    return explain
