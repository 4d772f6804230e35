"""Choosing what a head's removal is measured by: the task loss, or how well an OOD set is told apart."""

from dataclasses import dataclass

from hydra_core.study import Study
from pages.ui import state, work

OBJECTIVES = {"loss": "Task loss", "ood_auroc": "OOD detection (AUROC)", "average": "Average of both"}
SCORES = {
    "msp": "1 − largest probability",
    "entropy": "entropy",
    "energy": "energy",
    "max_logit": "− largest logit",
}


@dataclass(frozen=True)
class Goal:
    """An objective, and for one that needs OOD data the set and the score that tells it apart."""

    objective: str = "loss"
    ood: str | None = None
    score: str = "msp"

    @property
    def label(self) -> str:
        """What a stored result is called; the loss and the usual score need no word."""
        return " ".join([self.objective, *([self.ood] if self.ood else []), *self._score_word])

    @property
    def _score_word(self) -> list[str]:
        return [] if self.ood is None or self.score == "msp" else [self.score]


def choose(study: Study, name: str, columns: list, *, ood: bool = True) -> Goal:
    """Draw the widgets into three columns; `name` tells the page's choices from another's, `ood`: whether an
    objective that needs OOD data can be chosen."""
    sets = work.selectable(study) if ood else []
    options = list(OBJECTIVES) if sets else ["loss"]
    objective = columns[0].selectbox(
        "Objective", options, format_func=OBJECTIVES.get,
        **state.bind(study, f"{name} objective", "loss", options),
    )  # fmt: skip
    if objective == "loss":
        return Goal()
    chosen = columns[1].selectbox(
        "OOD set", sets, **state.bind(study, f"{name} ood", sets[0], sets),
        help="Its validation part is used. A set that helped to choose heads is not unseen any more.",
    )  # fmt: skip
    score = columns[2].selectbox(
        "OOD score", list(SCORES), format_func=SCORES.get,
        **state.bind(study, f"{name} ood score", "msp", list(SCORES)),
        help="Of one network; higher = more OOD. The AUROC says how well it tells this set from the ID data.",
    )  # fmt: skip
    return Goal(objective, chosen, score)
