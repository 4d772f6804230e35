"""Head importance: one method a file, one verb (:func:`score_heads`), one result type (:class:`HeadScores`).

Reading stored results needs no torch, so the verbs load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra_core.scoring.headmap import find_circuit
    from hydra_core.scoring.score import METHODS, score_heads

__all__ = ["METHODS", "find_circuit", "score_heads"]

_LAZY = {"find_circuit": "headmap", "score_heads": "score", "METHODS": "score"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
