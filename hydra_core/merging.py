"""What averaging the members' MLPs costs: the members one after another against the fused network."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hydra_core import artefacts
from hydra_core.checks import instance
from hydra_core.data.dataset import named_sets
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
    from hydra_core.backbones.base import Backbone
    from hydra_core.fusion import FusedEnsemble

    instance("fused", fused, FusedEnsemble, "hydra.fuse")
    instance("members", members, Sequence, "the list that was fused")
    for i, member in enumerate(members):
        instance(f"member {i}", member, Backbone, "what was given to hydra.fuse")
    if [member.mask for member in members] != list(fused.masks):
        raise HydraError(
            f"the {len(members)} members keep other heads than the {fused.num_members} that were fused; give the "
            "members that the ensemble was made of, in its order"
        )
    made_of = fused.report.get("members")  # an ensemble saved by an older version does not know
    if made_of is not None and list(made_of) != [member.fingerprint for member in members]:
        raise HydraError(
            "the members have the heads of those that were fused, but other weights; give the members that the "
            "ensemble was made of, in its order"
        )
    check_classes(fused, dataset)

    def apart(data: "Dataset") -> Predictions:
        return stack_members([predict(m, data, batch_size=batch_size, progress=progress) for m in members])

    def together(data: "Dataset") -> Predictions:
        return predict(fused, data, batch_size=batch_size, progress=progress)

    others = named_sets(ood)
    before, after = apart(dataset), together(dataset)
    before_ood, after_ood = ({name: run(data) for name, data in others.items()} for run in (apart, together))
    return merge_gap_of(before, after, before_ood, after_ood, score=score, num_bins=num_bins)


def merge_gap_of(
    before: Predictions,
    after: Predictions,
    before_ood: Mapping[str, Predictions] | None = None,
    after_ood: Mapping[str, Predictions] | None = None,
    *,
    score: str = "msp",
    num_bins: int = 15,
) -> MergeGap:
    """:func:`merge_gap` from predictions on the ID data and on each OOD set by name; runs no model.

    Args:
        before, before_ood: of the members one after another (:func:`hydra_core.stack_members`).
        after, after_ood: of the fused network, on the same data.
        score, num_bins: see :func:`hydra_core.evaluate`.

    Raises:
        HydraError: predictions on other data, or no row with finite logits.
    """
    sides = ((before, before_ood or {}), (after, after_ood or {}))
    data = [[known.data_fingerprint, {name: one.data_fingerprint for name, one in ood.items()}] for known, ood in sides]
    if data[0] != data[1]:
        raise HydraError(
            f"a merge gap needs predictions on the same data before and after, got {data[0]} and {data[1]}"
        )
    gap = np.abs(before.mean_probabilities - after.mean_probabilities)
    if np.isnan(gap).all():
        raise HydraError("every sample has a non-finite logit, so no gap can be measured; check the weights")
    found = [evaluate_predictions(known, ood, score=score, num_bins=num_bins) for known, ood in sides]
    return MergeGap(found[0], found[1], float(np.nanmean(gap)), float(np.nanmax(gap)))
