"""Hydra Ensembles (arXiv 2510.18358): score attention heads, find circuits, prune, fuse, evaluate.

``import hydra_core as hydra`` loads nothing heavy; torch and the rest come with the first name that needs them.

Example:
    >>> import hydra_core as hydra
    >>> backbone = hydra.load_backbone("demo/vit")  # doctest: +SKIP
    >>> data = hydra.load_dataset("demo/fashion-mnist", split="validation")  # doctest: +SKIP
    >>> circuit = hydra.find_circuit(backbone, data, heads_per_layer=4)  # doctest: +SKIP
"""

import importlib
from typing import TYPE_CHECKING, Any

from hydra_core.errors import HydraError
from hydra_core.jobs import Cancelled
from hydra_core.mask_files import read_mask_file, write_head_lists, write_mask_file
from hydra_core.masks import HeadMask, mean_overlap
from hydra_core.version import __version__

if TYPE_CHECKING:
    from hydra_core import metrics
    from hydra_core.acceleration import Accelerated, accelerate
    from hydra_core.backbones.base import Backbone
    from hydra_core.backbones.registry import load_backbone
    from hydra_core.data import Dataset, load_dataset
    from hydra_core.ensemble_io import load_ensemble, save_ensemble
    from hydra_core.evaluation import Evaluation, evaluate, evaluate_predictions
    from hydra_core.fewest import FewestHeads, fewest_heads
    from hydra_core.finetune import fine_tune
    from hydra_core.fusion import FusedEnsemble, fuse
    from hydra_core.members import make_members
    from hydra_core.merging import MergeGap, merge_gap
    from hydra_core.model_export import export_model
    from hydra_core.prediction import Predictions, predict, stack_members
    from hydra_core.pruning import prune
    from hydra_core.report import study_report
    from hydra_core.scoring import find_circuit, score_heads
    from hydra_core.scoring.results import Circuit, HeadScores
    from hydra_core.study import Study, StudyConfig

_LAZY = {
    "Accelerated": "hydra_core.acceleration",
    "accelerate": "hydra_core.acceleration",
    "Backbone": "hydra_core.backbones.base",
    "load_backbone": "hydra_core.backbones.registry",
    "Dataset": "hydra_core.data",
    "load_dataset": "hydra_core.data",
    "load_ensemble": "hydra_core.ensemble_io",
    "save_ensemble": "hydra_core.ensemble_io",
    "Evaluation": "hydra_core.evaluation",
    "evaluate": "hydra_core.evaluation",
    "evaluate_predictions": "hydra_core.evaluation",
    "export_model": "hydra_core.model_export",
    "FewestHeads": "hydra_core.fewest",
    "fewest_heads": "hydra_core.fewest",
    "fine_tune": "hydra_core.finetune",
    "FusedEnsemble": "hydra_core.fusion",
    "fuse": "hydra_core.fusion",
    "make_members": "hydra_core.members",
    "MergeGap": "hydra_core.merging",
    "merge_gap": "hydra_core.merging",
    "Predictions": "hydra_core.prediction",
    "stack_members": "hydra_core.prediction",
    "predict": "hydra_core.prediction",
    "prune": "hydra_core.pruning",
    "study_report": "hydra_core.report",
    "find_circuit": "hydra_core.scoring",
    "score_heads": "hydra_core.scoring",
    "Circuit": "hydra_core.scoring.results",
    "HeadScores": "hydra_core.scoring.results",
    "Study": "hydra_core.study",
    "StudyConfig": "hydra_core.study",
}

__all__ = [
    "Accelerated",
    "Backbone",
    "Cancelled",
    "Circuit",
    "Dataset",
    "Evaluation",
    "FewestHeads",
    "FusedEnsemble",
    "HeadMask",
    "HeadScores",
    "HydraError",
    "MergeGap",
    "Predictions",
    "Study",
    "StudyConfig",
    "__version__",
    "accelerate",
    "evaluate",
    "evaluate_predictions",
    "export_model",
    "fewest_heads",
    "find_circuit",
    "fine_tune",
    "fuse",
    "load_backbone",
    "load_dataset",
    "load_ensemble",
    "make_members",
    "mean_overlap",
    "merge_gap",
    "metrics",
    "predict",
    "prune",
    "read_mask_file",
    "save_ensemble",
    "score_heads",
    "stack_members",
    "study_report",
    "write_head_lists",
    "write_mask_file",
]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return importlib.import_module("hydra_core.metrics")
    if name not in _LAZY:
        raise AttributeError(f"module 'hydra_core' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
