"""What the speed benchmarks share: seeded random models of a real size, baselines, the machine."""

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor
from torch.func import functional_call, vmap

from hydra_core.backbones.base import Backbone
from hydra_core.backbones.registry import from_hf_model
from hydra_core.fusion import FusedEnsemble, fuse
from hydra_core.masks import HeadMask
from hydra_core.pruning import prune
from hydra_core.timing import Timing

RESULTS = Path(__file__).parent / "results"


def vit_model(*, layers: int, heads: int, width: int, hidden: int, image: int, patch: int, seed: int = 0) -> Any:
    """A transformers ViT classifier with seeded random weights, biases too (a new model has zeros)."""
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(seed)
    config = ViTConfig(
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=width,
        intermediate_size=hidden,
        image_size=image,
        patch_size=patch,
        num_labels=10,
    )
    model = ViTForImageClassification(config).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.02, generator=generator)
    return model


def vit_b16() -> Backbone:
    """A backbone of ViT-B/16's size: 12 layers x 12 heads, width 768, 197 tokens."""
    model = vit_model(layers=12, heads=12, width=768, hidden=3072, image=224, patch=16)
    return from_hf_model(model, None, ref="random ViT-B/16")


def spread_masks(kept: int, members: int = 3, *, first: int = 0, before: int = 12) -> list[HeadMask]:
    """Masks of 12 layers x 12 heads: each member keeps `kept` heads a layer, spread so that they overlap least.

    In the layers before `first` all members keep the same `before` heads.
    """
    rows = [[[(head - m * 12 // members) % 12 < kept for head in range(12)] for _ in range(12)] for m in range(members)]
    shared = [[head < before for head in range(12)]] * first
    return [HeadMask([*shared, *row[first:]]) for row in rows]


def fused_vit_b16(kept: int = 4) -> tuple[Backbone, list[Backbone], FusedEnsemble]:
    """A backbone of ViT-B/16's size, three members with `kept` heads a layer, and their fusion."""
    backbone = vit_b16()
    pruned = [prune(backbone, mask) for mask in spread_masks(kept)]
    return backbone, pruned, fuse(pruned)


def vmapped(members: Sequence[Backbone]) -> Callable[[dict[str, Tensor]], Tensor]:
    """torch.func.vmap over the members' stacked weights: the general way to run M equal networks."""
    network = members[0].network
    states = [member.network.state_dict() for member in members]
    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def one(state: dict[str, Tensor], inputs: dict[str, Tensor]) -> Tensor:
        logits: Tensor = functional_call(network, state, (inputs,))
        return logits[0]

    run = vmap(one, in_dims=(0, None))
    return lambda inputs: run(stacked, inputs)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Largest |a - b|."""
    return float((a.double() - b.double()).abs().max())


def machine() -> dict[str, Any]:
    """Processor, threads and versions, for the table's caption."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def write_results(name: str, results: dict[str, Any]) -> Path:
    """Write ``benchmarks/results/<name>.json``."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def ratios(timing: Timing, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Medians in seconds, and for each pair the median ratio with its quartiles."""
    found: dict[str, Any] = {"seconds": {job: timing.median(job) for job in timing.seconds}}
    for job, against in pairs:
        low, high = timing.spread(job, against)
        found[f"{job} / {against}"] = {"median": timing.ratio(job, against), "quartiles": [low, high]}
    return found


def ratio_text(ratio: dict[str, Any]) -> str:
    """A ratio's median and quartiles."""
    low, high = ratio["quartiles"]
    return f"{ratio['median']:.2f} ({low:.2f} to {high:.2f})"


def progress(done: int, total: int, note: str) -> None:
    """One line that is written over, where a person watches."""
    if sys.stderr.isatty():
        print(f"\r{done}/{total} {note:<40}", end="" if done < total else "\n", file=sys.stderr, flush=True)


def interval(values: list[float | None], digits: int = 3) -> str:
    """Mean and half-width of the 95 % interval (Student t) over seeds."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return "undefined"
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    half = student.ppf(0.975, len(known) - 1) * np.std(known, ddof=1) / len(known) ** 0.5
    return f"{np.mean(known):.{digits}f} ± {half:.{digits}f}"
