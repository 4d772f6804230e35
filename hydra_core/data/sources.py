"""Where images come from: each access decodes again, so a dataset costs the memory of its files' names.

All sources may be read by several threads at once.
"""

import hashlib
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydra_core.data.images import decode, read_limited, to_rgb
from hydra_core.data.limits import MAX_IMAGE_BYTES, megabytes
from hydra_core.errors import HydraError


class Source(Protocol):
    """Numbered images: `image` decodes one, `digest` is the sha256 of its content."""

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """Upright RGB."""
        ...

    def digest(self, index: int) -> bytes:
        """32 bytes that change with the content."""
        ...


class ImageItems(Sequence[Image.Image]):
    """A view of some of a source's images, in a given order; a slice is a list of decoded images."""

    def __init__(self, source: Source, indices: Sequence[int] | None = None) -> None:
        self.source = source
        self.indices: tuple[int, ...] = tuple(range(len(source)) if indices is None else indices)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...

    @overload
    def __getitem__(self, index: slice) -> list[Image.Image]: ...

    def __getitem__(self, index: int | slice) -> Image.Image | list[Image.Image]:
        if isinstance(index, slice):
            return [self.source.image(i) for i in self.indices[index]]
        return self.source.image(self.indices[index])

    def __iter__(self) -> Iterator[Image.Image]:
        return (self.source.image(i) for i in self.indices)

    def __repr__(self) -> str:
        return f"<{len(self)} images>"

    def view(self, indices: Sequence[int]) -> "ImageItems":
        """The images at `indices` of this view."""
        return ImageItems(self.source, [self.indices[i] for i in indices])

    def digests(self) -> Iterator[bytes]:
        """One sha256 an image, in order."""
        return (self.source.digest(i) for i in self.indices)


class ArraySource:
    """Images that lie in memory: (N, H, W) grey or (N, H, W, 3), uint8."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> Image.Image:
        """Upright RGB."""
        return to_rgb(self._images[index])

    def digest(self, index: int) -> bytes:
        """The sha256 of shape and pixels."""
        one = np.ascontiguousarray(self._images[index])
        return hashlib.sha256(repr(one.shape).encode() + one.tobytes()).digest()


class BytesSource:
    """Images in files; a subclass says how the bytes of one are read."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._digests: dict[int, bytes] = {}

    def read(self, name: str) -> bytes:
        """The file's bytes; HydraError with the bare reason where they cannot be read."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.names)

    def check(self, index: int) -> str | None:
        """Decode one image: the reason why it cannot be used, or None. Keeps its digest."""
        try:
            data = self.read(self.names[index])
            decode(data)
        except HydraError as error:
            return str(error)
        self._digests[index] = hashlib.sha256(data).digest()
        return None

    def image(self, index: int) -> Image.Image:
        """Upright RGB; HydraError that names the file where it has changed since it was loaded."""
        try:
            return decode(self.read(self.names[index]))
        except HydraError as error:
            raise HydraError(f"image {self.names[index]!r}: {error}; load the data again") from None

    def digest(self, index: int) -> bytes:
        """The sha256 of the file."""
        if index not in self._digests:
            self._digests[index] = hashlib.sha256(self.read(self.names[index])).digest()
        return self._digests[index]


class FileSource(BytesSource):
    """Image files below a folder; a name may also be an absolute path."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        super().__init__(names)
        self.folder = folder

    def read(self, name: str) -> bytes:
        """The file's bytes."""
        return read_limited(self.folder / name)


class ZipSource(BytesSource):
    """Image files in a zip, read in place: nothing is unpacked to disk."""

    def __init__(self, path: Path, names: Sequence[str], members: Sequence[str]) -> None:
        super().__init__(names)
        self.path = path
        self._members = dict(zip(names, members, strict=True))
        self._lock = threading.Lock()
        self._archive: zipfile.ZipFile | None = None

    def __getstate__(self) -> dict[str, Any]:
        # An open file does not travel to another process; it is opened again there.
        return {k: v for k, v in self.__dict__.items() if k not in {"_lock", "_archive"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._archive = None

    def read(self, name: str) -> bytes:
        """The file's bytes."""
        try:
            with self._lock:
                if self._archive is None:
                    self._archive = zipfile.ZipFile(self.path)
                info = self._archive.getinfo(self._members[name])
                if info.file_size > MAX_IMAGE_BYTES:
                    raise HydraError(
                        f"the file has {megabytes(info.file_size)}, the limit is {megabytes(MAX_IMAGE_BYTES)}"
                    )
                return self._archive.read(info)
        except RuntimeError as error:  # zipfile's way to say "encrypted"
            raise HydraError(f"cannot be read from the zip ({error})") from None
        except (OSError, KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise HydraError(f"damaged in the zip ({error})") from None
