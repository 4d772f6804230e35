"""A training run's state in one safetensors file, so that a run that was stopped goes on: no pickle, written whole."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from hydra_core.errors import HydraError

FORMAT = "hydra-fine-tuning-1"


def save_checkpoint(path: Path, run: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Replace the file at `path`; `run` says whose state it is.

    Raises:
        HydraError: the file cannot be written.
    """
    from safetensors.torch import save_file

    header = {"format": FORMAT, "run": run, "facts": json.dumps(dict(facts))}
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        os.close(handle)
        try:
            save_file(whole, temporary, metadata=header)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise HydraError(f"the checkpoint {str(path)!r} cannot be written ({error.strerror or error})") from None


def load_checkpoint(path: Path, run: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The state that `run` left at `path`; None where there is no file.

    Raises:
        HydraError: the file is damaged, or another run's.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    if path.is_dir():
        raise HydraError(f"the checkpoint {str(path)!r} is a folder; name a file in it, e.g. {str(path / 'run')!r}")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
        facts = json.loads(header.get("facts", ""))
    except (SafetensorError, OSError, ValueError) as error:
        raise HydraError(f"the checkpoint {str(path)!r} cannot be read ({error}); delete it to begin again") from None
    if header.get("format") != FORMAT or header.get("run") != run:
        raise HydraError(
            f"the checkpoint {str(path)!r} belongs to another run: other weights, data or settings; give this run "
            "another file, or delete that one"
        )
    return tensors, facts
