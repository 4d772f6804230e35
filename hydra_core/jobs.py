"""Progress and cancellation for long work, with no thread and no user interface of its own.

A long function takes ``progress=None`` or a callable ``progress(done, total, note)``. The callable may raise
:class:`~hydra_core.errors.Cancelled`; the function then leaves nothing half-written.
"""

from typing import Protocol

from hydra_core.errors import Cancelled

__all__ = ["Cancelled", "Progress", "Stages", "report"]


class Progress(Protocol):
    """``progress(done, total, note)``: `done` of `total` steps are finished; `note` says what runs now."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """Hear of progress; may raise :class:`Cancelled`."""


def report(progress: Progress | None, done: int, total: int, note: str) -> None:
    """Call `progress` where there is one (it may raise :class:`Cancelled`)."""
    if progress is not None:
        progress(done, total, note)


class Stages:
    """Progress of several stages as one: each stage counts a thousand steps."""

    def __init__(self, progress: Progress | None, count: int) -> None:
        self._progress = progress
        self._count = count
        self._begun = 0

    def next(self, what: str) -> Progress:
        """Begin the next stage; returns the callable for its own progress."""
        index, self._begun = self._begun, self._begun + 1
        whole = 1000 * self._count

        def inner(done: int, total: int, note: str) -> None:
            share = done / total if total else 0.0
            text = f"{what}: {note}" if note else what
            report(self._progress, min(whole, int(1000 * (index + share))), whole, text)

        inner(0, 1, "")
        return inner
