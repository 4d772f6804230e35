"""From an original library's layers to the canonical encoder."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hydra_core.block import BlockShape
from hydra_core.encoder import Encoder

Affine = tuple[Tensor, Tensor | None]  # weight (out, in) and bias


@dataclass(frozen=True)
class LayerWeights:
    """One original layer: weights as nn.Linear keeps them, LayerNorms as modules."""

    query: Affine
    key: Affine
    value: Affine
    out: Affine
    norm1: nn.LayerNorm
    norm2: nn.LayerNorm
    fc1: Affine
    fc2: Affine
    num_heads: int
    activation: str
    pre_norm: bool
    scale1: Tensor | None = None
    scale2: Tensor | None = None

    def shape(self) -> BlockShape:
        """The canonical layer's shape, with all heads."""
        inner, width = self.query[0].shape
        return BlockShape(
            heads=(tuple(range(self.num_heads)),),
            width=width,
            head_dim=inner // self.num_heads,
            hidden=self.fc1[0].shape[0],
            activation=self.activation,
            pre_norm=self.pre_norm,
            eps=self.norm1.eps,
            qkv_bias=any(affine[1] is not None for affine in (self.query, self.key, self.value)),
            out_bias=self.out[1] is not None,
            mlp_bias=self.fc1[1] is not None,
            layer_scale=self.scale1 is not None,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The canonical layer's state dict."""
        triple = (self.query, self.key, self.value)
        state = {
            "qkv.weight": torch.cat([w for w, _ in triple]),
            "out.weight": self.out[0].t().contiguous(),
            "fc1.weight": self.fc1[0],
            "fc2.weight": self.fc2[0],
        }
        if any(b is not None for _, b in triple):
            # A library may leave out the key's bias alone: a bias of 0 is the same.
            state["qkv.bias"] = torch.cat([w.new_zeros(len(w)) if b is None else b for w, b in triple])
        if self.out[1] is not None:
            state["out.bias"] = self.out[1][None]
        for name, affine in (("fc1", self.fc1), ("fc2", self.fc2)):
            if affine[1] is not None:
                state[f"{name}.bias"] = affine[1]
        for name, norm in (("norm1", self.norm1), ("norm2", self.norm2)):
            state[f"{name}.weight"] = norm.weight[None]
            state[f"{name}.bias"] = (torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)[None]
        if self.scale1 is not None and self.scale2 is not None:
            state["scale1.weight"], state["scale2.weight"] = self.scale1[None], self.scale2[None]
        return state


def empty_encoder(shapes: Sequence[BlockShape], readout_tokens: int | None) -> Encoder:
    """An encoder without memory for its numbers; fill it with ``load_state_dict(..., assign=True)``."""
    with torch.device("meta"):
        return Encoder(shapes, readout_tokens)


def encoder_of(layers: Sequence[LayerWeights], readout_tokens: int | None) -> Encoder:
    """Read original layers into a canonical encoder with one member; MLP weights are taken over, not copied."""
    encoder = empty_encoder([layer.shape() for layer in layers], readout_tokens)
    state = {
        f"blocks.{i}.{name}": tensor.detach()
        for i, layer in enumerate(layers)
        for name, tensor in layer.state_dict().items()
    }
    encoder.load_state_dict(state, assign=True)
    return encoder.requires_grad_(False)


def affine(linear: nn.Linear) -> Affine:
    """Weight and bias of an nn.Linear."""
    return linear.weight, linear.bias
