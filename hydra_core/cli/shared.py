"""What several commands share: arguments to a study's configuration, backbone, data and masks; results to files."""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra_core import pipeline
from hydra_core.errors import HydraError
from hydra_core.study import Study, StudyConfig
from hydra_core.study.files import write_bytes

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone
    from hydra_core.data.dataset import Dataset
    from hydra_core.fusion import FusedEnsemble
    from hydra_core.masks import HeadMask


def ood_references(texts: Sequence[str]) -> dict[str, str]:
    """``name=reference`` or ``reference`` (named after its last part) to references by name."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, ref = text.partition("=")
        # A "=" within a path is part of the path: what stands before it is then no plain name.
        if not separator or "/" in name or not name.strip():
            name, ref = Path(text).stem or text, text
        if name in found:
            raise HydraError(f"two OOD sets are called {name!r}: name one of them, --ood OTHER={ref}")
        if name == pipeline.ID:
            raise HydraError(f"an OOD set cannot be called {name!r}, the ID data's own name: --ood OTHER={ref}")
        found[name] = ref
    return found


def config_of(arguments: argparse.Namespace) -> StudyConfig:
    """The configuration that the arguments describe."""
    return StudyConfig(
        backbone=arguments.backbone,
        data=arguments.data,
        ood=ood_references(arguments.ood),
        class_names=tuple(arguments.class_name) if arguments.class_name else None,
        templates=tuple(arguments.template) if arguments.template else None,
        device=arguments.device,
        dtype=arguments.dtype,
        seed=arguments.seed,
        limit=arguments.test_limit,
    )


def study_and_config(arguments: argparse.Namespace) -> tuple[Study | None, StudyConfig]:
    """The study that is named, or None, and what it, or the arguments, say."""
    if arguments.study is None:
        ensemble = getattr(arguments, "ensemble", None) is not None
        if arguments.data is None or (arguments.backbone is None and not ensemble):
            raise HydraError("give --study FOLDER, or --backbone REF and --data REF")
        arguments.backbone = arguments.backbone or ""
        return None, config_of(arguments)
    if arguments.backbone is not None or arguments.data is not None or arguments.ood:
        raise HydraError("--study names backbone and data already: leave out --backbone, --data and --ood")
    study = Study.open(Path(arguments.study))
    return study, study.config


def load(config: StudyConfig, arguments: argparse.Namespace) -> "tuple[Backbone, pipeline.StudyData]":
    """A study's backbone and data."""
    backbone = pipeline.load_study_backbone(config)
    return backbone, pipeline.load_study_data(config, backbone.class_names, arguments.validation_limit)


def selection_ood(config: StudyConfig, data: pipeline.StudyData) -> "dict[str, Dataset]":
    """Validation parts of the OOD sets that may choose heads."""
    allowed = data.ood if config.selection_ood is None else config.selection_ood
    return {name: data.ood[name].validation for name in allowed if name in data.ood}


def on_device(config: StudyConfig, device: str | None) -> StudyConfig:
    """The same study on another device, where one is given."""
    return config if device is None else StudyConfig.from_dict({**json.loads(config.to_json()), "device": device})


def masks_of(study: Study, name: str) -> "list[HeadMask]":
    """A study's stored masks; HydraError where there are none of that name."""
    masks = study.masks(name)
    if masks is None:
        known = ", ".join(study.names("masks")) or "none"
        raise HydraError(
            f"the study {study.name!r} has no masks called {name!r} (there are: {known}); make members first"
        )
    return masks


def fused_of(backbone: "Backbone", masks: "Sequence[HeadMask]") -> "FusedEnsemble":
    """The ensemble of the members that keep `masks`."""
    from hydra_core.fusion import fuse
    from hydra_core.pruning import prune

    return fuse([prune(backbone, mask) for mask in masks])


def write_ensemble(fused: "FusedEnsemble", target: Path, study: Study) -> None:
    """Save as a folder, or as a zip where `target` ends so; the card says what the study knows of it."""
    from hydra_core.ensemble_io import save_ensemble
    from hydra_core.model_card import study_facts

    facts = study_facts(study, fused.fingerprint)
    if target.suffix.lower() != ".zip":
        save_ensemble(fused, target, facts=facts)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_ensemble(fused, Path(folder) / target.stem, facts=facts)
        packed = shutil.make_archive(str(Path(folder) / "packed"), "zip", folder, target.stem)
        write_bytes(target, Path(packed).read_bytes())


def keep(text: str, out: str | None) -> dict[str, Any]:
    """Write a result to `out` where one is given; returns it as plain values."""
    if out is not None:
        write_bytes(Path(out).expanduser().resolve(), text.encode())
    result: dict[str, Any] = json.loads(text)
    return result
