"""What a study is about, and the file ``study.json`` that says it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hydra_core.artefacts import parse_json
from hydra_core.errors import HydraError
from hydra_core.version import __version__

FORMAT, VERSION = "hydra-study", 1
CONFIG_FILE = "study.json"


@dataclass(frozen=True)
class StudyConfig:
    """What a study is about.

    Attributes:
        backbone: reference for :func:`hydra_core.load_backbone`.
        data: reference of the in-distribution data for :func:`hydra_core.load_dataset`.
        ood: reference of each out-of-distribution set, by the name it has in tables.
        class_names, templates: for a backbone that is classified by text prompts.
        limit: samples to take of each set; None takes all.
        selection_ood: names of the OOD sets that may be used to choose heads; None allows all. The others are kept
            for testing alone.
    """

    backbone: str
    data: str
    ood: Mapping[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    templates: tuple[str, ...] | None = None
    device: str = "auto"
    dtype: str = "float32"
    seed: int = 0
    limit: int | None = None
    selection_ood: tuple[str, ...] | None = None

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back to an equal configuration."""
        return json.dumps({**asdict(self), "ood": dict(self.ood)})

    @classmethod
    def from_json(cls, text: str) -> "StudyConfig":
        """Read :meth:`to_json`'s text; HydraError where a field is missing or has another type."""
        return cls.from_dict(parse_json(text, "a study's configuration"))

    @classmethod
    def from_dict(cls, data: Any) -> "StudyConfig":
        """Read parsed JSON; unknown fields are left out."""
        if not isinstance(data, dict):
            raise HydraError("a study's configuration is an object with the fields backbone and data")
        known = {key: value for key, value in data.items() if key in {f.name for f in fields(cls)}}
        for key in ("backbone", "data"):
            if not isinstance(known.get(key), str):
                raise HydraError(f"a study's configuration needs the text field {key!r}")
        ood = known.setdefault("ood", {})
        if not isinstance(ood, dict) or not all(isinstance(ref, str) for ref in ood.values()):
            raise HydraError("a study's configuration needs a reference for each name under 'ood'")
        for key in ("class_names", "templates", "selection_ood"):
            value = known.get(key)
            if value is not None:
                if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
                    raise HydraError(f"a study's configuration needs a list of texts under {key!r}")
                known[key] = tuple(value)
        return cls(**known)


def write_config(config: StudyConfig, name: str) -> str:
    """The text of ``study.json``."""
    head = {"format": FORMAT, "version": VERSION, "made_by": f"hydra-studio {__version__}", "name": name}
    return json.dumps({**head, "config": json.loads(config.to_json())}, indent=1)


def read_config(text: str) -> tuple[StudyConfig, str]:
    """The configuration and the stored name.

    Raises:
        HydraError: damaged, not a study, or made by a newer version (which is named).
    """
    data = parse_json(text, "a study's study.json")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise HydraError(f"it is not the file of a study: the format {FORMAT!r} was expected")
    version = data.get("version")
    if not isinstance(version, int) or version > VERSION:
        maker = data.get("made_by") or "an unknown program"
        raise HydraError(
            f"{maker} made it, in format version {version}, and this program reads up to version {VERSION}: "
            "update the program"
        )
    return StudyConfig.from_dict(data.get("config")), str(data.get("name"))
