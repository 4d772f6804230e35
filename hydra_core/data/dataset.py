"""Dataset: samples, their labels, and what was left out on loading."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hydra_core.data.corruptions import CorruptedSource, check_corruption, corrupt_text, enlarges
from hydra_core.data.labels import Skipped
from hydra_core.data.sources import ImageItems
from hydra_core.errors import HydraError

Kind = Literal["image", "text"]


class Dataset:
    """Samples in a fixed order. Never changed: split, subset, take and corrupt return new ones.

    Attributes:
        items: a sequence; str for text, upright RGB PIL images (decoded on access) for images.
        labels: (N,) int64 class indices into `class_names`, or None.
        class_names: tuple of str, or None where there are no labels and none were given.
        skipped: (row number from 1 or file name, reason) of what could not be used on loading.
        name: what it was loaded from, with any corruption.
        kind: ``image`` or ``text``.
        notes: sentences that belong beside any result on this data.
    """

    def __init__(
        self,
        items: Sequence[Any],
        labels: NDArray[np.int64] | None,
        class_names: Sequence[str] | None,
        *,
        kind: Kind,
        name: str,
        skipped: Sequence[Skipped] = (),
        notes: Sequence[str] = (),
        drawn_from: "Dataset | None" = None,
    ) -> None:
        self.items = items if isinstance(items, ImageItems) else tuple(items)
        self.class_names = None if class_names is None else tuple(class_names)
        self.kind: Kind = kind
        self.name = name
        self.skipped: tuple[Skipped, ...] = tuple(skipped)
        self.notes: tuple[str, ...] = tuple(notes)
        self._drawn_from = drawn_from
        self.labels: NDArray[np.int64] | None = None
        if labels is not None:
            self.labels = _checked_labels(labels, len(self.items), self.class_names)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        labelled = "no labels" if self.labels is None else f"{len(self.class_names or ())} classes"
        return f"<Dataset {self.name!r}: {len(self)} {self.kind}s, {labelled}, {len(self.skipped)} skipped>"

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) of the content in order, the labels and the class names."""
        digest = hashlib.sha256(self.kind.encode())
        for one in self._digests():
            digest.update(one)
        digest.update(json.dumps([self.class_names, self.labels is not None]).encode())
        if self.labels is not None:
            digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    @property
    def source_fingerprint(self) -> str:
        """The fingerprint of the whole that this was drawn from by subset, take or split; its own where it was not."""
        return self.fingerprint if self._drawn_from is None else self._drawn_from.fingerprint

    def _digests(self) -> Sequence[bytes]:
        if isinstance(self.items, ImageItems):
            return list(self.items.digests())
        return [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in self.items]

    def _with(self, items: Sequence[Any], labels: NDArray[np.int64] | None, **changes: Any) -> "Dataset":
        kept = {"kind": self.kind, "name": self.name, "skipped": self.skipped, "notes": self.notes}
        return Dataset(items, labels, self.class_names, **{**kept, **changes})

    def subset(self, indices: Sequence[int] | NDArray[Any]) -> "Dataset":
        """The samples at `indices`, in that order.

        Args:
            indices: positions from 0, or (N,) bool.

        Raises:
            HydraError: no whole numbers, or one out of range.
        """
        array = np.asarray(indices)
        if array.dtype == bool and array.shape == (len(self),):
            array = np.flatnonzero(array)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise HydraError(f"indices must be a list of whole numbers, got {indices!r:.60}")
        if array.size and (array.min() < 0 or array.max() >= len(self)):
            bad = array[(array < 0) | (array >= len(self))][0]
            raise HydraError(f"index {bad} does not exist: {self.name} has samples 0 to {len(self) - 1}")
        chosen = array.tolist()
        items = self.items.view(chosen) if isinstance(self.items, ImageItems) else tuple(self.items[i] for i in chosen)
        whole = self._drawn_from or self
        return self._with(items, None if self.labels is None else self.labels[array], drawn_from=whole)

    def take(self, n: int, seed: int = 0) -> "Dataset":
        """At most `n` samples, each class by its share where there are labels; the order is kept.

        Args:
            n: number of samples, at least 1; more than there are gives all.
            seed: which samples.

        Raises:
            HydraError: `n` is below 1.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise HydraError(f"the number of samples must be a whole number of at least 1, got {n!r}")
        return self if n >= len(self) else self.subset(self._stratified(int(n), seed))

    def split(self, fraction: float, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """Two datasets without a common sample: `fraction` of it, and the rest; each class by its share.

        Args:
            fraction: share of the first, between 0 and 1.
            seed: which samples go where.

        Raises:
            HydraError: `fraction` leaves one side empty.
        """
        if not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise HydraError(f"fraction must lie between 0 and 1, got {fraction!r}")
        size = round(fraction * len(self))
        if not 0 < size < len(self):
            raise HydraError(
                f"a fraction of {fraction} of {len(self)} samples leaves one side empty; choose another one"
            )
        first = self._stratified(size, seed)
        rest = np.setdiff1d(np.arange(len(self)), first)
        return self.subset(first), self.subset(rest)

    def _stratified(self, size: int, seed: int) -> NDArray[np.int64]:
        """`size` positions in rising order; each class gets its share, rounded by largest remainder."""
        rng = np.random.default_rng(seed)
        groups = (
            [np.arange(len(self))]
            if self.labels is None
            else [np.flatnonzero(self.labels == label) for label in np.unique(self.labels)]
        )
        shares = np.array([len(group) for group in groups]) * size / len(self)
        counts = np.floor(shares).astype(int)
        # stable: of equal remainders the lower class comes first
        for i in np.argsort(counts - shares, kind="stable")[: size - counts.sum()]:
            counts[i] += 1
        chosen = [rng.permutation(group)[:count] for group, count in zip(groups, counts, strict=True)]
        return np.sort(np.concatenate(chosen)).astype(np.int64)

    def corrupt(self, name: str, severity: int) -> "Dataset":
        """This data with every sample corrupted, the same way each time.

        Args:
            name: for images one of :data:`~hydra_core.data.corruptions.IMAGE_CORRUPTIONS` (Hendrycks and
                Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
                ICLR 2019); for texts one of :data:`~hydra_core.data.corruptions.TEXT_CORRUPTIONS`.
            severity: 1 (mild) to 5.

        Raises:
            HydraError: an unknown corruption for this kind of data, or another severity.
        """
        check_corruption(self.kind, name, severity)
        label = f"{self.name} + {name} {severity}"
        if isinstance(self.items, ImageItems):
            source = CorruptedSource(self.items.source, name, severity)
            items = ImageItems(source, self.items.indices)
            notes = [*self.notes, *enlarges(self.items)]
            return self._with(items, self.labels, name=label, notes=notes)
        return self._with([corrupt_text(text, name, severity) for text in self.items], self.labels, name=label)


def _checked_labels(labels: Any, size: int, class_names: tuple[str, ...] | None) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != (size,) or (array.dtype.kind not in "iu" and size):
        raise HydraError(f"labels must be {size} whole numbers, one a sample, got shape {array.shape}")
    if class_names is None:
        raise HydraError("labels need class_names, the names of the classes they count")
    if size and (array.min() < 0 or array.max() >= len(class_names)):
        raise HydraError(f"labels must lie in 0 .. {len(class_names) - 1}, one for each of class_names")
    result = array.astype(np.int64)
    result.setflags(write=False)
    return result


def named_sets(ood: Any) -> dict[str, Dataset]:
    """OOD sets by name: from None, one Dataset, or a mapping from names to Datasets."""
    if isinstance(ood, Dataset):
        return {ood.name: ood}
    if ood is not None and not (isinstance(ood, Mapping) and all(isinstance(one, Dataset) for one in ood.values())):
        raise HydraError(
            "ood takes a Dataset (hydra.load_dataset) or a dict from names to Datasets, e.g. "
            f"{{'mnist': hydra.load_dataset('demo/mnist')}}; got {ood!r:.60}"
        )
    return dict(ood or {})
