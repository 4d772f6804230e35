"""Progress and cancellation for long work, with no thread and no user interface of its own.

A long function takes ``progress=None`` or a callable ``progress(done, total, note)``. The callable may raise
:class:`~hydra_core.errors.Cancelled`; the function then leaves nothing half-written.
"""

from typing import Protocol

from hydra_core.errors import Cancelled

__all__ = ["Cancelled", "Progress", "report"]


class Progress(Protocol):
    """``progress(done, total, note)``: `done` of `total` steps are finished; `note` says what runs now."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """Hear of progress; may raise :class:`Cancelled`."""


def report(progress: Progress | None, done: int, total: int, note: str) -> None:
    """Call `progress` where there is one (it may raise :class:`Cancelled`)."""
    if progress is not None:
        progress(done, total, note)
