"""Head importance: one method a file, one verb (:func:`score_heads`), one result type (:class:`HeadScores`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from hydra_core.backbones.base import Backbone
from hydra_core.batching import check_batch_size, check_kind, required_labels
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress
from hydra_core.scoring import captum_scores
from hydra_core.scoring.headmap import check_backbone, check_data, find_circuit, one_ood_set
from hydra_core.scoring.objective import Floats, Objective
from hydra_core.scoring.results import HeadScores
from hydra_core.scoring.sweep import Sweep
from hydra_core.scoring.taylor import taylor, taylor_samples

METHODS = ("taylor", "taylor_squared", "ablation", "headmap", *(f"captum:{m}" for m in captum_scores.METHODS))


def score_heads(
    backbone: Backbone,
    dataset: Dataset,
    *,
    method: str,
    ood: Dataset | Mapping[str, Dataset] | None = None,
    objective: str = "loss",
    score: str = "msp",
    heads_per_layer: int | Sequence[int] | None = None,
    num_samples: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadScores:
    """Score every attention head; higher = more important.

    Args:
        backbone: read only.
        dataset: data to score on.
        method: `taylor` (mean |dL/dg . g|), `taylor_squared` (mean of its square), `ablation` (how much the objective
            worsens with the head masked, against all heads), `headmap` (the same in HeadMap's layer-conditioned
            search), or one of Captum's with the gates as inputs (see :mod:`hydra_core.scoring.captum_scores`):
            `captum:integrated_gradients`, `captum:feature_ablation`, `captum:shapley_sampling`,
            `captum:input_x_gradient`.
        ood: OOD data for the objectives `ood_auroc` and `average` (`ablation` and `headmap`).
        objective: `loss`, `ood_auroc` or `average`; gradients and Captum know `loss` alone.
        score: OOD score of the objective.
        heads_per_layer: heads chosen in each layer, for `headmap`.
        num_samples: score on so many samples, drawn with `seed`; all by default.
        batch_size: the result does not depend on it beyond rounding; but for Shapley sampling, which draws its
            permutations for each batch anew: within its `standard_error`.
        seed: of the samples drawn and of Shapley's permutations.
        progress: called after each batch.

    Raises:
        HydraError: an unknown method, an objective the method does not know, missing OOD data or labels.
    """
    if method not in METHODS:
        raise HydraError(f"the method {method!r} is not known; expected one of {', '.join(METHODS)}")
    check_backbone(backbone)
    other = one_ood_set(ood)
    goal = Objective.check(objective, score, other is not None)
    check_kind(backbone, dataset)
    if num_samples is not None:
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 1:
            raise HydraError(f"num_samples must be a whole number of at least 1, got {num_samples!r}")
        dataset = dataset.take(num_samples, seed=seed)
        other = None if other is None else other.take(num_samples, seed=seed)
    batch = check_batch_size(batch_size, backbone)
    counted, error = len(dataset), None
    if method == "headmap":
        circuit = find_circuit(
            backbone, dataset, ood=other, objective=objective, heads_per_layer=heads_per_layer,  # type: ignore[arg-type]
            score=score, batch_size=batch, progress=progress,
        )  # fmt: skip
        values, convention = _worsening(circuit.values, circuit.baseline, goal)
        counted = circuit.num_samples
        convention += ", beside the heads HeadMap chose in the layers before"
    elif method == "ablation":
        values, convention, counted = _ablation(backbone, dataset, other, goal, batch, progress)
    else:
        if objective != "loss":
            raise HydraError(f"the method {method!r} knows the objective 'loss' alone; {objective!r} works with "
                             "'ablation' and 'headmap'")  # fmt: skip
        labels = required_labels(backbone, dataset, f"the method {method!r}")
        if method.startswith("captum:"):
            samples, error = captum_scores.captum_samples(
                backbone, dataset, labels, method[len("captum:") :], batch_size=batch, seed=seed, progress=progress
            )
            values, counted = _signed_mean(samples)
            convention = "mean signed attribution of the true class's log-probability (nats), baseline: no head"
        else:
            samples = taylor_samples(backbone, dataset, labels, batch_size=batch, progress=progress)
            values, counted = taylor(samples, squared=method == "taylor_squared")
            convention = (
                "mean of (dL/dg . g)^2 in nats squared (Molchanov)"
                if method == "taylor_squared"
                else "mean of |dL/dg . g| in nats (Michel)"
            )
        values[~_present(backbone)] = np.nan
        if error is not None:
            error[~_present(backbone)] = np.nan
    used = other if goal.needs_ood else None
    return HeadScores(
        values, method, objective, convention, counted, backbone.fingerprint, dataset.fingerprint,
        ood_fingerprint=None if used is None else used.fingerprint, num_ood=0 if used is None else len(used),
        score=score if goal.needs_ood else None, seed=seed, standard_error=error,
        source_fingerprint=dataset.source_fingerprint,
    )  # fmt: skip


def _present(backbone: Backbone) -> np.ndarray:
    """(L, max heads): where the backbone has a head."""
    present = np.zeros((backbone.num_layers, backbone.max_heads), dtype=bool)
    for layer, row in enumerate(backbone.mask.keep):
        present[layer, : len(row)] = row
    return present


def _ablation(
    backbone: Backbone,
    dataset: Dataset,
    ood: Dataset | None,
    goal: Objective,
    batch_size: int,
    progress: Progress | None,
) -> tuple[Floats, str, int]:
    labels = check_data(backbone, dataset, ood, goal)
    used = ood if goal.needs_ood else None
    sweep = Sweep(backbone, dataset, labels, used, goal, batch_size=batch_size, progress=progress)
    baseline = sweep.measure_baseline()
    values = np.array([sweep.measure(layer) for layer in range(backbone.num_layers)])
    return (*_worsening(values, baseline, goal), sweep.counted)


def _worsening(values: Floats, baseline: float | None, goal: Objective) -> tuple[Floats, str]:
    """How much the objective worsens against the backbone with all its heads."""
    if baseline is None:
        return values, goal.convention()
    if goal.name == "ood_auroc":
        return baseline - values, f"fall of the {goal.convention()}, against all heads"
    return values - baseline, f"rise of the {goal.convention()}, against all heads"


def _signed_mean(samples: Floats) -> tuple[Floats, int]:
    finite = np.isfinite(samples).all(axis=(1, 2))
    if not finite.any():
        raise HydraError("every sample has a non-finite logit, so nothing can be attributed; check weights and inputs")
    mean: Floats = samples[finite].mean(axis=0)
    return mean, int(finite.sum())
