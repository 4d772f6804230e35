"""The app in Streamlit's own test runner: always from app.py, then to a page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from hydra_core.pipeline import Selection, walk
from hydra_core.study import Study, StudyConfig, studies_root

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("start", "model_data", "head_importance", "circuits", "members", "fuse", "evaluate", "export")
TIMEOUT = 60

Open = Callable[..., AppTest]


@pytest.fixture
def open_page() -> Open:
    """Open a page, of a study where one is named."""

    def open_(page: str, study: str | None = None) -> AppTest:
        at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=TIMEOUT)
        if study is not None:
            at.query_params["study"] = study
        at.run()
        if page != "start":
            at.switch_page(f"pages/{page}.py").run()
        return at

    return open_


@pytest.fixture(scope="session")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A small study of the demo ViT that went the whole path."""
    config = StudyConfig(
        "demo/vit", "demo/fashion-mnist", {"mnist": "demo/mnist", "patches": "demo/patches"}, limit=90,
        selection_ood=("mnist",),
    )  # fmt: skip
    study = Study.create(tmp_path_factory.mktemp("walked"), "walked", config)
    walk(study, Selection("circuit", ("mnist",), 3, 5, validation_limit=40), with_weights=False)
    return study


@pytest.fixture
def study(walked: Study) -> Study:
    """A copy of the walked study in this test's studies folder."""
    return walked.duplicate("walked", root=studies_root())


def button(at: AppTest, label: str) -> Any:
    found = [one for one in at.button if one.label == label]
    assert found, f"no button {label!r} among {[one.label for one in at.button]}"
    return found[0]


def texts(at: AppTest) -> str:
    """Every text on the page that Streamlit's runner can see."""
    kinds = (at.title, at.header, at.subheader, at.markdown, at.caption, at.info, at.warning, at.error, at.success)
    return "\n".join(str(one.value) for kind in kinds for one in kind)


def healthy(at: AppTest) -> None:
    assert not at.exception, [one.value for one in at.exception]
    assert not at.error, [one.value for one in at.error]
