"""Network: embedding, canonical encoder and read-out as one torch module, and what a family adds to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hydra_core.encoder import Encoder

TEXT_TOKENS = 128  # tokens that operation counts assume for text, where none are given
# On CPU a batch runs in parts whose streams (M, b, T, D) stay in the cache: larger ones wait for memory (measured at
# ViT-B/16 size, M = 3, batch 32: four parts take 0.87 of the time of one).
STREAM_BYTES_ON_CPU = 16 * 1024**2


class Embed(nn.Module):
    """Inputs -> tokens. Subclasses are family-specific."""

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The prepared inputs -> (B, T, D)."""
        raise NotImplementedError

    def key_mask(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """(B, T) bool, False at padding; None where nothing is padded."""
        return None

    def num_tokens(self) -> int | None:
        """Tokens of one input where they are fixed (images), else None."""
        return None

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's patches, which are the last tokens; None for text."""
        return None

    def flops(self, tokens: int) -> int:
        """Operations for one input of `tokens` tokens (2 a multiply-add)."""
        return 0


class Readout(nn.Module):
    """Tokens of the last layer -> logits; subclasses are family-specific.

    Attributes:
        tokens: the read-out uses only the first so many tokens; None for all.
    """

    tokens: int | None = 1

    def forward(self, x: Tensor) -> Tensor:
        """(B, Q, D) -> (B, C)."""
        raise NotImplementedError

    def flops(self) -> int:
        """Operations for one input (2 a multiply-add): every linear layer here runs once."""
        return sum(2 * m.weight.numel() for m in self.modules() if isinstance(m, nn.Linear))


class Processor(Protocol):
    """Raw items -> a mapping of tensors, and how to keep it in a folder."""

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Raw items -> prepared inputs."""

    def save(self, folder: str) -> dict[str, Any]:
        """Write what is needed into a folder; returns plain values to keep beside it."""


@dataclass(frozen=True)
class NetworkSpec:
    """What is needed to build the embedding and read-out empty again: adapter name and its plain config."""

    adapter: str
    config: dict[str, Any]


class Network(nn.Module):
    """Embedding, encoder and one read-out a member (or one that all members share)."""

    def __init__(self, embed: Embed, encoder: Encoder, readouts: Sequence[Readout], num_members: int) -> None:
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.readouts = nn.ModuleList(readouts)
        self.num_members = num_members

    def readout(self, x: Tensor) -> Tensor:
        """The last layer's tokens (M or 1, B, Q, D) -> logits (M, B, C)."""
        if len(self.readouts) == 1:
            streams, batch = x.shape[:2]
            logits: Tensor = self.readouts[0](x.flatten(0, 1)).view(streams, batch, -1)
            return logits.expand(self.num_members, -1, -1)
        return torch.stack([readout(x[min(m, len(x) - 1)]) for m, readout in enumerate(self.readouts)])

    def forward(self, inputs: Mapping[str, Tensor], gates: Tensor | None = None) -> Tensor:
        """Prepared inputs -> logits (M, B, C); gates (B or 1, L, max heads) or None."""
        x, key_mask = self.embed(inputs), self.embed.key_mask(inputs)
        parts = self._parts(x)
        if parts == 1:
            return self.readout(self.encoder(x, key_mask=key_mask, gates=gates).last)
        masks = [None] * parts if key_mask is None else key_mask.tensor_split(parts)
        cut = [gates] * parts if gates is None or len(gates) == 1 else gates.tensor_split(parts)
        last = [
            self.encoder(part, key_mask=mask, gates=some).last
            for part, mask, some in zip(x.tensor_split(parts), masks, cut, strict=True)
        ]
        return self.readout(torch.cat(last, dim=1))

    def _parts(self, x: Tensor) -> int:
        """In how many parts the embedded batch (B, T, D) runs."""
        if x.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return 1
        streams = self.encoder.num_members * x.numel() * x.element_size()
        return min(len(x), max(1, -(-streams // STREAM_BYTES_ON_CPU)))

    def flops(self, batch_size: int, tokens: int | None) -> int:
        """Operations of one forward, 2 a multiply-add, counted from the shapes as they are really run."""
        tokens = tokens or self.embed.num_tokens() or TEXT_TOKENS
        readouts = [r.flops() for r in self.readouts if isinstance(r, Readout)]
        streams = min(self.num_members, self.encoder.num_members)
        reads = sum(readouts) if len(readouts) > 1 else streams * readouts[0]
        return self.encoder.flops(batch_size, tokens) + batch_size * (self.embed.flops(tokens) + reads)
