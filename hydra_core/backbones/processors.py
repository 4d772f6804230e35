"""From raw items to tensors, with the original library's own preprocessing, kept in a folder with an ensemble."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydra_core.errors import HydraError

IMAGE_FOLDER = "processor"
TOKENIZER_FOLDER = "tokenizer"


def _images(items: Sequence[Any]) -> list[Any]:
    from hydra_core.data.images import to_rgb

    return [to_rgb(item) for item in items]


def _texts(items: Sequence[Any]) -> list[str]:
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise HydraError(f"this backbone reads text: item {i} is a {type(item).__name__}, a str was expected")
    return list(items)


class HFImageProcessor:
    """A Hugging Face image processor (resize, rescale, normalise)."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Images -> `pixel_values` (B, 3, height, width)."""
        out = self.processor(images=_images(items), return_tensors="pt", input_data_format="channels_last")
        return {"pixel_values": out["pixel_values"]}

    def save(self, folder: str) -> dict[str, Any]:
        """Write the processor's files; returns what :func:`load_processor` needs."""
        self.processor.save_pretrained(str(Path(folder) / IMAGE_FOLDER))
        return {"kind": "hf_image"}


class HFTokenizer:
    """A Hugging Face tokenizer; texts are cut at `max_length` and padded to the longest of the batch."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Texts -> `input_ids`, `attention_mask` (B, T), and `token_type_ids` where the model has them."""
        # A fast tokenizer keeps its padding and truncation as state of its own, which two threads at once
        # would set on one another; with neither asked for, nothing is set, so the rest is done here.
        rows = self.tokenizer(_texts(items), add_special_tokens=True)["input_ids"]
        rows = [self._cut(list(row)) for row in rows]
        length = max(map(len, rows))
        pad = int(self.tokenizer.pad_token_id)
        ids = torch.tensor([row + [pad] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": mask}

    def _cut(self, row: list[int]) -> list[int]:
        """Truncate to `max_length`, keeping the closing separator token."""
        if len(row) <= self.max_length:
            return row
        closing = row[-1:] if row[-1] == self.tokenizer.sep_token_id else []
        return row[: self.max_length - len(closing)] + closing

    def tokens(self, text: str) -> list[str]:
        """The tokens of one text as words and word pieces, special tokens included."""
        ids = self([text])["input_ids"][0].tolist()
        words: list[str] = self.tokenizer.convert_ids_to_tokens(ids)
        return words

    def save(self, folder: str) -> dict[str, Any]:
        """Write the tokenizer's files; returns what :func:`load_processor` needs."""
        self.tokenizer.save_pretrained(str(Path(folder) / TOKENIZER_FOLDER))
        return {"kind": "hf_tokenizer", "max_length": self.max_length}


class ClipImageProcessor:
    """open_clip's evaluation transform, made from its preprocessing settings."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from open_clip.transform import PreprocessCfg, image_transform_v2

        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        self.settings = dict(settings)
        self.transform = image_transform_v2(PreprocessCfg(**plain), is_train=False)

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Images -> `pixel_values` (B, 3, height, width)."""
        return {"pixel_values": torch.stack([self.transform(image) for image in _images(items)])}

    def save(self, folder: str) -> dict[str, Any]:
        """Nothing to write but the settings."""
        return {"kind": "open_clip_image", "settings": self.settings}


def load_hf_image_processor(folder: str | Path, config: Any = None) -> HFImageProcessor:
    """The image processor of a folder, or a plain one (resize, mean and deviation .5) where it has none."""
    from transformers import AutoImageProcessor, ViTImageProcessor

    if (Path(folder) / "preprocessor_config.json").is_file():
        return HFImageProcessor(AutoImageProcessor.from_pretrained(str(folder), local_files_only=True))
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return HFImageProcessor(ViTImageProcessor(size={"height": height, "width": width}))


def load_hf_tokenizer(folder: str | Path, max_length: int) -> HFTokenizer | None:
    """The tokenizer of a folder, or None where it has none."""
    from transformers import AutoTokenizer

    names = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer_config.json", "spiece.model")
    if not any((Path(folder) / name).is_file() for name in names):
        return None
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if tokenizer.pad_token_id is None:
        raise HydraError(f"the tokenizer in {str(folder)!r} has no padding token; add one to its config")
    return HFTokenizer(tokenizer, max_length)


def load_processor(folder: str | Path, kept: Mapping[str, Any]) -> HFImageProcessor | HFTokenizer | ClipImageProcessor:
    """The inverse of the classes' ``save``.

    Args:
        folder: the ensemble's folder.
        kept: what ``save`` returned.
    """
    kind = kept.get("kind")
    if kind == "hf_image":
        return load_hf_image_processor(Path(folder) / IMAGE_FOLDER)
    if kind == "open_clip_image":
        return ClipImageProcessor(kept["settings"])
    if kind == "hf_tokenizer":
        tokenizer = load_hf_tokenizer(Path(folder) / TOKENIZER_FOLDER, int(kept["max_length"]))
        if tokenizer is not None:
            return tokenizer
    raise HydraError(f"the preprocessing in {str(folder)!r} cannot be read (kind {kind!r}); export it again")
