"""Checks of what a caller gives, with one wording: what was given, what was expected."""

from typing import Any

from hydra_core.errors import HydraError


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int from `least` to `most`; a bool is no number here."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise HydraError(f"{name} must be a whole number {wanted}, got {value!r:.80}")
    return value


def share(name: str, value: Any, meaning: str) -> float:
    """`value` as a float from 0 to 1; `meaning` says of what it is a share."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise HydraError(f"{name} is {meaning}, got {value!r:.80}")
    return float(value)


def instance(name: str, value: Any, kinds: type | tuple[type, ...], how: str) -> None:
    """HydraError where `value` is none of `kinds`; `how` says where one comes from."""
    if not isinstance(value, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        raise HydraError(f"{name} must be a {' or a '.join(names)} ({how}), got a {type(value).__name__}")
