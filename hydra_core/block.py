"""One transformer layer with a member axis: attention through grouped layers, one MLP that all members share.

Fusion follows Hydra Ensembles (arXiv 2510.18358). The letters of shapes (M, B, T, Q, D, H, S, dh) are those of
:mod:`hydra_core.encoder`.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hydra_core.grouped import GroupedLayerNorm, GroupedLinear, GroupedScale

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "relu")
# On CPU an MLP in blocks whose activations stay in the cache beats one big product.
MLP_ROWS_ON_CPU = 1600


def activation(name: str, x: Tensor) -> Tensor:
    """Apply the MLP's activation `name` (one of ``ACTIVATIONS``) to x of any shape."""
    if name == "gelu":
        return F.gelu(x)
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    if name == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    if name == "relu":
        return F.relu(x)
    raise ValueError(f"activation must be one of {ACTIVATIONS}, got {name!r}")


@dataclass(frozen=True)
class BlockShape:
    """Everything about one layer but its numbers; enough to build it empty and load a state dict.

    Attributes:
        heads: a member's heads by their indices in the original backbone, one tuple a member.
        width, head_dim, hidden: D, dh, F.
        activation: one of ``ACTIVATIONS``.
        pre_norm: LayerNorm before attention and MLP (ViT, CLIP), or after each residual sum (BERT).
        eps: the LayerNorms' epsilon.
        bias: biases on query, key, value / on the attention output / on the MLP.
        norm_members: members that the LayerNorms (and LayerScale) have weights for: 1 where all share them.
        layer_scale: a learned factor on each branch.
    """

    heads: tuple[tuple[int, ...], ...]
    width: int
    head_dim: int
    hidden: int
    activation: str = "gelu"
    pre_norm: bool = True
    eps: float = 1e-6
    qkv_bias: bool = True
    out_bias: bool = True
    mlp_bias: bool = True
    norm_members: int = 1
    layer_scale: bool = False

    @property
    def num_members(self) -> int:
        """Members this layer holds weights for (1 in a prefix that all members share)."""
        return len(self.heads)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "BlockShape":
        """The inverse of :meth:`to_dict`."""
        return cls(**{**data, "heads": tuple(tuple(int(i) for i in ids) for ids in data["heads"])})


class Block(nn.Module):
    """One transformer layer for one or several members; the MLP is shared by all of them."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.shape = shape
        d, members = shape.width, shape.norm_members
        widths = [len(ids) * shape.head_dim for ids in shape.heads]
        self.norm1 = GroupedLayerNorm(members, d, shape.eps)
        self.qkv = GroupedLinear([3 * w for w in widths], d, grouped="output", bias=shape.qkv_bias, parts=3)
        self.out = GroupedLinear(widths, d, grouped="input", bias=shape.out_bias)
        self.norm2 = GroupedLayerNorm(members, d, shape.eps)
        self.fc1 = nn.Linear(d, shape.hidden, bias=shape.mlp_bias)
        self.fc2 = nn.Linear(shape.hidden, d, bias=shape.mlp_bias)
        self.scale1 = GroupedScale(members, d) if shape.layer_scale else None
        self.scale2 = GroupedScale(members, d) if shape.layer_scale else None

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of heads of each member."""
        return tuple(len(ids) for ids in self.shape.heads)

    @property
    def even(self) -> bool:
        """Whether all members have the same number of heads, so that one batched product serves them."""
        return len(set(self.counts)) == 1

    # --- attention -----------------------------------------------------------------------------------------------

    def _queries_keys_values(self, x: Tensor, queries: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """x (M or 1, B, T, D) -> q, k, v with heads laid out as :meth:`head_outputs` says."""
        if self.shape.pre_norm:
            x = self.norm1(x)
        if queries is None:
            q, k, v = self._to_heads(self.qkv(x), parts=3)
        else:
            (q,) = self._to_heads(self.qkv(x[:, :, :queries], part=slice(0, 1)), parts=1)
            k, v = self._to_heads(self.qkv(x, part=slice(1, 3)), parts=2)
        return q, k, v

    def _to_heads(self, projected: Tensor | list[Tensor], parts: int) -> tuple[Tensor, ...]:
        dh = self.shape.head_dim
        if isinstance(projected, Tensor):  # (M, B, T, parts*H*dh), even members
            m, b, t, _ = projected.shape
            y = projected.view(m * b, t, parts, -1, dh)  # members folded into the batch
            return y.permute(2, 0, 3, 1, 4).unbind(0)  # parts x (M*B, H, T, dh)
        # each (B, T, parts, H, dh), without members that have no head here
        split = [y.view(*y.shape[:2], parts, -1, dh) for y in projected if y.shape[-1]]
        return torch.cat(split, dim=3).permute(2, 0, 3, 1, 4).unbind(0)  # parts x (B, S, T, dh)

    def head_outputs(self, x: Tensor, key_mask: Tensor | None = None, queries: int | None = None) -> Tensor:
        """Per-head outputs before the output projection, all members in one attention call.

        Args:
            x: (M or 1, B, T, D), the layer's input.
            key_mask: (B, T) bool, False at padding; None where nothing is padded.
            queries: only the first so many tokens ask (the read-out's, in the last layer); None for all.

        Returns:
            (M*B, H, Q, dh) where the members are even, else (B, S, Q, dh) with the members' heads side by side.
        """
        if not any(self.counts):
            return x.new_zeros(x.shape[1] * (self.shape.num_members if self.even else 1), 0,
                               queries or x.shape[2], self.shape.head_dim)  # fmt: skip
        q, k, v = self._queries_keys_values(x, queries)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self._attention_mask(key_mask))

    def _attention_mask(self, key_mask: Tensor | None) -> Tensor | None:
        if key_mask is None:
            return None
        folded = self.shape.num_members if self.even else 1  # members in the batch axis
        return (key_mask.repeat(folded, 1) if folded > 1 else key_mask)[:, None, None, :]  # (M*B or B, 1, 1, T)

    def attention_maps(self, x: Tensor, key_mask: Tensor | None = None) -> list[Tensor]:
        """One (B, H, T, T) tensor a member, rows sum to 1: softmax(q k / sqrt(dh)) written out."""
        if not any(self.counts):
            return [x.new_zeros(x.shape[1], 0, x.shape[2], x.shape[2]) for _ in self.counts]
        q, k, _ = self._queries_keys_values(x, None)
        scores = q @ k.transpose(-2, -1) * self.shape.head_dim**-0.5
        mask = self._attention_mask(key_mask)
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return self.by_member(scores.softmax(-1))

    def by_member(self, heads: Tensor) -> list[Tensor]:
        """Split :meth:`head_outputs`'s tensor into one (B, H, ...) view a member."""
        if self.even:
            return list(heads.chunk(self.shape.num_members, dim=0))
        return list(heads.split(self.counts, dim=1))

    def gate_heads(self, heads: Tensor, gates: Tensor) -> Tensor:
        """Multiply per-head outputs by `gates` (B or 1, max heads), indexed by original heads."""
        picked = [gates[:, list(ids)][:, :, None, None] for ids in self.shape.heads]  # each (B or 1, H, 1, 1)
        if not self.even:
            return heads * torch.cat(picked, dim=1)
        batch = heads.shape[0] // self.shape.num_members
        return heads * torch.cat([g.expand(batch, -1, -1, -1) for g in picked], dim=0)

    def project(self, heads: Tensor) -> Tensor:
        """Output projection of :meth:`head_outputs`'s tensor -> (M, B, Q, D), bias included."""
        members = self.shape.num_members
        if not any(self.counts):
            batch, queries = heads.shape[0] // (members if self.even else 1), heads.shape[2]
            empty = heads.new_zeros(batch, queries, 0)
            alone: Tensor = self.out([empty] * members)
            return alone
        if self.even:
            mb, h, q, dh = heads.shape
            projected: Tensor = self.out(heads.transpose(1, 2).reshape(members, mb // members, q, h * dh))
        else:
            projected = self.out([part.transpose(1, 2).flatten(2) for part in heads.split(self.counts, dim=1)])
        return projected

    # --- the rest of the layer -----------------------------------------------------------------------------------

    def finish(self, x: Tensor, attention: Tensor) -> Tensor:
        """Residual sums, LayerNorms and MLP after the attention's output.

        Args:
            x: (M or 1, B, Q, D), the layer's input at the query tokens.
            attention: (M, B, Q, D), from :meth:`project`.
        """
        if self.scale1 is not None:
            attention = self.scale1(attention)
        x = x + attention
        if not self.shape.pre_norm:
            x = self.norm1(x)
        y = self.mlp(self.norm2(x) if self.shape.pre_norm else x)
        if self.scale2 is not None:
            y = self.scale2(y)
        summed: Tensor = x + y
        return summed if self.shape.pre_norm else self.norm2.forward(summed)

    def mlp(self, x: Tensor) -> Tensor:
        """The shared MLP on every token of every stream, (..., D) -> (..., D)."""
        rows = x.reshape(-1, x.shape[-1])
        if torch.is_grad_enabled() or rows.device.type != "cpu" or torch.compiler.is_compiling():
            return self.fc2.forward(activation(self.shape.activation, self.fc1(x)))
        out = torch.empty_like(rows)
        count = max(1, round(len(rows) / MLP_ROWS_ON_CPU))
        for part, into in zip(rows.tensor_split(count), out.tensor_split(count), strict=True):
            into.copy_(self.fc2(activation(self.shape.activation, self.fc1(part))))
        return out.view(x.shape)

    def forward(
        self,
        x: Tensor,
        key_mask: Tensor | None = None,
        gates: Tensor | None = None,
        queries: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """x (M or 1, B, T, D) -> the layer's output (M, B, Q, D) and its gated per-head outputs."""
        heads = self.head_outputs(x, key_mask, queries)
        if gates is not None:
            heads = self.gate_heads(heads, gates)
        return self.finish(x if queries is None else x[:, :, :queries], self.project(heads)), heads
