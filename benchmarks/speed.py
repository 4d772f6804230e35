"""Is fusion as fast as its operation count says, and HeadMap faster than the plain loop?

    python -m benchmarks.speed                     # everything; batch 32 takes minutes a round on 2 cores
    python -m benchmarks.speed --batches 1 8 --rounds 15

Fusion: an encoder of ViT-B/16's size (12 layers, 12 heads, width 768, 197 tokens), M = 3 members with 4
disjoint heads of 12 each, seeded random weights. HeadMap: 12 layers x 6 heads, width 384, 65 tokens, 64
samples. All jobs of a round take turns; a ratio is the median of the per-round ratios, with its quartiles.
"""

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import hydra_core as hydra
from benchmarks.common import largest_difference, machine, vit_b16, vit_model, vmapped, write_results
from benchmarks.plain_headmap import plain_headmap, predicted_ratio, restore
from hydra_core.markdown import markdown_table
from hydra_core.timing import Timing, take_turns

FUSED, SINGLE, TURNS, VMAP = "fused", "single", "one after another", "vmap"
PLAIN, RESUMED = "plain loop", "find_circuit"


def progress(done: int, total: int, note: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} {note:<40}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def fusion(batches: list[int], rounds: int) -> dict[str, Any]:
    """Time the four ways to M members' logits, after checking that they agree."""
    backbone, members, fused = vit_b16()
    run_vmapped = vmapped(members)
    rows = []
    with torch.inference_mode():
        for batch in batches:
            generator = torch.Generator().manual_seed(batch)
            inputs = {"pixel_values": torch.randn(batch, 3, 224, 224, generator=generator)}
            reference = torch.stack([member.logits(inputs) for member in members])
            difference = max(
                largest_difference(fused.member_logits(inputs), reference),
                largest_difference(run_vmapped(inputs), reference),
            )
            if difference > 1e-3:
                raise SystemExit(f"the members' logits differ by {difference:.1e}: nothing to time")
            timing = take_turns(
                {
                    SINGLE: lambda inputs=inputs: backbone.logits(inputs),
                    FUSED: lambda inputs=inputs: fused.member_logits(inputs),
                    TURNS: lambda inputs=inputs: [member.logits(inputs) for member in members],
                    VMAP: lambda inputs=inputs: run_vmapped(inputs),
                },
                rounds,
                progress=progress,
            )
            rows.append(
                {
                    "batch": batch,
                    "operations_ratio": fused.flops(batch) / backbone.flops(batch),
                    "largest_difference": difference,
                    **ratios(timing, [(FUSED, SINGLE), (FUSED, TURNS), (FUSED, VMAP)]),
                }
            )
    parameters = {"single": backbone.num_parameters, "fused": fused.num_parameters}
    return {"rounds": rounds, "rows": rows, "parameters": parameters}


def headmap(rounds: int, samples: int = 64, batch_size: int = 64) -> dict[str, Any]:
    """Time `find_circuit` and the plain loop, after checking heads and values."""
    model = vit_model(layers=12, heads=6, width=384, hidden=1536, image=64, patch=8)
    images = np.random.default_rng(0).integers(0, 256, size=(samples, 64, 64, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "model")
        data = image_folder(images, Path(folder) / "data")
        backbone = hydra.load_backbone(str(Path(folder) / "model"), device="cpu")
        dataset = hydra.load_dataset(str(data), class_names=backbone.class_names)
        pixels = backbone.prepare(list(dataset.items))["pixel_values"]
        assert dataset.labels is not None
        labels = torch.tensor(dataset.labels)
        weights = [layer.attention.o_proj.weight.detach().clone() for layer in model.vit.layers]
        found: dict[str, Any] = {}

        def plain() -> None:
            found[PLAIN] = plain_headmap(model, pixels, labels, 2, batch_size)
            restore(model, weights)

        def resumed() -> None:
            found[RESUMED] = hydra.find_circuit(backbone, dataset, heads_per_layer=2, batch_size=batch_size)

        timing = take_turns({PLAIN: plain, RESUMED: resumed}, rounds, warmup=0, progress=progress)
    chosen, values = found[PLAIN]
    circuit = found[RESUMED]
    same = [sorted(heads) for heads in chosen] == [list(circuit.keep.kept_in(layer)) for layer in range(12)]
    difference = float(np.nanmax(np.abs(circuit.values - values.numpy())))
    if not same or difference > 1e-5:
        raise SystemExit(f"find_circuit and the plain loop disagree (values by {difference:.1e}): nothing to time")
    return {
        "rounds": rounds,
        "samples": samples,
        "batch_size": batch_size,
        "largest_difference": difference,
        **ratios(timing, [(PLAIN, RESUMED)]),
    }


def save_model(model: Any, folder: Path) -> None:
    """As a Hugging Face folder, so that it is loaded as a user's model is."""
    from transformers import ViTImageProcessor

    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)


def image_folder(images: np.ndarray, folder: Path) -> Path:
    """One sub-folder a class, named as a new ViT names its classes."""
    for index, image in enumerate(images):
        path = folder / f"LABEL_{index % 10}" / f"{index:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def ratios(timing: Timing, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Medians in seconds, and for each pair the median ratio with its quartiles."""
    found: dict[str, Any] = {"seconds": {job: timing.median(job) for job in timing.seconds}}
    for job, against in pairs:
        low, high = timing.spread(job, against)
        found[f"{job} / {against}"] = {"median": timing.ratio(job, against), "quartiles": [low, high]}
    return found


def markdown(results: dict[str, Any]) -> str:
    """The results as the README shows them."""
    m = results["machine"]
    parts = [
        f"Machine: {m['processor']}, {m['cores']} cores, {m['threads']} threads, "
        f"torch {m['torch']}. "
        "float32, seeded random weights. Ratios: median of per-round ratios over interleaved rounds (quartiles)."
    ]
    if fused := results.get("fusion"):
        p = fused["parameters"]
        parts += [
            f"ViT-B/16 size, M = 3 members of 4 disjoint heads of 12, {fused['rounds']} rounds; parameters "
            f"{p['fused'] / 1e6:.1f} M fused, {p['single'] / 1e6:.1f} M single.",
            fusion_table(fused["rows"]),
        ]
    if head := results.get("headmap"):
        parts.append(headmap_text(head))
    return "\n\n".join(parts)


def headmap_text(head: dict[str, Any]) -> str:
    """One sentence on HeadMap against the plain loop."""
    return (
        f"HeadMap, 12 layers x 6 heads, width 384, 65 tokens, {head['samples']} samples, {head['rounds']} rounds: "
        f"plain loop {head['seconds'][PLAIN]:.1f} s, find_circuit {head['seconds'][RESUMED]:.1f} s, "
        f"{ratio_text(head[f'{PLAIN} / {RESUMED}'])} x faster (the operation count predicts "
        f"{predicted_ratio(layers=12, heads=6, width=384, hidden=1536, tokens=65):.2f}; fewer tokens at once stay in "
        "the cache); same heads, values differ by at most "
        f"{head['largest_difference']:.0e}."
    )


def fusion_table(rows: list[dict[str, Any]]) -> str:
    header = ["batch", "single, s", "operations, fused / single", "time, fused / single", "time / operations"]
    header += [f"{FUSED} / {TURNS}", f"{FUSED} / {VMAP}"]
    cells = []
    for row in rows:
        single = row[f"{FUSED} / {SINGLE}"]
        cells.append(
            [
                str(row["batch"]),
                f"{row['seconds'][SINGLE]:.3f}",
                f"{row['operations_ratio']:.2f}",
                ratio_text(single),
                f"{single['median'] / row['operations_ratio']:.2f}",
                ratio_text(row[f"{FUSED} / {TURNS}"]),
                ratio_text(row[f"{FUSED} / {VMAP}"]),
            ]
        )
    return markdown_table(header, cells, numbers_from=0)


def ratio_text(ratio: dict[str, Any]) -> str:
    low, high = ratio["quartiles"]
    return f"{ratio['median']:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32], help="batch sizes for fusion")
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count; for fusion one more warms up")
    parser.add_argument("--headmap-rounds", type=int, help="rounds for HeadMap; by default --rounds; 0 leaves it out")
    parser.add_argument("--threads", type=int, help="torch threads; by default what torch takes")
    parser.add_argument("--name", default="speed", help="results are written to benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # vmap has no batching rule for the CPU's attention and loops over the members there: known, and part of the result.
    warnings.filterwarnings("ignore", message="There is a performance drop")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    headmap_rounds = arguments.rounds if arguments.headmap_rounds is None else arguments.headmap_rounds
    results: dict[str, Any] = {"machine": machine()}
    if arguments.batches:
        results["fusion"] = fusion(arguments.batches, arguments.rounds)
    if headmap_rounds:
        results["headmap"] = headmap(headmap_rounds)
    print(markdown(results))
    print(f"Written to {write_results(arguments.name, results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
