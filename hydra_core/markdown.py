"""Tables as Markdown text."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1) -> str:
    """A Markdown table; columns from `numbers_from` on are aligned to the right, as numbers are."""
    marks = ["---:" if column >= numbers_from else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *rows])
