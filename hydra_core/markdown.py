"""Tables as Markdown text, and names that cannot change what stands around them."""

from collections.abc import Sequence

_ESCAPED = {**{c: f"\\{c}" for c in "\\`*_[]#|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers_from: int = 1) -> str:
    """A Markdown table; columns from `numbers_from` on are aligned to the right, as numbers are."""
    marks = ["---:" if column >= numbers_from else "---" for column in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, marks, *rows])


def escaped(text: str) -> str:
    """`text` on one line, as it reads: no mark-up, table cell or HTML begins or ends in it."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))
