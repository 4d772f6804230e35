"""Does the fused network compute what it should? Masked backbone, pruned members and fused members, side by side."""

import json
from dataclasses import asdict, dataclass, field
from time import perf_counter

import numpy as np

from hydra_core import metrics
from hydra_core.masks import HeadMask
from hydra_core.study import Study
from pages.ui import cache

SAMPLES = 64


@dataclass(frozen=True)
class Equivalence:
    """Largest |logit difference| of each member between the three ways to compute it, on the same samples.

    Attributes:
        masked_pruned, masked_fused: one value a member.
        scale: largest |logit| of the masked backbone, which the differences are to be read against.
        report: what the fusion says of itself.
        parameters, operations: of the fused network over the full backbone's.
        diversity: how much the members differ (see :func:`diversity`), pruned and fused; none for one member.
        forward_seconds: of one pruned member on one sample, the quickest member's; 0 in a file of an older version.
    """

    masked_pruned: list[float]
    masked_fused: list[float]
    scale: float
    num_samples: int
    dtype: str
    device: str
    report: dict[str, float | int | str]
    parameters: float
    operations: float
    num_parameters: int
    diversity: dict[str, tuple[float, float]] = field(default_factory=dict)
    forward_seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Equivalence":
        return cls(**json.loads(text))


def gates(mask: HeadMask) -> np.ndarray:
    """The mask as gates (L, max heads): 1 keeps a head, 0 removes it."""
    out = np.zeros((mask.num_layers, max(mask.widths)), dtype=np.float32)
    for layer, row in enumerate(mask.keep):
        out[layer, : len(row)] = row
    return out


def diversity(probabilities: np.ndarray) -> dict[str, float]:
    """How much members differ, from their probabilities (M, N, C): shares and nats; none for one member.

    `pairwise_kl` is the mean of KL(i || j) over all ordered pairs and samples; rows with a NaN are left out.
    """
    members = len(probabilities)
    if members < 2:
        return {}
    return {
        "disagreement": metrics.disagreement(probabilities),
        "pairwise_kl": float(metrics.pairwise_kl(probabilities).sum() / (members * (members - 1))),
        "mutual_information": float(np.nanmean(metrics.mutual_information(probabilities))),
    }


def compare(study: Study, masks: list[HeadMask]) -> Equivalence:
    """Run the three on the first test samples."""
    import hydra_core as hydra

    backbone, fused = cache.backbone(study), cache.fused(study, masks)
    data = cache.dataset(study)
    count = min(SAMPLES, len(data))
    inputs = backbone.prepare([data.items[i] for i in range(count)])
    together = _numpy(fused.member_logits(inputs))
    pruned, merged, scale = [], [], 0.0
    apart, seconds = [], []
    for i, mask in enumerate(masks):
        masked = _numpy(backbone.logits(inputs, gates=gates(mask)))
        member = hydra.prune(backbone, mask)
        start = perf_counter()
        alone = _numpy(member.logits(inputs))
        seconds.append((perf_counter() - start) / count)
        apart.append(alone)
        pruned.append(float(np.abs(masked - alone).max()))
        merged.append(float(np.abs(masked - together[i]).max()))
        scale = max(scale, float(np.abs(masked).max()))
    before, after = (diversity(metrics.softmax(logits)) for logits in (np.stack(apart), together))
    plain = {k: v for k, v in fused.report.items() if isinstance(v, float | int | str)}
    return Equivalence(
        pruned, merged, scale, count, fused.dtype, fused.device, plain,
        fused.num_parameters / backbone.num_parameters, fused.flops() / backbone.flops(), fused.num_parameters,
        {name: (value, after[name]) for name, value in before.items()}, min(seconds),
    )  # fmt: skip


def _numpy(tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
