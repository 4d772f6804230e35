"""One forward without Python between its kernels: torch.compile, or a CUDA graph; used only once it is checked.

At small batches on a GPU an eager forward spends most of its time on launching kernels one by one: a CUDA graph replays
them all at once, torch.compile also joins some into one. The numbers stay the network's, which the check shows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hydra_core.backbones.base import Backbone
from hydra_core.checks import instance
from hydra_core.errors import HydraError
from hydra_core.fusion import FusedEnsemble

MODES = ("compile", "cuda_graph")
# Largest |logit difference| from the eager forward, times max(1, largest |logit|): another order of summation.
TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.06, "float16": 0.01}
WARM_UP = 3  # forwards before a capture: libraries choose their kernels in the first ones

Run = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Accelerated:
    """A model's forward in another form.

    Attributes:
        mode: ``compile`` or ``cuda_graph``.
        max_difference: largest |logit difference| from the eager forward on the inputs it was made with.
        tolerance: the limit that was kept.
    """

    mode: str
    max_difference: float
    tolerance: float
    _run: Run

    def member_logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits (M, B, C) of prepared inputs; HydraError where a CUDA graph was captured for other shapes."""
        return self._run(inputs)

    def probabilities(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean of the members' softmax (B, C)."""
        return self.member_logits(inputs).softmax(-1).mean(0)


def accelerate(model: Backbone | FusedEnsemble, inputs: Mapping[str, Tensor], *, mode: str) -> Accelerated:
    """Compile or capture `model`'s forward and compare it with the eager one on `inputs`.

    Args:
        model: a Backbone (M = 1) or a FusedEnsemble; it stays as it was.
        inputs: prepared inputs. A CUDA graph takes inputs of exactly these shapes later; compiled code takes any, and
            is compiled again for a new shape.
        mode: ``compile`` (torch.compile; on a CPU it needs a C++ compiler) or ``cuda_graph`` (a GPU).

    Raises:
        HydraError: another mode, no GPU for a CUDA graph, a forward that cannot be compiled or captured, or logits
            that differ by more than the tolerance (both figures are named).
    """
    if mode not in MODES:
        raise HydraError(f"the mode {mode!r} is not known; expected one of {', '.join(MODES)}")
    instance("model", model, (Backbone, FusedEnsemble), "hydra.load_backbone or hydra.fuse")
    if mode == "cuda_graph" and not model.device.startswith("cuda"):
        raise HydraError(
            f"a CUDA graph needs a model on a GPU, this one is on {model.device!r}; load it with device='cuda', or use "
            "mode='compile'"
        )
    placed = model.place(inputs)
    with torch.inference_mode():
        expected = model.network(placed).double()
        try:
            run = _compiled(model) if mode == "compile" else _captured(model, placed)
            found = run(placed).double()
        except HydraError:
            raise
        except Exception as error:  # whatever the compiler or the driver says: the eager forward still works
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise HydraError(f"this forward cannot be run as {mode}: {line}; use it as it is") from error
    difference = float((found - expected).abs().max())
    tolerance = TOLERANCES.get(model.dtype, 1e-4) * max(1.0, float(expected.abs().max()))
    if not difference <= tolerance:
        raise HydraError(
            f"as {mode} the logits differ by {difference:.1e} from the eager forward's, allowed are {tolerance:.1e}; "
            "use the model as it is"
        )
    return Accelerated(mode, difference, tolerance, run)


def as_cuda_graph(job: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`job` captured once; each call replays its kernels and returns the same tensor, written anew."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            job()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = job()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


def _compiled(model: Backbone | FusedEnsemble) -> Run:
    forward = torch.compile(model.network)

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = forward(model.place(inputs))
        return logits

    return run


def _captured(model: Backbone | FusedEnsemble, example: Mapping[str, Tensor]) -> Run:
    held = {name: tensor.clone() for name, tensor in example.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in held.items()}
    replay = as_cuda_graph(lambda: model.network(held))

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        given = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
        if given != shapes:
            raise HydraError(f"this CUDA graph was captured for inputs of shapes {shapes}, got {given}")
        for name, tensor in model.place(inputs).items():
            held[name].copy_(tensor)
        return replay().clone()

    return run
