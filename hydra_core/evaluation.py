"""Predictions to metrics: the numbers behind every table and figure."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hydra_core import artefacts
from hydra_core import metrics as M
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress
from hydra_core.prediction import Predictions, predict

if TYPE_CHECKING:  # stored predictions are evaluated without torch
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset
    from hydra_core.fusion import FusedEnsemble

# Of each OOD set, with the sentence's worth of convention that belongs into a table's head.
OOD_TITLES = {
    "auroc": "AUROC",
    "aupr_ood": "AUPR, OOD positive",
    "aupr_id": "AUPR, ID positive",
    "fpr95": "FPR95, OOD positive",
    "fpr95_id_positive": "FPR95, ID positive",
}
OOD_METRICS = tuple(OOD_TITLES)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one model on one ID set and any number of OOD sets.

    Attributes:
        metrics: `accuracy`, `nll` (nats), `brier` (0 to 2), `ece`, `ace`, `mce` (0 to 1), `mutual_information`
            (nats), `disagreement` (0 to 1), and `ood/<name>/auroc`, `/aupr_ood`, `/aupr_id`, `/fpr95`,
            `/fpr95_id_positive` for each OOD set; None where undefined.
        reasons: why a value is None, by the same key; and warnings under `ood/<name>/warning`.
        num_samples: ID samples that counted; `excluded` ones had a non-finite logit.
        ood_counts: OOD samples that counted, by set.
    """

    metrics: dict[str, float | None]
    reasons: dict[str, str]
    num_samples: int
    excluded: tuple[int, ...]
    num_members: int
    score: str
    num_bins: int
    ood_counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back; undefined values are null."""
        return artefacts.to_text("hydra-evaluation", asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Evaluation":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(
            text,
            "hydra-evaluation",
            "an evaluation",
            lambda data: cls(**{**data, "excluded": tuple(data["excluded"])}),
        )


def evaluate(
    model: "Backbone | FusedEnsemble",
    dataset: "Dataset",
    *,
    ood: "Mapping[str, Dataset] | None" = None,
    score: str = "msp",
    num_bins: int = 15,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Predict and compute all metrics.

    Args:
        model: Backbone or FusedEnsemble.
        dataset: ID data; without labels, the metrics that need them are None, with the reason.
        ood: OOD data by name.
        score: `msp`, `max_logit`, `energy`, `entropy` or `mutual_information`; higher = more OOD, OOD is positive.
        num_bins: equal-width bins of the calibration errors.

    Raises:
        HydraError: ID classes that the model does not know, empty data or data of another kind, an unknown score.
    """
    if score not in M.OOD_SCORES:
        raise HydraError(f"the OOD score {score!r} is not known; expected one of {', '.join(M.OOD_SCORES)}")
    if ood is not None and not isinstance(ood, Mapping):
        raise HydraError("ood= takes a dict from a name to a data set, e.g. {'mnist': load_dataset('demo/mnist')}")
    check_classes(model, dataset)
    known = predict(model, dataset, batch_size=batch_size, progress=progress)
    others = {
        name: predict(model, other, batch_size=batch_size, progress=progress) for name, other in (ood or {}).items()
    }
    return evaluate_predictions(known, others, score=score, num_bins=num_bins)


def check_classes(model: "Backbone | FusedEnsemble", dataset: "Dataset") -> None:
    """HydraError where labelled ID data have a class that the model does not know.

    :func:`predict` cannot tell: it leaves such labels out, because OOD sets have classes of their own.
    """
    from hydra_core.batching import aligned_labels

    aligned_labels(model, dataset)


def evaluate_predictions(
    id_predictions: Predictions,
    ood_predictions: Mapping[str, Predictions] | None = None,
    *,
    score: str = "msp",
    num_bins: int = 15,
) -> Evaluation:
    """All metrics from stored predictions; runs no model (see :func:`evaluate` for arguments)."""
    labels = id_predictions.labels
    probabilities = id_predictions.mean_probabilities
    counted = id_predictions.num_samples - len(id_predictions.excluded)
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}

    def put(name: str, compute: Callable[[], float]) -> None:
        if labels is None:
            values[name], reasons[name] = None, "the ID data have no labels that the model knows"
        elif counted == 0:
            values[name], reasons[name] = None, "every row has a non-finite logit"
        else:
            values[name] = compute()

    put("accuracy", lambda: M.accuracy(probabilities, labels))
    put("nll", lambda: M.negative_log_likelihood(probabilities, labels))
    put("brier", lambda: M.brier_score(probabilities, labels))
    put("ece", lambda: M.calibration_error(probabilities, labels, num_bins))
    put("ace", lambda: M.adaptive_calibration_error(probabilities, labels, num_bins))
    put("mce", lambda: M.maximum_calibration_error(probabilities, labels, num_bins))
    _diversity(id_predictions, counted, values, reasons)
    counts = {}
    for name, predictions in (ood_predictions or {}).items():
        counts[name] = predictions.num_samples - len(predictions.excluded)
        _ood(name, id_predictions, predictions, score, values, reasons)
    return Evaluation(
        values, reasons, counted, id_predictions.excluded, id_predictions.num_members, score, num_bins, counts
    )


def _diversity(
    predictions: Predictions, counted: int, values: dict[str, float | None], reasons: dict[str, str]
) -> None:
    for name in ("mutual_information", "disagreement"):
        values[name] = None
        if predictions.num_members < 2:
            reasons[name] = "one member alone has nobody to differ from"
        elif counted == 0:
            reasons[name] = "every row has a non-finite logit"
    if predictions.num_members < 2 or counted == 0:
        return
    values["mutual_information"] = float(np.nanmean(M.mutual_information(predictions.probabilities)))
    values["disagreement"] = M.disagreement(predictions.probabilities)


def _ood(
    name: str,
    known: Predictions,
    other: Predictions,
    score: str,
    values: dict[str, float | None],
    reasons: dict[str, str],
) -> None:
    if score in M.ENSEMBLE_SCORES and known.num_members < 2:
        reason: str | None = f"{score.replace('_', ' ')} needs at least two members"
        result = None
    else:
        pair = [M.ood_score(score, logits=p.logits, member_probabilities=p.probabilities) for p in (known, other)]
        result = M.ood_metrics(*pair)
        reason = result.reason
        if result.warning:
            reasons[f"ood/{name}/warning"] = result.warning
    for metric in OOD_METRICS:
        key = f"ood/{name}/{metric}"
        values[key] = None if result is None else getattr(result, metric)
        if values[key] is None:
            reasons[key] = reason or "undefined"
