"""The frame around every page: navigation, sidebar, the open study, messages, and no traceback ever."""

import functools
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import streamlit as st

from hydra_core.errors import HydraError
from hydra_core.study import Study
from pages.ui import jobs, results, state

log = logging.getLogger(__name__)
P = ParamSpec("P")
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Place:
    """A page: its file, its name in the navigation, and what a person does there."""

    file: str
    title: str
    icon: str
    purpose: str


PLACES = (
    Place("pages/start.py", "Start", ":material/home:", "Open a demo or one of your studies"),
    Place("pages/model_data.py", "Model & data", ":material/database:", "Choose a backbone and data, see how it does"),
    Place("pages/head_importance.py", "Head importance", ":material/grid_on:", "Score each attention head"),
    Place("pages/circuits.py", "Circuits", ":material/account_tree:", "Search the heads that carry a task"),
    Place("pages/members.py", "Members", ":material/groups:", "Choose each member's heads and see what it costs"),
    Place("pages/fuse.py", "Fuse", ":material/merge:", "Merge the members into one network, fine-tune and time it"),
    Place("pages/evaluate.py", "Evaluate", ":material/monitoring:", "Calibration and out-of-distribution detection"),
    Place("pages/export.py", "Export", ":material/download:", "Take masks, model and code away"),
)  # fmt: skip
_BY_TITLE = {place.title: place for place in PLACES}


def navigation() -> Any:
    """The pages in the sidebar, the same on every page."""
    return st.navigation(
        [
            st.Page(ROOT / place.file, title=place.title, icon=place.icon, default=i == 0)
            for i, place in enumerate(PLACES)
        ],
        expanded=True,
    )


def require_app() -> None:
    """On a fresh server a deep link runs a page file without app.py: set the navigation up and run again."""
    if not state.is_ready():
        navigation()
        state.set_ready()
        st.rerun()


def go(title: str) -> None:
    """Lead on to another page."""
    st.switch_page(ROOT / _BY_TITLE[title].file)


def link(title: str, label: str | None = None) -> None:
    """A link to another page."""
    st.page_link(ROOT / _BY_TITLE[title].file, label=label or title, icon=_BY_TITLE[title].icon)


# --- errors ---


def show_error(error: Exception) -> None:
    """One sentence for the person; a fault of ours also goes to the log."""
    if isinstance(error, HydraError):
        st.error(str(error), icon=":material/error:")
        return
    log.exception("a page failed")
    st.error(
        f"A fault in the program stopped this part of the page ({type(error).__name__}: {error}). Your "
        "study is safe; "
        "reload the page, and if it comes back report it with this sentence.",
        icon=":material/bug_report:",
    )


def guarded(draw: Callable[P, None]) -> Callable[P, None]:
    """`draw`, with a message in its place where it fails."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            draw(*args, **kwargs)
        except Exception as error:
            show_error(error)

    return wrapped


def fragment(draw: Callable[P, None]) -> Callable[P, None]:
    """A Streamlit fragment (it redraws alone) that shows no traceback either."""

    @functools.wraps(draw)
    def whole_or_part(*args: P.args, **kwargs: P.kwargs) -> None:
        if state.full_run_requested():
            st.rerun()
        draw(*args, **kwargs)

    return st.fragment(guarded(whole_or_part))


# --- the page ---


def page(title: str, draw: Callable[[Study], None], *, explain: str) -> None:
    """Draw a page that needs a study; without one it says so and offers the demo."""

    def body(study: Study | None) -> None:
        if study is None:
            no_study(title)
        else:
            draw(study)

    open_page(title, body, explain=explain)


STYLE = """<style>
/* Streamlit leaves 6 rem above and 5 rem beside the page: room that tables and head grids need. */
[data-testid="stMainBlockContainer"] { padding: 3.2rem 3rem 4rem; max-width: 1500px; }
/* The button stands in the chart's own free corner below, not in a row of its own. */
[class*="st-key-html-"] { margin-top: -1.6rem; position: relative; pointer-events: none; }
[class*="st-key-html-"] button { pointer-events: auto; }
.hydra-table { overflow-x: auto; }
.hydra-table table { border-collapse: collapse; width: 100%; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
.hydra-table th, .hydra-table td { padding: 0.4rem 0.6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
.hydra-table thead th { font-weight: 400; opacity: 0.8; }
.hydra-table th:first-child { text-align: left; font-weight: 500; }
.hydra-table caption { caption-side: bottom; text-align: left; padding-top: 0.5rem; opacity: 0.75; font-size: 0.8rem; }
</style>"""


def open_page(title: str, draw: Callable[[Study | None], None], *, explain: str) -> None:
    """Draw a page that has something to show without a study too."""
    require_app()
    st.html(STYLE)
    study = _open_study()
    sidebar(title, study)
    if title != PLACES[0].title:
        st.title(title)
        st.caption(_BY_TITLE[title].purpose)
    # One slot that is always there: a message that comes or goes must not move, and so close, what stands below.
    with st.container():
        messages()
        if study is not None:
            jobs.panel(str(study.folder), title)
    guarded(draw)(study)
    explainer(explain)


def _open_study() -> Study | None:
    try:
        return state.study()
    except HydraError as error:
        show_error(error)
        return None


def messages() -> None:
    """What the last run left to say; this is a full run, so a request for one is met."""
    state.full_run_requested()
    for kind, text in state.pop_flash():
        {"success": st.success, "info": st.info, "warning": st.warning}.get(kind, st.error)(text)


def explainer(text: str) -> None:
    """The formula, its source and how to read the page."""
    with st.expander("What am I looking at?", icon=":material/help:"):
        st.markdown(text)


def empty(text: str, button: str, act: Callable[[], None], *, icon: str | None = None) -> None:
    """Say what is missing and offer the one button that gets it."""
    with st.container(border=True):
        st.markdown(text)
        st.button(button, type="primary", icon=icon, key=state.key("empty", button), on_click=_safely(act))


def _safely(act: Callable[[], None]) -> Callable[[], None]:
    """A callback whose failure becomes a message on the page."""

    @functools.wraps(act)
    def wrapped() -> None:
        try:
            act()
        except HydraError as error:
            state.flash("error", str(error))

    return wrapped


safely = _safely


def no_study(title: str) -> None:
    from pages.ui import demos

    empty(
        f"**No study is open.** {title} works on a study: a backbone, its data and what was found out about them.",
        "Open the demo study",
        lambda: demos.open_demo("demo-vit"),
        icon=":material/play_arrow:",
    )
    link("Start", "or choose another study on the Start page")


# --- the sidebar ---


def _devices() -> list[str]:
    # Asked without importing torch: the Start page must come at once.
    return ["auto", "cpu", "cuda"] if Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") else ["auto", "cpu"]


def next_step(study: Study | None) -> tuple[str, str]:
    """Where to go next, and why: (page title, one short sentence)."""
    if study is None:
        return "Start", "Open the demo study"
    models = study.prediction_models()
    masks = study.active_masks
    if "full" not in models:
        return "Model & data", "Measure the full model"
    if masks is None:
        return ("Members", "Make members from the circuits") if study.circuits() else ("Circuits", "Find circuits")
    if "fused" not in models:
        return "Fuse", "Fuse the members"
    if results.stale(study):
        return "Fuse", "Fuse the members as they are now"
    return "Evaluate", "See the ensemble's uncertainty"


def sidebar(title: str, study: Study | None) -> None:
    """Chips: study, backbone, data, device, members; and the next step."""
    with st.sidebar:
        if study is None:
            st.badge("no study open", color="gray", icon=":material/folder_off:")
        else:
            config = study.config
            masks = study.active_masks
            members = f"{len(masks)} members" if masks else "no members yet"
            chips = [
                ("folder_open", "study", study.name),
                ("neurology", "backbone", config.backbone),
                ("database", "data", config.data),
                *(("blur_on", "OOD", name) for name in config.ood),
                ("groups", "", members),
            ]
            with st.container(horizontal=True, gap="xxsmall"):
                for icon, kind, text in chips:
                    st.badge(f"{kind} {plain(text)}".strip(), icon=f":material/{icon}:", color="gray")
            devices = _devices()
            st.selectbox(
                "Device", devices, key=state.key("device"),
                index=devices.index(config.device) if config.device in devices else 0,
                help="Where the networks run. auto takes the GPU where there is one.",
                on_change=_set_device, args=(study,),
            )  # fmt: skip
        try:
            target, why = next_step(study)
        except HydraError:  # the page's own body reports a damaged study
            return
        if target != title and not (target == "Evaluate" and title == "Export"):
            st.caption(f"Next step: {why}")
            link(target)


def plain(text: str) -> str:
    """Text for a Markdown label, with nothing in it taken as Markdown."""
    return "".join(f"\\{char}" if char in "\\`*_[]():~$<>#" else char for char in text)


def _set_device(study: Study) -> None:
    import dataclasses

    study.set_config(dataclasses.replace(study.config, device=st.session_state[state.key("device")]))
