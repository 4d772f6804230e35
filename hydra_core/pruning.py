"""Structural pruning: the heads are really gone, and what is left equals the masked backbone."""

import torch

from hydra_core.backbones.base import Backbone
from hydra_core.backbones.layers import empty_encoder
from hydra_core.backbones.network import Network
from hydra_core.block import Block, BlockShape
from hydra_core.checks import instance
from hydra_core.encoder import Encoder
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask, derived_fingerprint, describe_widths


def prune(backbone: Backbone, mask: HeadMask) -> Backbone:
    """A new backbone without the heads that `mask` cuts; `backbone` stays as it was.

    The output projection's bias stays, so a layer that lost all its heads adds that bias only. Embedding, MLP,
    LayerNorms and read-out are shared with `backbone`, not copied.

    Args:
        backbone: any Backbone; of one that is pruned already, a head stays where both keep it.
        mask: by the original backbone's head indices.

    Raises:
        HydraError: the mask is of another shape.
    """
    instance("backbone", backbone, Backbone, "hydra.load_backbone; prune before fusing")
    instance("mask", mask, HeadMask, "hydra.HeadMask(rows)")
    if mask.widths != backbone.mask.widths:
        raise HydraError(
            f"this mask is for {describe_widths(mask.widths)}, the backbone {backbone.ref!r} has "
            f"{describe_widths(backbone.mask.widths)}"
        )
    kept = mask & backbone.mask
    encoder = select_heads(backbone.network.encoder, kept)
    network = Network(backbone.network.embed, encoder, list(backbone.network.readouts), 1)  # type: ignore[arg-type]
    fingerprint = backbone.fingerprint
    if kept != backbone.mask:
        fingerprint = derived_fingerprint(backbone.fingerprint, kept.to_json())
    return backbone.with_network(network, mask=kept, fingerprint=fingerprint)


def select_heads(encoder: Encoder, mask: HeadMask) -> Encoder:
    """A one-member encoder with only the heads `mask` keeps; tensors that do not change are shared."""
    shapes = [_narrow(encoder.layer(i).shape, mask.kept_in(i)) for i in range(len(encoder))]
    state = {}
    for i, shape in enumerate(shapes):
        block = encoder.layer(i)
        for name, tensor in block.state_dict().items():
            state[f"blocks.{i}.{name}"] = _select(block, shape, name, tensor)
    selected = empty_encoder(shapes, encoder.readout_tokens)
    selected.load_state_dict(state, assign=True)
    return selected.requires_grad_(False).eval()


def _narrow(shape: BlockShape, keep: tuple[int, ...]) -> BlockShape:
    return BlockShape.from_dict({**shape.to_dict(), "heads": (keep,)})


def _select(block: Block, shape: BlockShape, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Rows of the kept heads: packed query, key, value have three parts, the output projection one."""
    have, keep = block.shape.heads[0], shape.heads[0]
    if have == keep or name not in {"qkv.weight", "qkv.bias", "out.weight"}:
        return tensor
    parts = 3 if name.startswith("qkv") else 1
    index = torch.tensor([have.index(head) for head in keep], dtype=torch.long, device=tensor.device)
    rows = tensor.view(parts, len(have), shape.head_dim, *tensor.shape[1:]).index_select(1, index)
    return rows.flatten(0, 2)
