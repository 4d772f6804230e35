"""What every test needs: no network, one thread, and studies in a temporary folder."""

import os
from pathlib import Path

import pytest

# Set before any library is imported: they read these once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@pytest.fixture(autouse=True)
def _studies_in_a_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    # No test may see, or leave anything among, the studies of the person who runs it.
    monkeypatch.setenv("HYDRA_STUDIES", str(tmp_path_factory.mktemp("studies")))


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """An empty folder for studies."""
    folder = tmp_path / "studies"
    folder.mkdir()
    return folder
