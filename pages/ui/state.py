"""What a session knows: which study is open, which choices were made. The only file that names session_state keys.

The truth lives in the study folder (a browser refresh empties session_state); here are the study's name, the
widgets' keys and short-lived messages. The URL's query parameter `study` carries the name, so that a reload or a
link restores the study on a fresh server too.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.mask_files import selected_with, selection_note
from hydra_core.masks import HeadMask
from hydra_core.study import CURRENT_MASKS, Study, studies_root

_READY = "hydra/ready"  # app.py has run in this session
_STUDY = "hydra/study"  # name of the open study's folder
_FLASH = "hydra/flash"  # messages to show once, after a rerun
_NONCE = "hydra/nonce"  # names this session towards the head grid
_APPLIED = "hydra/applied"  # number of the last grid event that was applied, by grid
_FULL_RUN = "hydra/full run"  # a fragment's callback changed something outside its fragment
_PUSHED = "pushed"  # among the choices: which were set by a job, and a mark that changes each time
_QUERY = "study"

MAX_UNDO = 100


# --- the session ---


def set_ready() -> None:
    st.session_state[_READY] = True


def is_ready() -> bool:
    return bool(st.session_state.get(_READY))


def nonce() -> str:
    """A name for this session that no other session has."""
    return st.session_state.setdefault(_NONCE, uuid.uuid4().hex)


def flash(kind: str, text: str) -> None:
    """Keep a message for the next run of a page; kind: success, info, warning or error."""
    st.session_state.setdefault(_FLASH, []).append((kind, text))
    request_full_run()


def request_full_run() -> None:
    """Called in a callback: what it changed is drawn outside the fragment that its widget is in."""
    st.session_state[_FULL_RUN] = True


def full_run_requested() -> bool:
    """Whether a callback asked for a full run; asking takes the request away."""
    return bool(st.session_state.pop(_FULL_RUN, False))


def pop_flash() -> list[tuple[str, str]]:
    return st.session_state.pop(_FLASH, [])


def key(*parts: object) -> str:
    """The session_state key of a widget that belongs to the open study."""
    return "/".join(["hydra", st.session_state.get(_STUDY) or "-", *map(str, parts)])


# --- the open study ---


def open_study(name: str | None) -> None:
    """Make the study in folder `name` the open one (None: none)."""
    st.session_state[_STUDY] = name
    if name is None:
        st.query_params.pop(_QUERY, None)
    else:
        st.query_params[_QUERY] = name


def study() -> Study | None:
    """The open study, from this session or else from the URL; HydraError where it is gone or broken."""
    name = st.session_state.get(_STUDY) or st.query_params.get(_QUERY)
    if not name:
        return None
    folder = studies_root() / name
    # A name from a URL must not lead out of the studies folder.
    if Path(name).name != name or name in (".", "..") or not folder.is_dir():
        open_study(None)
        raise HydraError(
            f"The study {name!r} is not in the studies folder any more. Open another one on the Start page."
        )
    open_study(name)
    return Study.open(folder)


# --- choices that last ---


def _choices(of: Study | None) -> dict[str, Any]:
    if of is None:
        return {}
    text = of.get("settings", "app")
    try:
        data = json.loads(text) if text else {}
    except ValueError:  # a damaged file of choices is no reason to refuse the study
        return {}
    return data if isinstance(data, dict) else {}


def _remember(of: Study, name: str, widget_key: str) -> None:
    remember(of, name, st.session_state[widget_key])


def bind(of: Study, name: str, default: Any, options: Sequence[Any] | None = None) -> dict[str, Any]:
    """Arguments for a widget whose value is kept in the study: ``st.slider("Bins", 5, 30, **bind(study, "bins", 15))``.

    `options`: the values that are possible now; a stored one that is not among them gives way to the default.
    """
    widget_key, seen_key = key("choice", name), key("pushed", name)
    choices = _choices(of)
    pushed = choices.get(_PUSHED, {}).get(name)
    if widget_key not in st.session_state or st.session_state.get(seen_key) != pushed:
        st.session_state[seen_key] = pushed
        value = choices.get(name, default)
        st.session_state[widget_key] = default if options is not None and value not in options else value
    elif options is not None and st.session_state[widget_key] not in options:
        st.session_state[widget_key] = default
    return {"key": widget_key, "on_change": _remember, "args": (of, name, widget_key)}


def bind_number(of: Study, name: str, default: float, low: float, high: float) -> dict[str, Any]:
    """:func:`bind` for a slider whose range moves: a stored value outside it gives way to the default."""
    arguments = bind(of, name, default)
    value = st.session_state[arguments["key"]]
    if not isinstance(value, int | float) or not low <= value <= high:
        st.session_state[arguments["key"]] = default
    return arguments


def remember(of: Study, name: str, value: Any) -> None:
    """Store a choice."""
    choices = _choices(of)
    choices[name] = value
    of.put("settings", "app", json.dumps(choices))


def push(of: Study, name: str, value: Any) -> None:
    """Store a choice from a job, which has no session: every session's widget takes it once."""
    choices = _choices(of)
    choices[name] = value
    choices.setdefault(_PUSHED, {})[name] = uuid.uuid4().hex
    of.put("settings", "app", json.dumps(choices))


def choose(of: Study, name: str, value: Any) -> None:
    """Set a choice from code (a click on a chart, say), before its widget is drawn or in a callback."""
    remember(of, name, value)
    st.session_state[key("choice", name)] = value


def chosen(of: Study, name: str, default: Any = None) -> Any:
    """A choice, with no widget of its own."""
    return _choices(of).get(name, default)


# --- masks, with undo ---

Masks = list[HeadMask]


def _pack(masks: Masks) -> list[list[str]]:
    return [["".join("1" if keep else "0" for keep in row) for row in mask.keep] for mask in masks]


def _unpack(packed: list[list[str]]) -> Masks:
    return [HeadMask([[char == "1" for char in row] for row in rows]) for rows in packed]


pack_masks = _pack


@dataclass
class History:
    """Steps back and forward, each the members' masks before it and their note; `stroke` names the last step's drag."""

    undo: list[dict[str, Any]]
    redo: list[dict[str, Any]]
    stroke: str = ""


def history(of: Study) -> History:
    try:
        data = json.loads(of.get("settings", "history") or "{}")
        undo, redo = (
            [one if isinstance(one, dict) else {"masks": one, "note": ""} for one in data.get(key, [])]  # of before
            for key in ("undo", "redo")
        )
        return History(undo, redo, str(data.get("stroke", "")))
    except (ValueError, AttributeError):
        return History([], [])


def _save_history(of: Study, steps: History) -> None:
    data = {"undo": steps.undo[-MAX_UNDO:], "redo": steps.redo[-MAX_UNDO:], "stroke": steps.stroke}
    of.put("settings", "history", json.dumps(data))


def pins(of: Study) -> list[tuple[int, int]]:
    """(layer, head) pairs that stay in every member, whatever changes the masks."""
    stored = chosen(of, "pins", [])
    return sorted({(int(layer), int(head)) for layer, head in stored})


def with_pins(of: Study, masks: Masks) -> Masks:
    """`masks` with the pinned heads kept; pins of a wider backbone that these masks do not have are passed over."""
    held = pins(of)

    def fits(mask: HeadMask) -> list[tuple[int, int]]:
        return [(i, j) for i, j in held if i < mask.num_layers and j < mask.widths[i]]

    return [mask.including(fits(mask)) for mask in masks] if held else masks


def set_pin(of: Study, layer: int, head: int, fingerprint: str, *, pinned: bool) -> None:
    """Keep a head in every member from now on, or free it again (its masks stay as they are then)."""
    rest = [one for one in pins(of) if one != (layer, head)]
    remember(of, "pins", [*rest, (layer, head)] if pinned else rest)
    masks = of.active_masks
    if pinned and masks is not None:
        # No step of the history: undoing it would put the head back at once.
        of.save_masks(CURRENT_MASKS, with_pins(of, masks), fingerprint, note_of(of))


def note_of(of: Study, name: str = CURRENT_MASKS) -> str:
    """What is stored of how a set of masks was made."""
    text = of.get("masks", name)
    return str(json.loads(text).get("note", "")) if text else ""


def set_masks(of: Study, masks: Masks, fingerprint: str, note: str, stroke: str = "") -> None:
    """Store the members' masks and the step that leads back. Changes of one stroke are one step; pinned heads stay.

    A note that does not say which OOD sets helped to choose is of a change: those of the masks before still did.
    """
    masks = with_pins(of, masks)
    before = of.active_masks
    known = note_of(of)
    if selected_with(note) is None and (seen := selected_with(known)) is not None:
        note = selection_note(note, seen)
    if before is not None and _pack(before) == _pack(masks):
        return
    steps = history(of)
    if before is not None and not (stroke and stroke == steps.stroke):
        steps.undo.append({"masks": _pack(before), "note": known})
    steps.redo.clear()
    steps.stroke = stroke
    of.save_masks(CURRENT_MASKS, masks, fingerprint, note)
    _save_history(of, steps)


def step(of: Study, fingerprint: str, *, back: bool) -> None:
    """Undo (back) or redo one step; nothing where there is none.

    Pinned heads stay, so that a step may change nothing any more: it is passed over.
    """
    steps = history(of)
    source, target = (steps.undo, steps.redo) if back else (steps.redo, steps.undo)
    now = of.active_masks
    while source and now is not None:
        entry = source.pop()
        masks = with_pins(of, _unpack(entry["masks"]))
        if _pack(masks) != _pack(now):
            target.append({"masks": _pack(now), "note": note_of(of)})
            of.save_masks(CURRENT_MASKS, masks, fingerprint, entry["note"])
            break
    steps.stroke = ""
    _save_history(of, steps)


def take_events(grid: str, sent: dict[str, Any] | None, apply: Callable[[list[dict[str, Any]]], None]) -> None:
    """Hand the grid's new events to `apply`, each number once; those of another session are dropped."""
    if not sent or sent.get("nonce") != nonce():
        return
    applied = st.session_state.setdefault(_APPLIED, {})
    last = applied.get(grid, 0)
    fresh = sorted((event for event in sent.get("events", []) if event["n"] > last), key=lambda event: event["n"])
    if fresh:
        apply(fresh)
        applied[grid] = fresh[-1]["n"]


def acknowledged(grid: str) -> int:
    """Number of the last event of `grid` that was applied."""
    return st.session_state.get(_APPLIED, {}).get(grid, 0)
