"""The README's figures are the committed results, and what it names exists."""

import re
from pathlib import Path

from benchmarks.readme import README, filled

ROOT = Path(__file__).resolve().parents[1]


def test_the_tables_are_the_committed_results():
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text, "run: python -m benchmarks.readme"


def test_links_and_make_targets_exist():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"`make ([a-z-]+)`", text) + re.findall(r"^make ([a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
