"""Backbone: a loaded transformer as embedding, canonical encoder and read-out.

Only the embedding in front and the read-out behind stay family-specific; the layers between are an
:class:`~hydra_core.encoder.Encoder`. A Backbone is never changed once it is made: pruning, fine-tuning and
fusing return new objects, so one loaded backbone serves many threads.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hydra_core.backbones.network import Network, NetworkSpec, Processor
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask


@dataclass(frozen=True)
class ParityReport:
    """The check against the original library made on loading, in float32 on a probe batch.

    Attributes:
        max_difference: largest |logit difference| between the original model and ours.
        tolerance: the limit, 1e-4 x max(1, largest |logit|).
        num_samples: probe inputs.
    """

    max_difference: float
    tolerance: float
    num_samples: int


class Model:
    """What a Backbone and a FusedEnsemble have in common.

    Attributes:
        ref: where it came from, as given to the loader.
        family: ``vit``, ``bert`` or ``clip``.
        class_names: the classes by logit index.
        fingerprint: sha256 of the weights (of what they were made from, for a pruned one).
        network: the torch module. Never change it in place.
    """

    def __init__(
        self,
        network: Network,
        processor: Processor | None,
        spec: NetworkSpec,
        *,
        ref: str,
        family: str,
        class_names: Sequence[str],
        fingerprint: str,
    ) -> None:
        self.network = network.eval()
        self.processor = processor
        self.spec = spec
        self.ref = ref
        self.family = family
        self.class_names = tuple(class_names)
        self.fingerprint = fingerprint

    @property
    def parameter(self) -> nn.Parameter:
        """One parameter, for the device and number format that all of them have."""
        return next(self.network.parameters())

    @property
    def device(self) -> str:
        """Where the weights are, e.g. ``cpu`` or ``cuda:0``."""
        return str(self.parameter.device)

    @property
    def dtype(self) -> str:
        """Number format of the weights, e.g. ``float32``."""
        return str(self.parameter.dtype).removeprefix("torch.")

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return len(self.network.encoder)

    @property
    def head_dim(self) -> int:
        """Width dh of one head."""
        return self.network.encoder.layer(0).shape.head_dim

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole network; what members share counts once."""
        return sum(p.numel() for p in self.network.parameters())

    def flops(self, batch_size: int = 1, tokens: int | None = None) -> int:
        """Operations of one forward of the whole network (2 a multiply-add), as really run.

        Args:
            batch_size: inputs in the batch.
            tokens: tokens of one input; by default the image grid, or 128 for text.
        """
        return self.network.flops(batch_size, tokens)

    def prepare(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Raw items to the tensors that the network takes.

        Args:
            items: for text a sequence of str; for images PIL images, arrays (H, W) or (H, W, 3) uint8, or paths.

        Raises:
            HydraError: no items, an item of the wrong kind, or no tokenizer came with the model.
        """
        if isinstance(items, str) or not isinstance(items, Sequence):
            items = [items] if isinstance(items, str) else list(items)
        if not items:
            raise HydraError("prepare needs at least one item, got none")
        if self.processor is None:
            raise HydraError(
                f"{self.ref!r} came without a tokenizer, so texts cannot be prepared; put the tokenizer's files "
                "into its folder (tokenizer.save_pretrained), or pass input_ids and attention_mask yourself"
            )
        return self.processor(items)

    def place(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Prepared inputs on the model's device, floating-point ones in its number format.

        Raises:
            HydraError: not what :meth:`prepare` returns.
        """
        needed = "input_ids" if self.family == "bert" else "pixel_values"
        if not isinstance(inputs, Mapping) or needed not in inputs:
            got = ", ".join(map(str, inputs)) if isinstance(inputs, Mapping) else f"a {type(inputs).__name__}"
            raise HydraError(
                f"{self.ref!r} takes prepared inputs with {needed!r} (model.prepare(items)), got {got or 'none'}"
            )
        p = self.parameter
        return {k: v.to(p.device, p.dtype) if v.is_floating_point() else v.to(p.device) for k, v in inputs.items()}

    def check_gates(self, gates: Any) -> Tensor | None:
        """Bring gates to (B or 1, L, max heads); HydraError names both shapes where they do not fit."""
        if gates is None:
            return None
        gates = torch.as_tensor(gates, device=self.parameter.device)
        if not gates.is_floating_point():
            gates = gates.to(self.parameter.dtype)
        layers, heads = self.num_layers, self.max_heads
        view: Tensor = gates[(None,) * (3 - gates.dim())] if gates.dim() < 3 else gates
        if view.dim() != 3 or view.shape[1] not in (1, layers) or view.shape[2] not in (1, heads):
            raise HydraError(
                f"gates of shape {tuple(gates.shape)} do not fit: they must broadcast to (batch, {layers} layers, "
                f"{heads} heads)"
            )
        return view.expand(-1, layers, heads)

    @property
    def max_heads(self) -> int:
        """Most heads any layer of the original backbone has."""
        raise NotImplementedError

    def _member_logits(self, inputs: Mapping[str, Tensor], gates: Any = None) -> Tensor:
        checked = self.check_gates(gates)
        placed = self.place(inputs)
        batch = next(iter(placed.values())).shape[0]
        if checked is not None and checked.shape[0] not in (1, batch):
            raise HydraError(f"gates are for a batch of {checked.shape[0]}, the inputs are a batch of {batch}")
        wanted = checked is not None and checked.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and wanted):
            logits: Tensor = self.network(placed, checked)
        return logits


class Backbone(Model):
    """A transformer with one member: as loaded, pruned or fine-tuned. Made by :func:`hydra_core.load_backbone`.

    Attributes:
        mask: the heads it has, by their indices in the original backbone.
        parity: the check against the original library made on loading.
    """

    def __init__(self, *args: Any, mask: HeadMask, parity: ParityReport | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mask = mask
        self.parity = parity

    @property
    def num_heads(self) -> tuple[int, ...]:
        """Number of heads that are left in each layer."""
        return self.mask.kept_per_layer

    @property
    def max_heads(self) -> int:
        """Most heads any layer of the original backbone has."""
        return max(self.mask.widths)

    @property
    def pruned(self) -> bool:
        """Whether heads have been removed."""
        return self.mask.kept_per_layer != self.mask.widths

    def logits(self, inputs: Mapping[str, Tensor], gates: Any = None) -> Tensor:
        """Logits (B, C) of prepared inputs.

        Args:
            inputs: what :meth:`prepare` returns.
            gates: None, or float values broadcastable to (B, L, max heads): 1 keeps a head, 0 removes its output
                before the output projection. Differentiable. Indices are the original backbone's.

        Raises:
            HydraError: gates of another shape.
        """
        return self._member_logits(inputs, gates)[0]

    def attention_maps(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Attention of every head: a list of L tensors (B, H, T, T) whose rows sum to 1."""
        placed = self.place(inputs)
        with torch.no_grad():
            x = self.network.embed(placed)
            mask = self.network.embed.key_mask(placed)
            out = self.network.encoder(x, key_mask=mask, return_attention=True)
        return [maps[0] for maps in out.attention]

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of an image's patches, which are its last tokens; None for text."""
        return self.network.embed.patch_grid

    def with_network(self, network: Network, *, mask: HeadMask, fingerprint: str) -> "Backbone":
        """A backbone around another network of the same kind."""
        return Backbone(
            network, self.processor, self.spec, ref=self.ref, family=self.family, class_names=self.class_names,
            fingerprint=fingerprint, mask=mask, parity=self.parity,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Backbone({self.ref!r}, {self.family}, heads={self.num_heads}, {self.device}, {self.dtype})"


def fingerprint_of(module: nn.Module) -> str:
    """sha256 over names, shapes and float32 bytes of a module's weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        values = tensor.detach().cpu()
        values = values.float() if values.is_floating_point() else values
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(values.contiguous().numpy().tobytes())
    return digest.hexdigest()
