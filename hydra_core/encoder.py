"""The canonical transformer encoder, with a member axis.

Every supported backbone is read into this one :class:`Encoder`: the loaded backbone has one member and all heads, a
pruned member has one member and fewer heads, a fused Hydra Ensemble has M members. One forward serves them all.
Fusion follows Hydra Ensembles (arXiv 2510.18358): attention through grouped fully-connected layers, one shared MLP.

Letters: M members, B batch, T tokens, Q query tokens (T, or the read-out tokens in the last layer), D width,
L layers, H heads of a member, S all heads of all members, dh head width, F hidden width of the MLP.

A gate multiplies a head's output before the output projection and is an argument of the forward: no hook, no patched
module and no state, so that two threads can use one encoder with different gates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from hydra_core.block import Block, BlockShape


@dataclass
class EncoderOutput:
    """What one forward of :class:`Encoder` returns; lists are by layer, from `start`.

    Attributes:
        last: (M, B, Q, D), the last layer's output; Q is the number of read-out tokens, or T.
        hidden: the input of each layer (M or 1, B, T, D), then the output of the last one; where asked for.
        heads: per-head outputs before the output projection, per member (B, H, Q, dh); where asked for.
        attention: attention maps, per member (B, H, T, T); where asked for.
    """

    last: Tensor
    hidden: list[Tensor]
    heads: list[list[Tensor]]
    attention: list[list[Tensor]]


class Encoder(nn.Module):
    """A stack of :class:`Block`; the first layers may hold one member's weights that serve all members.

    Args:
        shapes: one :class:`BlockShape` a layer.
        readout_tokens: the read-out uses only the first so many tokens, so the last layer computes no others
            (exact); None where it uses all.
    """

    def __init__(self, shapes: Sequence[BlockShape], readout_tokens: int | None = 1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(shape) for shape in shapes])
        self.readout_tokens = readout_tokens

    def __len__(self) -> int:
        return len(self.blocks)

    def layer(self, index: int) -> Block:
        """Layer `index`, typed."""
        block = self.blocks[index]
        assert isinstance(block, Block)
        return block

    @property
    def shapes(self) -> list[BlockShape]:
        """One :class:`BlockShape` a layer."""
        return [self.layer(i).shape for i in range(len(self))]

    @property
    def num_members(self) -> int:
        """M, the largest number of members any layer holds."""
        return max(shape.num_members for shape in self.shapes)

    def queries_of(self, layer: int) -> int | None:
        """How many tokens ask in `layer`: the read-out's in the last one, else all (None)."""
        return self.readout_tokens if layer == len(self) - 1 else None

    def forward(
        self,
        x: Tensor,
        *,
        key_mask: Tensor | None = None,
        gates: Tensor | None = None,
        start: int = 0,
        stop: int | None = None,
        return_hidden: bool = False,
        return_heads: bool = False,
        return_attention: bool = False,
    ) -> EncoderOutput:
        """Run layers `start` to `stop` (all by default).

        Args:
            x: (B, T, D) or (M or 1, B, T, D): the input of layer `start`, so that a search can resume there.
            key_mask: (B, T) bool, False at padding.
            gates: (B or 1, L, max heads), indexed by layers and heads of the original backbone; 1 keeps a head,
                0 removes its output before the output projection. Differentiable.
        """
        x = x if x.dim() == 4 else x[None]
        stop = len(self) if stop is None else stop
        out = EncoderOutput(x, [], [], [])
        whole = return_hidden or return_attention  # then the last layer keeps all its tokens
        for index in range(start, stop):
            block = self.layer(index)
            if return_hidden:
                out.hidden.append(x)
            if return_attention:
                out.attention.append(block.attention_maps(x, key_mask))
            layer_gates = None if gates is None else gates[:, index].to(x.dtype)
            x, heads = block(x, key_mask, layer_gates, None if whole else self.queries_of(index))
            if return_heads:
                out.heads.append(block.by_member(heads))
        if return_hidden:
            out.hidden.append(x)
        out.last = x
        return out

    def flops(self, batch: int, tokens: int) -> int:
        """Operations of the linear layers and attention (2 a multiply-add), as this forward really runs them."""
        total = 0
        for index, shape in enumerate(self.shapes):
            q = min(self.queries_of(index) or tokens, tokens)
            d, dh, members = shape.width, shape.head_dim, shape.num_members
            for ids in shape.heads:
                w = len(ids) * dh
                total += 2 * w * d * (2 * q + 2 * tokens)  # q and output projection; k and v
                total += 2 * 2 * w * q * tokens  # q k and attention v
            total += 2 * 2 * members * q * d * shape.hidden
        return batch * total
