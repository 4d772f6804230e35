"""What scoring returns: plain values that can be stored, compared and drawn."""

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydra_core import artefacts
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask

Values = NDArray[np.float64]


def _values_to_list(values: Values) -> list[list[float | None]]:
    """NaN (no such head) becomes null: JSON has no NaN."""
    return [[None if np.isnan(v) else float(v) for v in row] for row in values]


def _values_from_list(rows: Any) -> Values:
    try:
        return np.array([[np.nan if v is None else float(v) for v in row] for row in rows], dtype=np.float64)
    except (TypeError, ValueError):
        raise HydraError("the file is damaged: its table of head values cannot be read") from None


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Importance of each head under one method; higher = more important.

    Attributes:
        values: (L, max heads), NaN where a layer has no such head.
        method: as given to :func:`hydra_core.score_heads`.
        objective: what was differentiated or measured (``loss``, ``ood_auroc``, ``average``).
        score: OOD score used by an OOD objective, else None.
        convention: one sentence that says what a value means (sign, unit, aggregation).
        num_samples, num_ood: samples that were used; rows with a non-finite logit are left out.
        backbone_fingerprint, data_fingerprint, ood_fingerprint: what the values belong to.
        source_fingerprint: of the whole that the ID samples were drawn from (`Dataset.source_fingerprint`).
        standard_error: (L, max heads), of Shapley sampling: the error that drawing permutations leaves in `values`;
            None where nothing is drawn.
    """

    values: Values
    method: str
    objective: str
    convention: str
    num_samples: int
    backbone_fingerprint: str
    data_fingerprint: str
    ood_fingerprint: str | None = None
    num_ood: int = 0
    score: str | None = None
    seed: int = 0
    standard_error: Values | None = None
    source_fingerprint: str | None = None

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return int(self.values.shape[0])

    @property
    def within_layers(self) -> bool:
        """Whether values compare heads of one layer alone.

        HeadMap measures each layer with the heads chosen before already gone, so its values rise from layer to layer;
        `average` is scaled in each layer.
        """
        return self.method == "headmap" or self.objective == "average"

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        error = None if self.standard_error is None else _values_to_list(self.standard_error)
        data = {**asdict(self), "values": _values_to_list(self.values), "standard_error": error}
        return artefacts.to_text("hydra-head-scores", data)

    @classmethod
    def from_json(cls, text: str) -> "HeadScores":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(text, "hydra-head-scores", "head scores", cls._from_fields)

    @classmethod
    def _from_fields(cls, data: dict[str, Any]) -> "HeadScores":
        data["values"] = _values_from_list(data["values"])
        if data.get("standard_error") is not None:
            data["standard_error"] = _values_from_list(data["standard_error"])
        return cls(**data)


@dataclass(frozen=True, eq=False)
class Circuit:
    """The heads that HeadMap (Wang et al., ICLR 2025, Algorithm 1) chooses in each layer.

    Attributes:
        keep: the circuit's heads; a member keeps them and loses the rest.
        values: (L, max heads), the objective itself with that head masked beside the heads already chosen in
            the layers before: the loss (nats), the AUROC, or for ``average`` the mean of min-max(loss) and
            min-max(1 - AUROC) in the layer. NaN where a layer has no such head.
        objective: ``loss``, ``ood_auroc`` or ``average``.
        heads_per_layer: number of heads chosen in each layer.
        baseline: the objective with no head masked (None for ``average``); of a race, on the samples that its first
            layer went through.
        search: ``exact`` or ``race``.
        source_fingerprint: of the whole that the ID samples were drawn from (`Dataset.source_fingerprint`).
        ood_name: the OOD set's name, where it was given one; None without OOD data.
        measured: of a race, the ID samples that each value rests on, (L, max heads); None where all do.
    """

    keep: HeadMask
    values: Values
    objective: str
    heads_per_layer: tuple[int, ...]
    num_samples: int
    backbone_fingerprint: str
    data_fingerprint: str
    ood_fingerprint: str | None = None
    num_ood: int = 0
    score: str | None = None
    baseline: float | None = None
    search: str = "exact"
    measured: NDArray[np.int64] | None = None
    source_fingerprint: str | None = None
    ood_name: str | None = None

    @property
    def digest(self) -> str:
        """sha256 of :meth:`to_json`'s text, for what was measured of this very circuit."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        data = {**asdict(self), "values": _values_to_list(self.values)}
        data["keep"] = [list(row) for row in self.keep.keep]
        data["measured"] = None if self.measured is None else self.measured.tolist()
        return artefacts.to_text("hydra-circuit", data)

    @classmethod
    def from_json(cls, text: str) -> "Circuit":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        return artefacts.read(text, "hydra-circuit", "a circuit", cls._from_fields)

    @classmethod
    def _from_fields(cls, data: dict[str, Any]) -> "Circuit":
        data["values"] = _values_from_list(data["values"])
        data["keep"] = HeadMask.from_dict(data["keep"])
        data["heads_per_layer"] = tuple(data["heads_per_layer"])
        if data.get("measured") is not None:
            data["measured"] = np.array(data["measured"], dtype=np.int64)
        return cls(**data)


def check_belongs(
    name: str, found: HeadScores | Circuit, backbone_fingerprint: str, source_fingerprint: str | None = None
) -> None:
    """Refuse scores or a circuit of another backbone, or of other data.

    Args:
        name: what to call it.
        backbone_fingerprint: of the backbone it should belong to.
        source_fingerprint: `Dataset.source_fingerprint` of the data it should come from; None: any.

    Raises:
        HydraError: naming both.
    """
    made = found.backbone_fingerprint
    if made != backbone_fingerprint:
        raise HydraError(
            f"{name!r} was made on another backbone ({made[:12]}) than this one ({backbone_fingerprint[:12]}); make it "
            "again"
        )
    source = found.source_fingerprint
    if source_fingerprint is not None and source is not None and source != source_fingerprint:
        raise HydraError(
            f"{name!r} was made on other data ({source[:12]}) than these ({source_fingerprint[:12]}); make it again"
        )
