"""Members: how they differ, the fewest heads, pins, and searches with a limit on overlap."""

import numpy as np
import pytest
from scipy.stats import entropy

import hydra_core as hydra
from hydra_core.mask_files import selected_with, selection_note
from hydra_core.masks import HeadMask
from hydra_core.study import Study, StudyConfig, studies_root
from pages.ui import cache, mask_tools, member_jobs, state
from tests.pages.conftest import Open, button, healthy, texts
from tests.pages.test_fuse import ended


@pytest.fixture
def pair() -> Study:
    """Two members of the demo ViT on few samples."""
    study = Study.create(studies_root(), "pair", StudyConfig("demo/vit", "demo/fashion-mnist", {}, limit=30))
    full = HeadMask([[True] * 6] * 6)
    masks = [full.without([(0, h) for h in range(5)]), full.without([(3, h) for h in range(5)])]
    study.save_masks("current", masks, cache.facts(study).fingerprint)
    return study


def test_how_the_members_differ_is_what_plain_numpy_says(open_page: Open, pair: Study) -> None:
    at = open_page("members", "pair")
    healthy(at)
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=30, seed=0)
    backbone, masks = hydra.load_backbone("demo/vit", device="cpu"), pair.active_masks
    assert masks is not None
    inputs = backbone.prepare(list(data.items))
    p, q = (hydra.prune(backbone, mask).logits(inputs).double().softmax(-1).numpy() for mask in masks)
    wrong = [(one.argmax(1) != data.labels).astype(float) for one in (p, q)]
    kl = np.mean([(entropy(a, b) + entropy(b, a)) / 2 for a, b in zip(p, q, strict=True)])
    shown = {one.label: one.value for one in at.metric}
    assert shown["Overlap"] == f"{26 / 36:.2f}"
    assert shown["Disagreement"] == f"{100 * (p.argmax(1) != q.argmax(1)).mean():.1f} %"
    assert shown["KL (nats)"] == f"{kl:.3f}"
    assert shown["Error correlation"] == f"{np.corrcoef(wrong)[0, 1]:.3f}"
    information = [entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2 for a, b in zip(p, q, strict=True)]
    assert shown["Mutual information (nats)"] == f"{np.mean(information):.3f}"
    assert "n = 30 ID validation samples" in texts(at)


def test_the_fewest_heads_are_proposed_and_undone(open_page: Open, pair: Study) -> None:
    before = pair.active_masks
    state.remember(pair, "pins", [[5, 1]])
    state.remember(pair, "fewest target", "member 1")
    state.remember(pair, "fewest points", 5.0)
    at = open_page("members", "pair")
    healthy(at)
    button(at, "Find the fewest heads").click().run()
    job = ended(pair, "done")
    masks = pair.active_masks
    assert masks is not None
    assert before is not None
    data = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=30, seed=0)
    backbone = hydra.load_backbone("demo/vit", device="cpu")
    assert masks[0] == before[0].including([(5, 1)])
    assert masks[1].num_kept < 36
    assert (5, 1) in masks[1].kept
    accuracy = [
        hydra.evaluate(hydra.prune(backbone, mask), data).metrics["accuracy"] for mask in (masks[1], backbone.mask)
    ]
    assert f"accuracy {100 * accuracy[0]:.1f} % against {100 * accuracy[1]:.1f} % (n = 30)" in job.message
    assert accuracy[0] >= accuracy[1] - 0.05
    at.run()
    button(at, "Undo").click().run()
    assert pair.active_masks == [before[0].including([(5, 1)]), before[1].including([(5, 1)])]


def test_pins_hold_against_presets_and_are_freed(open_page: Open, pair: Study) -> None:
    at = open_page("members", "pair")
    at.selectbox(key=state_key(at, "pin layer")).set_value(3).run()
    at.selectbox(key=state_key(at, "pin head")).set_value(4).run()
    button(at, "Pin in all members").click().run()
    healthy(at)
    assert "Pinned in all members: layer 3 head 4" in texts(at)
    facts = cache.facts(pair)
    state.set_masks(pair, [HeadMask([[False] * 6] * 6)] * 2, facts.fingerprint, "nothing kept")
    assert pair.active_masks == [HeadMask([[False] * 6] * 6).including([(3, 4)])] * 2
    at.run()
    button(at, "Unpin layer 3, head 4").click().run()
    assert state.pins(pair) == []
    # Pins of a wider backbone are passed over, not an error.
    state.remember(pair, "pins", [[11, 0], [0, 11]])
    state.set_masks(pair, [HeadMask([[True] * 6] * 6)] * 2, facts.fingerprint, "all heads")
    healthy(open_page("members", "pair"))


def state_key(at, name: str) -> str:
    return next(one.key for one in at.selectbox if one.key and one.key.endswith(name))


def test_a_search_that_finds_too_few_says_why_and_leaves_the_masks(open_page: Open, pair: Study) -> None:
    before, at = pair.active_masks, open_page("members", "pair")
    member_jobs.make_members(pair, "random", 3, 5, [], "nll", 0.1)
    job = ended(pair, "failed")
    assert "with an overlap of at most 0.1" in job.message
    assert pair.active_masks == before
    at.run()
    assert "with an overlap of at most 0.1" in texts(at)


def test_what_helped_to_choose_goes_with_the_masks(open_page: Open, pair: Study) -> None:
    """Which OOD sets chose heads is told on Evaluate, whatever was changed by hand since."""
    fingerprint = cache.facts(pair).fingerprint
    chosen = [HeadMask([[True] * 5 + [False]] * 6), HeadMask([[False] + [True] * 5] * 6)]

    def told() -> str:
        return state.note_of(pair)

    state.set_masks(pair, chosen, fingerprint, selection_note("greedy, seed 0", ["mnist"]))
    state.set_masks(pair, [chosen[0].toggle(0, 5), chosen[1]], fingerprint, "by hand")
    assert told() == "by hand, selected with mnist"
    state.set_pin(pair, 2, 5, fingerprint, pinned=True)
    assert told() == "by hand, selected with mnist"
    # A search that replaces every mask starts anew; undoing it brings back what stood before.
    random = [HeadMask([[True] * 3 + [False] * 3] * 6), HeadMask([[False] * 3 + [True] * 3] * 6)]
    state.set_masks(pair, random, fingerprint, selection_note("random, seed 0", []))
    assert selected_with(told()) == []
    state.step(pair, fingerprint, back=True)
    assert selected_with(told()) == ["mnist"]
    state.step(pair, fingerprint, back=False)
    assert selected_with(told()) == []
    state.step(pair, fingerprint, back=True)
    # A named set keeps it, and gives it back.
    pair.save_masks("mine", pair.active_masks or [], fingerprint, told())
    state.set_masks(pair, random, fingerprint, selection_note("random, seed 0", []))
    mask_tools.load(pair, cache.facts(pair), "mine", pair.masks("mine") or [])
    assert selected_with(told()) == ["mnist"]
    # The app's own record of what was fused cannot be written over by hand.
    pair.save_masks("fused", chosen, fingerprint, selection_note("greedy, seed 0", ["mnist"]))
    at = open_page("members", "pair")
    at.text_input(key=next(one.key for one in at.text_input if one.key.endswith("set name"))).set_value("fused").run()
    assert button(at, "Save").disabled
    assert "is the app's own record" in texts(at)


def test_undo_passes_over_steps_that_a_pin_made_empty(pair: Study) -> None:
    fingerprint = cache.facts(pair).fingerprint
    first = pair.active_masks
    assert first is not None
    state.set_masks(pair, [mask.toggle(1, 1) for mask in first], fingerprint, "by hand")
    state.set_masks(pair, [mask.toggle(1, 1).toggle(2, 2) for mask in first], fingerprint, "by hand")
    state.set_pin(pair, 1, 1, fingerprint, pinned=True)
    assert all((1, 1) in mask.kept for mask in pair.active_masks or [])
    state.step(pair, fingerprint, back=True)  # (2, 2) comes back
    assert pair.active_masks == first
    steps = state.history(pair)
    state.step(pair, fingerprint, back=True)  # what is left was undone by the pin: nothing to show, nothing kept
    assert pair.active_masks == first
    assert not state.history(pair).undo
    assert len(state.history(pair).redo) == len(steps.redo)


def test_the_next_step_is_to_fuse_again_once_masks_have_changed(open_page: Open, study: Study) -> None:
    assert "Next step: See the ensemble's uncertainty" in texts(open_page("members", study.name))
    masks = study.active_masks
    assert masks is not None
    state.set_masks(study, [masks[0].toggle(0, 0), *masks[1:]], cache.facts(study).fingerprint, "by hand")
    assert "Next step: Fuse the members as they are now" in texts(open_page("members", study.name))
    at = open_page("fuse", study.name)
    assert "The masks have changed since these members were fused" in texts(at)
    assert "Fuse again" not in [one.label for one in at.button]
