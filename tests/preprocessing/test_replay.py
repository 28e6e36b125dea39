"""Which edited line is which rejected row, and what is still no row."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from preprocessing.errors import SourceError
from preprocessing.line_matching import line_owners
from preprocessing.replay import encoded, header_text, judge_parquet, judge_text
from preprocessing.spec import SourceSpec

ROWS = [b"h", b"1,aa", b"2,bb", b"3,cc"]
OWNERS = [-1, 0, 1, 2]


def source(**changes: object) -> SourceSpec:
    columns = {"item": "string", "price": {"type": "float64", "min": 0}}
    return SourceSpec.model_validate({"paths": "x", "columns": columns, **changes})


@pytest.mark.parametrize(
    ("edited", "owners"),
    [
        ([b"h", b"1,aa", b"2,bb", b"3,cc"], [-1, 0, 1, 2]),
        ([b"h", b"1,xx", b"2,yy", b"3,zz"], [-1, 0, 1, 2]),
        ([b"h", b"2,bb", b"3,cc"], [-1, 1, 2]),
        ([b"h", b"2,bX", b"3,cX"], [-1, 1, 2]),
        ([b"h", b"2,bX", b"3,cc", b"new"], [-1, 1, 2, -1]),
        ([b"h", b"1,aa", b'2,"b', b'b"', b"3,cc"], [-1, 0, 1, 1, 2]),
        ([b"h"], [-1]),
    ],
)
def test_rows_may_change_grow_and_go(edited: list[bytes], owners: list[int]) -> None:
    assert line_owners(ROWS, OWNERS, edited) == owners


def judged(path: Path, text: str, owners: list[int], spec: SourceSpec | None = None) -> list[tuple[int, str]]:
    path.write_text(text, encoding="utf-8", newline="")
    kind = path.suffix[1:]
    rows = judge_text(path, spec or source(), kind=kind, source="log", folder="", owners=owners)
    return [(row.owner, row.reason) for row in rows]


def test_rows_are_judged_by_the_rules_of_their_source(tmp_path: Path) -> None:
    text = "item,price\na,1.5\nb,-1\nc,abc\nd\ne,2\n"
    assert judged(tmp_path / "log.csv", text, [-1, 0, 1, 2, 3, 4]) == [
        (0, ""),
        (1, "out_of_range"),
        (2, "invalid_float64"),
        (3, "malformed_row"),
        (4, ""),
    ]


def test_a_row_over_lines_is_one_row_and_two_rows_are_not_one(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    assert judged(path, 'item,price\n"a\nb",1\nc,2\n', [-1, 0, 0, 1]) == [(0, ""), (1, "")]
    assert judged(path, 'item,price\n"a\nb",1\n', [-1, 0, 1]) == [(0, "runs_over")]


def test_a_row_that_was_not_exported_is_refused(tmp_path: Path) -> None:
    assert judged(tmp_path / "log.csv", "item,price\na,1\nb,2\n", [-1, 0, -1]) == [(0, ""), (-1, "added_row")]
    assert judged(tmp_path / "log.csv", "item,price\na,1\nb,2\n", [-1, 0, 0]) == [(0, ""), (-1, "added_row")]


def test_json_lines_are_judged_as_they_are(tmp_path: Path) -> None:
    text = '{"item": "a", "price": 1}\n{"item": \n\n{"item": "b", "price": "x"}\n'
    assert judged(tmp_path / "log.jsonl", text, [0, 1, 2, 2]) == [
        (0, ""),
        (1, "malformed_json"),
        (2, "invalid_float64"),
    ]


def test_a_declared_encoding_is_of_the_source_and_not_of_the_repaired_text(tmp_path: Path) -> None:
    spec = source(encoding="latin-1", compression="gzip")
    assert judged(tmp_path / "log.csv", "item,price\né,1\n", [-1, 0], spec) == [(0, "")]


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({}, "item,price\né,1\n".encode()),
        ({"encoding": "latin-1"}, "item,price\né,1\n".encode("latin-1")),
        ({"encoding": "utf-16"}, "item,price\né,1\n".encode("utf-16")),
        ({"compression": "gzip"}, gzip.compress("item,price\né,1\n".encode(), mtime=0)),
        ({"compression": "bz2"}, bz2.compress("item,price\né,1\n".encode())),
    ],
)
def test_a_stored_file_is_like_others_of_its_source(changes: dict[str, str], data: bytes) -> None:
    assert encoded(b"item,price", ["é,1".encode()], source(**changes)) == data


def test_zstd_files_are_read_back(tmp_path: Path) -> None:
    spec = source(format="csv", compression="zstd")
    path = tmp_path / "log.csv"
    path.write_bytes(encoded(b"item,price", [b"a,1"], spec))
    assert header_text(str(path), spec, delimiter=",") == b"item,price"


def test_a_character_outside_the_encoding_is_an_error() -> None:
    with pytest.raises(SourceError, match="cannot be written in"):
        encoded(None, ["日".encode()], source(encoding="latin-1"))


def test_the_header_of_an_encoded_file_is_utf8(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes("\ngröße,price\r\n1,2\r\n".encode("utf-16"))
    spec = SourceSpec.model_validate({"paths": "x", "encoding": "utf-16", "columns": {"größe": "string"}})
    assert header_text(str(path), spec, delimiter=",") == "größe,price".encode()


def test_rows_of_parquet_come_back_as_parquet_with_their_times(tmp_path: Path) -> None:
    columns = {"item": "string", "price": {"type": "float64", "min": 0}, "at": {"type": "timestamp", "required": True}}
    spec = SourceSpec.model_validate({"paths": "x", "columns": columns})
    lines = [
        b'{"item": "a", "price": 1.5, "at": "2026-01-05 00:00:00"}',
        b'{"item": "b", "price": -1, "at": "2026-01-05 00:00:01"}',
        b"oops",
        b'{"item": "c", "price": null, "at": null}',
    ]
    path = tmp_path / "rows.parquet"
    rows = judge_parquet(lines, spec, source="log", path=path, folder="")
    assert [(row.owner, row.reason) for row in rows] == [
        (0, ""),
        (1, "out_of_range"),
        (2, "malformed_json"),
        (3, "missing_required"),
    ]
    assert pq.read_table(path).num_rows == 3
