"""What the command line prints: one progress line, and tables."""

import shutil
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from hydra_core.markdown import markdown_table

if TYPE_CHECKING:
    from hydra_core.evaluation import Evaluation

_METRICS = ("accuracy", "nll", "brier", "ece", "mutual_information", "disagreement")
_OOD_METRICS = ("auroc", "fpr95")


class ProgressLine:
    """One line on a terminal that is written again and again; silent where stderr is no terminal."""

    def __init__(self, stream: TextIO, *, every: float = 0.1) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._every = every
        self._last = 0.0
        self._width = 0

    def show(self, done: int, total: int, note: str) -> None:
        """A progress callable (see :mod:`hydra_core.jobs`)."""
        now = time.monotonic()
        if not self._live or (now - self._last < self._every and done < total):
            return
        self._last = now
        columns = shutil.get_terminal_size().columns - 1
        share = f"{100 * done // total:3d} % " if total else ""
        text = f"{share}{note}"[:columns]
        self._stream.write("\r" + text.ljust(min(self._width, columns)))
        self._stream.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Remove the line."""
        if self._live and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) or "none"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def evaluation_table(evaluations: "dict[str, Evaluation]", ood: Iterable[str]) -> str:
    """One column a model, one row a metric, and what they rest on."""
    rows = [*_METRICS, *(f"ood/{name}/{metric}" for name in ood for metric in _OOD_METRICS)]
    table_text = markdown_table(
        ["metric", *evaluations],
        [[row, *(_number(evaluation.metrics.get(row)) for evaluation in evaluations.values())] for row in rows],
    )
    first = next(iter(evaluations.values()))
    counts = ", ".join(f"{name} {count}" for name, count in first.ood_counts.items())
    return f"{table_text}\n\nn = {first.num_samples} ID{', OOD ' + counts if counts else ''}; OOD score {first.score}"


def heads_table(values: Any) -> str:
    """Values (L, max heads), one row a layer; empty where there is no head."""
    header = ["layer", *(f"head {head}" for head in range(values.shape[1]))]
    rows = [[str(layer), *("" if v != v else f"{v:.4g}" for v in row)] for layer, row in enumerate(values.tolist())]
    return markdown_table(header, rows)
