"""What the three training scripts share: one resumable training loop, augmentation, and the model input."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import GREY_MEAN, GREY_STD, WORK


def arguments(doc: str | None, folder: Path, epochs: int) -> argparse.Namespace:
    """The options that every training script has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=epochs, help=f"default {epochs}, as shipped")
    parser.add_argument("--threads", type=int, default=2, help="results differ in rounding between counts")
    parser.add_argument("--folder", type=Path, default=folder, help="where to write")
    return parser.parse_args()


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def cosine_rate(step: int, total: int, warm_up: int) -> float:
    """Learning-rate factor: linear warm-up, then half a cosine down to 0."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))


def augment(images: torch.Tensor, shift: int = 2) -> torch.Tensor:
    """Images (B, 28, 28), background 0: each mirrored or not, and moved by up to ``shift`` pixels."""
    batch, height, width = images.shape
    padded = torch.nn.functional.pad(images, (shift, shift, shift, shift))
    move = torch.randint(0, 2 * shift + 1, (2, batch, 1))
    rows = move[0] + torch.arange(height)
    columns = move[1] + torch.arange(width)
    columns = torch.where(torch.rand(batch, 1) < 0.5, columns.flip(1), columns)
    return padded[torch.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]


def to_input(grey: torch.Tensor) -> torch.Tensor:
    """Grey images (B, 28, 28) on 0 to 1 as the normalised input (B, 3, 28, 28) with three equal channels."""
    return ((grey - GREY_MEAN) / GREY_STD).unsqueeze(1).expand(-1, 3, -1, -1).contiguous()


def random_batches(count: int, size: int) -> Iterable[torch.Tensor]:
    """Row numbers of one epoch in random order; the last, smaller batch is left out."""
    return torch.randperm(count)[: count // size * size].split(size)


def load_checkpoint(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The checkpoint of a run with the same settings, or None where there is none (the run starts anew)."""
    if not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state if state["settings"] == settings else None


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write under a temporary name, then rename: a stopped run never leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    temporary.replace(path)


def fit(
    name: str,
    model: torch.nn.Module,
    settings: dict[str, Any],
    steps: int,
    batches: Callable[[], Iterable[torch.Tensor]],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    check: Callable[[], float],
    write: Callable[[], None],
) -> None:
    """AdamW with warm-up and cosine; after each epoch print, write the shipped folder, save a checkpoint.

    ``settings`` needs seed, epochs, learning_rate, weight_decay and warm_up (in epochs). ``batches`` gives
    the row numbers of one epoch in ``steps`` batches, ``loss_of`` the loss of one. A stopped run goes on from
    its last epoch, with the same batches that it would have had.
    """
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(
        trained.values(), settings["learning_rate"], weight_decay=settings["weight_decay"], betas=(0.9, 0.98)
    )
    total, warm_up = settings["epochs"] * steps, round(settings["warm_up"] * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine_rate(step, total, warm_up))
    first, seconds = 0, 0.0
    path = WORK / f"{name}-{settings['epochs']}.pt"
    if state := load_checkpoint(path, settings):
        model.load_state_dict(state["model"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first, seconds = state["epoch"], state["seconds"]
    for epoch in range(first, settings["epochs"]):
        seed_all(settings["seed"] + 1000 + epoch)
        start, loss_sum = time.monotonic(), 0.0
        model.train()
        for rows in batches():
            loss = loss_of(rows)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
            optimizer.step()
            schedule.step()
            loss_sum += loss.item()
        model.eval()
        with torch.no_grad():
            right = check()
        seconds += time.monotonic() - start
        line = f"epoch {epoch + 1} loss {loss_sum / steps:.4f} validation {right:.4f} {seconds:.0f} s"
        print(line, flush=True)
        write()
        state = {
            "settings": settings,
            "model": {key: value.detach() for key, value in trained.items()},
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": epoch + 1,
            "seconds": seconds,
        }
        save_checkpoint(path, state)
