"""HeadMap (Wang et al., ICLR 2025, Algorithm 1) as one would first write it: a loop over the original model.

The reference that `find_circuit` is timed, and its values are checked, against. A head is masked by zeroing
its columns of the output projection; every measurement is a whole forward.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


@torch.no_grad()
def plain_headmap(
    model: Any, pixels: Tensor, labels: Tensor, heads_per_layer: int, batch_size: int
) -> tuple[list[list[int]], Tensor]:
    """Search a transformers ViT with the objective `loss`.

    Returns:
        The heads chosen in each layer, and the loss (L, H) with each head masked.
    """
    num_heads = model.config.num_attention_heads
    values = torch.zeros(len(model.vit.layers), num_heads, dtype=torch.float64)
    chosen: list[list[int]] = []
    for index, layer in enumerate(model.vit.layers):
        weight = layer.attention.o_proj.weight
        head_dim = weight.shape[1] // num_heads
        for head in range(num_heads):
            columns = weight[:, head * head_dim : (head + 1) * head_dim]
            kept = columns.clone()
            columns.zero_()
            values[index, head] = loss_of(model, pixels, labels, batch_size)
            columns.copy_(kept)
        chosen.append(sorted(range(num_heads), key=lambda h: (-values[index, h].item(), h))[:heads_per_layer])
        for head in chosen[-1]:
            weight[:, head * head_dim : (head + 1) * head_dim] = 0
    return chosen, values


def loss_of(model: Any, pixels: Tensor, labels: Tensor, batch_size: int) -> float:
    """Mean cross-entropy, summed per sample."""
    total = 0.0
    for start in range(0, len(pixels), batch_size):
        stop = start + batch_size
        logits = model(pixel_values=pixels[start:stop]).logits
        total += float(F.cross_entropy(logits.double(), labels[start:stop], reduction="sum"))
    return total / len(pixels)


def restore(model: Any, weights: Sequence[Tensor]) -> None:
    """Put back the output projections that a search masked."""
    with torch.no_grad():
        for layer, weight in zip(model.vit.layers, weights, strict=True):
            layer.attention.o_proj.weight.copy_(weight)


def predicted_ratio(layers: int, heads: int, width: int, hidden: int, tokens: int) -> float:
    """Operations of this loop over those of `find_circuit` (2 a multiply-add; linear layers and attention).

    The loop runs the whole network for each head. `find_circuit` runs each layer's attention once, takes each head's
    own part off, and runs what comes after for each head; in the last layer it needs the read-out token alone.
    """

    def attention(queries: int) -> int:
        return 2 * width * width * 2 * (queries + tokens) + 4 * width * queries * tokens

    def mlp(queries: int) -> int:
        return 4 * queries * width * hidden

    rows = [tokens] * (layers - 1) + [1]
    passes = [attention(q) + mlp(q) for q in rows]  # one layer, as find_circuit runs it
    ours = sum(passes)  # the baseline
    for layer, queries in enumerate(rows):
        entered = passes[layer - 1] if layer else 0
        own = 2 * queries * width * width // heads
        ours += entered + attention(queries) + heads * (own + mlp(queries) + sum(passes[layer + 1 :]))
    return layers * heads * layers * (attention(tokens) + mlp(tokens)) / ours
