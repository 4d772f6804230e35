"""Long work off the script thread: one worker, progress with the time left, Cancel.

A job belongs to a study folder (the `owner`), not to a browser session: a reload of the page finds it again. A job
writes its result into the study itself, as its last step, so a cancelled or failed one leaves the study as it was.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import streamlit as st

from hydra_core.errors import Cancelled, HydraError
from hydra_core.jobs import Progress
from pages.ui import state

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5

State = Literal["waiting", "running", "done", "failed", "cancelled"]
# What a job returns: one sentence for the person who waited for it, or nothing.
Work = Callable[[Progress], str | None]


@dataclass
class Job:
    """One piece of long work; its worker writes the fields, pages only read them (and ask to cancel)."""

    owner: str
    label: str
    state: State = "waiting"
    done: int = 0
    total: int = 0
    note: str = ""
    message: str = ""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    shown_on: str = ""  # the page that showed how it ended
    found: Any = None  # what it has found so far, for a page that can draw it
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def active(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def fraction(self) -> float:
        """Share that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def time_left(self) -> float | None:
        """Seconds left if the work goes on at the pace so far; None while that says nothing."""
        elapsed = time.monotonic() - self.started
        if not self.total or self.done < 1 or elapsed < 1:
            return None
        return elapsed / self.done * max(0, self.total - self.done)


@dataclass
class _Pool:
    executor: ThreadPoolExecutor
    jobs: dict[str, Job]
    lock: threading.Lock


@st.cache_resource(show_spinner=False)
def _pool() -> _Pool:
    # A cached resource, not a module global: it outlives a reload of this file by the developer's file watcher.
    return _Pool(ThreadPoolExecutor(max_workers=1, thread_name_prefix="hydra-job"), {}, threading.Lock())


def current(owner: str) -> Job | None:
    """The last job of `owner`, running or over; None where there was none or it was dismissed."""
    return _pool().jobs.get(owner)


def start(owner: str, label: str, work: Work) -> Job:
    """Queue `work`. One job an owner: while one is active, that one is returned and `work` is not started."""
    pool = _pool()
    with pool.lock:
        known = pool.jobs.get(owner)
        if known is not None and known.active:
            return known
        job = pool.jobs[owner] = Job(owner, label)
    pool.executor.submit(_run, job, work)
    state.request_full_run()
    return job


def show(owner: str, found: Any) -> None:
    """Called by `owner`'s job: what it has found so far, as a new object each time."""
    job = current(owner)
    if job is not None:
        job.found = found


@st.fragment(run_every=POLL_SECONDS)
def watch(job: Job, draw: Callable[[Any], None]) -> None:
    """Draw what `job` has found so far, anew while it runs; mount it only while the job is active."""
    if job.active and job.found is not None:
        draw(job.found)


def dismiss(owner: str) -> None:
    """Forget the last job of `owner` if it is over."""
    pool = _pool()
    with pool.lock:
        known = pool.jobs.get(owner)
        if known is not None and not known.active:
            del pool.jobs[owner]


def _run(job: Job, work: Work) -> None:
    def progress(done: int, total: int, note: str) -> None:
        if job.cancel.is_set():
            raise Cancelled
        job.done, job.total, job.note = done, total, note

    state: State = "failed"
    job.started = time.monotonic()
    try:
        progress(0, 0, "starting")
        job.state = "running"
        job.message = work(progress) or f"{job.label}: done."
        state = "done"
    except Cancelled as stopped:  # a job that keeps what it has done says so in it
        state, job.message = "cancelled", f"{job.label}: cancelled. {str(stopped) or 'The study is as it was before.'}"
    except HydraError as error:
        job.message = f"{job.label}: {error}"
    except MemoryError:
        job.message = f"{job.label}: the machine ran out of memory. Choose fewer samples, or close other programs."
    except Exception as error:
        # A fault of ours: the page says so in one sentence, the log keeps the details for us.
        log.exception("job %r failed", job.label)
        job.message = f"{job.label}: a fault in the program stopped it ({type(error).__name__}: {error})."
    job.seconds = time.monotonic() - job.started
    job.state = state  # last: whoever sees the state also sees the message


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def panel(owner: str, place: str) -> bool:
    """Draw the owner's job on the page `place`: progress while it runs, on any page; its outcome, on one page.

    True while it runs. The polling fragment is mounted only while a job runs; the run that sees the end redraws
    the whole page.
    """
    job = current(owner)
    if job is None:
        return False
    if job.active:
        _poll(job)
        return True
    if job.shown_on not in ("", place):
        dismiss(owner)
        return False
    job.shown_on = place
    draw = {"done": st.success, "cancelled": st.info}.get(job.state, st.error)
    left, right = st.columns([12, 1], vertical_alignment="center")
    with left:
        draw(f"{job.message} ({duration(job.seconds)})" if job.state == "done" else job.message)
    right.button(
        "Close", key=state.key("job", "close"), on_click=dismiss, args=(owner,), icon=":material/close:",
        type="tertiary", help="Close this message",
    )  # fmt: skip
    return False


@st.fragment(run_every=POLL_SECONDS)
def _poll(job: Job) -> None:
    if not job.active:
        st.rerun()
    with st.container(border=True, key="job-panel"):
        left, right = st.columns([8, 1], vertical_alignment="center")
        if job.cancel.is_set():
            text = f"**{job.label}**: stopping at the next step ..."
        elif job.state == "waiting":
            text = f"**{job.label}**: waiting for the job before it ..."
        else:
            remaining = job.time_left()
            steps = f"{job.fraction:.0%}" if job.total else ""
            tail = f"about {duration(remaining)} left" if remaining is not None else ""
            text = f"**{job.label}**: " + ", ".join(part for part in (job.note, steps, tail) if part)
        left.progress(job.fraction, text=text)
        right.button("Cancel", key=state.key("job", "cancel"), on_click=job.cancel.set, disabled=job.cancel.is_set())
