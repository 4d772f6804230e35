"""Which ranking finds the heads that carry the task? Areas under faithfulness curves over several data seeds.

    python -m benchmarks.faithfulness                  # all demos; goes on where it was stopped
    python -m benchmarks.faithfulness --demo vit --seeds 5

For each seed, validation samples are drawn, heads are ranked on them (HeadMap circuit of the loss, Taylor, integrated
gradients, random), and the curves are measured on test samples drawn with the same seed. Each seed's areas and time go
to benchmarks/results/faithfulness_<demo>_seed<n>.json, and a run resumes from them; the table's intervals are 95 %
Student t over the seeds.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hydra_core as hydra
from benchmarks.common import RESULTS, interval, machine
from hydra_core.cli.text import ProgressLine
from hydra_core.faithfulness import KEEP, REMOVE, Faithfulness, faithfulness, random_rankings
from hydra_core.markdown import markdown_table
from hydra_core.zero_shot import DEMOS

RANDOM_DRAWS = 3  # random rankings a seed, whose areas are averaged
CIRCUIT, TAYLOR, GRADIENTS, RANDOM = "circuit (loss)", "Taylor", "integrated gradients", "random"
RANKINGS = (CIRCUIT, TAYLOR, GRADIENTS, RANDOM)


@dataclass(frozen=True)
class Sizes:
    """Samples that rankings are made on, and that curves are measured on, of each set."""

    ranking: int
    curves: int


SIZES = {"vit": Sizes(500, 1000), "bert": Sizes(60, 150), "clip": Sizes(500, 1000)}


def run_seed(name: str, seed: int, line: ProgressLine) -> dict[str, Any]:
    """Rank on validation samples, measure on test samples, both drawn with `seed`."""
    demo, sizes, start = DEMOS[name], SIZES[name], time.perf_counter()
    backbone = hydra.load_backbone(demo.backbone, device="cpu")
    ranked = hydra.load_dataset(demo.data, split="validation", limit=sizes.ranking, seed=seed)
    tested = hydra.load_dataset(demo.data, split="test", limit=sizes.curves, seed=seed)
    ood_name, ood_ref = demo.selected
    ood = {ood_name: hydra.load_dataset(ood_ref, split="test", limit=sizes.curves, seed=seed)}
    rankings: dict[str, Any] = {
        CIRCUIT: hydra.find_circuit(backbone, ranked, heads_per_layer=demo.heads_per_layer, progress=line.show),
        TAYLOR: hydra.score_heads(backbone, ranked, method="taylor", progress=line.show),
        GRADIENTS: hydra.score_heads(backbone, ranked, method="captum:integrated_gradients", progress=line.show),
        **random_rankings(backbone.mask.widths, RANDOM_DRAWS, seed=seed),
    }
    found = faithfulness(backbone, tested, rankings, ood=ood, progress=line.show)
    line.clear()
    metrics = ("accuracy", "ece", f"ood/{ood_name}/auroc")
    return {
        "demo": name,
        "seed": seed,
        "ranking_samples": len(ranked),
        "curve_samples": found.num_samples,
        "ood": ood_name,
        "seconds": time.perf_counter() - start,
        "machine": machine(),
        "areas": {
            ranking: {d: {m: _area(found, ranking, d, m) for m in metrics} for d in (KEEP, REMOVE)}
            for ranking in RANKINGS
        },
    }


def _area(found: Faithfulness, ranking: str, direction: str, metric: str) -> float | None:
    names = [name for name in found.curves if name.startswith("random ")] if ranking == RANDOM else [ranking]
    areas = [found.area(name, direction, metric) for name in names]
    return None if any(area is None for area in areas) else float(np.mean([a for a in areas if a is not None]))


def path_of(name: str, seed: int) -> Path:
    return RESULTS / f"faithfulness_{name}_seed{seed}.json"


def table(results: list[dict[str, Any]]) -> str:
    """The README's table of one demo."""
    first = results[0]
    ood = first["ood"]
    columns = [
        (KEEP, "accuracy", "accuracy, kept alone (higher)"),
        (REMOVE, "accuracy", "accuracy, removed (lower)"),
        (KEEP, f"ood/{ood}/auroc", f"AUROC {ood}, kept alone"),
        (KEEP, "ece", "ECE, kept alone"),
    ]
    rows = [
        [ranking, *(interval([one["areas"][ranking][d][m] for one in results]) for d, m, _ in columns)]
        for ranking in RANKINGS
    ]
    caption = (
        f"`demo/{first['demo']}`, areas under the curves over the share of heads of each layer; mean and 95 % interval "
        f"(Student t) over {len(results)} data seeds. Rankings from {first['ranking_samples']} validation samples, "
        f"curves from {first['curve_samples']} test samples of each set; random: mean of {RANDOM_DRAWS} draws a seed."
    )
    return f"{markdown_table(['ranking', *(title for _, _, title in columns)], rows)}\n\n{caption}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="append", choices=list(SIZES), help="which (repeatable; all by default)")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    line = ProgressLine(sys.stderr)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in arguments.demo or SIZES:
        results = []
        for seed in range(arguments.seeds):
            path = path_of(name, seed)
            if not path.exists():
                path.write_text(json.dumps(run_seed(name, seed, line), indent=1) + "\n")
            results.append(json.loads(path.read_text()))
        text = table(results)
        (RESULTS / f"faithfulness_{name}.md").write_text(text + "\n")
        print(text + "\n")


if __name__ == "__main__":
    main()
