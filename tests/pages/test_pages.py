"""Every page opens first, with nothing there, with a whole study, and with a broken one; choices come back."""

import json
import subprocess
import sys

import pytest
from streamlit.testing.v1 import AppTest

from hydra_core.study import Study, StudyConfig, studies_root
from pages.ui import demos, presets, state
from tests.pages.conftest import PAGES, ROOT, Open, button, healthy, texts


@pytest.mark.parametrize("page", PAGES)
def test_with_no_study_a_page_says_so_and_offers_a_way(page: str, open_page: Open) -> None:
    at = open_page(page)
    healthy(at)
    labels = [one.label for one in at.button]
    assert ("Start this study" if page == "model_data" else "Open the demo study") in labels


@pytest.mark.parametrize("page", PAGES)
def test_with_an_empty_study_a_page_offers_what_gets_it_on(page: str, open_page: Open) -> None:
    Study.create(
        studies_root(), "new", StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"}, limit=40)
    )
    at = open_page(page, "new")
    healthy(at)
    wanted = {
        "model_data": "Measure the full model",
        "head_importance": "Compute Taylor scores",
        "circuits": "Find the circuit of the task loss",
        "members": "Begin with three members",
        "evaluate": "Measure the full model",
    }
    if page in wanted:
        button(at, wanted[page])
    if page in ("fuse", "export"):
        assert "no members" in texts(at)


@pytest.mark.parametrize("page", PAGES)
def test_a_whole_study_is_drawn(page: str, open_page: Open, study: Study) -> None:
    at = open_page(page, study.name)
    healthy(at)
    shown = texts(at)
    expected = {
        "start": "walked",
        "model_data": "n = 90 ID test samples",
        "head_importance": "n = 40 validation samples",
        "circuits": "n = 40 validation samples",
        "members": "Quick sample, n = 90 ID + 90 OOD (mnist)",
        "fuse": "The stored predictions are there",
        "evaluate": "n = 90 ID and 90 mnist test samples",
        "export": "3 members",
    }
    assert expected[page] in shown


@pytest.mark.parametrize("page", PAGES)
def test_a_broken_study_is_named_and_nothing_breaks(page: str, open_page: Open, study: Study) -> None:
    (study.folder / "study.json").write_text("{ not json")
    at = open_page(page, study.name)
    assert not at.exception
    assert any("study.json" in one.value for one in at.error), [one.value for one in at.error]


@pytest.mark.parametrize("name", ["gone", "../outside", "..", "/etc"])
def test_a_link_to_a_study_that_is_not_there_is_refused(name: str, open_page: Open) -> None:
    at = open_page("start", name)
    assert not at.exception
    assert any("not in the studies folder" in one.value for one in at.error)


def test_start_and_evaluate_need_no_torch(study: Study) -> None:
    code = (
        "import sys\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"at = AppTest.from_file({str(ROOT / 'app.py')!r}, default_timeout=60)\n"
        f"at.query_params['study'] = {study.name!r}\n"
        "at.run()\n"
        "assert 'torch' not in sys.modules, 'Start imports torch'\n"
        "at.switch_page('pages/evaluate.py').run()\n"
        "assert not at.exception\n"
        "assert 'torch' not in sys.modules, 'Evaluate imports torch'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_page_is_linked_in_order() -> None:
    from pages.ui.frame import PLACES

    assert [place.title for place in PLACES][:8] == [
        "Start", "Model & data", "Head importance", "Circuits", "Members", "Fuse", "Evaluate", "Export",
    ]  # fmt: skip
    assert all((ROOT / place.file).is_file() for place in PLACES)


# --- Members ---


def cut_heads(study: Study) -> list[int]:
    masks = study.active_masks
    assert masks is not None
    return [sum(mask.widths) - mask.num_kept for mask in masks]


def choose(at: AppTest, label: str, value: object) -> AppTest:
    found = next(one for one in at.selectbox if one.label == label)
    return found.set_value(value).run()


def test_presets_undo_and_redo(open_page: Open, study: Study) -> None:
    first = study.active_masks
    at = open_page("members", study.name)
    choose(at, "Preset", "All heads")
    button(at, "Apply").click().run()
    healthy(at)
    assert cut_heads(study) == [0, 0, 0]
    choose(at, "Preset", "Invert")
    choose(at, "For", "member 1")
    button(at, "Apply").click().run()
    assert cut_heads(study) == [0, 36, 0]
    assert any("keeps no head at all" in one.value for one in at.warning)
    button(at, "Undo").click().run()
    assert cut_heads(study) == [0, 0, 0]
    button(at, "Undo").click().run()
    assert study.active_masks == first
    assert button(at, "Undo").disabled
    button(at, "Redo").click().run()
    button(at, "Redo").click().run()
    assert cut_heads(study) == [0, 36, 0]
    assert button(at, "Redo").disabled
    healthy(at)


def test_presets_from_scores_and_circuits(open_page: Open, study: Study) -> None:
    at = open_page("members", study.name)
    choose(at, "Preset", "A circuit")
    button(at, "Apply").click().run()
    circuits = study.circuits()
    assert study.active_masks == [one.keep for one in circuits.values()][:3]
    choose(at, "Preset", "Top heads by score")
    choose(at, "For", "member 2")
    button(at, "Apply").click().run()
    scores = study.scores("taylor")
    assert scores is not None
    masks = study.active_masks
    assert masks is not None
    kept = masks[2]
    for layer, row in enumerate(scores.values):
        left_out = [head for head in range(6) if not kept.keep[layer][head]]
        assert {row[head] for head in left_out} == set(sorted(row)[: len(left_out)])


def test_more_and_fewer_members(open_page: Open, study: Study) -> None:
    at = open_page("members", study.name)
    count = next(one for one in at.number_input if one.label == "Members")
    count.set_value(5).run()
    assert len(study.active_masks or []) == 5
    next(one for one in at.number_input if one.label == "Members").set_value(2).run()
    assert len(study.active_masks or []) == 2
    healthy(at)


def test_named_sets_are_saved_loaded_and_deleted(open_page: Open, study: Study) -> None:
    first = study.active_masks
    at = open_page("members", study.name)
    next(one for one in at.text_input if one.label == "Save these masks as").set_value("my set").run()
    button(at, "Save").click().run()
    choose(at, "Preset", "All heads")
    button(at, "Apply").click().run()
    choose(at, "Stored sets", "my set")
    button(at, "Load").click().run()
    assert study.active_masks == first
    button(at, "Delete").click().run()
    assert "my set" not in study.mask_sets()
    healthy(at)


def test_a_fresh_session_restores_masks_history_and_choices(open_page: Open, study: Study) -> None:
    at = open_page("members", study.name)
    choose(at, "Preset", "Invert")
    button(at, "Apply").click().run()
    masks = study.active_masks
    at.switch_page("pages/evaluate.py").run()
    next(one for one in at.slider if one.label == "Confidence bins").set_value(7).run()
    choose(at, "OOD score", "energy")
    healthy(at)
    again = open_page("evaluate", study.name)
    assert next(one for one in again.slider if one.label == "Confidence bins").value == 7
    assert next(one for one in again.selectbox if one.label == "OOD score").value == "energy"
    assert "The masks have changed since" in texts(again)
    again.switch_page("pages/members.py").run()
    assert study.active_masks == masks
    button(again, "Undo").click().run()
    assert study.active_masks != masks
    healthy(again)


def test_choices_outlive_a_page_change(open_page: Open, study: Study) -> None:
    at = open_page("evaluate", study.name)
    next(one for one in at.slider if one.label == "Confidence bins").set_value(9).run()
    at.switch_page("pages/export.py").run()
    at.switch_page("pages/evaluate.py").run()
    assert next(one for one in at.slider if one.label == "Confidence bins").value == 9


# --- bad input ---


def test_an_unknown_backbone_is_one_sentence_and_leaves_no_study(open_page: Open) -> None:
    at = open_page("model_data")
    next(one for one in at.get("button_group") if one.label == "Backbone").set_value("My own").run()
    fields = {one.label: one for one in at.text_input}
    fields["Backbone reference"].set_value("/nowhere/at/all").run()
    fields = {one.label: one for one in at.text_input}
    fields["In-distribution data"].set_value("demo/fashion-mnist").run()
    button(at, "Start this study").click().run()
    assert not at.exception
    assert at.error
    assert "/nowhere/at/all" in at.error[0].value
    assert list(studies_root().glob("*/study.json")) == []


def test_stored_results_of_other_masks_or_weights_are_said_to_be_old(open_page: Open, study: Study) -> None:
    assert "have changed since" not in texts(open_page("evaluate", study.name))
    masks = study.active_masks
    assert masks is not None
    text = study.get("masks", "current")
    assert text is not None
    state_of = json.loads(text)["fingerprint"]
    study.save_masks("current", [masks[0].complement(), *masks[1:]], state_of)
    assert "have changed since" in texts(open_page("evaluate", study.name))


@pytest.mark.parametrize("demo", [demo.folder for demo in demos.DEMOS])
def test_the_shipped_demo_study_opens_on_its_ensemble(demo: str, open_page: Open) -> None:
    at = open_page("start")
    title = next(one.title for one in demos.DEMOS if one.folder == demo)
    button(at, f"Open {title}").click().run()
    healthy(at)
    assert at.title[0].value == "Evaluate"
    assert "Fused ensemble, n = " in texts(at)
    copy = Study.open(studies_root() / demo)
    masks = copy.active_masks
    assert masks is not None
    state.set_masks(copy, [presets.full(masks[0].widths)] * 3, "changed", "test")
    assert Study.open(demos.SHIPPED / demo).active_masks == masks
