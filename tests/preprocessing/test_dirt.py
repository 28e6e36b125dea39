"""The table of dirt: what a log holds, what becomes of it, and the reason code if it is a reject.

The rules are written down in `preprocessing.reasons`.
"""

import gzip
import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing import reasons
from preprocessing.blocks import REJECTS
from preprocessing.cleaning import clean
from preprocessing.errors import SourceError
from preprocessing.sources import read_table_blocks
from preprocessing.spec import ColumnSpec, SourceSpec

MAX, MIN = 2**63 - 1, -(2**63)
MEGABYTE = "é" * (1 << 19)


def read(path: Path, columns: dict[str, Any], **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    spec = SourceSpec(paths=("x",), columns=columns, **more)
    rows: list[dict[str, Any]] = []
    rejects: list[dict[str, Any]] = []
    for block in read_table_blocks(str(path), spec, block_bytes=1 << 16):
        cleaned = clean(block, spec, source="log", path=str(path))
        rows += cleaned.rows.to_pylist()
        rejects += cleaned.rejects.to_pylist()
    assert {reject["reason"] for reject in rejects} <= set(reasons.REASONS)
    return rows, rejects


def quoted(cell: bytes) -> bytes:
    return b'"' + cell.replace(b'"', b'""') + b'"'


# cell of a CSV file, its declaration, the value or None for missing, the reason code or "" for a row that is kept
TEXT_CELLS: list[tuple[str, bytes, dict[str, Any], Any, str]] = [
    ("an empty string", b"", {"type": "string"}, None, ""),
    ("an empty number", b"", {"type": "int64"}, None, ""),
    ("an empty number that is required", b"", {"type": "int64", "required": True}, None, "missing_required"),
    ("blanks for a number", b"  ", {"type": "float64"}, None, ""),
    ("NaN", b"NaN", {"type": "float64"}, None, ""),
    ("NaN in an integer column", b"nan", {"type": "int64"}, None, ""),
    ("infinity", b"inf", {"type": "float64"}, None, ""),
    ("minus infinity", b"-Infinity", {"type": "float64"}, None, ""),
    ("a float beyond 64 bits", b"1e999", {"type": "float64"}, None, ""),
    ("NaN that is required", b"NaN", {"type": "float64", "required": True}, None, "missing_required"),
    ("a sentinel", b"-124", {"type": "int64", "missing": [-124]}, None, ""),
    ("a sentinel with a fraction of zero", b"-124.0", {"type": "int64", "missing": [-124]}, None, ""),
    ("a sentinel of text", b"N/A", {"type": "string", "missing": ["N/A"]}, None, ""),
    ("a sentinel outside of the range", b"-124", {"type": "int64", "missing": [-124], "min": 0}, None, ""),
    ("a number as a string", b"12.0", {"type": "int64"}, 12, ""),
    ("the largest integer", b"%d" % MAX, {"type": "int64"}, MAX, ""),
    ("the smallest integer", b"%d" % MIN, {"type": "int64"}, MIN, ""),
    ("an integer of 64 bits without sign", b"18446744073709551615", {"type": "int64"}, None, "invalid_int64"),
    ("an integer that a float cannot hold", b"9007199254740993", {"type": "int64"}, 9007199254740993, ""),
    ("a fraction in an integer column", b"1.5", {"type": "int64"}, None, "invalid_int64"),
    ("a string in a number column", b"abc", {"type": "float64"}, None, "invalid_float64"),
    ("the same, to be missing", b"abc", {"type": "float64", "on_invalid": "missing"}, None, ""),
    ("hexadecimal", b"0x1F", {"type": "int64"}, None, "invalid_int64"),
    ("a truth value of another kind", b"maybe", {"type": "bool"}, None, "invalid_bool"),
    ("a time of another kind", b"yesterday", {"type": "timestamp", "unit": "iso"}, None, "invalid_timestamp"),
    ("a time that no calendar holds", b"%d" % MAX, {"type": "timestamp"}, None, "out_of_range"),
    ("a value below the range", b"-1", {"type": "int64", "min": 0}, None, "out_of_range"),
    ("no list", b"{1}", {"type": "list<int64>"}, None, "invalid_list"),
    ("a list with an element at fault", b"1|x", {"type": "list<int64>", "delimiter": "|"}, None, "invalid_int64"),
    ("a list with missing elements", b"1||NaN|2", {"type": "list<int64>", "delimiter": "|"}, [1, 2], ""),
    ("a delimiter in a value", b"a,b", {"type": "string"}, b"a,b", ""),
    ("a quote in a value", b'a"b', {"type": "string"}, b'a"b', ""),
    ("newlines in a value", b"a\nb\r\nc\rd", {"type": "string"}, b"a\nb\r\nc\rd", ""),
    ("a NUL", b"a\x00b", {"type": "string"}, b"a\x00b", ""),
    ("a NUL in a number", b"1\x00", {"type": "int64"}, None, "invalid_int64"),
    ("invalid UTF-8", b"\xff\xfe\x80", {"type": "string"}, b"\xff\xfe\x80", ""),
    ("invalid UTF-8 in a number column", b"\xff", {"type": "int64"}, None, "invalid_int64"),
    ("emoji", "👩‍👩‍👧".encode(), {"type": "string"}, "👩‍👩‍👧".encode(), ""),
    ("combining characters", "e\u0301 ≠ é".encode(), {"type": "string"}, "e\u0301 ≠ é".encode(), ""),
    ("a string of a megabyte", MEGABYTE.encode(), {"type": "string"}, MEGABYTE.encode(), ""),
    ("a megabyte for a number", b"1" * (1 << 20), {"type": "float64"}, None, ""),
]


@pytest.mark.parametrize(
    ("cell", "column", "value", "reason"), [row[1:] for row in TEXT_CELLS], ids=[r[0] for r in TEXT_CELLS]
)
def test_a_cell_of_text(tmp_path: Path, cell: bytes, column: dict[str, Any], value: Any, reason: str) -> None:
    path = tmp_path / "x.csv"
    good = {"bool": b"yes", "timestamp": b"1970-01-01" if column.get("unit") == "iso" else b"7"}.get(
        column["type"], b"7"
    )
    if column["type"].startswith("list<") and "delimiter" not in column:
        good = b"[7]"
    path.write_bytes(b"v,n\n" + good + b",1\n" + quoted(cell) + b",2\n" + good + b",3\n")
    rows, rejects = read(path, {"v": column, "n": "int64"})
    assert [row["n"] for row in rows] == ([1, 3] if reason else [1, 2, 3])  # its neighbours never suffer
    if not reason:
        assert rows[1]["v"] == value
        assert rejects == []
        return
    assert rejects == [
        {
            "source": "log",
            "file": str(path),
            "position": 3,
            "reason": reason,
            "column": "v",
            "raw": quoted(cell) + b",2",
        }
    ]
    assert REJECTS.names == list(rejects[0])


# values of a Parquet column of its own type
TYPED_CELLS: list[tuple[str, pa.Array, str, list[Any], list[str]]] = [
    ("null", pa.array([None, "a"]), "string", [None, b"a"], []),
    ("an empty string", pa.array(["", "a"]), "string", [b"", b"a"], []),
    ("one NaN", pa.array([math.nan, 1.5]), "float64", [None, 1.5], []),
    ("infinities", pa.array([math.inf, -math.inf, 1.0]), "float64", [None, None, 1.0], []),
    ("NaN in an integer column", pa.array([math.nan, 2.0]), "int64", [None, 2], []),
    ("uint64 extremes", pa.array([2**64 - 1, MAX], pa.uint64()), "int64", [MAX], ["invalid_int64"]),
    ("int64 extremes", pa.array([MIN, MAX]), "int64", [MIN, MAX], []),
    ("strings as numbers", pa.array(["1", "x"]), "int64", [1], ["invalid_int64"]),
    ("numbers as strings", pa.array([1, MIN]), "string", [b"1", b"%d" % MIN], []),
    ("NUL and invalid UTF-8", pa.array([b"\x00", b"\xff"]), "string", [b"\x00", b"\xff"], []),
    ("a struct for a string", pa.array([{"k": 1}, None]), "string", [None], ["invalid_string"]),
    ("a megabyte", pa.array([MEGABYTE]), "string", [MEGABYTE.encode()], []),
]


@pytest.mark.parametrize(
    ("array", "kind", "values", "codes"), [row[1:] for row in TYPED_CELLS], ids=[r[0] for r in TYPED_CELLS]
)
def test_a_column_of_parquet(tmp_path: Path, array: pa.Array, kind: str, values: list[Any], codes: list[str]) -> None:
    pq.write_table(pa.table({"v": array}), tmp_path / "x.parquet")
    rows, rejects = read(tmp_path / "x.parquet", {"v": kind})
    assert [row["v"] for row in rows] == values
    assert [reject["reason"] for reject in rejects] == codes


COLUMNS = {"a": "string", "b": "string"}
AB = [{"a": b"1", "b": b"2"}]
GOOD_JSON = b'{"a": "1", "b": "2"}\n'

# a whole text file: its name, content, rows, and (position, reason) of its rejects
FILES: list[tuple[str, str, bytes, list[dict[str, Any]], list[tuple[int, str]]]] = [
    ("an empty file", "x.csv", b"", [], []),
    ("an empty file of JSON lines", "x.jsonl", b"", [], []),
    ("a header only", "x.csv", b"a,b\r\n", [], []),
    ("a byte order mark", "x.csv", b"\xef\xbb\xbfa,b\n1,2\n", AB, []),
    ("permuted columns and others", "x.csv", b"z,b,z,a\n0,2,0,1\n", AB, []),
    ("CRLF and empty lines", "x.csv", b"\r\na,b\r\n\r\n1,2\r\n", AB, []),
    ("no newline at the end", "x.csv", b"a,b\n1,2", AB, []),
    ("too few cells", "x.csv", b"a,b\n3\n1,2\n", AB, [(2, "malformed_row")]),
    ("too many cells", "x.csv", b"a,b\n1,2\n3,4,5\n", AB, [(3, "malformed_row")]),
    ("a quote that never closes", "x.csv", b'a,b\n"3,4\n1,2\n', AB, [(2, "malformed_row")]),
    ("a bare carriage return", "x.csv", b"a,b\n3\r4,5\n1,2\n", AB, [(2, "malformed_row")]),
    ("a line that is no JSON", "x.jsonl", GOOD_JSON + b"{\n", AB, [(2, "malformed_json")]),
    ("a line that is no object", "x.jsonl", b"[1]\n" + GOOD_JSON, AB, [(1, "malformed_json")]),
    ("two objects on a line", "x.jsonl", b"{}{}\n" + GOOD_JSON, AB, [(1, "malformed_json")]),
    ("JSON nested without end", "x.jsonl", GOOD_JSON + b'{"a":' * 99_999 + b"\n", AB, [(2, "malformed_json")]),
    ("permuted keys and others", "x.jsonl", b'{"z": [{}], "b": "2", "a": "1"}\n', AB, []),
]


@pytest.mark.parametrize(("name", "content", "rows", "found"), [row[1:] for row in FILES], ids=[r[0] for r in FILES])
def test_a_file(
    tmp_path: Path, name: str, content: bytes, rows: list[dict[str, Any]], found: list[tuple[int, str]]
) -> None:
    (tmp_path / name).write_bytes(content)
    kept, rejects = read(tmp_path / name, COLUMNS)
    assert kept == rows
    assert [(reject["position"], reject["reason"]) for reject in rejects] == found


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"a": ["1"] * 100, "b": ["2"] * 100}), file)
    return file.getvalue()


ERRORS: list[tuple[str, str, bytes, str]] = [
    ("a column named twice", "x.csv", b"a,b,a\n1,2,3\n", "2 columns named 'a'"),
    ("a column that is not there", "x.csv", b"a,bb\n1,2\n", "no column 'b': the nearest name is 'bb'"),
    ("a key that no line has", "x.jsonl", b'{"a": "1", "bb": "2"}\n', "no column 'b': the nearest name is 'bb'"),
    ("only empty lines", "x.csv", b"\n\n", "holds only empty lines"),
    ("UTF-16 that is not declared", "x.csv", "a,b\n1,2\n".encode("utf-16"), "declare 'encoding: utf-16'"),
    ("a gz file cut short", "x.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-9], "cannot be read to its end"),
    ("a Parquet file cut short", "x.parquet", parquet()[:-10], "cannot be read as Parquet: .*cut short"),
    ("an empty Parquet file", "x.parquet", b"", "cannot be read as Parquet"),
    ("Parquet with damaged pages", "x.parquet", parquet()[:4] + b"\xff" * 60 + parquet()[64:], "cannot be read as"),
]


@pytest.mark.parametrize(("name", "content", "message"), [row[1:] for row in ERRORS], ids=[r[0] for r in ERRORS])
def test_a_file_that_cannot_be_used(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read(tmp_path / name, COLUMNS)


def test_an_undecodable_byte_of_a_declared_encoding(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,2\n\x81,3\n")
    rows, rejects = read(tmp_path / "x.csv", COLUMNS, encoding="cp1252")
    assert rows == AB
    assert [(row["position"], row["reason"], row["raw"]) for row in rejects] == [(3, "invalid_encoding", b"\\x81,3")]


def test_lists_of_unequal_length(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": [1, 2], "b": ["x"]}\n{"a": [1], "b": ["x"]}\n{"a": [], "b": []}\n')
    rows, rejects = read(tmp_path / "x.jsonl", {"a": "list<int64>", "b": "list<string>"}, explode=("a", "b"))
    assert rows == [{"a": 1, "b": b"x"}]
    assert [(row["position"], row["reason"]) for row in rejects] == [(1, "unequal_lists")]


def test_every_reason_code_has_a_rule_and_every_rule_its_code() -> None:
    table = reasons.__doc__ or ""
    kinds = {kind for kind in ("string", "int64", "float64", "bool", "timestamp") if ColumnSpec(type=kind)}
    written = {code for code in reasons.REASONS if f"`{code}`" in table}
    assert written | {f"invalid_{kind}" for kind in kinds} == set(reasons.REASONS)
    assert "`invalid_<type>`" in table
