"""What averaging the members' MLPs costs: the members one after another against the fused network."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hydra_core import artefacts
from hydra_core.errors import HydraError
from hydra_core.evaluation import Evaluation, check_classes, evaluate_predictions
from hydra_core.jobs import Progress
from hydra_core.prediction import Predictions, predict, stack_members

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset
    from hydra_core.fusion import FusedEnsemble


@dataclass(frozen=True)
class MergeGap:
    """The members' ensemble before and after fusion, on the same samples.

    Attributes:
        before: of the members' own networks, their probabilities averaged.
        after: of the fused network.
        mean_difference, max_difference: |difference| of the ensemble's probabilities over ID samples and classes, 0
            to 1; 0 up to rounding where nobody was fine-tuned.
    """

    before: Evaluation
    after: Evaluation
    mean_difference: float
    max_difference: float

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return artefacts.to_text("hydra-merge-gap", asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "MergeGap":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(text, "hydra-merge-gap", "a merge gap", cls._from_fields)

    @classmethod
    def _from_fields(cls, data: dict[str, Any]) -> "MergeGap":
        for key in ("before", "after"):
            data[key] = Evaluation(**{**data[key], "excluded": tuple(data[key]["excluded"])})
        return cls(**data)


def merge_gap(
    members: "Sequence[Backbone]",
    fused: "FusedEnsemble",
    dataset: "Dataset",
    *,
    ood: "Mapping[str, Dataset] | None" = None,
    score: str = "msp",
    num_bins: int = 15,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> MergeGap:
    """Evaluate members and what was fused from them.

    Args:
        members: in the order of `fused`'s members.
        fused: made of them by :func:`hydra_core.fuse`, and perhaps fine-tuned further.
        dataset, ood, score, num_bins, batch_size: see :func:`hydra_core.evaluate`.
        progress: called after each batch.

    Raises:
        HydraError: other masks than the fused ensemble's, ID classes that the model does not know.
    """
    if [member.mask for member in members] != list(fused.masks):
        raise HydraError(
            f"the {len(members)} members keep other heads than the {fused.num_members} that were fused; give the "
            "members that the ensemble was made of, in its order"
        )
    check_classes(fused, dataset)

    def apart(data: "Dataset") -> Predictions:
        return stack_members([predict(m, data, batch_size=batch_size, progress=progress) for m in members])

    def together(data: "Dataset") -> Predictions:
        return predict(fused, data, batch_size=batch_size, progress=progress)

    others = ood or {}
    before, after = apart(dataset), together(dataset)
    gap = np.abs(before.mean_probabilities - after.mean_probabilities)
    found = [
        evaluate_predictions(known, {name: run(data) for name, data in others.items()}, score=score, num_bins=num_bins)
        for known, run in ((before, apart), (after, together))
    ]
    if np.isnan(gap).all():
        raise HydraError("every sample has a non-finite logit, so no gap can be measured; check the weights")
    return MergeGap(found[0], found[1], float(np.nanmean(gap)), float(np.nanmax(gap)))
