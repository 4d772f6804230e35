"""Tables of texts or image paths: CSV, TSV, JSONL and parquet.

Rows count data rows from 1; the header and blank lines are left out.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra_core.data.dataset import Dataset, Kind
from hydra_core.data.labels import Skipped, map_labels, no_sample_left
from hydra_core.data.limits import MAX_TABLE_BYTES, megabytes
from hydra_core.data.sources import FileSource, ImageItems
from hydra_core.errors import HydraError
from hydra_core.jobs import Progress, report

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class _Row:
    number: int
    content: str
    label: str


@dataclass(frozen=True)
class _Table:
    column: str  # "text" or "image"
    has_labels: bool
    rows: list[_Row]
    skipped: list[Skipped]


def load_table(path: Path, class_names: tuple[str, ...] | None = None, progress: Progress | None = None) -> Dataset:
    """The samples of a table; see :func:`hydra_core.data.load_dataset`.

    Raises:
        HydraError: too large, not UTF-8, damaged, without a column ``text`` or ``image``, or without one
            usable row.
    """
    size = path.stat().st_size
    if size > MAX_TABLE_BYTES:
        raise HydraError(f"{str(path)!r} has {megabytes(size)}, the limit for a table is {megabytes(MAX_TABLE_BYTES)}")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix == ".jsonl":
        table = _read_jsonl(path)
    else:
        table = _read_delimited(path, "\t" if suffix == ".tsv" else ",")

    rows, skipped = table.rows, list(table.skipped)
    labels = None
    if table.has_labels:
        stay, labels, class_names, unknown = map_labels(
            [row.label for row in rows], [row.number for row in rows], class_names
        )
        rows = [rows[i] for i in stay]
        skipped += unknown
    if table.column == "text":
        items: Sequence[Any] = [row.content for row in rows]
    else:
        source = FileSource(path.parent, [row.content for row in rows])
        usable = []
        for i, row in enumerate(rows):
            report(progress, i, len(rows), "Checking images")
            reason = source.check(i)
            if reason is None:
                usable.append(i)
            else:
                skipped.append((row.number, f"{row.content}: {reason}"))
        report(progress, len(rows), len(rows), "Checking images")
        items = ImageItems(source, usable)
        labels = None if labels is None else labels[usable]
    skipped.sort(key=lambda entry: int(entry[0]))
    if not len(items):
        raise no_sample_left(f"the table {str(path)!r}", skipped)
    kind: Kind = "text" if table.column == "text" else "image"
    return Dataset(items, labels, class_names, kind=kind, name=path.name, skipped=skipped)


def _content_column(columns: Sequence[str], path: Path) -> str:
    for name in ("text", "image"):
        if name in columns:
            return name
    raise HydraError(
        f"{str(path)!r} has the columns {', '.join(columns[:8]) or '(none)'}; a column 'text' or 'image' (a "
        "path) is needed, and 'label' where there are labels"
    )


def _collect(entries: Iterator[tuple[int, Any, Any] | Skipped], column: str, has_labels: bool) -> _Table:
    rows: list[_Row] = []
    skipped: list[Skipped] = []
    for entry in entries:
        if len(entry) == 2:
            skipped.append(entry)
            continue
        number, content, label = entry
        if content is None or (isinstance(content, str) and not content.strip()):
            skipped.append((number, f"the {column} is blank"))
        elif not isinstance(content, str):
            wanted = "a str" if column == "text" else "a path (str)"
            skipped.append((number, f"the {column} is a {type(content).__name__}, {wanted} was expected"))
        elif "\0" in content:
            skipped.append((number, f"the {column} holds a null character"))
        else:
            rows.append(_Row(number, content if column == "text" else content.strip(), _label_text(label)))
    return _Table(column, has_labels, rows, skipped)


def _label_text(label: Any) -> str:
    """A label as the name it is matched by: 1 and 1.0 are ``1``; None and NaN are blank."""
    if label is None or label != label:
        return ""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).strip()


def _decode_text(path: Path) -> str:
    data = path.read_bytes()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise HydraError(f"{str(path)!r} is not UTF-8: line {line} cannot be read; save the file as UTF-8") from None


def _read_delimited(path: Path, delimiter: str) -> _Table:
    text = _decode_text(path)
    records = _records(text, delimiter, path)
    if delimiter == "," and records and not _names_columns(records[0]):
        # A spreadsheet in a country with decimal commas writes semicolons.
        with_semicolons = _records(text, ";", path)
        if _names_columns(with_semicolons[0]):
            records = with_semicolons
    if not records:
        raise HydraError(f"{str(path)!r} is empty; a header with 'text' or 'image' is needed")
    header = _clean(records[0])
    column = _content_column(header, path)
    content_at = header.index(column)
    label_at = header.index("label") if "label" in header else None

    def entries() -> Iterator[tuple[int, Any, Any] | Skipped]:
        for number, record in enumerate(records[1:], start=1):
            if len(record) != len(header):
                yield number, f"{len(record)} fields where the header has {len(header)}"
            else:
                yield number, record[content_at], None if label_at is None else record[label_at]

    return _collect(entries(), column, label_at is not None)


def _clean(header: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _names_columns(header: Sequence[str]) -> bool:
    return not {"text", "image"}.isdisjoint(_clean(header))


def _records(text: str, delimiter: str, path: Path) -> list[list[str]]:
    """The records of a delimited file, blank lines left out. Quoted fields may hold newlines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return [record for record in reader if record]
    except csv.Error as error:
        if delimiter == "\t":
            # Many TSV files know no quoting: a quotation mark is a quotation mark.
            return [line.split("\t") for line in text.splitlines() if line]
        raise HydraError(
            f"{str(path)!r} cannot be read near line {reader.line_num} ({error}); a field that holds "
            "quotation marks must be quoted, and each quotation mark in it doubled"
        ) from None


def _read_jsonl(path: Path) -> _Table:
    lines = [line for line in _decode_text(path).split("\n") if line.strip()]
    parsed: list[Any] = []
    for line in lines:
        try:
            parsed.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError) as error:
            parsed.append(error)
    columns = list(dict.fromkeys(name for one in parsed if isinstance(one, dict) for name in one))
    column = _content_column(columns, path)

    def entries() -> Iterator[tuple[int, Any, Any] | Skipped]:
        for number, one in enumerate(parsed, start=1):
            if isinstance(one, dict):
                yield number, one.get(column), one.get("label")
            else:
                yield number, "the line is not a JSON object"

    return _collect(entries(), column, "label" in columns)


def _read_parquet(path: Path) -> _Table:
    import pyarrow
    import pyarrow.parquet

    try:
        columns = pyarrow.parquet.read_schema(path).names
        column = _content_column(columns, path)
        wanted = [column] + (["label"] if "label" in columns else [])
        table = pyarrow.parquet.read_table(path, columns=wanted).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise HydraError(f"{str(path)!r} is not a parquet file that can be read ({error})") from None
    contents = table[column]
    labels = table.get("label", [None] * len(contents))
    numbered = zip(range(1, len(contents) + 1), contents, labels, strict=True)
    return _collect(iter(numbered), column, "label" in columns)
