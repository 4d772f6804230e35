"""Timing that can be trusted on a busy machine: jobs take turns within each round, and ratios are per round.

A slow spell then hits all jobs of a round alike; the median over rounds drops the rounds it split.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report

if TYPE_CHECKING:
    from torch import Tensor

    from hydra_core.backbones.base import Backbone
    from hydra_core.fusion import FusedEnsemble


@dataclass(frozen=True)
class Timing:
    """Seconds of each job in each round; all lists have one entry a round."""

    seconds: dict[str, list[float]]

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(next(iter(self.seconds.values())))

    def median(self, job: str) -> float:
        """Median seconds of one job."""
        return statistics.median(self.seconds[job])

    def ratios(self, job: str, against: str) -> list[float]:
        """Time of `job` over time of `against`, round by round."""
        return [a / b for a, b in zip(self.seconds[job], self.seconds[against], strict=True)]

    def ratio(self, job: str, against: str) -> float:
        """Median of the per-round ratios."""
        return statistics.median(self.ratios(job, against))

    def spread(self, job: str, against: str) -> tuple[float, float]:
        """Lower and upper quartile of the per-round ratios."""
        ratios = self.ratios(job, against)
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return low, high


def take_turns(
    jobs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 1,
    synchronize: Callable[[], object] | None = None,
    progress: Progress | None = None,
) -> Timing:
    """Time `jobs` against one another.

    Args:
        jobs: by name. Each round runs all of them, starting with another one each time.
        rounds: rounds that count.
        warmup: rounds before those, which do not.
        synchronize: waits until the device has finished (``torch.cuda.synchronize`` on a GPU); counted in
            each job.
        progress: called after each job.
    """
    if not jobs or rounds < 1:
        raise HydraError(f"timing needs at least one job and one round, got {len(jobs)} jobs and {rounds} rounds")
    names = list(jobs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    total = (warmup + rounds) * len(names)
    for turn in range(warmup + rounds):
        shift = turn % len(names)
        for step, name in enumerate(names[shift:] + names[:shift]):
            if synchronize is not None:
                synchronize()
            start = perf_counter()
            jobs[name]()
            if synchronize is not None:
                synchronize()
            if turn >= warmup:
                seconds[name].append(perf_counter() - start)
            report(progress, turn * len(names) + step + 1, total, f"timing {name}")
    return Timing(seconds)


@dataclass(frozen=True)
class FusionTiming:
    """Fused against the single network and against pruned members one after another, in one run.

    Attributes:
        single, one_after_another, fused: median seconds of one forward of a batch.
        fused_over_single, fused_over_one_after_another: medians of the per-round ratios.
        operations_ratio: fused operations over single ones, both with the same savings: what counting
            predicts.
        parameters_ratio: parameters of the fused ensemble over the single network's.
        form: how all three ran: ``eager``, ``compile`` or ``cuda_graph`` (see :mod:`hydra_core.acceleration`).
    """

    single: float
    one_after_another: float
    fused: float
    fused_over_single: float
    fused_over_one_after_another: float
    operations_ratio: float
    parameters_ratio: float
    batch_size: int
    tokens: int | None
    num_members: int
    rounds: int
    threads: int
    device: str
    dtype: str
    form: str = "eager"

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "FusionTiming":
        """Read :meth:`to_json`'s text."""
        return cls(**json.loads(text))


def time_fusion(
    backbone: "Backbone",
    members: "Sequence[Backbone]",
    fused: "FusedEnsemble",
    inputs: "Mapping[str, Tensor]",
    *,
    rounds: int = 15,
    warmup: int = 2,
    form: str = "eager",
    progress: Progress | None = None,
) -> FusionTiming:
    """Time one forward of `inputs` (already prepared) through each of the three.

    Args:
        backbone: the single network, as loaded.
        members: its pruned copies that were fused.
        fused: their fusion.
        inputs: a batch that ``backbone.prepare`` returned.
        rounds: rounds that count; ratios are medians over them.
        warmup: rounds before those.
        form: ``eager``, or a mode of :func:`hydra_core.accelerate` for all three, each compared with its eager
            forward first.
        progress: called after each forward; may raise :class:`~hydra_core.jobs.Cancelled`.
    """
    import torch

    from hydra_core.acceleration import accelerate

    first = next(iter(inputs.values()))
    # Images are (B, 3, height, width): their tokens follow from the model. Texts are (B, T).
    tokens = first.shape[1] if first.dim() == 2 else None
    batch = int(first.shape[0])
    on_gpu = backbone.device.startswith("cuda")
    models: list[Backbone | FusedEnsemble] = [backbone, fused, *members]
    forwards: list[Callable[[Mapping[str, Tensor]], Tensor]]
    if form == "eager":
        forwards = [model._member_logits for model in models]
    else:
        forwards = []
        for i, model in enumerate(models):
            report(progress, i, len(models), f"{form}: preparing network {i + 1} of {len(models)}")
            forwards.append(accelerate(model, inputs, mode=form).member_logits)
    single, together, *apart = forwards
    with torch.inference_mode():
        timing = take_turns(
            {
                "single": lambda: single(inputs),
                "one after another": lambda: [one(inputs) for one in apart],
                "fused": lambda: together(inputs),
            },
            rounds,
            warmup=warmup,
            synchronize=torch.cuda.synchronize if on_gpu else None,
            progress=progress,
        )
    return FusionTiming(
        single=timing.median("single"),
        one_after_another=timing.median("one after another"),
        fused=timing.median("fused"),
        fused_over_single=timing.ratio("fused", "single"),
        fused_over_one_after_another=timing.ratio("fused", "one after another"),
        operations_ratio=fused.flops(batch, tokens) / backbone.flops(batch, tokens),
        parameters_ratio=fused.num_parameters / backbone.num_parameters,
        batch_size=batch,
        tokens=tokens,
        num_members=fused.num_members,
        rounds=rounds,
        threads=torch.get_num_threads(),
        device=backbone.device,
        dtype=backbone.dtype,
        form=form,
    )
