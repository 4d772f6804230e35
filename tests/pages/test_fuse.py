"""Fine-tuning on the Fuse page: the whole flow, a stop and going on, other masks."""

import time
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

import hydra_core as hydra
from hydra_core import timing
from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask
from hydra_core.study import Study, StudyConfig, studies_root
from pages.ui import cache, ensemble, fine_tuning_jobs, jobs, results, state, tuned, work
from pages.ui.equivalence import Equivalence
from tests.pages.conftest import Open, button, healthy, texts

SETTINGS = tuned.Settings(epochs=2, learning_rate=1e-3, lora_rank=None, samples=8, seed=3, fused_epochs=1)


@pytest.fixture
def small() -> Study:
    """Two members of the demo ViT, few samples, nothing fused yet."""
    config = StudyConfig("demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist"}, limit=12)
    study = Study.create(studies_root(), "small", config)
    full = HeadMask([[True] * 6] * 6)
    masks = [full.without([(0, 0), (3, 2)]), full.without([(0, 1), (4, 5)])]
    study.save_masks("current", masks, cache.facts(study).fingerprint)
    return study


def ended(study: Study, outcome: str) -> jobs.Job:
    job = jobs.current(str(study.folder))
    assert job is not None
    limit = time.monotonic() + 60
    while job.active and time.monotonic() < limit:
        time.sleep(0.02)
    assert job.state == outcome, job.message
    return job


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Cancel the job once a part has heard of that many epochs, as the button does."""
    limits: dict[str, int] = {}
    show = jobs.show

    def watched(owner: str, found: object) -> None:
        show(owner, found)
        if isinstance(found, tuned.Run) and any(len(found.curves.get(name, [])) >= n for name, n in limits.items()):
            job = jobs.current(owner)
            assert job is not None
            job.cancel.set()

    monkeypatch.setattr(jobs, "show", watched)
    return limits


def test_the_whole_flow_a_stop_and_other_masks(open_page: Open, small: Study, stop_after: dict[str, int]) -> None:
    for name, value in {"samples": 8, "rate": 1e-3, "seed": 3, "after": True}.items():
        state.remember(small, f"tuning {name}", value)
    at = open_page("fuse", "small")
    healthy(at)
    assert ensemble.variants(small) == ["as pruned"]

    # stopped by Cancel after the second member's first epoch
    stop_after["member 1"] = 1
    button(at, "Fine-tune 2 members").click().run()
    job = ended(small, "cancelled")
    assert "Resume on Fuse goes on from there" in job.message
    stopped = tuned.unfinished(small)
    assert stopped is not None
    assert stopped.settings == SETTINGS
    assert {name: len(rows) for name, rows in stopped.curves.items()} == {"member 0": 2, "member 1": 1}
    assert small.prediction_models() == ["fused"], "the untuned ensemble is there to compare with"
    untuned = small.predictions("fused", "id")

    # other masks: it cannot go on with these, and can again once the change is undone
    masks = small.active_masks
    assert masks is not None
    fingerprint = cache.facts(small).fingerprint
    state.set_masks(small, [masks[0].toggle(2, 2), masks[1]], fingerprint, "changed")
    at = open_page("fuse", "small")
    assert "Epochs done: member 0: 2 of 2, member 1: 1 of 2" in texts(at)
    assert len(at.get("plotly_chart")) == 2
    assert button(at, "Resume").disabled
    state.set_masks(small, masks, fingerprint, "back")

    # resumed: only what was missing is trained
    stop_after.clear()
    at = open_page("fuse", "small")
    button(at, "Resume").click().run()
    ended(small, "done")
    run = tuned.current(small)
    assert run is not None
    assert run.gap is not None
    assert run.again is not None
    assert {name: len(rows) for name, rows in run.curves.items()} == {"member 0": 2, "member 1": 2, "fused network": 1}
    assert not small.unfinished("tuning").exists()
    assert tuned.unfinished(small) is None

    # the same as the library run in one go
    backbone = cache.backbone(small)
    training = hydra.load_dataset("demo/fashion-mnist", split="train", limit=8)
    held_out = hydra.load_dataset("demo/fashion-mnist", split="validation", limit=12)
    options = {"learning_rate": 1e-3, "validation": held_out}
    members = [
        hydra.fine_tune(hydra.prune(backbone, mask), training, epochs=2, seed=3 + i, **options)
        for i, mask in enumerate(masks)
    ]
    fused = hydra.fuse(members)
    assert run.fingerprints["fine-tuned"] == fused.fingerprint
    test = hydra.load_dataset("demo/fashion-mnist", limit=12)
    apart = [hydra.predict(member, test) for member in members]
    together = hydra.predict(fused, test)
    stored = {name: small.predictions(name, "id") for name in tuned.MODELS}
    np.testing.assert_allclose(stored[tuned.APART].logits, np.concatenate([one.logits for one in apart]), atol=1e-5)
    np.testing.assert_allclose(stored[tuned.FUSED].logits, together.logits, atol=1e-5)
    assert small.predictions("fused", "id").logits.tolist() == untuned.logits.tolist()
    mean = np.mean([one.probabilities[0] for one in apart], axis=0).astype(float)
    assert run.gap.before.metrics["accuracy"] == accuracy_score(test.labels, mean.argmax(1))
    assert run.gap.before.metrics["nll"] == pytest.approx(
        log_loss(test.labels, mean / mean.sum(1, keepdims=True), labels=range(10)), abs=1e-4
    )
    assert run.gap.mean_difference == pytest.approx(np.abs(mean - together.mean_probabilities).mean(), abs=1e-6)
    assert run.gap.mean_difference > 1e-6

    # stored: the ensembles by name, each the one that was measured
    assert ensemble.variants(small) == ["as pruned", "fine-tuned", "fine-tuned, tuned again"]
    inputs = backbone.prepare(list(test.items))
    for variant, model in tuned.ENSEMBLES.items():
        found = ensemble.fused(small, variant)
        assert found.fingerprint == ensemble.fingerprint(small, variant)
        np.testing.assert_allclose(found.member_logits(inputs).numpy(), stored[model].logits, atol=1e-5)
    assert ensemble.fused(small).fingerprint == ensemble.fingerprint(small)

    # the pages: one table of what merging cost, and Evaluate's lines beside the untuned ones
    at = open_page("fuse", "small")
    healthy(at)
    assert "With the MLPs averaged, " in texts(at)
    assert "n = 12 ID and 12 mnist test samples" in texts(at)
    at.switch_page("pages/evaluate.py").run()
    healthy(at)
    labels = [one.label for one in results.sources(small)]
    assert labels[:4] == [
        "Fused ensemble", "Fine-tuned, members apart", "Fine-tuned, fused", "Fine-tuned, fused, tuned again",
    ]  # fmt: skip

    # other masks: nothing of it is shown as theirs
    state.set_masks(small, [masks[0].toggle(2, 2), masks[1]], fingerprint, "changed")
    assert ensemble.variants(small) == ["as pruned"]
    with pytest.raises(HydraError, match="no ensemble 'fine-tuned' of these masks"):
        ensemble.fused(small, "fine-tuned")
    at = open_page("fuse", "small")
    assert "The masks have changed since members were fine-tuned" in texts(at)
    assert "With the MLPs averaged, " not in texts(at)
    at.switch_page("pages/evaluate.py").run()
    healthy(at)
    assert "their lines say “of earlier masks”" in texts(at)
    assert "Fine-tuned, fused (of earlier masks)" in [one.label for one in results.sources(small)]

    # a damaged record or ensemble is no reason to refuse the page, and stands for nothing
    state.set_masks(small, masks, fingerprint, "back")
    folder = small.ensemble_folder("fine-tuned")
    assert folder is not None
    (folder / "config.json").write_text("{half a file")
    assert ensemble.variants(small) == ["as pruned", "fine-tuned, tuned again"]
    small.path("tuning", "latest").write_text("{half a file")
    assert ensemble.variants(small) == ["as pruned"]
    healthy(open_page("evaluate", "small"))


def test_parts_of_unequal_length_make_one_progress() -> None:
    heard: list[int] = []
    plan = fine_tuning_jobs.Plan(lambda done, total, note: heard.append(done), [30, 10, 0])
    first = plan.next("a", skipped=0.5)
    first(5, 10, "")  # half was done before: nothing is counted twice
    first(10, 10, "")
    second = plan.next("b")
    second(1, 2, "")
    plan.next("c")(1, 1, "")
    assert heard == [0, 0, 732, 732, 854, 976, 1000]  # of 30 + 10 + 1


def test_both_number_formats_are_timed(open_page: Open, small: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "time_fusion", partial(timing.time_fusion, rounds=1, warmup=0))
    work.time_fusion(small, 1, ["float32", "bfloat16"])
    ended(small, "done")
    work.fuse(small)  # of what was timed before nothing is left
    ended(small, "done")
    assert small.names("fusion") == ["check"]
    work.time_fusion(small, 1, ["float32", "bfloat16"])
    ended(small, "done")
    at = open_page("fuse", "small")
    healthy(at)
    table = next(one.value for one in at.table if "Format" in one.value.columns)
    assert table["Format"].tolist() == ["float32", "bfloat16"]
    assert "before → after fusion, on the same samples: disagreement" in texts(at)
    check = Equivalence.from_json(small.get("fusion", "check") or "")
    for before, after in check.diversity.values():
        assert before == pytest.approx(after, abs=1e-4)
    assert check.diversity["pairwise_kl"][0] > 0


@pytest.mark.slow
def test_compiled_networks_are_timed(open_page: Open, small: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "time_fusion", partial(timing.time_fusion, rounds=1, warmup=0))
    work.fuse(small)
    ended(small, "done")
    work.time_fusion(small, 1, ["float32"], "compile")
    job = jobs.current(str(small.folder))
    assert job is not None
    limit = time.monotonic() + 400
    while job.active and time.monotonic() < limit:
        time.sleep(0.1)
    assert job.state == "done", job.message
    at = open_page("fuse", "small")
    healthy(at)
    table = next(one.value for one in at.table if "Run as" in one.value.columns)
    assert table["Run as"].tolist() == ["torch.compile"]


def test_an_own_folder_trains_on_its_validation_half(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = hydra.load_dataset("demo/fashion-mnist", limit=40)
    for i, (item, label) in enumerate(zip(data.items, data.labels, strict=True)):
        folder = tmp_path / "mine" / data.class_names[label].replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        item.save(folder / f"{i}.png")
    names = tuple(name.replace("/", "_") for name in data.class_names)
    config = StudyConfig("demo/vit", str(tmp_path / "mine"), {}, class_names=names)
    study = Study.create(studies_root(), "own", config)
    training, held_out = fine_tuning_jobs.training_data(study, 10)
    whole = cache.dataset(study, "id", cache.SELECTION)
    assert (len(training), len(held_out), len(whole)) == (10, 4, 20)
    parts = [{np.asarray(item).tobytes() for item in part.items} for part in (training, held_out, cache.dataset(study))]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]
