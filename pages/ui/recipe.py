"""The Python lines that reproduce a study, as the core writes them."""

from hydra_core.recipe import file_name, python_lines

__all__ = ["file_name", "python_lines"]
