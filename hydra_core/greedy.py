"""Members chosen greedily from a pool of candidates, for what their ensemble does rather than each alone.

Forward selection without replacement: Caruana et al., "Ensemble selection from libraries of models", ICML 2004.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hydra_core.errors import HydraError
from hydra_core.metrics import negative_log_likelihood, ood_metrics, ood_score, softmax

GOALS = ("nll", "ood_auroc")


def greedy_members(
    logits: Any,
    labels: Any,
    *,
    ood_logits: Sequence[Any] = (),
    num_members: int,
    goal: str = "nll",
    score: str = "msp",
    allowed: Callable[[Sequence[int], int], bool] | None = None,
) -> list[int]:
    """Indices of the candidates whose ensemble is best, in the order in which they were taken.

    The first is the best alone; each next one is the candidate with which the mean probabilities of those taken so
    far do best. Equal values: the earlier candidate.

    Args:
        logits: (K, N, C) of K candidates on ID validation data.
        labels: (N,) class indices; used by the goal `nll`.
        ood_logits: one (K, N_ood, C) an OOD set; the goal `ood_auroc` is the mean over them.
        num_members: candidates to take.
        goal: `nll` (lowest negative log-likelihood of the mean probabilities) or `ood_auroc` (highest).
        score: the OOD score, see :func:`hydra_core.metrics.ood_score`.
        allowed: told of those taken and a candidate; where it says no, the candidate is passed over this time.

    Raises:
        HydraError: an unknown goal, no OOD set for `ood_auroc`, or no candidate left that is allowed.
    """
    if goal not in GOALS:
        raise HydraError(f"the goal {goal!r} is not known; expected one of {', '.join(GOALS)}")
    if goal == "ood_auroc" and not ood_logits:
        raise HydraError("the goal 'ood_auroc' needs at least one OOD set for choosing; give ood, or take goal='nll'")
    known = np.asarray(logits)
    others = [np.asarray(one) for one in ood_logits]
    taken: list[int] = []
    while len(taken) < num_members:
        rest = [k for k in range(len(known)) if k not in taken and (allowed is None or allowed(taken, k))]
        if not rest:
            raise HydraError(
                f"of {len(known)} candidates only {len(taken)} could be taken together, {num_members} were wanted"
            )
        values = [_value(known, labels, others, [*taken, k], goal, score) for k in rest]
        taken.append(rest[int(np.argmin(values))])
    return taken


def _value(
    logits: NDArray[Any], labels: Any, others: Sequence[NDArray[Any]], chosen: list[int], goal: str, score: str
) -> float:
    """What greedy selection makes small."""
    if goal == "nll":
        return negative_log_likelihood(softmax(logits[chosen]).mean(axis=0), labels)

    def uncertainty(part: NDArray[Any]) -> NDArray[np.float64]:
        return ood_score(score, logits=part[chosen], member_probabilities=softmax(part[chosen]))

    here = uncertainty(logits)
    found = [ood_metrics(here, uncertainty(other)).auroc for other in others]
    if any(value is None for value in found):
        raise HydraError("an OOD set or the validation data has no sample with finite logits, so there is no AUROC")
    return -float(np.mean([value for value in found if value is not None]))
