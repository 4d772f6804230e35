"""Members' masks as text: mask files, lists of heads for other tools, and the note that goes with them."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hydra_core.artefacts import parse_json
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask

if TYPE_CHECKING:
    from hydra_core.backbones.base import Backbone

_SELECTED = ", selected with "


def selection_note(how: str, ood: Iterable[str]) -> str:
    """The note that masks carry: how they were made, and which OOD sets' validation part helped to choose heads.

    Who tests on such a set must know it, so the second half goes with the masks wherever they go.
    """
    return f"{how}{_SELECTED}{', '.join(dict.fromkeys(ood)) or 'no OOD set'}"


def selected_with(note: str) -> list[str] | None:
    """The OOD sets that a note of :func:`selection_note` names; None where it says nothing of them."""
    _, said, names = note.rpartition(_SELECTED)
    return None if not said else [] if names == "no OOD set" else names.split(", ")


def write_mask_file(masks: Sequence[HeadMask], fingerprint: str, backbone: str, note: str = "") -> str:
    """The text of a mask file: the members' masks and the fingerprint of the backbone they belong to."""
    return json.dumps(
        {
            "format": "hydra-head-masks",
            "version": 1,
            "backbone": backbone,
            "fingerprint": fingerprint,
            "note": note,
            "members": [{"keep": [list(row) for row in mask.keep]} for mask in masks],
        },
        indent=1,
    )


def write_head_lists(masks: Sequence[HeadMask], fingerprint: str, backbone: str, note: str = "") -> str:
    """The text of a file of head lists: what :func:`write_mask_file` holds, in the form that other tools take.

    Each member has `kept`, every layer with the heads that stay, and `pruned`, the layers that lose heads with the
    heads to cut: the form of transformers 4's `prune_heads` and `config.pruned_heads` (JSON's keys are texts, which
    its configuration turns into numbers; `prune_heads` itself wants numbers). :func:`read_mask_file` reads it.
    """
    return json.dumps(
        {
            "format": "hydra-head-lists",
            "version": 1,
            "backbone": backbone,
            "fingerprint": fingerprint,
            "note": note,
            "indices": "layers and heads of the original backbone, from 0",
            "heads_per_layer": list(masks[0].widths) if masks else [],
            "members": [{"kept": mask.kept_lists(), "pruned": mask.pruned_lists()} for mask in masks],
        },
        indent=1,
    )


def parse_mask_file(text: str) -> tuple[list[HeadMask], dict[str, Any]]:
    """The masks in a mask file or a file of head lists, and the file's other entries; nothing is compared.

    Raises:
        HydraError: neither of the two; or lists of kept and pruned heads that contradict one another.
    """
    data = parse_json(text, "a mask file")
    if not isinstance(data, dict) or not isinstance(data.get("members"), list) or not data["members"]:
        raise HydraError('the file is not a mask file: it has no list "members"')
    members = data.pop("members")
    if data.get("format") != "hydra-head-lists":
        return [HeadMask.from_dict(item) for item in members], data
    return [_from_lists(item, data.get("heads_per_layer")) for item in members], data


def _from_lists(member: Any, widths: Any) -> HeadMask:
    pruned = member.get("pruned") if isinstance(member, dict) else None
    mask = HeadMask.from_pruned_lists(pruned, widths)  # type: ignore[arg-type]  # it says what is wrong
    kept = member.get("kept")
    if kept is not None and kept != {str(layer): heads for layer, heads in mask.kept_lists().items()}:
        raise HydraError("a member's lists of kept and of pruned heads do not fit each other; correct one of them")
    return mask


def read_mask_file(text: str, backbone: "Backbone") -> list[HeadMask]:
    """Read a mask file, or a file of head lists, for `backbone`.

    Raises:
        HydraError: neither of the two, or one that was made for another backbone (both sides are named).
    """
    masks, data = parse_mask_file(text)
    if data.get("fingerprint") != backbone.fingerprint:
        raise HydraError(
            f"these masks were made for the backbone {data.get('backbone')!r} (fingerprint "
            f"{str(data.get('fingerprint'))[:12]}), not for the one that is open "
            f"({backbone.ref!r}, fingerprint {backbone.fingerprint[:12]}); open that backbone first"
        )
    for mask in masks:
        mask.require_same_shape(backbone.mask)
    return masks
