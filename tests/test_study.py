"""The saved study: names, atomic writing, damage, zips."""

import io
import json
import os
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra_core.errors import HydraError
from hydra_core.masks import HeadMask
from hydra_core.prediction import Predictions
from hydra_core.scoring.results import Circuit, HeadScores
from hydra_core.study import Study, StudyConfig, import_zip, list_studies, studies_root
from hydra_core.study.files import artefact_name, check_study_name, file_stem, write_bytes, write_folder

CONFIG = StudyConfig(
    backbone="demo/vit",
    data="demo/fashion-mnist",
    ood={"mnist": "demo/mnist"},
    class_names=("a", "b"),
    seed=3,
    limit=100,
)


@pytest.fixture
def study(studies: Path) -> Study:
    return Study.create(studies, "first", CONFIG)


def head_scores() -> HeadScores:
    values = np.array([[0.25, 0.5], [1.0, np.nan]])
    return HeadScores(values, "taylor", "loss", "mean of |dL/dg|", 10, "backbone", "data")


def circuit() -> Circuit:
    keep = HeadMask([[True, False], [False, True]])
    return Circuit(keep, np.array([[0.5, 0.75], [1.5, 2.0]]), "loss", (1, 1), 10, "backbone", "data", baseline=0.25)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("", "   ", "..", ".", ".hidden", "a/b", "a\\b", "../up", "C:x", "a\0b", "a\nb"),
        *("con", "NUL.txt", "lpt1", "x.", "a*", "x" * 81),
    ],
)
def test_unusable_study_names_are_refused(studies: Path, name: str) -> None:
    with pytest.raises(HydraError, match="name"):
        Study.create(studies, name, CONFIG)
    assert list(studies.iterdir()) == []


@pytest.mark.parametrize("name", ["demo-vit", "Zweite Prüfung 2", "a.b_c", "конспект", "console"])
def test_usable_study_names(studies: Path, name: str) -> None:
    study = Study.create(studies, name, CONFIG)
    assert study.name == name
    assert study.folder.parent == studies


def test_composed_and_decomposed_letters_are_one_name() -> None:
    assert check_study_name("Pru\u0308fung") == check_study_name("Pr\u00fcfung")


@given(st.text(min_size=1, max_size=15).filter(lambda text: bool(text.strip())))
def test_artefact_names_are_encoded_and_read_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return  # half of a surrogate pair is no text
    stem = file_stem(name)
    assert artefact_name(stem) == name
    assert "__" not in stem
    assert not stem.startswith((".", "_", " "))
    assert not stem.endswith((".", "_", " "))
    assert not set(stem) & set('/\\:*?"<>|\0')


def test_an_artefact_name_cannot_leave_the_study(study: Study) -> None:
    before = files_below(study.folder.parent)
    study.put("scores", "../../outside", "{}")
    new = set(files_below(study.folder.parent)) - set(before)
    assert [Path(path).parts[:2] for path in new] == [("first", "scores")]
    assert study.names("scores") == ["../../outside"]
    assert not (study.folder.parent.parent / "outside.json").exists()
    with pytest.raises(HydraError, match="kind"):
        study.put("../scores", "x", "{}")
    with pytest.raises(HydraError, match="needs a name"):
        study.put("scores", " ", "{}")


# --- artefacts ---------------------------------------------------------------------------------------


def test_everything_comes_back(study: Study) -> None:
    again = Study.open(study.folder)
    assert again.config == CONFIG
    study.save_scores("captum:integrated_gradients", head_scores())
    study.save_circuit("loss", circuit())
    masks = [HeadMask([[True, False], [False, False]]), HeadMask([[True, True], [True, False]])]
    study.save_masks("current", masks, "f" * 64, note="two heads")
    stored = again.scores("captum:integrated_gradients")
    assert stored is not None
    np.testing.assert_array_equal(stored.values, head_scores().values)
    assert stored.convention == "mean of |dL/dg|"
    assert again.circuits()["loss"].keep == circuit().keep
    assert again.active_masks == masks
    assert again.mask_sets() == {"current": masks}
    assert json.loads(again.get("masks", "current") or "")["fingerprint"] == "f" * 64
    assert again.names("scores") == ["captum:integrated_gradients"]
    assert again.kinds() == ["circuits", "masks", "scores"]
    assert again.scores("other") is None
    assert again.ensembles() == []
    again.remove("scores", "captum:integrated_gradients")
    again.remove("scores", "never there")
    assert study.names("scores") == []
    study.clear()
    assert study.kinds() == []
    assert study.config == CONFIG


def test_the_configuration_is_replaced(study: Study) -> None:
    changed = StudyConfig(backbone="demo/bert", data="demo/movies", ood={"nyt": "demo/nyt", "amazon": "demo/amazon"})
    study.set_config(changed)
    assert Study.open(study.folder).config == changed
    assert list(Study.open(study.folder).config.ood) == ["nyt", "amazon"]


def predictions(members: int = 2, labels: bool = True) -> Predictions:
    logits = np.random.default_rng(0).normal(size=(members, 5, 3)).astype(np.float32)
    logits[0, 3] = np.nan
    return Predictions(
        logits=logits,
        labels=np.array([0, 1, 2, 0, 1]) if labels else None,
        excluded=(3,),
        class_names=("a", "b", "c"),
        model_fingerprint="model",
        data_fingerprint="data",
        data_name="demo/fashion-mnist",
    )


@pytest.mark.parametrize("labels", [True, False])
def test_predictions_come_back_bit_for_bit(study: Study, labels: bool) -> None:
    given_ = predictions(labels=labels)
    study.save_predictions("taylor single", "id", given_)
    study.save_predictions("full", "demo/mnist", given_)
    study.save_predictions("member 0", "_a__b_", given_)
    stored = study.predictions("taylor single", "id")
    assert stored is not None
    np.testing.assert_array_equal(stored.logits, given_.logits)
    assert stored.logits.dtype == np.float32
    if labels:
        np.testing.assert_array_equal(stored.labels, given_.labels)
        assert stored.labels is not None
        assert stored.labels.dtype == np.int64
    else:
        assert stored.labels is None
    for field in ("excluded", "class_names", "model_fingerprint", "data_fingerprint", "data_name"):
        assert getattr(stored, field) == getattr(given_, field)
    assert study.prediction_models() == ["full", "member 0", "taylor single"]
    assert study.prediction_data("full") == ["demo/mnist"]
    assert study.prediction_data("member 0") == ["_a__b_"]
    assert study.predictions("full", "id") is None
    study.remove_predictions("full")
    assert study.prediction_models() == ["member 0", "taylor single"]


# --- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": "hydra-circuit", "version": 1}'])
def test_a_damaged_artefact_is_named_and_the_others_are_unharmed(study: Study, text: str) -> None:
    study.save_circuit("good", circuit())
    study.save_circuit("bad", circuit())
    study.save_predictions("full", "id", predictions())
    path = study.folder / "circuits" / "bad.json"
    path.write_text(text)
    with pytest.raises(HydraError, match=r"bad\.json.*damaged.*delete it"):
        study.circuit("bad")
    assert list(study.circuits()) == ["good"]
    (problem,) = study.problems()
    assert "bad.json" in problem
    (study.folder / "predictions" / "full__id.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(HydraError, match=r"full__id\.safetensors.*damaged"):
        study.predictions("full", "id")
    assert len(study.problems()) == 2


def test_cut_off_predictions_are_refused(study: Study) -> None:
    study.save_predictions("full", "id", predictions())
    path = study.folder / "predictions" / "full__id.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(HydraError, match="damaged"):
        study.predictions("full", "id")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "JSON"),
        ("[1]", "format"),
        (json.dumps({"format": "hydra-study", "version": 1}), "configuration"),
        (
            json.dumps({"format": "hydra-study", "version": 1, "config": {"backbone": 3, "data": "x"}}),
            "backbone",
        ),
        (
            json.dumps({"format": "hydra-study", "version": 99, "made_by": "hydra-studio 8.0", "config": {}}),
            "hydra-studio 8.0 made it, in format version 99",
        ),
    ],
)
def test_a_broken_study_is_refused_listed_and_can_be_deleted(study: Study, text: str, reason: str) -> None:
    healthy = study.duplicate("healthy")
    (study.folder / "study.json").write_text(text)
    with pytest.raises(HydraError, match=reason):
        Study.open(study.folder)
    listed = {summary.name: summary for summary in list_studies(study.folder.parent)}
    assert reason in (listed["first"].error or "")
    assert listed["healthy"].error is None
    assert listed["healthy"].backbone == "demo/vit"
    Study(study.folder).delete()
    assert [summary.name for summary in list_studies(healthy.folder.parent)] == ["healthy"]


def test_unknown_fields_of_the_configuration_are_left_out(study: Study) -> None:
    path = study.folder / "study.json"
    data = json.loads(path.read_text())
    data["config"]["colour"] = "teal"
    path.write_text(json.dumps(data))
    assert Study.open(study.folder).config == CONFIG


def test_no_study_there(tmp_path: Path) -> None:
    with pytest.raises(HydraError, match="no study"):
        Study.open(tmp_path / "nothing")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    with pytest.raises(HydraError, match="not a study"):
        Study(tmp_path / "photos").delete()
    assert (tmp_path / "photos" / "cat.jpg").exists()
    assert list_studies(tmp_path) == []
    assert list_studies(tmp_path / "nothing") == []


def test_text_that_is_no_json_is_not_stored(study: Study) -> None:
    study.put("scores", "x", '{"a": 1}')
    with pytest.raises(HydraError, match="JSON"):
        study.put("scores", "x", "{")
    assert study.get("scores", "x") == '{"a": 1}'


# --- writing -----------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    study.put("scores", "x", '{"old": true}')
    before = files_below(study.folder)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HydraError, match="No space left on device"):
        study.put("scores", "x", '{"new": true}')
    monkeypatch.undo()
    assert files_below(study.folder) == before


def test_a_process_killed_while_writing_leaves_the_old_file(study: Study) -> None:
    study.put("scores", "x", '{"old": true}')
    # The process dies at the last moment: the new text is complete under its temporary name.
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom hydra_core.study import Study\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "Study(Path(sys.argv[1])).put('scores', 'x', '{\"new\": true}')\n"
    )
    repository = Path(__file__).resolve().parents[1]
    assert subprocess.run([sys.executable, "-c", code, str(study.folder)], cwd=repository, check=False).returncode == 9
    assert study.get("scores", "x") == '{"old": true}'
    assert study.names("scores") == ["x"]
    assert all("tmp" not in name for name in zipfile.ZipFile(io.BytesIO(study.to_zip())).namelist())
    copy = study.duplicate("copy")
    assert set(files_below(copy.folder)) == {"study.json", "scores/x.json"}


def test_a_reader_never_sees_half_a_file(study: Study) -> None:
    texts = [json.dumps({"n": n, "fill": "x" * 200_000}) for n in range(2)]
    study.put("scores", "x", texts[0])
    done = threading.Event()

    def write() -> None:
        for n in range(20):
            study.put("scores", "x", texts[n % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert study.get("scores", "x") in texts
    writer.join()


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "ensemble"
    write_folder(folder, lambda path: (path / "old").write_text("old"))

    def fail(path: Path) -> None:
        (path / "new").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, fail)
    assert files_below(tmp_path) == {"ensemble/old": b"old"}
    write_folder(folder, lambda path: (path / "new").write_text("new"))
    assert files_below(tmp_path) == {"ensemble/new": b"new"}
    assert [path.name for path in tmp_path.iterdir()] == ["ensemble"]


def test_writing_where_it_is_not_allowed_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HydraError, match="cannot write"):
        write_bytes(tmp_path / "file" / "x.json", b"{}")


# --- rename, duplicate, list -------------------------------------------------------------------------


def test_rename_duplicate_delete(study: Study) -> None:
    study.save_circuit("loss", circuit())
    copy = study.duplicate("second")
    with pytest.raises(HydraError, match="already a study called 'second'"):
        study.rename("second")
    with pytest.raises(HydraError, match="already"):
        Study.create(study.folder.parent, "first", CONFIG)
    renamed = study.rename("third")
    assert renamed.name == "third"
    assert not study.folder.exists()
    copy.remove("circuits", "loss")
    assert list(renamed.circuits()) == ["loss"]
    renamed.delete()
    assert [path.name for path in copy.folder.parent.iterdir()] == ["second"]


def test_a_shipped_study_opens_as_a_copy(study: Study, tmp_path: Path) -> None:
    copy = study.duplicate("mine", root=tmp_path / "elsewhere" / "studies")
    assert copy.folder == tmp_path / "elsewhere" / "studies" / "mine"
    assert copy.config == CONFIG


def test_the_last_changed_study_comes_first(studies: Path) -> None:
    for seconds, name in enumerate(["a", "b", "c"]):
        study = Study.create(studies, name, CONFIG)
        study.put("scores", "x", "{}")
        for path in (study.folder, *study.folder.iterdir()):
            os.utime(path, (1000 + seconds, 1000 + seconds))
    assert [summary.name for summary in list_studies(studies)] == ["c", "b", "a"]
    Study(studies / "a").put("scores", "y", "{}")
    assert [summary.name for summary in list_studies(studies)] == ["a", "c", "b"]


def test_studies_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HYDRA_STUDIES", str(tmp_path))
    assert studies_root() == tmp_path
    monkeypatch.delenv("HYDRA_STUDIES")
    assert studies_root() == Path("studies")


# --- zip ---------------------------------------------------------------------------------------------


def test_a_zip_brings_the_study_to_another_machine(study: Study, tmp_path: Path) -> None:
    study.save_circuit("loss", circuit())
    study.save_predictions("full", "id", predictions())
    other = tmp_path / "other"
    first, second = import_zip(other, study.to_zip()), import_zip(other, study.to_zip())
    assert (first.name, second.name) == ("first", "first 2")
    assert files_below(first.folder) == files_below(study.folder)
    assert sorted(path.name for path in other.iterdir()) == ["first", "first 2"]


def test_unfinished_work_stays_with_the_study_and_in_no_copy(study: Study) -> None:
    study.save_scores("a", head_scores())
    state = study.unfinished("tuning") / "member-0.safetensors"
    write_bytes(state, b"half")
    assert study.kinds() == ["scores"]
    assert not study.duplicate("copy").unfinished("tuning").exists()
    assert not any("member-0" in name for name in zipfile.ZipFile(io.BytesIO(study.to_zip())).namelist())
    moved = study.rename("moved")
    assert (moved.unfinished("tuning") / state.name).read_bytes() == b"half"
    moved.remove_unfinished("other")
    moved.remove_unfinished("tuning")
    assert not moved.unfinished("tuning").exists()
    write_bytes(moved.unfinished("tuning") / state.name, b"half")
    moved.clear(["scores"])
    assert moved.unfinished("tuning").is_dir()
    moved.clear()
    assert sorted(path.name for path in moved.folder.iterdir()) == ["study.json"]


def test_a_zip_without_a_top_folder_is_read_too(study: Study, tmp_path: Path) -> None:
    data = make_zip(files_below(study.folder))
    assert import_zip(tmp_path / "other", data).config == CONFIG


def make_zip(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return buffer.getvalue()


def study_entries(study: Study) -> dict[str, bytes]:
    return {f"first/{name}": content for name, content in files_below(study.folder).items()}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../outside.json", "outside"),
        ("first/../../outside.json", "outside"),
        ("/outside.json", "outside"),
        ("first/scores\\..\\..\\outside.json", "outside"),
        ("C:/outside.json", "outside"),
        ("elsewhere/x.json", "beside"),
    ],
)
def test_a_zip_cannot_write_outside(study: Study, tmp_path: Path, name: str, reason: str) -> None:
    other = tmp_path / "a" / "b" / "studies"
    with pytest.raises(HydraError, match=reason):
        import_zip(other, make_zip({**study_entries(study), name: b"{}"}))
    assert not [path for path in (tmp_path / "a").rglob("*") if path.is_file()]


def test_a_link_in_a_zip_is_refused(study: Study, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in study_entries(study).items():
            archive.writestr(name, content)
        link = zipfile.ZipInfo("first/scores/passwd.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(HydraError, match="link"):
        import_zip(tmp_path / "other", buffer.getvalue())


def test_a_zip_bomb_is_refused(study: Study, tmp_path: Path) -> None:
    data = make_zip({**study_entries(study), "first/scores/x.json": b" " * 3_000_000})
    with pytest.raises(HydraError, match="100 times"):
        import_zip(tmp_path / "other", data)


def test_a_zip_whose_table_lies_is_refused(study: Study, tmp_path: Path) -> None:
    content = os.urandom(1000) + b" " * 3_000_000
    data = make_zip({**study_entries(study), "first/scores/x.json": content})
    # The table says 10 bytes; what is packed has three million.
    lie = data.replace(len(content).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lie != data
    with pytest.raises(HydraError, match=r"larger than|damaged"):
        import_zip(tmp_path / "other", lie)
    assert not [path for path in tmp_path.rglob("x.json") if path.is_file()]


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all"])
def test_no_zip(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(HydraError, match="not a zip"):
        import_zip(tmp_path, data)


def test_a_zip_that_is_no_study(study: Study, tmp_path: Path) -> None:
    with pytest.raises(HydraError, match="not one study"):
        import_zip(tmp_path / "other", make_zip({"photos/cat.jpg": b"x"}))
    newer = json.dumps({"format": "hydra-study", "version": 99, "made_by": "hydra-studio 8.0"})
    with pytest.raises(HydraError, match="format version 99") as caught:
        import_zip(tmp_path / "other", make_zip({"x/study.json": newer.encode()}))
    assert ".tmp" not in str(caught.value)
    assert list((tmp_path / "other").iterdir()) == []


def test_a_damaged_zip_leaves_nothing(study: Study, tmp_path: Path) -> None:
    study.put("scores", "x", json.dumps(list(range(5000))))
    data = bytearray(study.to_zip())
    middle = len(data) // 3
    data[middle : middle + 40] = bytes(40)
    with pytest.raises(HydraError, match=r"damaged|zip"):
        import_zip(tmp_path / "other", bytes(data))
    assert not (tmp_path / "other").exists() or list((tmp_path / "other").iterdir()) == []


def test_a_stored_name_that_is_not_usable_is_replaced(study: Study, tmp_path: Path) -> None:
    entries = study_entries(study)
    stored = json.loads(entries["first/study.json"])
    entries["first/study.json"] = json.dumps({**stored, "name": "../../evil"}).encode()
    assert import_zip(tmp_path / "other", make_zip(entries)).name == "imported study"


def test_study_needs_no_torch() -> None:
    repository = Path(__file__).resolve().parents[1]
    code = "import sys, hydra_core.study; assert not {'torch', 'streamlit'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=repository, check=True)
