"""What the pages share, without a page: jobs, grid events, presets, the Python lines."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hydra_core import recipe
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress
from hydra_core.masks import HeadMask
from hydra_core.study import Study, StudyConfig
from pages.ui import cache, grid, jobs, presets, state

FULL = HeadMask([[True] * 3, [True] * 3])


def event(n: int, keep: bool, member: int = 0, layer: int = 0, head: int = 0) -> dict[str, object]:
    return {"n": n, "member": member, "layer": layer, "head": head, "keep": keep, "stroke": str(n)}


def test_grid_events_are_applied_in_order_and_foreign_places_ignored() -> None:
    masks = grid.apply_events(
        [FULL, FULL],
        [event(1, False), event(2, False, 1, 1, 2), event(3, True), event(4, False, 7), event(5, False, 0, 9)],
    )
    assert masks == [FULL, FULL.without([(1, 2)])]


def test_each_event_is_taken_once_and_those_of_another_session_never(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, object] = {}
    monkeypatch.setattr(state.st, "session_state", session)
    taken: list[int] = []

    def take(events: list[dict[str, object]]) -> None:
        taken.extend(int(str(one["n"])) for one in events)

    mine = state.nonce()
    state.take_events("g", {"nonce": mine, "events": [event(1, False), event(2, True)]}, take)
    state.take_events("g", {"nonce": mine, "events": [event(1, False), event(2, True), event(3, False)]}, take)
    state.take_events("g", {"nonce": "another session", "events": [event(9, False)]}, take)
    state.take_events("g", None, take)
    assert taken == [1, 2, 3]
    assert state.acknowledged("g") == 3


def test_colours_survive_equal_values_an_outlier_and_missing_heads() -> None:
    assert grid.scaled(np.full((2, 2), 3.0), per_layer=False, robust=True) == [[0.5, 0.5], [0.5, 0.5]]
    values = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, np.nan], [2.5, 3.5, 1e6]])
    colours = grid.scaled(values, per_layer=False, robust=True)
    assert colours[1][2] is None
    assert colours[2][2] == 1.0
    middle = [one for row in colours for one in row if one is not None and one < 1]
    assert max(middle) > 0.3  # the outlier does not wash out the rest
    assert [row[0] for row in grid.scaled(values, per_layer=True, robust=False)] == [0.0, 0.0, 0.0]


def test_top_heads_keeps_the_highest_and_the_lower_index_among_equals() -> None:
    values = np.array([[0.1, 0.5, 0.5], [np.nan, 2.0, 1.0]])
    assert presets.top_heads(values, 1, (3, 3)) == HeadMask([[False, True, False], [False, True, False]])
    assert presets.top_heads(values, 0, (3, 3)).num_kept == 0


def test_random_heads_are_drawn_with_the_seed() -> None:
    assert presets.random_heads(2, (6, 6), 1) == presets.random_heads(2, (6, 6), 1)
    assert presets.random_heads(2, (6, 6), 1) != presets.random_heads(2, (6, 6), 2)
    assert presets.random_heads(2, (6, 4), 3).kept_per_layer == (2, 2)


# --- jobs ---


def wait_for(owner: str) -> jobs.Job:
    job = jobs.current(owner)
    assert job is not None
    limit = time.monotonic() + 10
    while job.active and time.monotonic() < limit:
        time.sleep(0.01)
    assert not job.active
    return job


def test_a_job_reports_its_progress_and_ends() -> None:
    def work(progress: Progress) -> str:
        for i in range(3):
            progress(i + 1, 3, f"step {i}")
        return "all three"

    jobs.start("done", "Work", work)
    job = wait_for("done")
    assert (job.state, job.message, job.done, job.total) == ("done", "all three", 3, 3)


def test_a_job_is_cancelled_at_its_next_step_and_a_second_one_waits_its_turn() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def endless(progress: Progress) -> None:
        begun.set()
        go_on.wait(10)
        for i in range(10_000):
            progress(i, 10_000, "more")
            time.sleep(0.01)

    first = jobs.start("cancel", "Endless", endless)
    assert begun.wait(10)
    assert jobs.start("cancel", "Other", endless) is first  # one job a study
    second = jobs.start("later", "Later", lambda progress: "ran")
    assert second.state == "waiting"
    first.cancel.set()
    go_on.set()
    assert wait_for("cancel").state == "cancelled"
    assert wait_for("later").message == "ran"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (HydraError("give it a label"), "give it a label"),
        (MemoryError(), "out of memory"),
        (KeyError("x"), "fault in the program"),
    ],
)
def test_a_failed_job_says_why(error: Exception, words: str) -> None:
    def work(progress: Progress) -> None:
        raise error

    jobs.start("fail", "Work", work)
    job = wait_for("fail")
    assert job.state == "failed"
    assert words in job.message
    jobs.dismiss("fail")
    assert jobs.current("fail") is None


def test_time_left_is_worked_out_from_the_pace() -> None:
    job = jobs.Job("o", "l", state="running", done=25, total=100, started=time.monotonic() - 10)
    left = job.time_left()
    assert left is not None
    assert 29 < left < 31
    assert jobs.Job("o", "l", done=0, total=100).time_left() is None
    assert [jobs.duration(seconds) for seconds in (0.4, 75, 3700)] == ["0 s", "1 min 15 s", "1 h 1 min"]


# --- the rest ---


def test_the_python_lines_make_the_same_masks(tmp_path: Path) -> None:
    config = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"}, limit=50)
    study = Study.create(tmp_path, "lines", config)
    masks = [FULL.without([(0, 1)]), FULL.without([(1, 0), (1, 2)])]
    study.save_masks("current", masks, "f")
    code = recipe.python_lines(study)
    compile(code, "lines", "exec")
    start, end = code.index("members = ["), code.index("fused = ")
    import hydra_core as hydra

    names: dict[str, object] = {"hydra": hydra}
    exec(code[start:end], names)
    assert names["masks"] == masks
    assert "limit=50" in code


def test_the_backbone_key_tells_apart_all_that_changes_numbers() -> None:
    base = StudyConfig("demo/vit", "demo/fashion-mnist")
    keys = {
        cache.backbone_key(config)
        for config in (
            base, StudyConfig("demo/bert", "x"), StudyConfig("demo/vit", "x", dtype="float64"),
            StudyConfig("demo/vit", "x", device="cpu"), StudyConfig("demo/vit", "x", class_names=("a",)),
        )
    }  # fmt: skip
    assert len(keys) == 5
    assert cache.backbone_key(base) == cache.backbone_key(StudyConfig("demo/vit", "other data"))
