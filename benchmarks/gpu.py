"""The GPU form of the fusion benchmark: float32 and bfloat16, eager and as CUDA graphs; correctness first.

    python -m benchmarks.gpu [--batches 1 8 32 128] [--rounds 30]

Without a GPU it says so and ends well. A CUDA graph replays the kernels of one forward without launching each
from
Python: at small batches this is where most of an eager forward's time goes, so both forms are shown.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import fused_vit_b16, largest_difference, machine, vmapped, write_results
from hydra_core.acceleration import as_cuda_graph
from hydra_core.backbones.base import Backbone
from hydra_core.fusion import FusedEnsemble
from hydra_core.markdown import markdown_table
from hydra_core.timing import take_turns

FUSED, SINGLE, TURNS, VMAP = "fused", "single", "one after another", "vmap"
DTYPES = ("float32", "bfloat16")
# Largest |logit difference| allowed between fused and one-after-another, times max(1, largest |logit|).
# bfloat16 keeps 8 bits, and two orders of summation may differ by some units of them after 12 layers.
TOLERANCE = {"float32": 1e-3, "bfloat16": 6e-2}

Job = Callable[[], Tensor]


def jobs_for(
    backbone: Backbone, members: list[Backbone], fused: FusedEnsemble, inputs: dict[str, Tensor]
) -> dict[str, Job]:
    """The four ways, each returning logits."""
    run_vmapped = vmapped(members)
    return {
        SINGLE: lambda: backbone.logits(inputs),
        FUSED: lambda: fused.member_logits(inputs),
        TURNS: lambda: torch.stack([member.logits(inputs) for member in members]),
        VMAP: lambda: run_vmapped(inputs),
    }


def check(jobs: dict[str, Job], dtype: str, form: str) -> float:
    """Largest difference of fused and vmap from one after another; ends the run where it is too large."""
    reference = jobs[TURNS]()
    difference = max(largest_difference(jobs[name](), reference) for name in (FUSED, VMAP) if name in jobs)
    allowed = TOLERANCE[dtype] * max(1.0, float(reference.abs().max()))
    if not difference <= allowed:
        raise SystemExit(
            f"{dtype}, {form}: logits differ by {difference:.1e}, allowed are {allowed:.1e}: nothing to time"
        )
    return difference


def measure(dtype: str, batches: list[int], rounds: int) -> list[dict[str, Any]]:
    """Rows for one number format."""
    backbone, members, fused = fused_vit_b16()
    for model in (backbone, *members, fused):
        model.network.to(device="cuda", dtype=getattr(torch, dtype))
    rows = []
    for batch in batches:
        generator = torch.Generator().manual_seed(batch)
        pixels = torch.randn(batch, 3, 224, 224, generator=generator)
        inputs = {"pixel_values": pixels.to("cuda", getattr(torch, dtype))}
        eager = jobs_for(backbone, members, fused, inputs)
        for form in ("eager", "CUDA graph"):
            try:
                jobs = eager if form == "eager" else {name: as_cuda_graph(job) for name, job in eager.items()}
            except RuntimeError as error:
                print(f"{dtype}, batch {batch}: no CUDA graph ({str(error).splitlines()[0]})", file=sys.stderr)
                continue
            difference = check(jobs, dtype, form)
            timing = take_turns(jobs, rounds, warmup=5, synchronize=torch.cuda.synchronize)
            rows.append(
                {
                    "dtype": dtype,
                    "form": form,
                    "batch": batch,
                    "milliseconds": {name: 1000 * timing.median(name) for name in jobs},
                    "operations_ratio": fused.flops(batch) / backbone.flops(batch),
                    "fused / single": timing.ratio(FUSED, SINGLE),
                    "one after another / single": timing.ratio(TURNS, SINGLE),
                    "fused / one after another": timing.ratio(FUSED, TURNS),
                    "fused / vmap": timing.ratio(FUSED, VMAP),
                    "largest_difference": difference,
                }
            )
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The rows as a table."""
    pairs = ["fused / single", "one after another / single", "fused / one after another", "fused / vmap"]
    caption = (
        f"GPU: {results['gpu']}, torch {results['machine']['torch']}. ViT-B/16 size, M = 3 members of 4 "
        "disjoint heads of 12, seeded random weights; medians of per-round ratios over "
        f"{results['rounds']} interleaved rounds."
    )
    header = [
        "numbers",
        "form",
        "batch",
        "single, ms",
        "operations, fused / single",
        *pairs,
        "largest difference",
    ]
    rows = [
        [
            row["dtype"],
            row["form"],
            str(row["batch"]),
            f"{row['milliseconds'][SINGLE]:.2f}",
            *(f"{row[pair]:.2f}" for pair in ["operations_ratio", *pairs]),
            f"{row['largest_difference']:.0e}",
        ]
        for row in results["rows"]
    ]
    return f"{caption}\n\n{markdown_table(header, rows, numbers_from=2)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("No GPU here: the GPU benchmark is skipped.")
        return
    # float32 means float32: TF32 would make fused and single differ in rounding.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    results: dict[str, Any] = {
        "machine": machine(),
        "gpu": torch.cuda.get_device_name(),
        "rounds": arguments.rounds,
        "rows": [],
    }
    with torch.inference_mode():
        for dtype in DTYPES:
            results["rows"] += measure(dtype, arguments.batches, arguments.rounds)
    print(markdown(results))
    print(f"Written to {write_results('gpu', results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
