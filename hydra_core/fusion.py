"""Fusion of pruned members into one network (Hydra Ensembles, arXiv 2510.18358).

Attention runs as grouped fully-connected layers, one group a member, in one call; the MLP is one, the mean of the
members'. LayerNorms and the read-out stay per member, embeddings are shared where equal and averaged otherwise
(the paper leaves these open). Where nobody was fine-tuned fusion is exact.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hydra_core.backbones.base import Backbone, Model
from hydra_core.backbones.layers import empty_encoder
from hydra_core.backbones.network import Network
from hydra_core.block import Block, BlockShape
from hydra_core.checks import instance
from hydra_core.encoder import Encoder
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask, fused_fingerprint

_PER_MEMBER = ("qkv.weight", "qkv.bias", "out.weight", "out.bias")
_NORMS = ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias", "scale1.weight", "scale2.weight")
_SHARED = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")


class FusedEnsemble(Model):
    """M pruned members in one network. Made by :func:`fuse` or :func:`hydra_core.load_ensemble`.

    Attributes:
        masks: each member's heads, by the original backbone's indices.
        report: what fusing did: `shared_layers` (leading layers that one stream serves), `embeddings` and
            `readouts` ("shared", "averaged" or "per member"), `mlp_max_difference` (largest |difference| between
            a member's MLP weight and the mean; 0 where nobody was fine-tuned), `members` (their fingerprints).
    """

    def __init__(self, *args: Any, masks: Sequence[HeadMask], report: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.masks = tuple(masks)
        self.report = dict(report)

    @property
    def num_members(self) -> int:
        """M."""
        return len(self.masks)

    @property
    def max_heads(self) -> int:
        """Most heads any layer of the original backbone has."""
        return max(self.masks[0].widths)

    def member_logits(self, inputs: Mapping[str, Tensor], gates: Any = None) -> Tensor:
        """Logits of all members (M, B, C) from one forward.

        Args:
            inputs: what :meth:`prepare` returns.
            gates: as in :meth:`Backbone.logits`; a gate acts on that head in every member that keeps it.
        """
        return self._member_logits(inputs, gates)

    def probabilities(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The ensemble's probabilities (B, C): the mean of the members' softmax."""
        return self.member_logits(inputs).softmax(-1).mean(0)

    def with_network(self, network: Network, *, fingerprint: str) -> "FusedEnsemble":
        """An ensemble around another network of the same kind."""
        return FusedEnsemble(
            network, self.processor, self.spec, ref=self.ref, family=self.family, class_names=self.class_names,
            fingerprint=fingerprint, masks=self.masks, report=self.report,
        )  # fmt: skip

    def __repr__(self) -> str:
        heads = [mask.kept_per_layer for mask in self.masks]
        return f"FusedEnsemble({self.ref!r}, {self.family}, members={self.num_members}, heads={heads}, {self.device})"


def fuse(members: Sequence[Backbone]) -> FusedEnsemble:
    """Fuse pruned (and perhaps fine-tuned) members of one backbone into one network.

    Args:
        members: at least one Backbone, all of the same architecture, classes, device and dtype.

    Raises:
        HydraError: no member, or members that do not fit together; both sides are named.

    Example:
        >>> fused = fuse([prune(backbone, mask) for mask in masks])  # doctest: +SKIP
    """
    instance("members", members, Sequence, "a list of pruned backbones, e.g. [hydra.prune(backbone, mask), ...]")
    members = list(members)
    if not members:
        raise HydraError("fuse needs at least one pruned backbone, got none")
    first = members[0]
    for i, member in enumerate(members):
        _check(first, member, i)
    encoder, report = _fuse_encoders([m.network.encoder for m in members])
    embed, embeddings = _fuse_modules([m.network.embed for m in members], average=True)
    readout, readouts = _fuse_modules([m.network.readouts[0] for m in members], average=False)
    network = Network(embed[0], encoder, readout, len(members))  # type: ignore[arg-type]
    report = {**report, "embeddings": embeddings, "readouts": readouts}
    report["members"] = [m.fingerprint for m in members]
    fingerprint = fused_fingerprint([m.fingerprint for m in members])
    return FusedEnsemble(
        network.requires_grad_(False), first.processor, first.spec, ref=first.ref, family=first.family,
        class_names=first.class_names, fingerprint=fingerprint, masks=[m.mask for m in members], report=report,
    )  # fmt: skip


def _check(first: Backbone, member: Backbone, index: int) -> None:
    if not isinstance(member, Backbone):
        raise HydraError(f"fuse takes pruned backbones; member {index} is a {type(member).__name__}")
    facts = {
        "family": (first.family, member.family),
        "architecture": (first.spec, member.spec),
        "classes": (first.class_names, member.class_names),
        "heads of the original": (first.mask.widths, member.mask.widths),
        "device": (first.device, member.device),
        "dtype": (first.dtype, member.dtype),
    }
    for what, (a, b) in facts.items():
        if a != b:
            raise HydraError(
                f"members 0 and {index} cannot be fused, their {what} differs: {a!s:.60} against {b!s:.60}"
            )


def _equal(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    return all(t is first or (t.shape == first.shape and torch.equal(t, first)) for t in tensors[1:])


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    # The mean of equal tensors may differ from them in the last bit, so equal ones are taken as they are.
    return tensors[0] if _equal(tensors) else torch.stack([t.double() for t in tensors]).mean(0).to(tensors[0].dtype)


def _fuse_encoders(encoders: Sequence[Encoder]) -> tuple[Encoder, dict[str, Any]]:
    shapes: list[BlockShape] = []
    state: dict[str, Tensor] = {}
    shared_layers, prefix, difference = 0, True, 0.0
    for i in range(len(encoders[0])):
        blocks = [encoder.layer(i) for encoder in encoders]
        states = [block.state_dict() for block in blocks]
        # Layers before the first one that differs see equal streams: one stream serves all members (exact).
        prefix = prefix and _same_stream(blocks, states)
        shared_layers += prefix
        shape, fused, gap = _fuse_blocks(blocks[:1] if prefix else blocks, states[:1] if prefix else states, states)
        shapes.append(shape)
        difference = max(difference, gap)
        state.update({f"blocks.{i}.{name}": tensor for name, tensor in fused.items()})
    encoder = empty_encoder(shapes, encoders[0].readout_tokens)
    encoder.load_state_dict(state, assign=True)
    return encoder.requires_grad_(False), {"shared_layers": shared_layers, "mlp_max_difference": difference}


def _same_stream(blocks: Sequence[Block], states: Sequence[Mapping[str, Tensor]]) -> bool:
    if any(block.shape.heads != blocks[0].shape.heads for block in blocks):
        return False
    names = [name for name in (*_PER_MEMBER, *_NORMS) if name in states[0]]
    return all(_equal([state[name] for state in states]) for name in names)


def _fuse_blocks(
    blocks: Sequence[Block], states: Sequence[Mapping[str, Tensor]], everyone: Sequence[Mapping[str, Tensor]]
) -> tuple[BlockShape, dict[str, Tensor], float]:
    """One layer of the fused encoder from the streams that differ, with the mean of everyone's MLP."""
    fused: dict[str, Tensor] = {}
    for name in _PER_MEMBER:
        if name in states[0]:
            fused[name] = torch.cat([state[name] for state in states])
    norms = [name for name in _NORMS if name in states[0]]
    norm_members = 1 if all(_equal([s[name] for s in states]) for name in norms) else len(states)
    for name in norms:
        fused[name] = torch.cat([state[name] for state in states[:norm_members]])
    gap = 0.0
    for name in _SHARED:
        if name in states[0]:
            tensors = [state[name] for state in everyone]
            fused[name] = _mean(tensors)
            if not _equal(tensors):
                gap = max(gap, *(float((t - fused[name]).abs().max()) for t in tensors))
    heads = tuple(block.shape.heads[0] for block in blocks)
    shape = BlockShape.from_dict({**blocks[0].shape.to_dict(), "heads": heads, "norm_members": norm_members})
    return shape, fused, gap


def _fuse_modules(modules: Sequence[nn.Module], *, average: bool) -> tuple[list[nn.Module], str]:
    """The one module all members share, or their average, or all of them, and which it was."""
    import copy

    states = [module.state_dict() for module in modules]
    if all(_equal([state[name] for state in states]) for name in states[0]):
        return [modules[0]], "shared"
    if not average:
        return list(modules), "per member"
    merged = copy.deepcopy(modules[0])
    floats = {n: _mean([s[n] for s in states]) for n, t in states[0].items() if t.is_floating_point()}
    merged.load_state_dict({**states[0], **floats})
    return [merged], "averaged"
