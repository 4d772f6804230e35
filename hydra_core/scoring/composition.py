"""Q-, K- and V-composition of heads, from the weights alone.

Elhage et al., "A Mathematical Framework for Transformer Circuits" (Transformer Circuits Thread, 2021): how much of what
an earlier head writes into the residual stream a later head reads as its query, its key or its value, as a ratio of
Frobenius norms::

    Q: |W_QK^T W_OV| / (|W_QK| |W_OV|)    K: |W_QK W_OV| / (...)    V: |W_OV' W_OV| / (|W_OV'| |W_OV|)

with W_QK = W_Q^T W_K of the later head and W_OV = W_O W_V of the earlier one. What lies on the direct path between the
two belongs to the reading side: LayerNorms by their gains and their centring (their division by the standard
deviation depends on the input and cancels where it is the same for all), LayerScale by its factors. MLPs in between
are another path and are left out. Two unrelated matrices of width D come to about 1 / sqrt(D).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydra_core.backbones.base import Backbone
from hydra_core.block import Block
from hydra_core.errors import HydraError

KINDS = ("q", "k", "v")
Strengths = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Composition:
    """Composition strengths of all pairs of heads.

    Attributes:
        q, k, v: (L, H, L, H), from 0 to 1; ``q[l1, h1, l2, h2]`` is how strongly head h2 of layer l2 reads what head h1
            of the earlier layer l1 writes, as its query. NaN where l2 <= l1 or there is no such head.
        unrelated: 1 / sqrt(D), what two unrelated matrices come to.
        backbone_fingerprint: the weights it was computed from.
    """

    q: Strengths
    k: Strengths
    v: Strengths
    unrelated: float
    backbone_fingerprint: str

    def of(self, kind: str) -> Strengths:
        """One kind, ``q``, ``k`` or ``v``."""
        if kind not in KINDS:
            raise HydraError(f"the kind of composition must be one of {', '.join(KINDS)}, got {kind!r}")
        return {"q": self.q, "k": self.k, "v": self.v}[kind]


@torch.no_grad()
def composition(backbone: Backbone) -> Composition:
    """Composition strengths between all heads of a backbone.

    Args:
        backbone: with one member; pruned heads come out as NaN. Computed in float64, on the CPU.
    """
    encoder = backbone.network.encoder
    layers, most = backbone.num_layers, backbone.max_heads
    blocks = [encoder.layer(i) for i in range(layers)]
    found = {kind: np.full((layers, most, layers, most), np.nan) for kind in KINDS}
    for first in range(layers - 1):
        if not blocks[first].counts[0]:
            continue
        _, _, value, out = _head_weights(blocks[first])
        gram = value @ value.transpose(1, 2)  # (H1, dh, dh)
        scale = blocks[first].scale1
        written = out if scale is None else out * _vector(scale.weight)
        for second in range(first + 1, layers):
            # Rows of `written` are what a head can add to the stream, seen from one layer further on each time.
            written = _pass_on(written, blocks[second - 1])
            if not blocks[second].counts[0]:
                continue
            query, key, value2, out2 = _head_weights(blocks[second])
            read = _normed(written, blocks[second]) if blocks[second].shape.pre_norm else written
            # |W_O W_V|^2 = tr((V V^T) (O^T O)), with rows as matrices (dh, D): H1 numbers
            size1 = _trace(gram, read @ read.transpose(1, 2))
            pairs = {"q": (query, key), "k": (key, query), "v": (value2, out2)}
            for kind, (reading, other) in pairs.items():
                other_gram = other @ other.transpose(1, 2)  # (H2, dh, dh)
                size2 = _trace(reading @ reading.transpose(1, 2), other_gram)
                middle = torch.einsum("jaw,icw->ijac", reading, read)  # (H1, H2, dh, dh)
                both = torch.einsum("jab,ijac,icd,ijbd->ij", other_gram, middle, gram, middle)
                ratio = (both.clamp(min=0) / (size1[:, None] * size2[None]).clamp(min=1e-300)).sqrt()
                rows, columns = list(blocks[first].shape.heads[0]), list(blocks[second].shape.heads[0])
                found[kind][first, np.array(rows)[:, None], second, np.array(columns)[None]] = ratio.numpy()
    width = blocks[0].shape.width
    return Composition(found["q"], found["k"], found["v"], width**-0.5, backbone.fingerprint)


def _head_weights(block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each head's query, key, value and output weights as rows over the stream, (H, dh, D) each."""
    shape = block.shape
    packed = block.qkv.weight.detach().double().cpu().view(3, -1, shape.head_dim, shape.width)
    out = block.out.weight.detach().double().cpu().view(-1, shape.head_dim, shape.width)
    return packed[0], packed[1], packed[2], out


def _vector(weight: Tensor) -> Tensor:
    return weight.detach().double().cpu()[0]


def _layer_norm(rows: Tensor, gain: Tensor) -> Tensor:
    """Rows over the stream (..., D) after a LayerNorm's centring and gain."""
    return (rows - rows.mean(-1, keepdim=True)) * gain


def _normed(rows: Tensor, block: Block) -> Tensor:
    """As the attention of a pre-norm block reads the stream."""
    return _layer_norm(rows, _vector(block.norm1.weight))


def _pass_on(rows: Tensor, block: Block) -> Tensor:
    """What is left of `rows`, written by or before this block's attention, at the next block's input."""
    if block.shape.pre_norm:
        return rows
    return _layer_norm(_layer_norm(rows, _vector(block.norm1.weight)), _vector(block.norm2.weight))


def _trace(a: Tensor, b: Tensor) -> Tensor:
    """tr(a_h b_h) of each head, both symmetric (H, dh, dh)."""
    return (a * b).sum((-2, -1))
