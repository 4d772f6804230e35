"""Small real files, written by each test."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def _png(seed: int = 0, size: tuple[int, int] = (8, 6)) -> bytes:
    """The bytes of a PNG of noise; width x height."""
    pixels = np.random.default_rng(seed).integers(0, 256, size=(size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.fixture
def png() -> Callable[..., bytes]:
    """``png(seed, size=(8, 6))``: the bytes of a PNG of noise."""
    return _png


@pytest.fixture
def class_folder(tmp_path: Path) -> Path:
    """cat: 3 images, dog: 2 images."""
    root = tmp_path / "pets"
    for k, (name, count) in enumerate((("cat", 3), ("dog", 2))):
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i}.png").write_bytes(_png(10 * k + i))
    return root
