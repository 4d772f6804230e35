"""Captum's attribution methods with the heads' gates as inputs.

The explained function is the true class's log-probability as a function of the gates (B, L, H); the input is all ones,
the baseline all zeros. Attributions are signed: a positive value means the head raises the true class's
log-probability. A table holds their mean over samples, so a head that helps some samples and hurts others may come out
near 0. A gate of 0 takes away the head's whole output, the part that its value bias makes included; the bias of the
output projection is no head's and stays.

Captum: Kokhlikyan et al., arXiv 2009.07896; integrated gradients: Sundararajan et al., arXiv 1703.01365; Shapley
sampling: Castro et al., 2009; feature ablation masks one head at a time; input x gradient is the signed first-order
(Taylor) term: Shrikumar et al., arXiv 1605.01713.
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

METHODS = ("integrated_gradients", "feature_ablation", "shapley_sampling", "input_x_gradient")
STEPS, MOST_STEPS = 32, 256  # integration steps (Gauss-Legendre): doubled until complete, up to the most
COMPLETE = 1e-4  # nats: largest |sum of attributions - (f(1) - f(0))| of a sample that counts as complete
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
) -> tuple[Floats, Floats | None]:
    """Attributions of each sample.

    Args:
        backbone: read only.
        dataset: labelled data.
        labels: (N,) class indices of the backbone.
        method: one of ``METHODS``.
        batch_size: samples at once; inner passes (integration steps) hold no more rows either.
        seed: of the permutations of Shapley sampling. All samples of a batch share them.
        progress: called after each forward of the model, so that a long attribution can be cancelled within.

    Returns:
        (N, L, max heads) in nats, NaN in rows with a non-finite logit; and for Shapley sampling the standard error
        (L, max heads) of the mean over samples that comes from drawing permutations (not from drawing samples).
    """
    size = len(dataset)

    def run(start: int, stop: int) -> tuple[Floats, Floats | None]:
        ticks = _Ticks(progress, start, stop, size, method, backbone.num_layers * backbone.max_heads)
        inputs = backbone.place(prepared(backbone, dataset, start, stop))
        target = torch.tensor(labels[start:stop], device=backbone.device)
        return _attribute(backbone, inputs, target, method, batch_size, ticks)

    # Captum draws its permutations from torch's global generator, which is the caller's afterwards as before.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = in_chunks(size, batch_size, run)
    values = np.concatenate([samples for samples, _ in parts])
    errors = [error for _, error in parts if error is not None]
    if not errors:
        return values, None
    # A batch's mean over its finite rows counts in proportion to them; batches draw their permutations independently.
    weights = np.array([np.isfinite(samples).all(axis=(1, 2)).sum() for samples, _ in parts], dtype=float)
    shares = weights / max(1.0, weights.sum())
    squares = [(share * np.nan_to_num(error)) ** 2 for share, error in zip(shares, errors, strict=True)]
    return values, np.sqrt(np.sum(squares, axis=0))


class _Ticks:
    """Progress within one batch: forwards so far against a guess of how many it takes."""

    def __init__(self, progress: Progress | None, start: int, stop: int, size: int, method: str, heads: int) -> None:
        self._progress, self._start, self._stop, self._size = progress, start, stop, size
        self._note = f"Captum {method.replace('_', ' ')}"
        self._calls = 0
        guesses = {
            "integrated_gradients": STEPS + 3,
            "feature_ablation": heads + 2,
            "shapley_sampling": PERMUTATIONS * (heads + 1) + 1,
            "input_x_gradient": 2,
        }
        self._expected = guesses[method]

    def call(self) -> None:
        """Count a forward; raises Cancelled where the caller wants to stop."""
        self._calls += 1
        share = min(1.0, self._calls / self._expected)
        done = 100 * self._start + int(100 * share * (self._stop - self._start))
        report(self._progress, done, 100 * self._size, self._note)


def _attribute(
    backbone: Backbone, inputs: dict[str, Tensor], target: Tensor, method: str, rows: int, ticks: _Ticks
) -> tuple[Floats, Floats | None]:
    batch = len(target)
    index = torch.arange(batch, device=target.device)

    def log_probability(gates: Tensor, which: Tensor) -> Tensor:
        # Captum repeats the gates and, alike, the sample numbers: so each row finds its own sample.
        ticks.call()
        logits = backbone.logits({k: v[which] for k, v in inputs.items()}, gates)
        return logits.log_softmax(-1).gather(1, target[which][:, None])[:, 0]

    shape = (batch, backbone.num_layers, backbone.max_heads)
    gates = torch.ones(shape, device=target.device, dtype=backbone.parameter.dtype)
    with torch.no_grad():
        finite = torch.isfinite(log_probability(gates, index)).cpu().numpy()
    error = None
    if method == "integrated_gradients":
        values = _integrated_gradients(log_probability, gates, index, max(batch, rows))
    elif method == "shapley_sampling":
        values, error = _shapley(log_probability, gates, index, finite)
    else:
        from captum import attr

        explainer: Any = {"feature_ablation": attr.FeatureAblation, "input_x_gradient": attr.InputXGradient}[method]
        options = {"baselines": torch.zeros_like(gates)} if method == "feature_ablation" else {}
        gates.requires_grad_(method == "input_x_gradient")
        values = _array(explainer(log_probability).attribute(gates, additional_forward_args=(index,), **options))
    values[~finite] = np.nan
    return values, error


def _array(attributions: Tensor) -> Floats:
    values: Floats = attributions.detach().double().cpu().numpy()
    return values


def _integrated_gradients(function: Callable[..., Tensor], gates: Tensor, index: Tensor, rows: int) -> Floats:
    """Integrated gradients, with as many steps as completeness asks for."""
    from captum import attr

    explainer = attr.IntegratedGradients(function)
    steps = STEPS
    while True:
        values, gap = explainer.attribute(
            gates,
            baselines=torch.zeros_like(gates),
            additional_forward_args=(index,),
            n_steps=steps,
            internal_batch_size=rows,
            method="gausslegendre",
            return_convergence_delta=True,
        )
        if steps >= MOST_STEPS or not bool((gap.abs() > COMPLETE).any()):
            return _array(values)
        steps *= 2


def _shapley(
    function: Callable[..., Tensor], gates: Tensor, index: Tensor, finite: np.ndarray
) -> tuple[Floats, Floats]:
    """Shapley values one permutation at a time, so that their spread tells the sampling error of the batch's mean."""
    from captum import attr

    explainer = attr.ShapleyValueSampling(function)
    options = {"baselines": torch.zeros_like(gates), "additional_forward_args": (index,), "n_samples": 1}
    draws = [_array(explainer.attribute(gates, **options)) for _ in range(PERMUTATIONS)]
    means = np.array([draw[finite].mean(axis=0) if finite.any() else np.zeros(draw.shape[1:]) for draw in draws])
    error: Floats = means.std(axis=0, ddof=1) / np.sqrt(PERMUTATIONS)
    return np.mean(draws, axis=0), error
