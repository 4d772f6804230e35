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

import hydra_core as hydra
from benchmarks.common import machine, write_results
from hydra_core.scoring.results import Circuit


def work_share(circuit: Circuit) -> float:
    """Head measurements made over those of the exact search, each weighed by the layers that it runs through."""
    assert circuit.measured is not None
    layers = circuit.keep.num_layers
    weights = np.arange(layers, 0, -1)[:, None]
    present = np.isfinite(circuit.values)
    return float((weights * circuit.measured).sum() / (weights * present * circuit.num_samples).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="exact searches, each beside a race with another order")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--heads", type=int, default=4, help="heads a layer")
    parser.add_argument("--confidence", type=float, nargs="+", default=[0.9])
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
        for confidence in arguments.confidence:
            start = time.perf_counter()
            raced = hydra.find_circuit(backbone, data, search="race", seed=seed, confidence=confidence, **options)
            seconds = time.perf_counter() - start
            row = {
                "seed": seed,
                "confidence": confidence,
                "exact_seconds": exact_seconds,
                "race_seconds": seconds,
                "ratio": exact_seconds / seconds,
                "work_share": work_share(raced),
                "same_heads": len(raced.keep.kept & exact.keep.kept) / exact.keep.num_kept,
                "objective_lost": member_loss(raced) - exact_loss,
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    for confidence in arguments.confidence:
        part = [row for row in rows if row["confidence"] == confidence]
        medians = {key: float(np.median([row[key] for row in part])) for key in ("ratio", "work_share")}
        same, lost = [[row[key] for row in part] for key in ("same_heads", "objective_lost")]
        share = medians["work_share"]
        print(
            f"demo/vit, loss, n = {arguments.samples}, {arguments.heads} heads a layer, confidence {confidence:g}, "
            f"{len(part)} rounds: {medians['ratio']:.1f} x faster; head measurements {share:.2f} of the exact search's "
            f"(the count predicts {1 / share:.1f} x); the same heads {np.mean(same):.3f} (lowest {min(same):.3f}); "
            f"loss lost {np.mean(lost):+.4f} nats (worst {max(lost):+.4f})"
        )
    results = {"machine": machine(), "samples": arguments.samples, "heads_per_layer": arguments.heads, "rows": rows}
    print(f"Written to {write_results(arguments.name, results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
