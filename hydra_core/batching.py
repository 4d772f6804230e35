"""Samples in batches: labels matched by name, prepared inputs, and smaller batches when memory runs out."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydra_core.backbones.base import Model
from hydra_core.data.dataset import Dataset
from hydra_core.errors import HydraError

T = TypeVar("T")
log = logging.getLogger(__name__)

ROWS_PER_BATCH_CPU = 6400  # tokens in one forward: activations of small models stay near the cache
ROWS_PER_BATCH_GPU = 65536


def default_batch_size(model: Model) -> int:
    """A batch size by the device and the tokens of one input."""
    tokens = model.network.embed.num_tokens() or 64
    rows = ROWS_PER_BATCH_GPU if model.device.startswith("cuda") else ROWS_PER_BATCH_CPU
    return max(1, min(512, rows // tokens))


def check_batch_size(batch_size: int | None, model: Model) -> int:
    """`batch_size`, or the default for None; HydraError below 1."""
    if batch_size is None:
        return default_batch_size(model)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise HydraError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    return batch_size


def check_kind(model: Model, dataset: Dataset, what: str = "the data") -> None:
    """HydraError where there is no sample, or the model reads images and the data are texts, or the other way."""
    if not isinstance(dataset, Dataset):
        raise HydraError(f"{what} must be a Dataset (hydra.load_dataset), got a {type(dataset).__name__}")
    if len(dataset) == 0:
        raise HydraError(f"{what} ({dataset.name}) hold no sample; at least one is needed")
    wanted = "text" if model.family == "bert" else "image"
    if dataset.kind != wanted:
        raise HydraError(
            f"{model.ref!r} reads {wanted}s, but {what} ({dataset.name}) hold {dataset.kind}s; choose {wanted} data"
        )


def aligned_labels(model: Model, dataset: Dataset) -> NDArray[np.int64] | None:
    """The data's labels as the model's class indices, matched by class name; None where there are no labels.

    Raises:
        HydraError: a class of the data that the model does not know.
    """
    if dataset.labels is None:
        return None
    names = dataset.class_names
    if names is None or tuple(names) == model.class_names:
        labels = np.asarray(dataset.labels)
        if len(labels) and (labels.min() < 0 or labels.max() >= len(model.class_names)):
            raise HydraError(
                f"labels of {dataset.name} run from {labels.min()} to {labels.max()}, the model has classes 0 to "
                f"{len(model.class_names) - 1}"
            )
        return labels
    index = {name: i for i, name in enumerate(model.class_names)}
    used = sorted({names[i] for i in np.unique(dataset.labels)})
    unknown = [name for name in used if name not in index]
    if unknown:
        raise HydraError(
            f"the classes of {dataset.name} do not match the model's: {', '.join(unknown[:5])} "
            f"{'is' if len(unknown) == 1 else 'are'} unknown to it; it knows {', '.join(model.class_names[:5])}"
            f"{', ...' if len(model.class_names) > 5 else ''}. Load the data with class_names=backbone.class_names"
        )
    table = np.array([index.get(name, -1) for name in names], dtype=np.int64)
    return table[np.asarray(dataset.labels)]


def required_labels(model: Model, dataset: Dataset, why: str) -> NDArray[np.int64]:
    """:func:`aligned_labels`, or a HydraError that says what needs them."""
    labels = aligned_labels(model, dataset)
    if labels is None:
        raise HydraError(f"{why} needs labels, and {dataset.name} has none; choose labelled data")
    return labels


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or the machine ran out of memory (torch raises several kinds)."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "not enough memory" in text)


def in_chunks(
    size: int, chunk: int, run: Callable[[int, int], T], note: Callable[[str], None] | None = None
) -> list[T]:
    """Call ``run(start, stop)`` over 0..size in chunks; when memory runs out, halve the chunk and go on.

    Args:
        size: number of samples.
        chunk: samples at once to begin with.
        run: the work on samples start..stop; it must not change anything when it fails.
        note: told in words when a chunk was halved.

    Raises:
        HydraError: memory does not suffice for a single sample.
    """
    results: list[T] = []
    start = 0
    while start < size:
        stop = min(size, start + chunk)
        try:
            results.append(run(start, stop))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if stop - start == 1:
                raise HydraError(
                    "one sample alone does not fit into the device's memory; use a smaller backbone or device='cpu'"
                ) from error
            chunk = max(1, (stop - start) // 2)
            message = f"out of memory: going on with {chunk} at once"
            log.warning(message)
            if note is not None:
                note(message)
            continue
        start = stop
    return results


def batch_ranges(size: int, batch_size: int) -> list[tuple[int, int]]:
    """(start, stop) of each batch."""
    return [(i, min(size, i + batch_size)) for i in range(0, size, batch_size)]


def length_order(dataset: Dataset) -> NDArray[np.int64]:
    """An order of the samples in which texts of like length meet, so that batches hold little padding."""
    if dataset.kind != "text":
        return np.arange(len(dataset))
    return np.argsort([len(str(text)) for text in dataset.items], kind="stable")


def prepared(model: Model, dataset: Dataset, start: int, stop: int) -> dict[str, Tensor]:
    """Prepared inputs of samples start..stop, on the CPU."""
    items: Sequence[object] = [dataset.items[i] for i in range(start, stop)]
    return model.prepare(items)
