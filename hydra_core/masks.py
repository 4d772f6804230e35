"""Head masks: which attention heads of each layer a member keeps.

Head indices always refer to the original backbone, from 0, also after pruning.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from hydra_core.artefacts import parse_json
from hydra_core.errors import HydraError

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone


@dataclass(frozen=True)
class HeadMask:
    """Per layer, a tuple of bool: True where the head is kept.

    Args:
        keep: one sequence of bool a layer; layers may have different numbers of heads.

    Raises:
        HydraError: no layer, a layer that is no sequence, or an entry that is no bool.

    Example:
        >>> HeadMask([[True, True], [True, False]]).kept_per_layer
        (2, 1)
    """

    keep: tuple[tuple[bool, ...], ...]

    def __init__(self, keep: Iterable[Iterable[bool]]) -> None:
        try:
            rows = tuple(tuple(_as_bool(value) for value in row) for row in keep)
        except TypeError:
            raise HydraError(f"a head mask needs one sequence of true/false a layer, got {keep!r:.80}") from None
        if not rows:
            raise HydraError("a head mask needs at least one layer, got none")
        object.__setattr__(self, "keep", rows)

    @classmethod
    def full(cls, backbone: "Backbone") -> "HeadMask":
        """The mask that keeps every head `backbone` has (of a pruned one: every head that is left)."""
        return backbone.mask

    @property
    def num_layers(self) -> int:
        """Number of layers L."""
        return len(self.keep)

    @property
    def widths(self) -> tuple[int, ...]:
        """Original number of heads in each layer."""
        return tuple(len(row) for row in self.keep)

    @property
    def kept_per_layer(self) -> tuple[int, ...]:
        """Number of heads kept in each layer."""
        return tuple(sum(row) for row in self.keep)

    @property
    def num_kept(self) -> int:
        """Number of heads kept in all layers together."""
        return sum(self.kept_per_layer)

    @property
    def kept(self) -> frozenset[tuple[int, int]]:
        """The kept heads as (layer, head) pairs."""
        return frozenset((i, j) for i, row in enumerate(self.keep) for j, kept in enumerate(row) if kept)

    @property
    def empty_layers(self) -> tuple[int, ...]:
        """Layers in which no head is left: their attention adds its output bias only."""
        return tuple(i for i, count in enumerate(self.kept_per_layer) if count == 0)

    def kept_in(self, layer: int) -> tuple[int, ...]:
        """Original indices of the heads kept in `layer`."""
        return tuple(j for j, kept in enumerate(self.keep[layer]) if kept)

    def kept_lists(self) -> dict[int, list[int]]:
        """The heads kept in each layer; every layer is there, one with no head left with an empty list."""
        return {layer: list(self.kept_in(layer)) for layer in range(self.num_layers)}

    def pruned_lists(self) -> dict[int, list[int]]:
        """The heads cut in each layer, in the form that transformers 4 takes; a layer that loses none is left out.

        There, `model.prune_heads(mask.pruned_lists())` and `config.pruned_heads` mean the same (transformers 5 has
        neither).
        """
        return {layer: heads for layer, heads in self.complement().kept_lists().items() if heads}

    @classmethod
    def from_pruned_lists(cls, pruned: Mapping[Any, Iterable[int]], widths: Sequence[int]) -> "HeadMask":
        """The mask that cuts the listed heads: the inverse of :meth:`pruned_lists`.

        Args:
            pruned: heads by layer; a layer may be a text, as JSON has it.
            widths: number of heads in each layer of the original backbone.

        Raises:
            HydraError: no such layer or head, or no lists of whole numbers.
        """
        try:
            cells = [(int(layer), head) for layer, heads in pruned.items() for head in heads]
            full = cls([[True] * width for width in widths])
        except (AttributeError, TypeError, ValueError):
            raise HydraError(
                'lists of heads by layer, such as {"0": [1, 3]}, and the number of heads in each layer were expected, '
                f"got {pruned!r:.60} and {widths!r:.60}"
            ) from None
        for _, head in cells:
            if isinstance(head, bool) or not isinstance(head, int):
                raise HydraError(f"a head is a whole number, counted from 0; got {head!r}")
        return full.without(cells)

    def _check(self, layer: int, head: int) -> None:
        if not 0 <= layer < len(self.keep):
            raise HydraError(f"layer {layer} does not exist: this mask has layers 0 to {len(self.keep) - 1}")
        if not 0 <= head < len(self.keep[layer]):
            raise HydraError(
                f"head {head} does not exist in layer {layer}: it has heads 0 to {len(self.keep[layer]) - 1}"
            )

    def _with(self, heads: Iterable[tuple[int, int]], value: bool | None) -> "HeadMask":
        rows = [list(row) for row in self.keep]
        for layer, head in heads:
            self._check(layer, head)
            rows[layer][head] = (not rows[layer][head]) if value is None else value
        return HeadMask(rows)

    def without(self, heads: Iterable[tuple[int, int]]) -> "HeadMask":
        """This mask with the given (layer, head) pairs cut."""
        return self._with(heads, False)

    def including(self, heads: Iterable[tuple[int, int]]) -> "HeadMask":
        """This mask with the given (layer, head) pairs kept."""
        return self._with(heads, True)

    def toggle(self, layer: int, head: int) -> "HeadMask":
        """This mask with one head flipped."""
        return self._with([(layer, head)], None)

    def complement(self) -> "HeadMask":
        """The mask that keeps what this one cuts, and cuts what it keeps."""
        return HeadMask([[not value for value in row] for row in self.keep])

    def __and__(self, other: "HeadMask") -> "HeadMask":
        self.require_same_shape(other)
        return HeadMask(
            [[a and b for a, b in zip(x, y, strict=True)] for x, y in zip(self.keep, other.keep, strict=True)]
        )

    def require_same_shape(self, other: "HeadMask") -> None:
        """Raise a :class:`HydraError` that names both shapes where they differ."""
        if self.widths != other.widths:
            raise HydraError(
                f"these masks are of different backbones: {describe_widths(self.widths)} "
                f"against {describe_widths(other.widths)}"
            )

    def jaccard(self, other: "HeadMask") -> float:
        """Overlap of the kept heads, |A and B| / |A or B|, in [0, 1]; 1 for two masks that keep nothing."""
        self.require_same_shape(other)
        union = self.kept | other.kept
        return len(self.kept & other.kept) / len(union) if union else 1.0

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back to an equal mask."""
        return json.dumps({"format": "hydra-head-mask", "version": 1, "keep": [list(row) for row in self.keep]})

    @classmethod
    def from_json(cls, text: str) -> "HeadMask":
        """Read a mask from :meth:`to_json`'s text.

        Raises:
            HydraError: the text is not JSON, or not a head mask.
        """
        return cls.from_dict(parse_json(text, "a head mask"))

    @classmethod
    def from_dict(cls, data: Any) -> "HeadMask":
        """Read a mask from parsed JSON: an object with `keep`, or the list of rows itself."""
        keep = data.get("keep") if isinstance(data, dict) else data
        if not isinstance(keep, list) or not all(isinstance(row, list) for row in keep):
            raise HydraError('a head mask file needs a list "keep" with one list of true/false a layer')
        return cls(keep)


def _as_bool(value: Any) -> bool:
    # numpy and torch bools are welcome; the number 2 or the text "false" are mistakes.
    if isinstance(value, bool) or type(value).__name__ in {"bool_", "bool"}:
        return bool(value)
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise HydraError(f"a head mask holds true or false for each head, got {value!r}")


def describe_widths(widths: Sequence[int]) -> str:
    """``(6, 6, 6)`` as ``3 layers x 6 heads``."""
    if len(set(widths)) == 1:
        return f"{len(widths)} layers x {widths[0]} heads"
    return f"{len(widths)} layers with {', '.join(map(str, widths))} heads"


def derived_fingerprint(parent: str, change: str) -> str:
    """sha256 for something that is fully determined by a parent's fingerprint and a change."""
    return hashlib.sha256(f"{parent}|{change}".encode()).hexdigest()


def pruned_fingerprint(backbone: str, mask: HeadMask) -> str:
    """Fingerprint of an unpruned backbone with fingerprint `backbone` after pruning by `mask`."""
    whole = mask.num_kept == sum(mask.widths)
    return backbone if whole else derived_fingerprint(backbone, mask.to_json())


def fused_fingerprint(members: Sequence[str]) -> str:
    """Fingerprint of the ensemble fused from members with these fingerprints, in this order."""
    return derived_fingerprint("|".join(members), "fused")


def mean_overlap(masks: Sequence[HeadMask]) -> float | None:
    """Mean Jaccard overlap over all pairs of `masks`; None for fewer than two."""
    pairs = [a.jaccard(b) for a, b in combinations(masks, 2)]
    return sum(pairs) / len(pairs) if pairs else None
