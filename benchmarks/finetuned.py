"""Fine-tuned members against a deep ensemble, and what averaging the MLPs on fusing costs: over several seeds.

    python -m benchmarks.finetuned                 # all demos; goes on where it was stopped
    python -m benchmarks.finetuned --demo vit --seeds 5

For each seed: training and validation samples are drawn; three members are chosen by Taylor scores on shards and three
by HeadMap circuits (loss, ood_auroc, average); each is fine-tuned, as are three full copies (a deep ensemble of one
pretrained network; copies differ by the order of the samples). Measured on the test samples drawn with the seed:
the full model as it is, each ensemble, and the two Hydra Ensembles before and after their MLPs are averaged. Each
seed's metrics and time go to benchmarks/results/finetuned_<demo>_seed<n>.json, and a run resumes from them; intervals
are 95 % Student t over the seeds.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra_core as hydra
from benchmarks.common import RESULTS, interval, machine
from hydra_core.backbones.base import Backbone
from hydra_core.cli.text import ProgressLine
from hydra_core.data import Dataset
from hydra_core.markdown import markdown_table
from hydra_core.zero_shot import DEMOS, Demo

MEMBERS = 3
FULL, DEEP = "full model", f"deep ensemble ({MEMBERS} full copies)"
APART, FUSED = "{} members, MLPs apart", "{} members, fused"
TAYLOR, CIRCUIT = "Taylor", "circuit"
ROWS = (FULL, APART.format(TAYLOR), FUSED.format(TAYLOR), APART.format(CIRCUIT), FUSED.format(CIRCUIT), DEEP)


@dataclass(frozen=True)
class Budget:
    """One seed's budget: samples that heads are chosen on, trained on and tested on, and how long."""

    choosing: int
    training: int
    validation: int
    testing: int
    epochs: int
    learning_rate: float


BUDGETS = {
    "vit": Budget(500, 6000, 1000, 2000, 2, 3e-4),
    "bert": Budget(60, 800, 200, 400, 1, 5e-5),
    "clip": Budget(500, 6000, 1000, 2000, 2, 1e-4),
}


def run_seed(name: str, seed: int, line: ProgressLine) -> dict[str, Any]:
    """Everything of one demo and seed."""
    demo, budget, start = DEMOS[name], BUDGETS[name], time.perf_counter()
    backbone = hydra.load_backbone(demo.backbone, device="cpu")

    def load(ref: str, split: str, limit: int) -> Dataset:
        return hydra.load_dataset(ref, split=split, limit=limit, seed=seed)

    training, validation = load(demo.data, "train", budget.training), load(demo.data, "validation", budget.validation)
    testing = load(demo.data, "test", budget.testing)
    ood = {title: load(ref, "test", budget.testing) for title, ref in (demo.selected, demo.unseen)}
    ensembles = {
        kind: tuned(kind, backbone, demo, training, validation, budget, seed, line) for kind in (TAYLOR, CIRCUIT)
    }
    copies = [tune(backbone, training, validation, budget, seed * MEMBERS + i, line) for i in range(MEMBERS)]

    def predicted(models: list[Backbone], data: Dataset) -> hydra.Predictions:
        return hydra.stack_members([hydra.predict(model, data, progress=line.show) for model in models])

    def measured(models: list[Backbone]) -> dict[str, float | None]:
        others = {title: predicted(models, data) for title, data in ood.items()}
        return hydra.evaluate_predictions(predicted(models, testing), others).metrics

    rows = {FULL: measured([backbone]), DEEP: measured(copies)}
    gaps = {}
    for kind, members in ensembles.items():
        gap = hydra.merge_gap(members, hydra.fuse(members), testing, ood=ood, progress=line.show)
        rows[APART.format(kind)], rows[FUSED.format(kind)] = gap.before.metrics, gap.after.metrics
        gaps[kind] = {"mean": gap.mean_difference, "max": gap.max_difference}
    line.clear()
    return {
        "demo": name,
        "seed": seed,
        "budget": asdict(budget),
        "heads_per_layer": demo.heads_per_layer,
        "seen": demo.selected[0],
        "unseen": demo.unseen[0],
        "masks": {kind: [list(map(list, m.mask.keep)) for m in members] for kind, members in ensembles.items()},
        "rows": rows,
        "probability_gap": gaps,
        "seconds": time.perf_counter() - start,
        "machine": machine(),
    }


def tuned(
    kind: str,
    backbone: Backbone,
    demo: Demo,
    training: Dataset,
    validation: Dataset,
    budget: Budget,
    seed: int,
    line: ProgressLine,
) -> list[Backbone]:
    """Three members of one kind, fine-tuned."""
    choosing = validation.take(budget.choosing, seed=seed)
    title, ref = demo.selected
    strangers = {title: hydra.load_dataset(ref, split="validation", limit=budget.choosing, seed=seed)}
    masks = hydra.make_members(
        backbone, choosing, ood=strangers, num_members=MEMBERS, strategy=kind.lower(),
        heads_per_layer=demo.heads_per_layer, seed=seed, progress=line.show,
    )  # fmt: skip
    return [
        tune(hydra.prune(backbone, mask), training, validation, budget, seed * MEMBERS + i, line)
        for i, mask in enumerate(masks)
    ]


def tune(
    model: Backbone, training: Dataset, validation: Dataset, budget: Budget, seed: int, line: ProgressLine
) -> Backbone:
    """One fine-tuning run, stopped early by the validation NLL."""
    return hydra.fine_tune(
        model, training, epochs=budget.epochs, learning_rate=budget.learning_rate, seed=seed, validation=validation,
        progress=line.show,
    )  # fmt: skip


def path_of(name: str, seed: int) -> Path:
    return RESULTS / f"finetuned_{name}_seed{seed}.json"


def table(results: list[dict[str, Any]]) -> str:
    """The README's table of one demo."""
    first = results[0]
    columns = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}
    for title, note in ((first["seen"], "seen"), (first["unseen"], "never seen")):
        columns |= {f"ood/{title}/auroc": f"AUROC {title} ({note})", f"ood/{title}/fpr95": f"FPR95 {title}"}
    rows = [[row, *(interval([one["rows"][row][key] for one in results]) for key in columns)] for row in ROWS]
    budget = first["budget"]
    gaps = "; ".join(
        f"{kind} {interval([one['probability_gap'][kind]['mean'] for one in results], digits=4)}"
        for kind in (TAYLOR, CIRCUIT)
    )
    caption = (
        f"`demo/{first['demo']}`, {MEMBERS} members of {first['heads_per_layer']} heads a layer; mean and 95 % "
        f"interval (Student t) over {len(results)} seeds. Budget of each member and copy: {budget['training']} "
        f"training samples, at most {budget['epochs']} epoch{'s' if budget['epochs'] > 1 else ''}, learning rate "
        f"{budget['learning_rate']:g}; heads chosen on {budget['choosing']} validation samples, stopped by the NLL of "
        f"{budget['validation']}; tested on {budget['testing']} of each set (or all there are). Mean |difference| of "
        f"the ensemble's probabilities that averaging the MLPs makes: {gaps}."
    )
    return f"{markdown_table(['model', *columns.values()], rows)}\n\n{caption}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="append", choices=list(BUDGETS), help="which (repeatable; all by default)")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    line = ProgressLine(sys.stderr)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in arguments.demo or BUDGETS:
        results = []
        for seed in range(arguments.seeds):
            path = path_of(name, seed)
            if not path.exists():
                path.write_text(json.dumps(run_seed(name, seed, line), indent=1) + "\n")
            results.append(json.loads(path.read_text()))
        text = table(results)
        (RESULTS / f"finetuned_{name}.md").write_text(text + "\n")
        print(text + "\n")


if __name__ == "__main__":
    main()
