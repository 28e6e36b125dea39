import csv
import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from preprocessing.errors import SourceError
from preprocessing.sources import Block, check_columns, file_format, fingerprint, match, read_table_blocks
from preprocessing.spec import SourceSpec

AB = SourceSpec(paths=("x",), columns={"a": "string", "b": "string"})
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def read(path: Path, spec: SourceSpec = AB, block_bytes: int = 1 << 20) -> list[Block]:
    return list(read_table_blocks(str(path), spec, block_bytes=block_bytes))


def rows_of(blocks: list[Block]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in block.batch.to_pylist()]


def positions_of(blocks: list[Block]) -> list[int]:
    return [int(position) for block in blocks for position in block.positions]


def rejects_of(blocks: list[Block]) -> list[tuple[int, str, bytes]]:
    found = [row for block in blocks for row in block.malformed.to_pylist()]
    return [(row["position"], row["reason"], row["raw"]) for row in found]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class TestMatch:
    def test_patterns_are_relative_to_the_root_sorted_and_each_file_once(self, tmp_path: Path) -> None:
        (tmp_path / "logs").mkdir()
        for name in ("b.csv", "a.csv", "c.txt"):
            write(tmp_path / "logs" / name, b"")
        write(tmp_path / "top.csv", b"")
        found = match(["logs/*.csv", "logs/a.csv", "*"], root=str(tmp_path))  # the last one names a folder too
        assert found == [str(tmp_path / name) for name in ("logs/a.csv", "logs/b.csv", "top.csv")]

    def test_a_pattern_without_a_file_is_an_error(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", b"")
        with pytest.raises(SourceError, match=r"no file matches 'b\*\.csv' under '.*'; correct the path, or data.root"):
            match(["a.csv", "b*.csv"], root=str(tmp_path))

    def test_a_name_may_look_like_a_glob(self, tmp_path: Path) -> None:
        path = write(tmp_path / "log[1].csv", b"")
        assert match(["log[1].csv"], root=str(tmp_path)) == [str(path)]


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"xyz")
    expected = {"path": str(path), "size_bytes": 3, "sha256": hashlib.sha256(b"xyz").hexdigest()}
    assert fingerprint(str(path)) == expected
    with pytest.raises(SourceError, match="cannot be opened"):
        fingerprint(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("A.CSV", "csv"), ("a.csv.gz", "csv"), ("a.tsv", "tsv"), ("a.json.gz", "jsonl"), ("a.parquet", "parquet")],
)
def test_the_format_follows_from_the_name(name: str, expected: str) -> None:
    assert file_format(name, None) == expected
    assert file_format(name, "tsv") == "tsv"


def test_an_unknown_format_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"a\.txt: the format cannot be told .* declare 'format'"):
        file_format("a.txt", None)


class TestCsv:
    def test_quotes_newlines_bom_and_crlf(self, tmp_path: Path) -> None:
        content = b'\xef\xbb\xbfa,b,c\r\n1,"x,""y""",3\r\n"two\r\nlines",\xff\x00,\r\n\r\n,"",z'
        blocks = read(write(tmp_path / "x.csv", content))
        assert rows_of(blocks) == [
            {"a": b"1", "b": b'x,"y"', "c": b"3"},
            {"a": b"two\r\nlines", "b": b"\xff\x00", "c": b""},
            {"a": b"", "b": b"", "c": b"z"},
        ]
        assert positions_of(blocks) == [2, 3, 6]
        assert rejects_of(blocks) == []
        raw = blocks[0].raw
        assert raw is not None and raw[1].as_py() == b'"two\r\nlines",\xff\x00,\r\n'

    def test_tabs(self, tmp_path: Path) -> None:
        blocks = read(write(tmp_path / "x.tsv", b"b\ta\n1,5\t2\n"))
        assert rows_of(blocks) == [{"b": b"1,5", "a": b"2"}]

    @pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
    def test_ragged_rows_are_kept_apart_with_their_text(self, tmp_path: Path, block_bytes: int) -> None:
        content = b"a,b\n1,2\n3\n4,5,6\n\xff,7,8\n9,10\n"
        blocks = read(write(tmp_path / "x.csv", content), block_bytes=block_bytes)
        assert [row["a"] for row in rows_of(blocks)] == [b"1", b"9"]
        assert positions_of(blocks) == [2, 6]
        assert rejects_of(blocks) == [
            (3, "malformed_row", b"3"),
            (4, "malformed_row", b"4,5,6"),
            (5, "malformed_row", b"\xff,7,8"),
        ]

    @pytest.mark.parametrize("block_bytes", [1, 16, 1 << 20])
    def test_a_quote_that_never_closes_rejects_its_line_alone(self, tmp_path: Path, block_bytes: int) -> None:
        content = b'a,b\n1,2\n"3,4\n5,6\n7,"8\n9,10\n11,"two\nlines"\n'
        blocks = read(write(tmp_path / "x.csv", content), block_bytes=block_bytes)
        assert [row["a"] for row in rows_of(blocks)] == [b"1", b"5", b"9", b"11"]
        assert rows_of(blocks)[-1]["b"] == b"two\nlines"
        assert rejects_of(blocks) == [(3, "malformed_row", b'"3,4'), (5, "malformed_row", b'7,"8')]

    def test_a_row_over_lines_with_too_many_cells_rejects_each_line(self, tmp_path: Path) -> None:
        blocks = read(write(tmp_path / "x.csv", b'a,b\n"3\n4",5,6\n7,8\n'))
        assert rows_of(blocks) == [{"a": b"7", "b": b"8"}]
        assert rejects_of(blocks) == [(2, "malformed_row", b'"3'), (3, "malformed_row", b'4",5,6')]

    def test_quotes_inside_a_plain_value_stand_for_themselves(self, tmp_path: Path) -> None:
        blocks = read(write(tmp_path / "x.csv", b'a,b\n5" disk,1\n3,4\na",",b\n6,7\n'))
        assert rows_of(blocks)[:2] == [{"a": b'5" disk', "b": b"1"}, {"a": b"3", "b": b"4"}]
        assert rows_of(blocks)[-1] == {"a": b"6", "b": b"7"}
        assert [position for position, _, _ in rejects_of(blocks)] == [4]

    def test_gz(self, tmp_path: Path) -> None:
        content = b"a,b\n" + b"1,2\n" * 1000
        path = write(tmp_path / "x.csv.gz", gzip.compress(content[:100]) + gzip.compress(content[100:]))
        assert len(rows_of(read(path, block_bytes=256))) == 1000

    def test_a_gz_file_cut_short_is_an_error(self, tmp_path: Path) -> None:
        whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
        with pytest.raises(SourceError, match=r"x\.csv\.gz cannot be read to its end: .*cut short"):
            read(write(tmp_path / "x.csv.gz", whole[:-9]))

    @pytest.mark.parametrize("content", [b"", b"a,b", b"a,b\r\n", b"a,b\n\n\n", b"\xef\xbb\xbfa,b\n"])
    def test_no_rows_are_no_blocks(self, tmp_path: Path, content: bytes) -> None:
        assert read(write(tmp_path / "x.csv", content)) == []

    def test_an_absent_column_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        spec = SourceSpec(paths=("x",), columns={"user_id": "string"})
        with pytest.raises(SourceError, match=r"no column 'user_id': the nearest name is 'userid'"):
            read(write(tmp_path / "x.csv", b"item,userid\n"), spec)

    def test_a_declared_column_must_be_unique_but_others_need_not(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.csv", b"b,a,c,c\n1,2,3,4\n")
        assert read(path)[0].batch.column("a").to_pylist() == [b"2"]
        with pytest.raises(SourceError, match="2 columns named 'a'"):
            read(write(tmp_path / "y.csv", b"a,a,b\n1,2,3\n"))

    def test_a_value_of_a_megabyte_survives(self, tmp_path: Path) -> None:
        value = b"x\n" * (1 << 19)
        blocks = read(write(tmp_path / "x.csv", b'a,b\n"' + value + b'",1\n2,3\n'), block_bytes=1 << 16)
        assert [row["a"] for row in rows_of(blocks)] == [value, b"2"]

    def test_utf_16_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="UTF-16"):
            read(write(tmp_path / "x.csv", "a,b\n1,2\n".encode("utf-16")))

    @given(
        st.lists(st.tuples(*[st.text(st.sampled_from('ab,"\n\t é\x00'), max_size=6)] * 2), max_size=20),
        st.sampled_from([1, 10, 1 << 20]),
    )
    @example([("", '"\n'), ('"', ",")], 1)
    @SAME_FOLDER
    def test_what_a_csv_writer_writes_is_read(
        self, tmp_path: Path, rows: list[tuple[str, str]], block_bytes: int
    ) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([("a", "b"), *rows])
        blocks = read(write(tmp_path / "x.csv", text.getvalue().encode()), block_bytes=block_bytes)
        assert [(row["a"].decode(), row["b"].decode()) for row in rows_of(blocks)] == rows
        assert rejects_of(blocks) == []

    @given(st.binary(max_size=60).map(lambda tail: b"a,b\n" + tail), st.sampled_from([1, 10, 1 << 20]))
    @SAME_FOLDER
    def test_no_bytes_kill_the_reader_and_none_that_are_not_blank_vanish(
        self, tmp_path: Path, content: bytes, block_bytes: int
    ) -> None:
        blocks = read(write(tmp_path / "x.csv", content), block_bytes=block_bytes)
        kept = b"".join(row for block in blocks if block.raw is not None for row in block.raw.to_pylist())
        lost = b"".join(raw for _, _, raw in rejects_of(blocks))
        blank = bytes.maketrans(b"\r\n", b"\n\n")
        expected = sorted(content[4:].translate(blank).replace(b"\n", b""))
        assert sorted((kept + lost).translate(blank).replace(b"\n", b"")) == expected


JSON_SPEC = SourceSpec(
    paths=("x",),
    columns={
        "s": "string",
        "i": "int64",
        "f": "float64",
        "l": "list<string>",
    },
)


class TestJsonl:
    def test_natural_types_are_read_by_arrow(self, tmp_path: Path) -> None:
        lines = b'{"s": "\xff\\n", "i": 9223372036854775807, "f": 1, "l": ["a", null], "other": {}}\r\n\n{"i": null}'
        blocks = read(write(tmp_path / "x.jsonl", lines), JSON_SPEC)
        assert rows_of(blocks) == [
            {"s": b"\xff\n", "i": 2**63 - 1, "f": 1.0, "l": [b"a", None]},
            {"s": None, "i": None, "f": None, "l": None},
        ]
        assert positions_of(blocks) == [1, 3]

    def test_a_bad_line_is_a_reject_and_its_neighbours_are_not(self, tmp_path: Path) -> None:
        good = b'{"s": "x", "i": "12", "f": 0.1, "l": []}\n'
        blocks = read(write(tmp_path / "x.jsonl", good + b'{"s": \n[1]\n{}{}\n' + good), JSON_SPEC)
        assert rows_of(blocks) == [{"s": b"x", "i": b"12", "f": b"0.1", "l": []}] * 2
        assert rejects_of(blocks) == [
            (2, "malformed_json", b'{"s":'[:6] + b" "),
            (3, "malformed_json", b"[1]"),
            (4, "malformed_json", b"{}{}"),
        ]
        assert positions_of(blocks) == [1, 5]

    def test_broken_lines_do_not_slow_down_the_others(self, tmp_path: Path) -> None:
        good = [f'{{"s": "{i}", "i": {i}, "f": 0.5, "l": []}}\r\n'.encode() for i in range(8)]
        blocks = read(write(tmp_path / "x.jsonl", b"".join([*good[:4], b'{"s": "y", "i"\r\n', *good[4:]])), JSON_SPEC)
        assert sorted(row["i"] for row in rows_of(blocks)) == list(range(8))  # numbers: Arrow has read them
        assert sorted(positions_of(blocks)) == [1, 2, 3, 4, 6, 7, 8, 9]
        assert rejects_of(blocks) == [(5, "malformed_json", b'{"s": "y", "i"')]

    def test_numbers_are_kept_to_the_last_digit_in_mixed_columns(self, tmp_path: Path) -> None:
        values = ["9223372036854775808", '"a"', "0.10000000000000000001", "true", "NaN", '{"k": [1.50]}', '"\\ud800"']
        lines = "".join(f'{{"s": {value}, "i": 1, "f": 1, "l": "q"}}\n' for value in values)
        rows = rows_of(read(write(tmp_path / "x.jsonl", lines.encode()), JSON_SPEC))
        assert [row["s"] for row in rows] == [
            b"9223372036854775808",
            b"a",
            b"0.10000000000000000001",
            b"true",
            b"NaN",
            b'{"k": ["1.50"]}',
            b"\xed\xa0\x80",
        ]
        assert rows[0]["l"] == [b"q"]

    def test_a_key_that_no_line_has_is_an_error(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.jsonl", b'{"s": "", "i": 1, "ff": 2, "l": []}\n')
        with pytest.raises(SourceError, match=r"no column 'f': the nearest name is 'ff'"):
            read(path, JSON_SPEC)

    def test_gz_in_small_blocks(self, tmp_path: Path) -> None:
        lines = b"".join(json.dumps({"a": str(i), "b": None}).encode() + b"\n" for i in range(500))
        blocks = read(write(tmp_path / "x.jsonl.gz", gzip.compress(lines)), block_bytes=100)
        assert [row["a"] for row in rows_of(blocks)] == [str(i).encode() for i in range(500)]
        assert positions_of(blocks) == list(range(1, 501))

    def test_deep_nesting_is_a_reject(self, tmp_path: Path) -> None:
        path = write(tmp_path / "x.jsonl", b'{"a":' + b"[" * 100_000 + b'\n{"a": "1", "b": "2"}\n')
        blocks = read(path)
        assert rows_of(blocks) == [{"a": b"1", "b": b"2"}]
        assert [position for position, _, _ in rejects_of(blocks)] == [1]


class TestParquet:
    def test_declared_columns_in_batches(self, tmp_path: Path) -> None:
        table = pa.table({"a": range(100), "z": range(100), "b": [str(i) for i in range(100)]})
        pq.write_table(table, tmp_path / "x.parquet", row_group_size=40)
        blocks = read(tmp_path / "x.parquet", block_bytes=500)
        assert len(blocks) > 3
        assert rows_of(blocks) == [{"a": i, "b": str(i)} for i in range(100)]
        assert positions_of(blocks) == list(range(1, 101))
        assert blocks[1].first_row == blocks[1].positions[0]

    def test_a_file_cut_short_is_an_error(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "x.parquet")
        whole = (tmp_path / "x.parquet").read_bytes()
        for content in (whole[:-10], b"", b"PAR1"):
            with pytest.raises(SourceError, match=r"x\.parquet cannot be read as Parquet"):
                read(write(tmp_path / "x.parquet", content))

    def test_an_absent_column_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [1], "bb": [2]}), tmp_path / "x.parquet")
        with pytest.raises(SourceError, match="no column 'b': the nearest name is 'bb'"):
            check_columns([str(tmp_path / "x.parquet")], AB)
        required = SourceSpec(paths=("x",), columns={"b": {"type": "string", "required": True}})
        with pytest.raises(SourceError, match="no column 'b': the nearest name is 'bb'"):
            read(tmp_path / "x.parquet", required)

    def test_no_rows_are_no_blocks(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"a": [], "b": []}), tmp_path / "x.parquet")
        assert read(tmp_path / "x.parquet") == []
