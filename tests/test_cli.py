"""The command line on a small random ViT and image folders: results against libraries, errors in one line, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import hydra_core as hydra
from hydra_core import pipeline
from hydra_core.cli import main
from hydra_core.cli.shared import ood_references
from hydra_core.errors import HydraError
from hydra_core.study import Study
from tests import originals

ROOT = Path(__file__).resolve().parents[1]


class Given(NamedTuple):
    backbone: str
    known: str
    other: str
    unseen: str

    def source(self) -> list[str]:
        return ["--backbone", self.backbone, "--data", self.known, "--ood", f"noise={self.other}", "--device", "cpu"]

    def run(self, out: Path, *more: str) -> list[str]:
        return ["run", *self.source(), "--heads-per-layer", "3", "--out", str(out), *more]


class Printed(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out.strip().splitlines()[-1])
        return found


Cli = Callable[[list[str]], Printed]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    """A backbone folder, an image folder a class, and two flat folders."""
    root = tmp_path_factory.mktemp("given")
    rng = np.random.default_rng(0)
    for i in range(40):
        folder = root / "known" / originals.CLASSES[i % 7]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (18, 18, 3), dtype=np.uint8)
        pixels[2 * (i % 7)] = 255
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    for name, size in (("other", 24), ("unseen", 16)):
        (root / name).mkdir()
        for i in range(size):
            pixels = rng.integers(0, 60, (18, 18, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02}.png")
    model = originals.build("vit", root / "models")
    return Given(model.ref, str(root / "known"), str(root / "other"), str(root / "unseen"))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(arguments: list[str]) -> Printed:
        code = main(arguments)
        captured = capsys.readouterr()
        return Printed(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="module")
def walked(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Study:
    out = tmp_path_factory.mktemp("walked") / "whole path"
    assert main(given.run(out, "--ood", f"unseen={given.unseen}")) == 0
    return Study.open(out)


# --- run ---------------------------------------------------------------------------------------------


def test_run_leaves_a_study_with_every_step(walked: Study, given: Given) -> None:
    assert dict(walked.config.ood) == {"noise": given.other, "unseen": given.unseen}
    assert walked.config.selection_ood == ("noise",)
    assert json.loads((walked.folder / "study.json").read_text())["name"] == "whole path"
    assert walked.problems() == []
    assert set(walked.circuits()) == {"loss", "ood_auroc noise", "average noise"}
    assert list(walked.score_sets()) == ["taylor"]
    assert walked.prediction_models() == ["full", "fused"]
    assert walked.prediction_data("fused") == ["id", "noise", "unseen"]
    assert set(walked.evaluations()) == {"full", "fused"}
    masks = walked.active_masks
    assert masks is not None
    assert [mask.kept_per_layer for mask in masks] == [(3, 3, 3)] * 3
    assert walked.masks("fused") == masks
    # Validation and test halves share no image, so the study's predictions are on half of each set.
    full, noise = walked.predictions("full", "id"), walked.predictions("full", "noise")
    assert full is not None
    assert noise is not None
    assert (full.num_samples, noise.num_samples) == (20, 12)


def test_the_members_are_those_of_make_members(walked: Study, given: Given) -> None:
    """Circuits that `run` searches itself, to keep them, are the members that make_members would make."""
    backbone = hydra.load_backbone(given.backbone, device="cpu")
    known = hydra.load_dataset(given.known, class_names=backbone.class_names).split(0.5, seed=0)[0]
    noise = hydra.load_dataset(given.other).split(0.5, seed=0)[0]
    masks = hydra.make_members(
        backbone, known, ood={"noise": noise}, num_members=3, strategy="circuit", heads_per_layer=3
    )
    assert walked.active_masks == masks
    for circuit in walked.circuits().values():
        assert circuit.data_fingerprint == known.fingerprint
        assert circuit.ood_fingerprint == (None if circuit.objective == "loss" else noise.fingerprint)


def test_run_metrics_against_libraries(walked: Study) -> None:
    predictions = {part: walked.predictions("fused", part) for part in ("id", "noise")}
    known, noise = predictions["id"], predictions["noise"]
    assert known is not None
    assert noise is not None
    assert known.logits.shape == (3, 20, 7)
    mean = softmax(known.logits.astype(np.float64), axis=-1).mean(0)
    mean_noise = softmax(noise.logits.astype(np.float64), axis=-1).mean(0)
    found = walked.evaluations()["fused"].metrics
    assert found["accuracy"] == pytest.approx(accuracy_score(known.labels, mean.argmax(1)))
    assert found["nll"] == pytest.approx(log_loss(known.labels, mean, labels=range(7)), abs=1e-5)
    is_ood = np.r_[np.zeros(20), np.ones(12)]
    uncertainty = np.r_[1 - mean.max(1), 1 - mean_noise.max(1)]
    assert found["ood/noise/auroc"] == pytest.approx(roc_auc_score(is_ood, uncertainty), abs=1e-6)


def test_the_stored_ensemble_is_the_members_fused(walked: Study) -> None:
    folder = walked.ensemble_folder("fused")
    assert folder is not None
    ensemble = hydra.load_ensemble(folder, device="cpu")
    assert list(ensemble.masks) == walked.active_masks


def test_run_json(given: Given, cli: Cli, tmp_path: Path) -> None:
    done = cli(given.run(tmp_path / "s", "--strategy", "taylor", "--members", "2", "--without-weights", "--json"))
    assert done.code == 0
    assert done.err == ""
    study = Study.open(tmp_path / "s")
    assert done.json["study"] == str(tmp_path / "s")
    assert done.json["num_members"] == 2
    assert done.json["select_ood"] == []
    assert done.json["metrics"]["fused"] == study.evaluations()["fused"].metrics
    assert study.ensembles() == []
    assert study.circuits() == {}


def test_limits_seed_and_uneven_heads(given: Given, cli: Cli, tmp_path: Path) -> None:
    arguments = ["--test-limit", "9", "--validation-limit", "8", "--heads-per-layer", "2,0,4", "--strategy", "random"]
    outs = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for out, seed in zip(outs, ("3", "3", "4"), strict=True):
        assert cli(given.run(out, *arguments, "--seed", seed)).code == 0
    first, second, third = (Study.open(out) for out in outs)
    assert first.active_masks == second.active_masks
    assert first.active_masks != third.active_masks
    assert first.active_masks is not None
    assert first.active_masks[0].kept_per_layer == (2, 0, 4)
    predictions = first.predictions("full", "id")
    assert predictions is not None
    assert predictions.num_samples == 9


def test_demo_references_use_their_own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = pipeline.load_parts("demo/mnist", seed=0, validation_limit=7, test_limit=5)
    validation = hydra.load_dataset("demo/mnist", split="validation", limit=7, seed=0)
    test = hydra.load_dataset("demo/mnist", split="test", limit=5, seed=0)
    assert parts.validation.fingerprint == validation.fingerprint
    assert parts.test.fingerprint == test.fingerprint


# --- the parts ---------------------------------------------------------------------------------------


def test_score_writes_and_prints_the_same(given: Given, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "scores.json"
    done = cli(["score", *given.source(), "--method", "taylor", "--out", str(out), "--json"])
    assert done.code == 0
    assert done.json == json.loads(out.read_text())
    backbone = hydra.load_backbone(given.backbone, device="cpu")
    known = hydra.load_dataset(given.known, class_names=backbone.class_names).split(0.5, seed=0)[0]
    expected = hydra.score_heads(backbone, known, method="taylor")
    np.testing.assert_allclose(hydra.HeadScores.from_json(out.read_text()).values, expected.values, rtol=0, atol=1e-7)


def test_score_and_circuit_into_a_study(walked: Study, cli: Cli, tmp_path: Path) -> None:
    study = walked.duplicate("parts")
    folder = ["--study", str(study.folder)]
    assert cli(["score", *folder, "--method", "ablation"]).code == 0
    assert set(study.score_sets()) == {"ablation", "taylor"}
    # The study's own circuit, computed again by the part alone.
    assert cli(["circuit", *folder, "--objective", "loss", "--heads-per-layer", "3", "--name", "again"]).code == 0
    assert study.circuits()["again"].keep == study.circuits()["loss"].keep
    # Of the study's two OOD sets, the one that may choose heads.
    assert cli(["circuit", *folder, "--objective", "ood_auroc", "--heads-per-layer", "3"]).code == 0
    np.testing.assert_array_equal(
        study.circuits()["ood_auroc noise"].values, walked.circuits()["ood_auroc noise"].values
    )
    assert "ood_auroc unseen" not in study.circuits()


def test_evaluate_a_study_an_ensemble_and_a_backbone(walked: Study, given: Given, cli: Cli) -> None:
    stored = walked.evaluations()
    fused = cli(["evaluate", "--study", str(walked.folder), "--json"])
    assert fused.json["metrics"] == pytest.approx(stored["fused"].metrics)
    ensemble = str(walked.ensemble_folder("fused"))
    more = ["--ood", f"unseen={given.unseen}"]
    loaded = cli(["evaluate", "--ensemble", ensemble, *given.source()[2:], *more, "--json"])
    assert loaded.json["metrics"] == pytest.approx(stored["fused"].metrics, abs=1e-6)
    backbone = cli(["evaluate", *given.source(), *more, "--json"])
    assert backbone.json["metrics"] == pytest.approx(stored["full"].metrics)


def test_export_masks_and_ensemble(walked: Study, given: Given, cli: Cli, tmp_path: Path) -> None:
    masks, folder, packed = tmp_path / "masks.json", tmp_path / "ensemble", tmp_path / "ensemble.zip"
    source = ["export", "--study", str(walked.folder)]
    assert cli([*source, "--masks", str(masks), "--ensemble", str(folder)]).code == 0
    assert cli([*source, "--ensemble", str(packed), "--json"]).json == {"ensemble": str(packed)}
    backbone = hydra.load_backbone(given.backbone, device="cpu")
    assert hydra.read_mask_file(masks.read_text(), backbone) == walked.active_masks
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")
    for path in (folder, tmp_path / "unpacked" / "ensemble"):
        assert list(hydra.load_ensemble(path, device="cpu").masks) == walked.active_masks
    again = cli([*source, "--masks", str(masks)])
    assert again.code == 2
    assert "--replace" in again.err
    assert cli([*source, "--masks", str(masks), "--replace"]).code == 0


def test_bench(walked: Study, cli: Cli) -> None:
    study = walked.duplicate("bench")
    done = cli(["bench", "--study", str(study.folder), "--batch-size", "2", "--rounds", "2", "--json"])
    assert done.code == 0
    assert done.json["num_members"] == 3
    assert done.json["operations_ratio"] > 1
    assert json.loads(study.get("fusion", "timing 2") or "{}") == done.json


def test_zero_shot_table(given: Given) -> None:
    from hydra_core.zero_shot import Demo, markdown, zero_shot

    demo = Demo(given.backbone, given.known, ("noise", given.other), ("unseen", given.unseen), 3)
    result = zero_shot(demo, device="cpu")
    assert [row["name"] for row in result["rows"]] == [
        "full model",
        "Taylor single",
        "circuit (loss)",
        "circuit (ood_auroc)",
        "circuit (average)",
        "Hydra Taylor (3)",
        "Hydra circuit (3)",
        "random masks, fused (3)",
    ]
    assert [row["num_members"] for row in result["rows"]] == [1, 1, 1, 1, 1, 3, 3, 3]
    assert result["rows"][0]["operations_ratio"] == 1
    text = markdown(result)
    assert "AUROC noise (seen in selection)" in text
    assert "AUROC unseen (never seen)" in text
    assert "keeps 3 of 5 heads a layer" in text
    assert "20 ID and 12 noise validation samples" in text
    json.dumps(result, allow_nan=False)


# --- errors ------------------------------------------------------------------------------------------


def refused(printed: Printed, *words: str) -> None:
    assert printed.code == 2
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--backbone": "demo/none"}, ["demo/none"]),
        ({"--backbone": "no/such/folder"}, ["no/such/folder"]),
        ({"--data": "no/such/data"}, ["no/such/data"]),
        ({"--data": "demo/movies"}, ["demo/movies"]),
        ({"--heads-per-layer": "9"}, ["9", "5"]),
        ({"--heads-per-layer": "x"}, ["whole number"]),
        ({"--select-ood": "other"}, ["'other'", "noise"]),
        ({"--strategy": "best"}, ["best", "--help"]),
        ({"--members": "0"}, ["at least 1"]),
        ({"--device": "tpu7"}, ["tpu7"]),
        ({"--dtype": "int3"}, ["int3"]),
        ({"--out": "{out}/a:b"}, ["name"]),
    ],
)
def test_bad_input_is_one_line(
    given: Given, cli: Cli, tmp_path: Path, change: dict[str, str], words: list[str]
) -> None:
    arguments = given.run(tmp_path / "study")
    for option, value in change.items():
        value = value.format(out=tmp_path)
        if option in arguments:
            arguments[arguments.index(option) + 1] = value
        else:
            arguments += [option, value]
    refused(cli(arguments), *words)
    assert list(tmp_path.iterdir()) == []


def test_no_command_and_unknown_options(cli: Cli) -> None:
    refused(cli([]), "COMMAND")
    refused(cli(["fly"]), "fly")
    refused(cli(["run"]), "--backbone")
    refused(cli(["score", "--backbone", "demo/vit"]), "--data")
    refused(cli(["evaluate", "--study", "x", "--data", "y"]), "leave out")
    refused(cli(["export", "--study", "no/such/study", "--masks", "m.json"]), "no study")


def test_a_study_that_is_there_is_not_touched(walked: Study, given: Given, cli: Cli) -> None:
    study = walked.duplicate("there")
    before = {p: p.read_bytes() for p in study.folder.rglob("*") if p.is_file()}
    refused(cli(given.run(study.folder)), "already", "there")
    # A failure halfway, in place of a study that is there: too many members of too few masks.
    refused(cli(given.run(study.folder, "--replace", "--heads-per-layer", "5")), "different members")
    assert {p: p.read_bytes() for p in study.folder.rglob("*") if p.is_file()} == before
    assert not [p for p in study.folder.parent.iterdir() if p.name.startswith(".")]
    done = cli(given.run(study.folder, "--replace", "--strategy", "random", "--without-weights"))
    assert done.code == 0
    assert Study.open(study.folder).circuits() == {}


def test_errors_of_a_new_process_are_one_line_too() -> None:
    """Notices and progress bars of libraries would show here."""
    arguments = ["evaluate", "--backbone", "demo/vit", "--data", "demo/movies"]
    done = subprocess.run(
        [sys.executable, "-m", "hydra_core", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    refused(Printed(done.returncode, done.stdout, done.stderr), "demo/movies")


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")
def test_ctrl_c_leaves_the_study_unharmed(walked: Study, given: Given) -> None:
    study = walked.duplicate("interrupted")
    before = {p: p.read_bytes() for p in study.folder.rglob("*") if p.is_file()}
    # So many samples and a new shard for each member: this does not end by itself before the signal comes.
    arguments = given.run(study.folder, "--replace", "--members", "32", "--batch-size", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "hydra_core", *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # A test run in the background inherits an ignored SIGINT; a person at a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 120
        while not list(study.folder.parent.glob(".*.tmp/scores/taylor.json")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "cancelled: nothing was changed\n"
    assert {p: p.read_bytes() for p in study.folder.rglob("*") if p.is_file()} == before
    assert not [p for p in study.folder.parent.iterdir() if p.name.startswith(".")]


# --- small parts -------------------------------------------------------------------------------------


def test_names_of_ood_sets() -> None:
    assert ood_references(["demo/mnist", "far=demo/patches", "data/x=1/photos", "texts.csv"]) == {
        "mnist": "demo/mnist",
        "far": "demo/patches",
        "photos": "data/x=1/photos",
        "texts": "texts.csv",
    }
    with pytest.raises(HydraError, match="two OOD sets"):
        ood_references(["a/mnist", "b/mnist"])
    with pytest.raises(HydraError, match="cannot be called"):
        ood_references(["id=demo/mnist"])
