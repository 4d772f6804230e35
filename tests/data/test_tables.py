"""Tables of texts and of image paths."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hydra_core.data import load_dataset
from hydra_core.errors import HydraError

NAMES = ["negative", "positive"]


def test_d25_byte_order_mark_quoted_newline_blank_and_unseen_label(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_bytes(
        b"\xef\xbb\xbf" + b'text,label\n"two\nlines, and a ""quote""",positive\nfine,\nodd,???\nlast,negative\n'
    )
    dataset = load_dataset(path, class_names=NAMES)
    assert list(dataset.items) == ['two\nlines, and a "quote"', "last"]
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [1, 0]
    assert dataset.kind == "text"
    assert [row for row, _ in dataset.skipped] == [2, 3]
    reasons = dict(dataset.skipped)
    assert "blank" in reasons[2]
    assert "'???'" in reasons[3]


def test_labels_without_class_names_are_the_names_that_occur(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("label,text\n10,a\n9,b\n10,c\n")
    dataset = load_dataset(path)
    assert dataset.class_names == ("9", "10")  # by size, not as text
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [1, 0, 1]


def test_no_label_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,other\nhello,1\n\n   ,2\nbye,3\n")
    dataset = load_dataset(path)
    assert list(dataset.items) == ["hello", "bye"]
    assert dataset.labels is None
    assert dataset.skipped == ((2, "the text is blank"),)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_endings_and_semicolons(tmp_path: Path, bom: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(bom + b"text;label\r\nhello, you;x\r\nbye;y\r\n")
    dataset = load_dataset(path)
    assert list(dataset.items) == ["hello, you", "bye"]
    assert dataset.class_names == ("x", "y")


def test_utf16_is_read_and_latin1_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text\ncafé\n".encode("utf-16"))
    assert list(load_dataset(path).items) == ["café"]
    path.write_bytes("text\nok\ncafé\n".encode("latin-1"))
    with pytest.raises(HydraError, match="line 3"):
        load_dataset(path)


def test_rows_with_another_number_of_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,x\ntwo, with a comma,y\nthree\nfour,x\n")
    dataset = load_dataset(path)
    assert list(dataset.items) == ["one", "four"]
    assert [row for row, _ in dataset.skipped] == [2, 3]


def test_tsv_with_and_without_quoting(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"a\ttab"\tx\n')
    assert list(load_dataset(path).items) == ["a\ttab"]
    path.write_text('text\tlabel\n"Good" he said\tx\nfine\ty\n')
    assert list(load_dataset(path).items) == ['"Good" he said', "fine"]


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        json.dumps({"text": "good", "label": "positive"}),
        "{broken",
        json.dumps({"text": None, "label": "positive"}),
        json.dumps({"text": 7, "label": "positive"}),
        json.dumps({"label": "positive"}),
        "",
        json.dumps(["text"]),
        json.dumps({"text": "line\u2028separator", "label": "negative"}, ensure_ascii=False),
        json.dumps({"text": "no label"}),
    ]
    path.write_text("\n".join(rows), encoding="utf-8")
    dataset = load_dataset(path, class_names=NAMES)
    assert list(dataset.items) == ["good", "line\u2028separator"]
    assert [row for row, _ in dataset.skipped] == [2, 3, 4, 5, 6, 8]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a", None, "c", "d"], "label": [1, 0, None, 0], "other": [1, 2, 3, 4]})
    pyarrow.parquet.write_table(table, path)
    dataset = load_dataset(path)
    assert list(dataset.items) == ["a", "d"]
    assert dataset.class_names == ("0", "1")
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [1, 0]
    assert [row for row, _ in dataset.skipped] == [2, 3]
    # a column with a gap is float in pandas; 1.0 is still the class "1"
    import pandas

    pandas.DataFrame({"text": ["a", "b"], "label": [1.0, None]}).to_parquet(path)
    assert load_dataset(path, class_names=["0", "1"]).labels.tolist() == [1]  # type: ignore[union-attr]
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(HydraError, match="not a parquet file"):
        load_dataset(path)


def test_image_paths_are_taken_from_the_files_folder(tmp_path: Path, png: Callable[..., bytes]) -> None:
    (tmp_path / "pictures").mkdir()
    for i in range(2):
        (tmp_path / "pictures" / f"{i}.png").write_bytes(png(i))
    (tmp_path / "pictures" / "bad.png").write_bytes(b"no")
    path = tmp_path / "a.csv"
    path.write_text(
        "image,label\npictures/0.png,x\npictures/missing.png,x\npictures/bad.png,y\n" + f"{tmp_path}/pictures/1.png,y\n"
    )
    dataset = load_dataset(path)
    assert dataset.kind == "image"
    assert len(dataset) == 2
    assert dataset.items[1].size == (8, 6)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1]
    assert [row for row, _ in dataset.skipped] == [2, 3]
    assert "missing.png" in dataset.skipped[0][1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"sentence,label\na,b\n", "'text' or 'image'"),
        (b"text,label\n", "no sample"),
        (b"text,label\na,\n", "label is blank"),
        (b'text,label\n"open,x\n', "line"),
        (b"text\n\x00\n", "null"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(HydraError, match=message):
        load_dataset(path)


def test_d30_a_table_over_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra_core.data import describe_limits

    path = tmp_path / "a.csv"
    path.write_text("text\nhello\n")
    assert "512 MB a table" in describe_limits()
    monkeypatch.setattr("hydra_core.data.tables.MAX_TABLE_BYTES", 5)
    with pytest.raises(HydraError, match="limit"):
        load_dataset(path)


@pytest.mark.parametrize("names", ["abc", [], ["a", "a"], ["a", ""], [1, 2]])
def test_bad_class_names(tmp_path: Path, names: object) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nhello,a\n")
    with pytest.raises(HydraError, match="class_names"):
        load_dataset(path, class_names=names)  # type: ignore[arg-type]
