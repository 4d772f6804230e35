"""First-order Taylor importance of heads.

Michel et al., "Are Sixteen Heads Really Better than One?" (arXiv 1905.10650): mean over samples of |dL_i/dg . g| at
g = 1. Molchanov et al., "Importance Estimation for Neural Network Pruning" (arXiv 1906.10771): mean of its square.
"""

import numpy as np
import torch

from hydra_core.backbones.base import Backbone
from hydra_core.batching import in_chunks, prepared
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report
from hydra_core.scoring.objective import Floats


def taylor_samples(
    backbone: Backbone, dataset: Dataset, labels: np.ndarray, *, batch_size: int, progress: Progress | None = None
) -> Floats:
    """Signed first-order change of each sample's loss, dL_i/dg . g at g = 1, (N, L, max heads) in nats.

    Rows with a non-finite logit are NaN. Heads that a layer does not have are 0.
    """
    size = len(dataset)
    done = 0

    def run(start: int, stop: int) -> Floats:
        nonlocal done
        inputs = prepared(backbone, dataset, start, stop)
        shape = (stop - start, backbone.num_layers, backbone.max_heads)
        with torch.inference_mode(False), torch.enable_grad():
            gates = torch.ones(shape, device=backbone.device, dtype=backbone.parameter.dtype, requires_grad=True)
            logits = backbone.logits(inputs, gates)
            target = torch.tensor(labels[start:stop], device=logits.device)
            # Samples do not touch one another, so the gradient of the sum is every sample's own gradient.
            loss = torch.nn.functional.cross_entropy(logits, target, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, gates)
        values: Floats = gradient.double().cpu().numpy()
        values[~torch.isfinite(logits).all(-1).cpu().numpy()] = np.nan
        done = stop
        report(progress, done, size, "Taylor scores")
        return values

    return np.concatenate(in_chunks(size, batch_size, run))


def taylor(samples: Floats, *, squared: bool) -> tuple[Floats, int]:
    """Mean of |s_i| or s_i^2 over the finite rows, (L, max heads), and how many rows counted."""
    finite = np.isfinite(samples).all(axis=(1, 2))
    if not finite.any():
        raise HydraError("every sample has a non-finite logit, so no gradient can be had; check weights and inputs")
    kept = samples[finite]
    mean: Floats = (kept**2 if squared else np.abs(kept)).mean(axis=0)
    return mean, int(finite.sum())
