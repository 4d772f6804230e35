"""Model and data to stored logits, streamed in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report

if TYPE_CHECKING:  # stored predictions are read without torch
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset
    from hydra_core.fusion import FusedEnsemble

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of a model's M members on N samples with C classes; plain arrays, so that views need no model.

    Attributes:
        logits: (M, N, C) float32; rows with a non-finite logit in any member are NaN in all.
        labels: (N,) int64 by the model's classes, or None.
        excluded: indices of the rows with a non-finite logit; every metric leaves them out.
        class_names: the model's classes.
        model_fingerprint, data_fingerprint, data_name: what the logits belong to.
    """

    logits: Floats
    labels: NDArray[np.int64] | None
    excluded: tuple[int, ...]
    class_names: tuple[str, ...]
    model_fingerprint: str
    data_fingerprint: str
    data_name: str

    @property
    def num_members(self) -> int:
        """M."""
        return int(self.logits.shape[0])

    @property
    def num_samples(self) -> int:
        """N, excluded rows counted."""
        return int(self.logits.shape[1])

    @cached_property
    def probabilities(self) -> Floats:
        """(M, N, C), softmax of each member; NaN in excluded rows."""
        shifted: Floats = self.logits - self.logits.max(axis=-1, keepdims=True)
        np.exp(shifted, out=shifted)
        shifted /= shifted.sum(axis=-1, keepdims=True)
        return shifted

    @cached_property
    def mean_probabilities(self) -> Floats:
        """(N, C), the ensemble: the mean of the members' softmax."""
        mean: Floats = self.probabilities.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def member(self, index: int) -> "Predictions":
        """One member's predictions alone (M = 1)."""
        if not 0 <= index < self.num_members:
            raise HydraError(f"member {index} does not exist: there are members 0 to {self.num_members - 1}")
        return Predictions(
            self.logits[index : index + 1], self.labels, self.excluded, self.class_names,
            f"{self.model_fingerprint}#{index}", self.data_fingerprint, self.data_name,
        )  # fmt: skip


def predict(
    model: "Backbone | FusedEnsemble",
    dataset: "Dataset",
    *,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Predictions:
    """Run a model over a data set.

    Args:
        model: a Backbone (M = 1) or a FusedEnsemble.
        dataset: of the model's kind; labels are matched to the model's classes by name. Labels of classes that
            the model does not know (an OOD set's own) are left out.
        batch_size: by default chosen by device and input size; the result does not depend on it beyond rounding.
        progress: called after each batch.

    Raises:
        HydraError: no sample, or data of another kind than the model reads.
    """
    import torch

    from hydra_core.backbones.base import Backbone
    from hydra_core.batching import aligned_labels, check_batch_size, check_kind, in_chunks, length_order, prepared

    check_kind(model, dataset)
    size = len(dataset)
    try:
        labels = aligned_labels(model, dataset)
    except HydraError:
        labels = None  # an OOD set: its classes are its own
    order = length_order(dataset)
    sorted_data = dataset.subset(order)
    done = 0

    def run(start: int, stop: int) -> Floats:
        nonlocal done
        with torch.no_grad():
            inputs = prepared(model, sorted_data, start, stop)
            out = model.logits(inputs)[None] if isinstance(model, Backbone) else model.member_logits(inputs)
        done = stop
        report(progress, done, size, f"predicting {dataset.name}")
        values: Floats = out.float().cpu().numpy()
        return values

    def note(message: str) -> None:
        report(progress, done, size, message)

    in_order = np.concatenate(in_chunks(size, check_batch_size(batch_size, model), run, note), axis=1)
    logits = np.empty_like(in_order)
    logits[:, order] = in_order
    bad = ~np.isfinite(logits).all(axis=(0, 2))
    logits[:, bad] = np.nan
    excluded = tuple(int(i) for i in np.flatnonzero(bad))
    return Predictions(
        logits, labels, excluded, model.class_names, model.fingerprint, dataset.fingerprint, dataset.name
    )


def stack_members(predictions: Sequence[Predictions]) -> Predictions:
    """Predictions of several models on the same samples as one ensemble's: the unfused members, or a deep ensemble.

    Args:
        predictions: of at least one model, all on the same data and classes.

    Raises:
        HydraError: none, or predictions on different data or classes.
    """
    if not predictions:
        raise HydraError("an ensemble needs the predictions of at least one model, got none")
    first = predictions[0]
    for other in predictions[1:]:
        for what, a, b in (
            ("data", first.data_fingerprint, other.data_fingerprint),
            ("classes", first.class_names, other.class_names),
        ):
            if a != b:
                raise HydraError(f"predictions of one ensemble need the same {what}, got {a!s:.40} and {b!s:.40}")
    logits = np.concatenate([one.logits for one in predictions])
    bad = ~np.isfinite(logits).all(axis=(0, 2))
    logits[:, bad] = np.nan
    return Predictions(
        logits, first.labels, tuple(int(i) for i in np.flatnonzero(bad)), first.class_names,
        "|".join(one.model_fingerprint for one in predictions), first.data_fingerprint, first.data_name,
    )  # fmt: skip
