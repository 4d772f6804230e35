"""Results as JSON text: a format name and a version in front of a dataclass's plain fields."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hydra_core.errors import HydraError

T = TypeVar("T")
VERSION = 1


def parse_json(text: str, what: str) -> Any:
    """Parse JSON or raise a :class:`HydraError` that says where the text breaks."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, TypeError, RecursionError) as error:
        raise HydraError(f"the file is not {what}: its JSON cannot be read ({error})") from None


def to_text(kind: str, fields: Mapping[str, Any]) -> str:
    """The text that :func:`read` with the same `kind` reads back; `fields` are plain values."""
    return json.dumps({"format": kind, "version": VERSION, **fields})


def read(text: str, kind: str, what: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Read :func:`to_text`'s text.

    Args:
        text: JSON.
        kind: the format's name.
        what: as a person calls it, for messages: "an evaluation".
        build: from the fields to the result; a KeyError, TypeError or ValueError of it means a damaged file.

    Raises:
        HydraError: no JSON, another format, another version, or fields that are missing or wrong.
    """
    data = parse_json(text, what)
    if not isinstance(data, dict) or data.pop("format", None) != kind:
        raise HydraError(f"the file does not hold {what} (format {kind!r} was expected)")
    version = data.pop("version", None)
    if version != VERSION:
        raise HydraError(f"this file of {what} has version {version!r}; this program reads version {VERSION}")
    try:
        return build(data)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, HydraError):
            raise
        raise HydraError(f"the file of {what} is damaged ({error})") from None
