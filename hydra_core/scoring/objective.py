"""What a search measures when it masks a head, and how its parts become one number a head."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hydra_core import metrics
from hydra_core.errors import HydraError

OBJECTIVES = ("loss", "ood_auroc", "average")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Objective:
    """An objective and the OOD score it uses.

    Attributes:
        name: `loss` (mean cross-entropy in nats), `ood_auroc` (of `score`, OOD positive), `average` (see
            :meth:`values`).
        score: msp, max_logit, energy or entropy.
    """

    name: str
    score: str

    @classmethod
    def check(cls, name: str, score: str, has_ood: bool) -> "Objective":
        """Validate before work starts; HydraError names what is missing."""
        if name not in OBJECTIVES:
            raise HydraError(f"the objective {name!r} is not known; expected one of {', '.join(OBJECTIVES)}")
        if score not in metrics.OOD_SCORES:
            raise HydraError(f"the OOD score {score!r} is not known; expected one of {', '.join(metrics.OOD_SCORES)}")
        if score in metrics.ENSEMBLE_SCORES and name != "loss":
            what = score.replace("_", " ")
            raise HydraError(f"{what} needs an ensemble; score one backbone's heads with msp, entropy, ...")
        if name != "loss" and not has_ood:
            raise HydraError(
                f"the objective {name!r} needs OOD data, unlike what the model was trained on: pass ood= "
                "(on the command line --ood)"
            )
        return cls(name, score)

    @property
    def needs_loss(self) -> bool:
        """Whether labels are needed."""
        return self.name in ("loss", "average")

    @property
    def needs_ood(self) -> bool:
        """Whether OOD data are needed."""
        return self.name in ("ood_auroc", "average")

    def values(self, losses: Floats, id_scores: Floats, ood_scores: Floats) -> Floats:
        """The objective with each candidate masked.

        Args:
            losses: (K, N) cross-entropy of each ID sample, NaN where a logit is not finite; (K, 0) if not needed.
            id_scores: (K, N) uncertainty of each ID sample.
            ood_scores: (K, N') uncertainty of each OOD sample.

        Returns:
            (K,): the mean loss; the AUROC; or for `average` the mean of min-max(loss) and min-max(1 - AUROC) over
            the K candidates, a constant column counting 0.
        """
        means = mean_losses(losses) if self.needs_loss else np.zeros(len(losses))
        aurocs = [auroc(i, o) for i, o in zip(id_scores, ood_scores, strict=True)] if self.needs_ood else means
        return self.combined(means, np.array(aurocs))

    def combined(self, losses: Floats, aurocs: Floats) -> Floats:
        """The objective (K,) from each candidate's mean loss (K,) and AUROC (K,); what is not needed is not read."""
        if self.name == "average":
            return (min_max(losses) + min_max(1.0 - aurocs)) / 2.0
        return losses if self.name == "loss" else aurocs

    def harm(self, values: Floats) -> Floats:
        """How much each candidate's masking hurts, up to a constant: higher = worse without that head."""
        return -values if self.name == "ood_auroc" else values

    def convention(self) -> str:
        """One sentence on what a value of :meth:`values` is."""
        return {
            "loss": "mean cross-entropy in nats with the head masked",
            "ood_auroc": f"AUROC of {self.score} (OOD positive) with the head masked",
            "average": f"mean of min-max(loss) and min-max(1 - AUROC of {self.score}) over the layer's heads",
        }[self.name]


def mean_losses(losses: Floats) -> Floats:
    """(K, N) -> (K,), over the finite ones; HydraError where a candidate has none."""
    finite = np.isfinite(losses)
    if not finite.any(axis=1).all():
        raise HydraError("every sample has a non-finite logit, so no loss can be measured; check weights and inputs")
    mean: Floats = np.where(finite, losses, 0.0).sum(axis=1) / finite.sum(axis=1)
    return mean


def auroc(id_scores: Floats, ood_scores: Floats) -> float:
    """AUROC with OOD positive; HydraError where one side has no finite score."""
    result = metrics.ood_metrics(id_scores, ood_scores)
    if result.auroc is None:
        raise HydraError(f"the AUROC cannot be measured: {result.reason}")
    return float(result.auroc)


def min_max(values: Floats) -> Floats:
    """Scale to [0, 1]; a constant column counts 0."""
    low, high = values.min(), values.max()
    return np.zeros_like(values) if high == low else (values - low) / (high - low)
