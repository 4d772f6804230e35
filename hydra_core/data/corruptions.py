"""Corruptions of images (ImageNet-C) and of texts; the same input gives the same output, always.

Randomness is seeded by the sample's own content, so a subset is corrupted as the whole is.
"""

import hashlib
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from hydra_core.errors import HydraError

if TYPE_CHECKING:
    from hydra_core.data.sources import ImageItems, Source

IMAGE_CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
)
TEXT_CORRUPTIONS = ("typos", "word_drop", "word_order")
SMALLEST_SIDE = 32  # imagecorruptions refuses less
_TAKES_SEED = {"impulse_noise", "glass_blur"}

# The corruptions draw from numpy's one global generator: one at a time, and its state is put back.
_LOCK = threading.Lock()


def check_corruption(kind: str, name: str, severity: int) -> None:
    """HydraError for a corruption that this kind of data does not have, or a severity outside 1 to 5."""
    known = IMAGE_CORRUPTIONS if kind == "image" else TEXT_CORRUPTIONS
    if name not in known:
        raise HydraError(f"unknown corruption {name!r} for {kind}s: choose one of {', '.join(known)}")
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        raise HydraError(f"severity must be a whole number from 1 to 5, got {severity!r}")


def _seed(content: bytes, name: str, severity: int) -> int:
    return int.from_bytes(hashlib.sha256(content + f"{name} {severity}".encode()).digest()[:4], "little")


def corrupt_image(image: Image.Image, name: str, severity: int) -> Image.Image:
    """One image corrupted; sides under 32 pixels are enlarged to 32 for it and reduced again.

    Args:
        image: RGB.
        name: one of :data:`IMAGE_CORRUPTIONS`.
        severity: 1 to 5.
    """
    import imagecorruptions

    size = image.size
    needed = (max(size[0], SMALLEST_SIDE), max(size[1], SMALLEST_SIDE))
    enlarged = image if needed == size else image.resize(needed, Image.Resampling.BICUBIC)
    pixels = np.asarray(enlarged)
    seed = _seed(pixels.tobytes(), name, severity)
    with _LOCK:
        state = np.random.get_state()
        np.random.seed(seed)
        try:
            extra = {"seed": seed} if name in _TAKES_SEED else {}
            if extra:
                function = getattr(imagecorruptions.corruptions, name)
                result = np.uint8(function(Image.fromarray(pixels), severity, **extra))
            else:
                result = imagecorruptions.corrupt(pixels, corruption_name=name, severity=severity)
        finally:
            np.random.set_state(state)
    corrupted = Image.fromarray(np.asarray(result, dtype=np.uint8))
    return corrupted if needed == size else corrupted.resize(size, Image.Resampling.BICUBIC)


class CorruptedSource:
    """Another source's images, corrupted on access."""

    def __init__(self, source: "Source", name: str, severity: int) -> None:
        self.source = source
        self.name = name
        self.severity = severity

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int) -> Image.Image:
        """Upright RGB, corrupted."""
        return corrupt_image(self.source.image(index), self.name, self.severity)

    def digest(self, index: int) -> bytes:
        """The sha256 of the content's digest and the corruption, which together decide every pixel."""
        content = self.source.digest(index)
        return hashlib.sha256(content + f"{self.name} {self.severity}".encode()).digest()


def enlarges(items: "ImageItems") -> list[str]:
    """The note that images under 32 pixels are enlarged, judged by the first image; else nothing."""
    if not len(items) or min(items[0].size) >= SMALLEST_SIDE:
        return []
    width, height = items[0].size
    return [
        f"images of {width} x {height} pixels are enlarged to {max(width, SMALLEST_SIDE)} x "
        f"{max(height, SMALLEST_SIDE)} for the corruption and reduced again"
    ]


def corrupt_text(text: str, name: str, severity: int) -> str:
    """One text corrupted.

    Args:
        text: the text; at least one word of it stays.
        name: ``typos`` changes 3 % of the letters a severity step (swap with the next, drop, double or
            replace); ``word_drop`` leaves out 8 % of the words a step; ``word_order`` moves words past up to
            `severity` others.
        severity: 1 to 5.
    """
    rng = random.Random(_seed(text.encode("utf-8", "surrogatepass"), name, severity))
    return _TEXT[name](text, severity, rng)


def _typos(text: str, severity: int, rng: random.Random) -> str:
    out: list[str] = []
    i = 0
    while i < len(text):
        letter = text[i]
        if not letter.isalpha() or rng.random() >= 0.03 * severity:
            out.append(letter)
        else:
            kind = rng.randrange(4)
            if kind == 0 and i + 1 < len(text) and text[i + 1].isalpha():
                out += [text[i + 1], letter]
                i += 1
            elif kind == 1 and len(text) > 1:
                pass  # dropped
            elif kind == 2:
                out += [letter, letter]
            else:
                other = rng.choice("abcdefghijklmnopqrstuvwxyz")
                out.append(other.upper() if letter.isupper() else other)
        i += 1
    return "".join(out) or text


def _word_drop(text: str, severity: int, rng: random.Random) -> str:
    words = text.split()
    kept = [word for word in words if rng.random() >= 0.08 * severity]
    return " ".join(kept or words[:1]) or text


def _word_order(text: str, severity: int, rng: random.Random) -> str:
    words = text.split()
    # each word's place plus up to `severity` and a half: a word moves past at most that many others
    places = [i + rng.uniform(0, severity + 0.5) for i in range(len(words))]
    return " ".join(words[i] for i in sorted(range(len(words)), key=places.__getitem__)) or text


_TEXT: dict[str, Callable[[str, int, random.Random], str]] = {
    "typos": _typos,
    "word_drop": _word_drop,
    "word_order": _word_order,
}
