"""Imports go one way, the core knows no browser, pages know no torch, and ``import hydra_core`` is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Left to right, as CONTRIBUTING.md draws it: a module may import from its own tier or an earlier one.
TIERS = (
    {
        "artefacts",
        "checks",
        "conventions",
        "errors",
        "figures",
        "jobs",
        "licences",
        "markdown",
        "mask_files",
        "masks",
        "metrics",
        "paths",
        "published",
        "report_style",
        "scoring.results",
        "version",
    },
    {"encoder", "block", "grouped"},
    {"attention", "backbones", "data", "batching", "minibatches", "checkpoint"},
    {"scoring", "pruning"},
    {"fusion", "greedy", "prediction", "quick_sample"},
    {"fewest", "members"},
    {"finetune", "evaluation", "study", "ensemble_io", "agreement", "metric_columns", "model_card", "recipe"},
    {"acceleration", "faithfulness", "merging", "model_export", "report", "timing"},
    {"pipeline", "zero_shot"},
    {"cli", "__main__"},
)
PAGES_UI, PAGES, APP = len(TIERS), len(TIERS) + 1, len(TIERS) + 2


def python_files() -> list[Path]:
    files = [*(ROOT / "hydra_core").rglob("*.py"), *(ROOT / "pages").rglob("*.py"), ROOT / "app.py"]
    return sorted(path for path in files if path.exists())


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tier_of(module: str) -> int | None:
    """The tier of a module of ours; None for the lazy package root, which may name anything."""
    if module == "app":
        return APP
    if module == "pages.ui" or module.startswith("pages.ui."):
        return PAGES_UI
    if module == "pages" or module.startswith("pages."):
        return PAGES
    if module == "hydra_core":
        return None
    inside = module.removeprefix("hydra_core.")
    for tier, names in enumerate(TIERS):
        if any("." in name and (inside == name or inside.startswith(name + ".")) for name in names):
            return tier
    for tier, names in enumerate(TIERS):
        if inside.split(".")[0] in names:
            return tier
    raise AssertionError(f"{module} is in no tier: add it to TIERS where it belongs")


def type_checking_only(tree: ast.Module) -> set[ast.stmt]:
    """Statements under ``if TYPE_CHECKING:``, which do not run."""
    found: set[ast.stmt] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            found.update(child for part in node.body for child in ast.walk(part) if isinstance(child, ast.stmt))
    return found


def imports_of(source: str, package: str) -> list[tuple[int, str]]:
    """(line, module) of every import that runs, wherever in the file it stands; relative ones made absolute."""
    tree = ast.parse(source)
    skipped = type_checking_only(tree)
    found: list[tuple[int, str]] = []
    above = package.split(".")
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = above[: len(above) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, resolve(module, alias.name)) for alias in node.names]
    return found


def resolve(module: str, name: str) -> str:
    """What ``from module import name`` imports: the module ``module.name`` where there is one, else ``module``."""
    path = ROOT.joinpath(*module.split("."), name)
    is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
    return f"{module}.{name}" if is_module else module


def is_ours(module: str) -> bool:
    return module.split(".")[0] in {"hydra_core", "pages", "app"}


def complaints(own: str, source: str, *, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of the module `own`, each with its line."""
    tier = tier_of(own)
    if own.split(".")[0] == "hydra_core":
        refused = {"streamlit", "pages", "app"}
    else:
        refused = set() if tier == PAGES_UI else {"torch"}
    found = []
    for line, module in imports_of(source, own if is_package else own.rpartition(".")[0]):
        if module.split(".")[0] in refused:
            found.append(f"line {line}: {own} imports {module}")
        elif is_ours(module) and module != own and tier is not None:
            other = tier_of(module)
            # The package root is lazy and may lead anywhere: only what stands after everything goes through it.
            if (tier < PAGES_UI) if other is None else (other > tier):
                found.append(f"line {line}: {own} imports {module}, which stands after it")
    return found


@pytest.mark.parametrize("path", python_files(), ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert complaints(module_of(path), source, is_package=path.name == "__init__.py") == []


@pytest.mark.parametrize(
    ("own", "source", "wrong"),
    [
        ("hydra_core.masks", "from hydra_core.study import Study", True),
        ("hydra_core.masks", "def f():\n    from hydra_core import study", True),
        ("hydra_core.masks", "from . import study", True),
        ("hydra_core.masks", "import hydra_core as hydra", True),
        ("hydra_core.study", "from hydra_core.masks import HeadMask", False),
        ("hydra_core.masks", "if TYPE_CHECKING:\n    from hydra_core.study import Study", False),
        ("hydra_core.data.tables", "from .dataset import Dataset", False),
        ("hydra_core.scoring.results", "from hydra_core.scoring.taylor import taylor", True),
        ("hydra_core.study", "import streamlit as st", True),
        ("hydra_core.study", "from pages.ui import state", True),
        ("pages.members", "import torch.nn", True),
        ("app", "from torch import nn", True),
        ("pages.ui.cache", "import pages.members", True),
        ("pages.members", "import hydra_core as hydra\nfrom pages.ui import cache", False),
    ],
)
def test_the_walk_itself(own: str, source: str, wrong: bool) -> None:
    assert bool(complaints(own, source)) is wrong


@pytest.mark.parametrize(
    "modules",
    [
        "hydra_core",
        "hydra_core.masks, hydra_core.metrics, hydra_core.jobs, hydra_core.study",
        "hydra_core.cli",
    ],
)
def test_light_imports(modules: str) -> None:
    heavy = "{'torch', 'streamlit', 'transformers', 'open_clip', 'sklearn', 'torchmetrics', 'captum'}"
    code = f"import sys, {modules}; found = {heavy} & set(sys.modules); assert not found, found"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_whole_library_needs_no_streamlit() -> None:
    names = [module_of(p) for p in python_files() if module_of(p).startswith("hydra_core") and p.stem != "__main__"]
    code = (
        f"import sys, importlib; [importlib.import_module(n) for n in {names}]; assert 'streamlit' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [p for p in python_files() if "hydra_core" in p.parts], ids=module_of)
def test_files_stay_readable(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400, f"{path.relative_to(ROOT)} has {lines} lines: split it"
