"""Predictions as safetensors bytes: arrays, and the rest as JSON in the header. No pickle, no torch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.study.files import broken

if TYPE_CHECKING:
    from hydra_core.prediction import Predictions

_FORMAT, _VERSION = "hydra-predictions", 1
_KEY = "hydra"


def encode(predictions: "Predictions") -> bytes:
    """`predictions` as the bytes of a safetensors file."""
    from safetensors.numpy import save

    arrays = {"logits": np.ascontiguousarray(predictions.logits, dtype=np.float32)}
    if predictions.labels is not None:
        arrays["labels"] = np.ascontiguousarray(predictions.labels, dtype=np.int64)
    rest = {
        "format": _FORMAT,
        "version": _VERSION,
        "excluded": [int(index) for index in predictions.excluded],
        "class_names": list(predictions.class_names),
        "model_fingerprint": predictions.model_fingerprint,
        "data_fingerprint": predictions.data_fingerprint,
        "data_name": predictions.data_name,
    }
    return save(arrays, metadata={_KEY: json.dumps(rest)})


def decode(path: Path) -> "Predictions":
    """Read the file `path`.

    Raises:
        HydraError: damaged, of another format, or with arrays that do not fit each other; names the file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as stored:
            rest = json.loads((stored.metadata() or {})[_KEY])
            arrays = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 - no mapping
        return _predictions(rest, arrays)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise broken(path, error) from error


def _predictions(rest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> "Predictions":
    from hydra_core.prediction import Predictions

    if rest.pop("format") != _FORMAT or rest.pop("version") != _VERSION:
        raise HydraError(f"it does not hold {_FORMAT} of version {_VERSION}")
    logits, labels = arrays["logits"], arrays.get("labels")
    if logits.ndim != 3 or (labels is not None and labels.shape != logits.shape[1:2]):
        shape = None if labels is None else labels.shape
        raise HydraError(f"logits of shape {logits.shape} and labels of shape {shape} do not fit")
    return Predictions(
        logits=logits,
        labels=labels,
        excluded=tuple(rest["excluded"]),
        class_names=tuple(rest["class_names"]),
        model_fingerprint=str(rest["model_fingerprint"]),
        data_fingerprint=str(rest["data_fingerprint"]),
        data_name=str(rest["data_name"]),
    )
