"""The network as a torch.export or ONNX file that needs no hydra_core, checked by loading it again.

Both take the prepared inputs by name (``pixel_values``, or ``input_ids`` and ``attention_mask``) with any batch size,
and for text any length, and give ``member_logits`` (M, B, C) and ``probabilities`` (B, C), the mean of the members'
softmax.
"""

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hydra_core.backbones.base import Backbone
from hydra_core.backbones.network import Network
from hydra_core.checks import instance
from hydra_core.errors import HydraError
from hydra_core.fusion import FusedEnsemble
from hydra_core.jobs import Progress, report

FORMATS = {"torch": ".pt2", "onnx": ".onnx"}
OUTPUTS = ("member_logits", "probabilities")
TOLERANCE = 1e-4  # of the largest |logit|, or of 1
TEXTS = ("a probe", "a somewhat longer probe, so that the texts of one batch differ in length", "short", "one more")

Run = Callable[[Mapping[str, Tensor]], NDArray[np.float32]]


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it compares with the network after loading it again.

    Attributes:
        path: the file.
        format: ``torch`` or ``onnx``.
        max_difference: largest |difference| of a member's logit over all probe batches.
        tolerance: the limit, 1e-4 x max(1, largest |logit|).
        batches: probe inputs in each batch.
    """

    path: Path
    format: str
    max_difference: float
    tolerance: float
    batches: tuple[int, ...]


class _Exported(nn.Module):
    """The network with plain tensors for inputs and outputs."""

    def __init__(self, network: Network, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(dict(zip(self.names, inputs, strict=True)))
        # contiguous: members that share everything are views of one, and some runtimes take no such output
        return logits.contiguous(), logits.softmax(-1).mean(0)


def export_model(
    model: Backbone | FusedEnsemble,
    path: str | os.PathLike[str],
    *,
    format: str,
    example_inputs: Mapping[str, Tensor] | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write `model` to one file, load it again and compare.

    Args:
        model: a Backbone (M = 1) or a FusedEnsemble, in float32.
        path: the file; replaced only once the new one is checked.
        format: ``torch`` (torch.export, read by ``torch.export.load``) or ``onnx``.
        example_inputs: prepared inputs of at least two samples; by default noise pictures or a few words.
        progress: told of each step.

    Raises:
        HydraError: another format or number format, no processor to make inputs with, a network that cannot be
            exported, or a file whose logits differ by more than the tolerance (both figures are named).
    """
    if format not in FORMATS:
        raise HydraError(f"the format {format!r} is not known; expected one of {', '.join(FORMATS)}")
    instance("model", model, (Backbone, FusedEnsemble), "hydra.load_backbone or hydra.fuse")
    instance("path", path, (str, os.PathLike), "the file to write")
    if Path(path).is_dir():
        raise HydraError(
            f"{str(path)!r} is a folder; name the file, e.g. {str(Path(path) / f'model{FORMATS[format]}')!r}"
        )
    if model.dtype != "float32":
        raise HydraError(f"only float32 networks are exported, this one is {model.dtype}; load it with dtype='float32'")
    report(progress, 0, 3, "preparing probe inputs")
    example = model.place(_probe(model) if example_inputs is None else example_inputs)
    example = {name: tensor.cpu() for name, tensor in example.items()}
    if len(next(iter(example.values()))) < 2:
        raise HydraError("the example inputs need at least two samples, so that the batch size stays free")
    network = model.network if model.device == "cpu" else _on_cpu(model.network)
    wrapped = _Exported(network, tuple(example)).eval()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        temporary = Path(scratch) / f"model{FORMATS[format]}"
        report(progress, 1, 3, "exporting")
        with warnings.catch_warnings(), _quiet(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                run = {"torch": _torch, "onnx": _onnx}[format](wrapped, example, temporary, _facts(model))
            except HydraError:
                raise
            except Exception as error:
                raise HydraError(f"this network cannot be exported as {format}: {_first_line(error)}") from error
        report(progress, 2, 3, "loading it again and comparing")
        found = _compare(wrapped, run, example, target, format)
        os.replace(temporary, target)
    report(progress, 3, 3, "exported")
    return found


def _facts(model: Backbone | FusedEnsemble) -> dict[str, str]:
    """What the file says of itself."""
    masks = model.masks if isinstance(model, FusedEnsemble) else (model.mask,)
    return {
        "backbone": model.ref,
        "fingerprint": model.fingerprint,
        "class_names": json.dumps(list(model.class_names)),
        "masks": json.dumps([[list(row) for row in mask.keep] for mask in masks]),
    }


def _probe(model: Backbone | FusedEnsemble) -> dict[str, Tensor]:
    if model.family == "bert":
        return model.prepare(list(TEXTS))
    noise = np.random.default_rng(0).integers(0, 256, size=(4, 64, 64, 3), dtype=np.uint8)
    return model.prepare(list(noise))


def _on_cpu(network: Network) -> Network:
    import copy

    return copy.deepcopy(network).cpu()


def _dynamic(example: Mapping[str, Tensor]) -> tuple[dict[int, Any], ...]:
    """The batch is free; of two axes, as texts have, the length too (its bounds are the embedding's)."""
    free = torch.export.Dim.AUTO
    return tuple({0: free, 1: free} if tensor.dim() == 2 else {0: free} for tensor in example.values())


def _program(wrapped: _Exported, example: Mapping[str, Tensor]) -> torch.export.ExportedProgram:
    return torch.export.export(
        wrapped, tuple(example.values()), dynamic_shapes={"inputs": _dynamic(example)}, strict=False
    )


def _torch(wrapped: _Exported, example: Mapping[str, Tensor], path: Path, facts: dict[str, str]) -> Run:
    torch.export.save(_program(wrapped, example), path, extra_files={"hydra.json": json.dumps(facts)})
    loaded = torch.export.load(path).module()

    def run(inputs: Mapping[str, Tensor]) -> NDArray[np.float32]:
        with torch.no_grad():
            out: NDArray[np.float32] = loaded(*inputs.values())[0].numpy()
        return out

    return run


def _onnx(wrapped: _Exported, example: Mapping[str, Tensor], path: Path, facts: dict[str, str]) -> Run:
    try:
        import onnxruntime
    except ImportError:
        raise HydraError("ONNX needs onnx, onnxscript and onnxruntime: pip install -r requirements.txt") from None
    program = torch.onnx.export(
        _program(wrapped, example), dynamo=True, verbose=False, input_names=list(example), output_names=list(OUTPUTS)
    )
    assert program is not None
    program.model.metadata_props.update(facts)
    program.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, Tensor]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = session.run([OUTPUTS[0]], {k: v.numpy() for k, v in inputs.items()})[0]
        return out

    return run


def _compare(wrapped: _Exported, run: Run, example: Mapping[str, Tensor], target: Path, format: str) -> ExportReport:
    """Logits of the file against the network's, for one sample, all but one, all, and shorter texts."""
    size = len(next(iter(example.values())))
    batches = tuple(sorted({1, size - 1, size}))
    cases = [{name: tensor[:count] for name, tensor in example.items()} for count in batches]
    if all(tensor.dim() == 2 for tensor in example.values()):
        cases.append({name: tensor[:, :-1] for name, tensor in example.items()})
    largest, difference = 1.0, 0.0
    for inputs in cases:
        with torch.no_grad():
            expected = wrapped(*inputs.values())[0].numpy()
        largest = max(largest, float(np.abs(expected).max()))
        difference = max(difference, float(np.abs(run(inputs) - expected).max()))
    tolerance = TOLERANCE * largest
    if not difference <= tolerance:
        raise HydraError(
            f"the {format} file gives other logits than the network: they differ by {difference:.3g}, at most "
            f"{tolerance:.3g} is allowed; nothing was written"
        )
    return ExportReport(target, format, difference, tolerance, batches)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class _quiet:
    """The exporters' own log lines are left out while they run."""

    names = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")

    def __enter__(self) -> None:
        self.levels = {name: logging.getLogger(name).level for name in self.names}
        for name in self.names:
            logging.getLogger(name).setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        for name, level in self.levels.items():
            logging.getLogger(name).setLevel(level)
