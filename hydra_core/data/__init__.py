"""Data: demo sets, folders and zips of images, tables of texts; decoding; corruptions. No torch here."""

from hydra_core.data.corruptions import IMAGE_CORRUPTIONS, TEXT_CORRUPTIONS
from hydra_core.data.dataset import Dataset
from hydra_core.data.demo import DEMO_DATA
from hydra_core.data.limits import describe_limits
from hydra_core.data.loading import load_dataset

__all__ = ["DEMO_DATA", "IMAGE_CORRUPTIONS", "TEXT_CORRUPTIONS", "Dataset", "describe_limits", "load_dataset"]
