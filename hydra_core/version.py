"""The version, in the one place that pyproject.toml, studies and exported files read."""

__version__ = "0.1.0"
