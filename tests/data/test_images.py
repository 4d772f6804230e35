"""D22, D23, D30: images come out as a viewer shows them, and faulty ones are named."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hydra_core.data import load_dataset
from hydra_core.data.images import decode, read_image, to_rgb
from hydra_core.errors import HydraError


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    assert image.mode == "RGB"
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def palette_image(transparent: int | None) -> bytes:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255] + [0] * 762)
    image.putdata([0, 1])
    options = {} if transparent is None else {"transparency": transparent}
    return encoded(image, **options)


# Colours of one pixel, and what a person sees on a white page.
CASES = [
    ("L", 90, (90, 90, 90)),
    ("1", 255, (255, 255, 255)),
    ("1", 0, (0, 0, 0)),
    ("LA", (0, 0), (255, 255, 255)),  # fully transparent: the page shows
    ("LA", (40, 255), (40, 40, 40)),
    ("RGBA", (255, 0, 0, 255), (255, 0, 0)),
    ("RGBA", (0, 0, 0, 0), (255, 255, 255)),
    ("RGBA", (0, 0, 0, 51), (204, 204, 204)),  # a fifth of black over white
    ("RGB", (1, 2, 3), (1, 2, 3)),
]


@pytest.mark.parametrize(("mode", "colour", "shown"), CASES)
def test_d22_colour_modes(mode: str, colour: object, shown: tuple[int, int, int]) -> None:
    image = Image.new(mode, (5, 4), colour)  # type: ignore[arg-type]
    assert pixel(decode(encoded(image))) == shown
    assert pixel(to_rgb(image)) == shown


def test_d22_palette_with_and_without_transparency() -> None:
    assert [pixel(decode(palette_image(None)), x) for x in (0, 1)] == [(255, 0, 0), (0, 0, 255)]
    assert [pixel(decode(palette_image(1)), x) for x in (0, 1)] == [(255, 0, 0), (255, 255, 255)]


def test_d22_cmyk_red_is_red() -> None:
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert pixel(to_rgb(image)) == (255, 0, 0)
    assert pixel(decode(encoded(image, "TIFF"))) == (255, 0, 0)
    # JPEG loses a little, and Adobe's files store CMYK inverted: the reader must put it right
    red, green, blue = pixel(decode(encoded(image, "JPEG", quality=100)))
    assert red > 250
    assert max(green, blue) < 5


def test_d22_sixteen_bit_grey_is_scaled_not_cut() -> None:
    values = np.array([[0, 1000, 40000, 65535]], dtype=np.uint16)
    image = decode(encoded(Image.fromarray(values)))
    assert [pixel(image, x)[0] for x in range(4)] == [0, 3, 155, 255]


def test_d22_one_pixel_wide_images() -> None:
    for size in ((1, 1000), (1000, 1), (1, 1)):
        image = Image.new("RGB", size, (9, 8, 7))
        assert decode(encoded(image)).size == size
        assert pixel(decode(encoded(image))) == (9, 8, 7)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_d23_exif_orientation_is_applied(orientation: int) -> None:
    # One white corner tells every rotation and mirroring apart; where it must end up follows from the EXIF standard.
    upright = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}
    stored = np.zeros((10, 20, 3), dtype=np.uint8)
    stored[:5, :10] = 255  # top left quarter
    exif = Image.Exif()
    exif[0x0112] = orientation
    shown = decode(encoded(Image.fromarray(stored), "JPEG", exif=exif, quality=95))
    assert shown.size == ((20, 10) if orientation < 5 else (10, 20))
    right, down = upright[orientation]
    width, height = shown.size
    assert pixel(shown, width // 4 + right * width // 2, height // 4 + down * height // 2)[0] > 240
    corners = [
        pixel(shown, width // 4 + r * width // 2, height // 4 + d * height // 2)[0] for r in (0, 1) for d in (0, 1)
    ]
    assert sum(value > 240 for value in corners) == 1


def bomb_png(width: int, height: int) -> bytes:
    """A PNG whose header promises many pixels in a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_d23_d30_bad_files_are_named_and_the_rest_runs(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    jpeg = encoded(Image.fromarray(noise), "JPEG")
    exif = Image.Exif()
    exif[0x0112] = 6
    (folder / "turned.jpg").write_bytes(encoded(Image.new("RGB", (20, 10)), "JPEG", exif=exif))
    (folder / "cut.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("not a picture")
    (folder / "bomb.png").write_bytes(bomb_png(50_000, 50_000))
    (folder / "large.png").write_bytes(bomb_png(10_000, 10_000))
    (folder / "notes.txt").write_text("a list")
    dataset = load_dataset(folder)
    assert len(dataset) == 1
    assert dataset.items[0].size == (10, 20)
    assert dataset.labels is None
    reasons = dict(dataset.skipped)
    assert set(reasons) == {"cut.jpg", "empty.png", "text.jpg", "bomb.png", "large.png", "notes.txt"}
    assert "truncated" in reasons["cut.jpg"]
    assert "empty" in reasons["empty.png"]
    assert "not an image" in reasons["text.jpg"]
    assert "megapixels" in reasons["bomb.png"]
    assert "10000 x 10000" in reasons["large.png"]


def test_an_image_over_the_file_limit_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydra_core.data.images.MAX_IMAGE_BYTES", 100)
    path = tmp_path / "large.png"
    path.write_bytes(b"x" * 101)
    with pytest.raises(HydraError, match="limit"):
        read_image(path)


def test_arrays_become_images() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for array in (grey, grey[..., None]):
        assert np.array_equal(np.asarray(to_rgb(array))[..., 1], grey)
    assert pixel(to_rgb(np.full((2, 2, 3), 0.5))) == (128, 128, 128)
    assert pixel(to_rgb(np.full((2, 2), 200, dtype=np.int64))) == (200, 200, 200)
    assert pixel(to_rgb(np.ones((2, 2), dtype=bool))) == (255, 255, 255)
    assert pixel(to_rgb(np.zeros((2, 2, 4), dtype=np.uint8))) == (255, 255, 255)


@pytest.mark.parametrize(
    "item", [np.zeros((2, 2, 5)), np.zeros(4), np.full((2, 2), 300), np.full((2, 2), 1.5), 7, None, "no/such/file.png"]
)
def test_what_is_no_image_is_refused(item: object) -> None:
    with pytest.raises(HydraError, match="image"):
        to_rgb(item)
