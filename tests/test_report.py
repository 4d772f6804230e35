"""The HTML report and the model card against numbers computed apart, with names that would be mark-up elsewhere."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import hydra_core as hydra
from hydra_core.masks import HeadMask, fused_fingerprint, pruned_fingerprint
from hydra_core.model_card import CardFacts, model_card, study_facts
from hydra_core.prediction import Predictions
from hydra_core.study import Study, StudyConfig
from tests import originals

NASTY = '<script>alert("x")</script> | `a` **b**'
VOID = {"meta", "br", "hr", "img", "input", "link", "col"}


class Page(HTMLParser):
    """Checks that elements close in order and that nothing is loaded from elsewhere; gathers text and tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset"):
                assert not re.match(r"(https?:)?//", value or ""), f"{tag} loads {value}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def read(report: str) -> Page:
    page = Page()
    page.feed(report)
    page.close()
    assert page.open == []
    return page


def predictions(seed: int, count: int, fingerprint: str, labelled: bool = True, members: int = 2) -> Predictions:
    rng = np.random.default_rng(seed)
    return Predictions(
        logits=rng.normal(size=(members, count, 3)).astype(np.float32) * 2,
        labels=rng.integers(0, 3, size=count) if labelled else None, excluded=(), class_names=("a", "b", "c"),
        model_fingerprint=fingerprint, data_fingerprint="d" * 64, data_name="data",
    )  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Study:
    config = StudyConfig("demo/vit", "demo/fashion-mnist", {NASTY: "demo/mnist"}, seed=7)
    study = Study.create(tmp_path, "report and more", config)
    masks = [HeadMask([[True, False, True], [False, True, True]]), HeadMask([[True] * 3] * 2)]
    study.save_masks("current", masks, "f" * 64, f"by hand {NASTY}, selected with no OOD set")
    for model, seed, members in (("full", 0, 1), ("fused", 1, 2)):
        study.save_predictions(model, "id", predictions(seed, 50, model, members=members))
        study.save_predictions(model, NASTY, predictions(seed + 5, 40, model, labelled=False, members=members))
    return study


def apart(study: Study, model: str) -> dict[str, float]:
    """The metrics by scikit-learn and scipy."""
    known, other = (study.predictions(model, name) for name in ("id", NASTY))
    assert known is not None
    assert other is not None
    mean, strange = (softmax(one.logits.astype(float), axis=-1).mean(0) for one in (known, other))
    truth = np.r_[np.zeros(len(mean)), np.ones(len(strange))]
    return {
        "accuracy": accuracy_score(known.labels, mean.argmax(1)),
        "nll": log_loss(known.labels, mean, labels=range(3)),
        "auroc": roc_auc_score(truth, np.r_[1 - mean.max(1), 1 - strange.max(1)]),
    }


def test_the_report_stands_alone_and_holds_the_numbers(study: Study) -> None:
    report = hydra.study_report(study)
    page = read(report)
    words = " ".join(page.text)
    for model in ("full", "fused"):
        found = apart(study, model)
        assert f"{100 * found['accuracy']:.2f}" in words
        assert f"{found['nll']:.3f}" in words
        assert f"{found['auroc']:.4f}" in words
    assert "n = 50 ID test samples" in words
    assert "f" * 64 in words
    assert 'hydra.load_backbone("demo/vit")' in words or "hydra.load_backbone('demo/vit')" in words
    assert "Member 0: 4 of 6 heads kept" in words
    assert "No head has been scored yet." in words
    assert page.tags.count("figure") >= 3
    for alt in re.findall(r'<figure role="img" aria-label="([^"]*)"', report):
        assert len(alt) > 20


def test_numbers_of_earlier_masks_are_called_so(study: Study) -> None:
    words = " ".join(read(hydra.study_report(study)).text)
    assert "The members' masks have changed since they were fused" in words  # "fused" is no fingerprint of theirs
    masks = study.active_masks
    assert masks is not None
    now = fused_fingerprint([pruned_fingerprint("f" * 64, mask) for mask in masks])
    study.save_predictions("fused", "id", predictions(1, 50, now))
    study.put("fusion", "check", json.dumps({"masked_pruned": [1e-6], "masked_fused": [3e-6], "scale": 2.5, "dtype":
              "float32", "num_samples": 64, "device": "cpu", "operations": 2.25, "parameters": 1.5}))  # fmt: skip
    words = " ".join(read(hydra.study_report(study)).text)
    assert "masks have changed" not in words
    assert "3.0e-06 in a logit" in words
    assert "2.25" in words
    study.put("fusion", "check", "{}")
    assert "the stored fusion check is of another version" in " ".join(read(hydra.study_report(study)).text)


def test_names_cannot_become_mark_up(study: Study) -> None:
    report = hydra.study_report(study)
    assert "<script>alert" not in report
    assert "&lt;script&gt;alert" in report


def test_a_partial_or_damaged_study_says_what_is_missing(study: Study, tmp_path: Path) -> None:
    bare = Study.create(tmp_path, "bare", StudyConfig("demo/vit", "demo/fashion-mnist"))
    words = " ".join(read(hydra.study_report(bare)).text)
    for text in ("Nothing has been measured yet", "There are no members yet", "No circuit has been searched yet"):
        assert text in words
    next((study.folder / "predictions").glob("fused__*.safetensors")).write_bytes(b"broken")
    study.path("masks", "current").write_text("{")
    words = " ".join(read(hydra.study_report(study)).text)
    assert "This part cannot be shown" in words


@pytest.fixture(scope="module")
def fused(tmp_path_factory) -> hydra.FusedEnsemble:
    original = originals.build("vit", tmp_path_factory.mktemp("originals"))
    backbone = hydra.load_backbone(original.ref, device="cpu")
    return hydra.fuse([hydra.prune(backbone, backbone.mask.without([(0, head)])) for head in range(2)])


def test_the_card_holds_the_studys_numbers_of_this_very_network(study, fused, tmp_path) -> None:
    for name, seed in (("id", 1), (NASTY, 6)):
        study.save_predictions("fused", name, predictions(seed, 50 if name == "id" else 40, fused.fingerprint,
                                                          labelled=name == "id"))  # fmt: skip
    folder = hydra.save_ensemble(fused, tmp_path / "out", facts=study_facts(study, fused.fingerprint))
    card = (folder / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    data = yaml.safe_load(front)
    assert data["library_name"] == "hydra_core"
    found = apart(study, "fused")
    by_type = {m["type"]: m["value"] for r in data["model-index"][0]["results"] for m in r["metrics"]}
    assert by_type["accuracy"] == pytest.approx(found["accuracy"])
    assert by_type["nll"] == pytest.approx(found["nll"], abs=1e-5)
    assert by_type["roc_auc"] == pytest.approx(found["auroc"])
    full = apart(study, "full")
    row = next(line for line in body.splitlines() if line.startswith("| full model |"))
    assert row.split("|")[2].strip() == f"{full['accuracy']:.4f}"
    assert "this ensemble: n = 50 ID, 40 " in body
    assert f"this ensemble: `{fused.fingerprint}`" in body
    assert "<script>" not in card
    # Nobody's name opens a table cell.
    tables = [line for line in body.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {4, 10, 7}  # members; general; OOD metrics
    assert hydra.load_ensemble(folder, device="cpu").fingerprint == fused.fingerprint


def test_a_card_without_measurements_says_so(fused, study) -> None:
    card = model_card(fused)
    assert "Not measured" in card
    assert yaml.safe_load(card.split("---\n", 2)[1])["license"] == "other"
    # Predictions of another network are not this one's.
    assert "this ensemble" not in study_facts(study, fused.fingerprint).evaluations
    assert model_card(fused, CardFacts("demo/fashion-mnist"), "\n## More\n").endswith("## More\n")


def test_head_lists_and_report_by_the_command_line(study: Study, tmp_path: Path, capsys) -> None:
    from hydra_core.cli import main

    lists, page = tmp_path / "heads.json", tmp_path / "report.html"
    assert main(["export", "--study", str(study.folder), "--head-lists", str(lists), "--report", str(page)]) == 0
    member = json.loads(lists.read_text())["members"][0]
    assert member["pruned"] == {"0": [1], "1": [0]}
    assert member["kept"] == {"0": [0, 2], "1": [1, 2]}
    read(page.read_text())
    assert main(["export", "--study", str(study.folder)]) == 2
    assert "give --masks FILE, --head-lists FILE" in capsys.readouterr().err
