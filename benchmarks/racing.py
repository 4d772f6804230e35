"""Is the raced HeadMap search as good as the exact one, and how much faster?

    python -m benchmarks.racing --rounds 5

`demo/vit`, objective loss, 4 of 6 heads a layer, 2,000 validation samples: exact search and races with other orders
of the samples take turns. Prints the ratio of times (median of per-round ratios), the share of forward work that the
race left out by its own count, the share of the same heads chosen, and the loss (nats, on the same samples) of a
member that keeps the raced circuit, less that of the exact one.
"""

import argparse
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hydra_core as hydra
from benchmarks.common import machine, write_results
from hydra_core.markdown import markdown_table
from hydra_core.scoring.results import Circuit


def work_share(circuit: Circuit) -> float:
    """Layers that the race ran samples through, over those of the exact search.

    A measurement of a head runs through the layers from its own on, the baseline through all; to go on from layer to
    layer, each sample seen runs through each layer once more.
    """
    assert circuit.measured is not None
    layers = circuit.keep.num_layers
    weights = np.arange(layers, 0, -1)[:, None]

    def work(measured: NDArray[np.int64]) -> int:
        return int((weights * measured).sum() + layers * measured[0].max() + measured.max(axis=1).sum())

    return work(circuit.measured) / work(np.isfinite(circuit.values) * circuit.num_samples)


def racing_table(results: dict[str, Any]) -> str:
    """One row a tolerance, and what was measured."""
    header = [
        "tolerance",
        "exact / race, time",
        "the count predicts",
        "the same heads (lowest)",
        "loss lost, nats (worst)",
    ]
    cells = []
    for tolerance in sorted({row["tolerance"] for row in results["rows"]}):
        rows = [row for row in results["rows"] if row["tolerance"] == tolerance]
        ratio, share, same, lost = (
            np.array([row[key] for row in rows]) for key in ("ratio", "work_share", "same_heads", "objective_lost")
        )
        low, middle, high = np.quantile(ratio, [0.25, 0.5, 0.75])
        cells.append(
            [
                f"{tolerance:g}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})",
                f"{1 / np.median(share):.2f}",
                f"{same.mean():.3f} ({same.min():.3f})",
                f"{lost.mean():+.4f} ({lost.max():+.4f})",
            ]
        )
    rounds = len(results["rows"]) // len(cells)
    exact = np.median([row["exact_seconds"] for row in results["rows"]])
    return (
        f"{markdown_table(header, cells, numbers_from=0)}\n\n`demo/vit`, objective loss, {results['samples']} "
        f"validation samples, {results['heads_per_layer']} of 6 heads a layer, confidence 0.9; {rounds} rounds, each "
        f"with another order of the samples beside an exact search ({exact:.1f} s, median). Loss lost: of the member "
        "that keeps the raced circuit, on the same samples, against the exact one."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="exact searches, each beside a race with another order")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--heads", type=int, default=4, help="heads a layer")
    parser.add_argument("--tolerance", type=float, nargs="+", default=[0.0, 0.25], help="of races, see find_circuit")
    parser.add_argument("--name", default="racing")
    arguments = parser.parse_args()
    backbone = hydra.load_backbone("demo/vit", device="cpu")
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=arguments.samples)
    options: dict[str, Any] = {"heads_per_layer": arguments.heads}

    def member_loss(circuit: Circuit) -> float:
        value = hydra.evaluate(hydra.prune(backbone, circuit.keep), data).metrics["nll"]
        assert value is not None
        return value

    hydra.find_circuit(backbone, data.take(100), **options)  # warms up
    rows = []
    for seed in range(arguments.rounds):
        start = time.perf_counter()
        exact = hydra.find_circuit(backbone, data, **options)
        exact_seconds = time.perf_counter() - start
        exact_loss = member_loss(exact)
        for tolerance in arguments.tolerance:
            start = time.perf_counter()
            raced = hydra.find_circuit(backbone, data, search="race", seed=seed, tolerance=tolerance, **options)
            seconds = time.perf_counter() - start
            row = {
                "seed": seed,
                "tolerance": tolerance,
                "exact_seconds": exact_seconds,
                "race_seconds": seconds,
                "ratio": exact_seconds / seconds,
                "work_share": work_share(raced),
                "same_heads": len(raced.keep.kept & exact.keep.kept) / exact.keep.num_kept,
                "objective_lost": member_loss(raced) - exact_loss,
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    results = {"machine": machine(), "samples": arguments.samples, "heads_per_layer": arguments.heads, "rows": rows}
    print(racing_table(results))
    print(f"Written to {write_results(arguments.name, results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
