"""Is HeadMap's search by resuming faster than the plain loop over the original model, and as its operations say?

    python -m benchmarks.headmap [--rounds 15]      # about 4 minutes a round on 2 cores

12 layers x 6 heads, width 384, 65 tokens, 64 samples, seeded random weights. Both take turns within a round; the ratio
is the median of the per-round ratios, with its quartiles. Heads and values must agree first.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import hydra_core as hydra
from benchmarks.common import machine, progress, ratio_text, ratios, vit_model, write_results
from benchmarks.plain_headmap import plain_headmap, predicted_ratio, restore
from hydra_core.timing import take_turns

PLAIN, RESUMED = "plain loop", "find_circuit"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, help="torch threads; by default what torch takes")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    results = {"machine": machine(), "headmap": headmap(arguments.rounds)}
    print(headmap_text(results["headmap"]))
    print(f"Written to {write_results('headmap', results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
