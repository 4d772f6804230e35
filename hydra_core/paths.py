"""Where the shipped files lie."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parents[1] / "assets"
