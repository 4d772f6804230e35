"""Labels are matched by name: what a class is called decides, never where it stands in a list."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError

Key = int | str  # a row number (from 1) or a file name
Skipped = tuple[Key, str]


def check_class_names(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """`class_names` as a tuple of distinct, non-empty str, or None.

    Raises:
        HydraError: a bare string, something that is no str, a blank, or a name that comes twice.
    """
    if class_names is None:
        return None
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in class_names):
        raise HydraError(f"class_names must be a sequence of str, one a class, got {class_names!r:.80}")
    names = tuple(name.strip() for name in class_names)
    if not names or not all(names):
        raise HydraError("class_names must hold at least one name, and no blank one")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise HydraError(f"class_names holds {twice!r} twice: each class needs its own name")
    return names


def map_labels(
    found: Sequence[str], keys: Sequence[Key], class_names: tuple[str, ...] | None
) -> tuple[list[int], NDArray[np.int64], tuple[str, ...], list[Skipped]]:
    """Label texts to class indices.

    Args:
        found: one label text a sample; blank where there is none.
        keys: row or file name of each sample, for `skipped`.
        class_names: the backbone's classes, or None to take the names that occur, sorted (numbers by size).

    Returns:
        Positions of the samples that stay, their labels (n,), the class names, and what was skipped.
    """
    texts = [text.strip() for text in found]
    names = class_names if class_names is not None else _sorted_names({text for text in texts if text})
    index = {name: i for i, name in enumerate(names)}
    stay: list[int] = []
    skipped: list[Skipped] = []
    for position, (text, key) in enumerate(zip(texts, keys, strict=True)):
        if text in index:
            stay.append(position)
        elif not text:
            skipped.append((key, "the label is blank"))
        else:
            skipped.append((key, f"the label {text!r} is none of the classes {_some(names)}"))
    labels = np.array([index[texts[position]] for position in stay], dtype=np.int64)
    return stay, labels, names, skipped


def _sorted_names(names: set[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(sorted(names))


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown + (f", ... ({len(names)} in all)" if len(names) > 5 else "")


def no_sample_left(what: str, skipped: Sequence[Skipped]) -> HydraError:
    """The error for data of which every row was skipped."""
    if not skipped:
        return HydraError(f"{what} holds no sample; at least one is needed")
    reasons = "; ".join(f"{key}: {reason}" for key, reason in skipped[:3])
    more = f"; and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    return HydraError(f"{what} holds no sample that can be used. {reasons}{more}")
