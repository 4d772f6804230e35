"""Images as a viewer shows them: upright, RGB, transparency over white.

Colour profiles are not applied: numbers mean sRGB.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from hydra_core.data.limits import MAX_IMAGE_BYTES, MAX_PIXELS, megabytes
from hydra_core.errors import HydraError

# Pillow's other readers are not asked: EPS, for one, starts an outside program.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")


def decode(data: bytes) -> Image.Image:
    """An image file's bytes as an upright RGB image.

    Raises:
        HydraError: empty, no image, truncated, too large, or in a form that cannot be shown. The message is
            the bare reason: the caller names the file.
    """
    if not data:
        raise HydraError("the file is empty")
    if len(data) > MAX_IMAGE_BYTES:
        raise HydraError(f"the file has {megabytes(len(data))}, the limit is {megabytes(MAX_IMAGE_BYTES)}")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image.size)
            image.load()
            return to_rgb(image)
    except HydraError:
        raise
    except UnidentifiedImageError:
        raise HydraError(f"not an image ({', '.join(FORMATS)} can be read)") from None
    except Image.DecompressionBombError:
        raise HydraError(f"more than the limit of {MAX_PIXELS // 10**6} megapixels") from None
    except Exception as error:
        # Pillow's readers raise whatever their format's parser meets: OSError, SyntaxError, struct.error
        raise HydraError(f"the image is damaged or truncated ({error})") from None


def to_rgb(item: Any) -> Image.Image:
    """One item as an upright RGB image.

    Args:
        item: a PIL image; an array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), uint8 or float in [0, 1]; or a
            path.

    Raises:
        HydraError: anything else, or an image that cannot be read.
    """
    if isinstance(item, Image.Image):
        return _shown(item)
    if isinstance(item, str | Path):
        return read_image(item)
    return _from_array(item)


def read_image(path: str | Path) -> Image.Image:
    """The image in a file, upright RGB; a HydraError that names the file where it cannot be read."""
    try:
        return decode(read_limited(Path(path)))
    except HydraError as error:
        raise HydraError(f"image {str(path)!r}: {error}") from None


def read_limited(path: Path) -> bytes:
    """An image file's bytes; refused unread where it is over the limit."""
    try:
        size = path.stat().st_size
        if size > MAX_IMAGE_BYTES:
            raise HydraError(f"the file has {megabytes(size)}, the limit is {megabytes(MAX_IMAGE_BYTES)}")
        return path.read_bytes()
    except OSError as error:
        raise HydraError(f"the file cannot be read ({error.strerror or error})") from None


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise HydraError(f"{size[0]} x {size[1]} pixels are more than the limit of {MAX_PIXELS // 10**6} megapixels")


def _shown(image: Image.Image) -> Image.Image:
    image = _upright(image)
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_eight_bits(image)
    if image.mode in {"LA", "PA", "RGBA", "La", "RGBa"} or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    try:
        return image.convert("RGB")
    except ValueError:
        raise HydraError(f"the colour mode {image.mode} cannot be shown as RGB") from None


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        # Damaged EXIF data: a viewer shows the picture as it is stored.
        return image


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits (Pillow's own conversion cuts at 255 and shows white)."""
    values = np.asarray(image)
    if image.mode == "F":
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            raise HydraError("floating-point pixels outside 0 to 1 have no agreed meaning; save it as 8 bits")
        return Image.fromarray(np.round(values * 255).astype(np.uint8))
    if values.min() < 0 or values.max() > 65535:
        raise HydraError("32-bit grey values have no agreed meaning; save it as 8 or 16 bits")
    return Image.fromarray((values.astype(np.uint32) * 255 // 65535).astype(np.uint8))


def _from_array(item: Any) -> Image.Image:
    if hasattr(item, "detach"):
        item = item.detach().cpu().numpy()
    array = np.asarray(item)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or array.size == 0:
        raise HydraError(
            "an image must be a PIL image, a path, or an array (H, W), (H, W, 3) or (H, W, 4); got "
            f"{type(item).__name__} with shape {array.shape}"
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise HydraError("an image array of floats must lie in [0, 1]; give uint8 for 0 to 255")
        array = np.round(array * 255)
    elif array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    elif array.dtype != np.uint8 and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 255):
        raise HydraError(f"an image array must hold 0 to 255 (uint8) or floats in [0, 1]; got {array.dtype}")
    return _shown(Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8)))
