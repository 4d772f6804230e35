"""The checks made on every loaded backbone: ours equals the original, and masking heads has an effect."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hydra_core.backbones.base import ParityReport
from hydra_core.backbones.network import Network
from hydra_core.errors import HydraError

RELATIVE_TOLERANCE = 1e-4


def check_parity(
    network: Network, original: Callable[[Mapping[str, Tensor]], Tensor], probe: Mapping[str, Tensor], ref: str
) -> ParityReport:
    """Compare logits on a probe batch, in float32 and before any casting.

    Args:
        network: ours, with one member.
        original: the original library's forward, inputs -> logits (B, C).
        probe: prepared inputs.
        ref: named in errors.

    Raises:
        HydraError: the logits differ by more than 1e-4 x max(1, largest |logit|), are not finite, or masking
            all heads changes nothing.
    """
    with torch.no_grad():
        theirs, ours = original(probe), network(probe)[0]
        if not bool(torch.isfinite(theirs).all()):
            raise HydraError(f"{ref!r} gives logits that are not finite on a probe input; its weights are damaged")
        if theirs.shape != ours.shape:
            raise HydraError(
                f"{ref!r} gives logits of shape {tuple(theirs.shape)}, our reading of it {tuple(ours.shape)}; this "
                "variant is not supported"
            )
        difference = float((theirs - ours).abs().max())
        tolerance = RELATIVE_TOLERANCE * max(1.0, float(theirs.abs().max()))
        if not difference <= tolerance:
            raise HydraError(
                f"{ref!r} is not read faithfully: logits differ from the original library's by {difference:.3g} on "
                f"a probe batch, at most {tolerance:.3g} is allowed; this variant is not supported"
            )
        encoder = network.encoder
        heads = max(max(map(len, shape.heads)) for shape in encoder.shapes)
        masked = network(probe, gates=torch.zeros(1, len(encoder), heads))[0]
        if bool((masked == ours).all()):
            raise HydraError(
                f"masking every head of {ref!r} changes no logit, so its heads cannot be scored; are its attention "
                "weights all zero?"
            )
    return ParityReport(difference, tolerance, len(theirs))


def image_probe(height: int, width: int, samples: int = 2) -> dict[str, Tensor]:
    """Seeded noise images (B, 3, height, width)."""
    generator = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn(samples, 3, height, width, generator=generator)}


def text_probe(vocabulary: int, length: int, pad: int, samples: int = 3) -> dict[str, Tensor]:
    """Seeded token ids (B, T); each row after the first is padded a little more, so that the mask is tested too."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (samples, length), generator=generator)
    ids[ids == pad] = (pad + 1) % vocabulary
    mask = torch.ones_like(ids)
    for row in range(1, samples):
        cut = max(1, length - 2 * row)
        ids[row, cut:], mask[row, cut:] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}
