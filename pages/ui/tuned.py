"""What a study knows of its fine-tuned members: the last whole run, and one that was stopped. Runs no model."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from hydra_core.errors import HydraError
from hydra_core.merging import MergeGap
from hydra_core.study import Study

KIND, LATEST, UNFINISHED = "tuning", "latest", "unfinished"

# The stored predictions' models, as tables name them.
APART, FUSED, AGAIN = "fine-tuned, members apart", "fine-tuned, fused", "fine-tuned, fused, tuned again"
MODELS = (APART, FUSED, AGAIN)
ENSEMBLES = {"fine-tuned": FUSED, "fine-tuned, tuned again": AGAIN}  # stored ensembles: the model they predict as
NETWORK = "fused network"  # among the curves


@dataclass(frozen=True)
class Settings:
    """What a person chose.

    Attributes:
        epochs, learning_rate: of each member; `lora_rank` None trains all weights.
        samples: training samples at most.
        seed: member i trains with seed + i.
        fused_epochs: of the fused network afterwards; 0 leaves it as it was fused.
    """

    epochs: int
    learning_rate: float
    lora_rank: int | None
    samples: int
    seed: int
    fused_epochs: int

    def names(self, members: int) -> list[str]:
        """What trains, in order."""
        return [*(f"member {i}" for i in range(members)), *([NETWORK] if self.fused_epochs else [])]

    def epochs_of(self, name: str) -> int:
        """Epochs of what is called `name`, at most."""
        return self.fused_epochs if name == NETWORK else self.epochs

    @property
    def words(self) -> str:
        """The settings in one line."""
        how = "all weights" if self.lora_rank is None else f"LoRA of rank {self.lora_rank}"
        after = f", then the fused network up to {self.fused_epochs}" if self.fused_epochs else ""
        epochs = f"up to {self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        return f"{epochs}{after}; learning rate {self.learning_rate:g}, {how}, seed {self.seed}"


# Epochs by the name of what trains ("member 0", "fused network"), each as the fields of hydra_core's Epoch.
Curves = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Run:
    """A fine-tuning run, whole or stopped.

    Attributes:
        base: fingerprint of the ensemble fused without fine-tuning: it stands for the backbone and the masks.
        settings: what was asked for.
        curves: the epochs so far.
        training, validation: samples of each.
        gap: the members apart and fused, on test data; None in a run that was stopped.
        again: the members apart and the fused network after training on, where that was asked for.
        diversity: how much the members differ (see :func:`pages.ui.equivalence.diversity`), by model.
        fingerprints: of each stored fused ensemble, by name.
        seconds, device, dtype: what the run took, and where.
    """

    base: str
    settings: Settings
    curves: Curves = field(default_factory=dict)
    training: int = 0
    validation: int = 0
    gap: MergeGap | None = None
    again: MergeGap | None = None
    diversity: dict[str, dict[str, float]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    device: str = ""
    dtype: str = ""

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        texts = {name: one and one.to_json() for name, one in (("gap", self.gap), ("again", self.again))}
        return json.dumps({**asdict(self), **texts})

    @classmethod
    def from_json(cls, text: str) -> "Run":
        """Read :meth:`to_json`'s text; HydraError where it is damaged."""
        try:
            data = json.loads(text)
            data["settings"] = Settings(**data["settings"])
            for name in ("gap", "again"):
                data[name] = data[name] and MergeGap.from_json(data[name])
            return cls(**data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HydraError(f"the stored fine-tuning cannot be read ({error}); fine-tune again") from None


def latest(study: Study) -> Run | None:
    """The last whole run, whatever masks it belongs to."""
    return _read(study, LATEST)


def unfinished(study: Study) -> Run | None:
    """The run that was stopped, whatever masks it belongs to; a copy of the study has none to go on with."""
    return _read(study, UNFINISHED) if study.unfinished(KIND).is_dir() else None


def current(study: Study) -> Run | None:
    """The last whole run if it belongs to the masks as they are now."""
    run = latest(study)
    return run if run is not None and run.base == study.active_fingerprint else None


def _read(study: Study, name: str) -> Run | None:
    try:
        text = study.get(KIND, name)
        return Run.from_json(text) if text else None
    except HydraError:
        return None  # damaged: its numbers stand for nothing, as those of other masks
