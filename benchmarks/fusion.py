"""Is fusion as fast as its operation count says? An encoder of ViT-B/16's size, M = 3, by head share and batch.

    python -m benchmarks.fusion                          # an hour on 2 cores; goes on where it was stopped
    python -m benchmarks.fusion --batches 1 --shares 4   # one batch size, 4 of 12 heads

Five ways to the members' logits take turns within a round: the single full network, fused, pruned members one after
another, torch.func.vmap over them, and three full networks (a deep ensemble). A ratio is the median of the per-round
ratios, with its quartiles. Two further rows: masks that differ in the last half of the layers alone. Operation counts
of both sides have the same savings. Memory: a way's weights, and the largest growth of the process in one forward.
"""

import argparse
import copy
import ctypes
import gc
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import (
    RESULTS,
    largest_difference,
    machine,
    progress,
    ratio_text,
    ratios,
    spread_masks,
    vit_b16,
    vmapped,
    write_results,
)  # fmt: skip
from hydra_core.backbones.base import Backbone
from hydra_core.fusion import fuse
from hydra_core.markdown import markdown_table
from hydra_core.masks import HeadMask
from hydra_core.pruning import prune
from hydra_core.timing import take_turns

SINGLE, FUSED, TURNS, VMAP, THREE = "single", "fused", "one after another", "vmap", "three full networks"
SHARES = {4: "1/3 of the heads", 6: "1/2 of the heads", 9: "3/4 of the heads"}
# In the first half of the layers one stream serves all: with all heads, which is the dearest, or with a third of them.
HALVES = {12: "1/3 in the last half, all before", 4: "1/3, the same before the last half"}
ROUNDS = {1: 15, 8: 7, 32: 3}
PAIRS = [(FUSED, SINGLE), (FUSED, TURNS), (FUSED, VMAP), (FUSED, THREE)]
NAME = "fusion"


def cell(backbone: Backbone, title: str, masks: list[HeadMask], batch: int, rounds: int, every: bool) -> dict[str, Any]:
    """One row; `every`: time vmap and three full networks too."""
    members = [prune(backbone, mask) for mask in masks]
    fused = fuse(members)
    inputs = {"pixel_values": torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(batch))}
    jobs: dict[str, Callable[[], Any]] = {
        SINGLE: lambda: backbone.logits(inputs),
        FUSED: lambda: fused.member_logits(inputs),
        TURNS: lambda: torch.stack([member.logits(inputs) for member in members]),
    }
    weights = {SINGLE: backbone.num_parameters, FUSED: fused.num_parameters, TURNS: distinct(members)}
    if every:
        networks = [backbone, *(copy.deepcopy(backbone) for _ in members[1:])]
        run_vmapped = vmapped(members)
        jobs |= {VMAP: lambda: run_vmapped(inputs), THREE: lambda: [network.logits(inputs) for network in networks]}
        weights |= {VMAP: sum(m.num_parameters for m in members), THREE: distinct(networks)}
    reference = jobs[TURNS]()
    difference = max(largest_difference(jobs[name](), reference) for name in (FUSED, VMAP) if name in jobs)
    if difference > 1e-4 * max(1.0, float(reference.abs().max())):
        raise SystemExit(f"the members' logits differ by {difference:.1e}: nothing to time")
    timing = take_turns(jobs, rounds, warmup=int(batch == 1), progress=progress)
    return {
        "masks": title,
        "batch": batch,
        "rounds": rounds,
        "operations_ratio": fused.flops(batch) / backbone.flops(batch),
        "parameters_ratio": fused.num_parameters / backbone.num_parameters,
        "shared_layers": fused.report["shared_layers"],
        "largest_difference": difference,
        "weights_bytes": {name: 4 * count for name, count in weights.items()},
        "forward_bytes": {name: growth(job) for name, job in jobs.items()},
        **ratios(timing, [(a, b) for a, b in PAIRS if b in jobs]),
    }


def distinct(models: list[Backbone]) -> int:
    """Parameters of several models; a tensor that they share counts once."""
    held: dict[int, Tensor] = {p.data_ptr(): p for model in models for p in model.network.parameters() if p.numel()}
    return sum(p.numel() for p in held.values())


def growth(job: Callable[[], Any]) -> int | None:
    """Largest growth of the process's resident memory in one call, in bytes; None where Linux does not tell."""
    status = Path("/proc/self/status")
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that the allocator still holds would hide growth
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        before = _kilobytes(status, "VmRSS")
    except (OSError, AttributeError):
        return None
    result = job()
    peak = _kilobytes(status, "VmHWM")
    del result
    return 1024 * (peak - before)


def _kilobytes(status: Path, field: str) -> int:
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))


def cells(shares: list[int], batches: list[int], halves: bool) -> list[tuple[str, list[HeadMask], int, bool]]:
    """Title, masks, batch size and whether every way is timed; small batches first."""
    rows = [(SHARES[kept], spread_masks(kept), True) for kept in shares]
    if halves:
        rows += [(title, spread_masks(4, first=6, before=before), False) for before, title in HALVES.items()]
    return [(title, masks, batch, every) for batch in batches for title, masks, every in rows]


def fusion_table(rows: list[dict[str, Any]]) -> str:
    """Times as ratios, then memory."""
    rows = sorted(rows, key=lambda row: ([*SHARES.values(), *HALVES.values()].index(row["masks"]), row["batch"]))
    header = ["masks", "batch", "rounds", "single, s", "operations", "time, fused / single", "time / operations"]
    header += [f"fused / {name}" for name in (TURNS, VMAP, THREE)]
    cells, memory = [], []
    for row in rows:
        single = row[f"{FUSED} / {SINGLE}"]
        others = [row.get(f"{FUSED} / {name}") for name in (TURNS, VMAP, THREE)]
        cells.append(
            [
                row["masks"], str(row["batch"]), str(row["rounds"]), f"{row['seconds'][SINGLE]:.2f}",
                f"{row['operations_ratio']:.2f}", ratio_text(single),
                f"{single['median'] / row['operations_ratio']:.2f}",
                *("" if other is None else ratio_text(other) for other in others),
            ]
        )  # fmt: skip
        if row["batch"] == max(r["batch"] for r in rows if r["masks"] == row["masks"]):
            weights, grown = row["weights_bytes"], row["forward_bytes"]
            text = [f"{weights[n] / 1e6:.0f} + {grown[n] / 1e6:.0f}" if grown.get(n) is not None else ""
                    for n in (SINGLE, FUSED, TURNS, VMAP, THREE)]  # fmt: skip
            memory.append([row["masks"], str(row["batch"]), *text])
    ways = [f"{name}, MB" for name in (SINGLE, FUSED, TURNS, VMAP, THREE)]
    return (
        f"{markdown_table(header, cells, numbers_from=1)}\n\nPeak memory, weights + what one forward adds:\n\n"
        f"{markdown_table(['masks', 'batch', *ways], memory, numbers_from=1)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--shares", type=int, nargs="*", default=list(SHARES), choices=list(SHARES), help="heads of 12")
    parser.add_argument("--rounds", type=int, help="rounds that count; by default 15, 7 and 3 at batch 1, 8 and 32")
    parser.add_argument("--no-halves", action="store_true", help="leave out masks that differ in the last half alone")
    parser.add_argument("--name", default=NAME, help="results are kept in benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    # vmap has no batching rule for the CPU's attention and loops over the members there: known, and part of the result.
    warnings.filterwarnings("ignore", message="There is a performance drop")
    path = RESULTS / f"{arguments.name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    backbone = vit_b16()
    with torch.inference_mode():
        for title, masks, batch, every in cells(arguments.shares, arguments.batches, not arguments.no_halves):
            if any(row["masks"] == title and row["batch"] == batch for row in rows):
                continue
            rounds = arguments.rounds or ROUNDS.get(batch, 7)
            rows.append(cell(backbone, title, masks, batch, rounds, every))
            write_results(arguments.name, {"machine": machine(), "rows": rows})
    print(fusion_table(rows))
    print(f"Kept in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
