"""The metrics of an evaluation as columns of a table: their labels, units, which way is better, decimals."""

from hydra_core.evaluation import OOD_TITLES
from hydra_core.figures import Column

GENERAL = (
    Column("accuracy", "Accuracy (%)", "higher", 2, percent=True),
    Column("nll", "NLL (nats)", "lower"),
    Column("brier", "Brier (0–2)", "lower"),
    Column("ece", "ECE", "lower", 4),
    Column("ace", "Adaptive ECE", "lower", 4),
    Column("mce", "MCE", "lower"),
    Column("disagreement", "Disagreement (%)", None, 2, percent=True),
    Column("mutual_information", "Mutual information (nats)", None, 4),
)


def ood_columns(name: str) -> list[Column]:
    """The columns of one OOD set."""
    return [
        Column(f"ood/{name}/{key}", title, "lower" if key.startswith("fpr") else "higher", 4)
        for key, title in OOD_TITLES.items()
    ]
