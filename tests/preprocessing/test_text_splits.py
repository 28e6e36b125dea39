from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from preprocessing import text_splits
from preprocessing.blocks import Block
from preprocessing.errors import SourceError
from preprocessing.sources import plan_splits, read_table_blocks
from preprocessing.spec import SourceSpec

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
COLUMNS = {"a": "string", "b": "string"}


def spec(**more: Any) -> SourceSpec:
    return SourceSpec(**{"paths": ("x",), "columns": COLUMNS, "newlines_in_values": False, **more})


def seen(blocks: list[Block]) -> list[tuple[int, Any]]:
    """Every row and every reject with its position, in order."""
    rows = [pair for block in blocks for pair in zip(block.positions.tolist(), block.batch.to_pylist(), strict=True)]
    rejects = [
        (row["position"], (row["reason"], row["raw"])) for block in blocks for row in block.malformed.to_pylist()
    ]
    return sorted(rows + rejects, key=lambda pair: pair[0])


def check(path: Path, content: bytes, source: SourceSpec, *, split_bytes: int, block_bytes: int = 1 << 20) -> int:
    path.write_bytes(content)
    whole = list(read_table_blocks(str(path), source, block_bytes=1 << 20))
    splits = plan_splits(str(path), source, split_bytes=split_bytes)
    parts = [read_table_blocks(str(path), source, block_bytes=block_bytes, split=split) for split in splits]
    blocks = [block for part in parts for block in part]
    assert seen(blocks) == seen(whole)
    positions = [int(position) for block in blocks for position in block.positions]
    assert positions == sorted(positions)
    return len(splits)


CELLS = st.text(st.sampled_from('ab1,"\r \xe9'), max_size=8)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\n\n"])


@given(
    st.lists(st.tuples(CELLS, LINE_ENDS), max_size=12),
    st.sampled_from(["a,b\n", "\n\r\na,b\r\n", "b,a,c\n", "\ufeffa,b\n"]),
    st.integers(1, 40),
    st.sampled_from([1, 9, 1 << 20]),
)
@example([('1,"2', "\n"), ('3",4', "\n")], "a,b\n", 1, 1 << 20)
@example([("\r1", "\n"), ('1","', "\n")], "a,b\n", 1, 1)
@example([("\r,", "\n"), ("1\r1", "\n")], "a,b\n", 1, 1)
@example([("1\r1", "\n"), (',""1', "\n")], "a,b\n", 1, 1)
@SAME_FOLDER
def test_parts_of_a_csv_file_hold_the_rows_of_the_whole_at_the_same_lines(
    tmp_path: Path, lines: list[tuple[str, str]], header: str, split_bytes: int, block_bytes: int
) -> None:
    content = (header + "".join(line + end for line, end in lines)).encode()
    check(tmp_path / "x.csv", content, spec(), split_bytes=split_bytes, block_bytes=block_bytes)


JSON = st.sampled_from(['{"a":"1","b":"2"}', '{"a":null}', "", "{", '{"b":"\xe9"}', "[1]", '{"a":"x","b":[1]}'])


@given(st.lists(st.tuples(JSON, LINE_ENDS), max_size=12), st.booleans(), st.integers(1, 40))
@SAME_FOLDER
def test_parts_of_json_lines_hold_the_rows_of_the_whole_at_the_same_lines(
    tmp_path: Path, lines: list[tuple[str, str]], mark: bool, split_bytes: int
) -> None:
    first = '\ufeff{"a":"1","b":"2"}\n' if mark else '{"a":"1","b":"2"}\n'
    content = (first + "".join(line + end for line, end in lines)).encode()
    check(tmp_path / "x.jsonl", content, spec(newlines_in_values=True), split_bytes=split_bytes)


def test_files_are_cut_about_where_they_are_told_across_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_splits, "_PIECE_BYTES", 64)
    content = b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(1000))
    assert check(tmp_path / "x.csv", content, spec(), split_bytes=len(content) // 10) in (10, 11)
    splits = plan_splits(str(tmp_path / "x.csv"), spec(), split_bytes=len(content) // 10)
    assert splits[0] is not None and splits[0].start == 0 and splits[0].first_line == 1
    assert splits[-1] is not None and splits[-1].end == len(content)


def test_one_byte_encodings_are_cut_and_decoded(tmp_path: Path) -> None:
    content = b"a,b\n" + "é,1\n".encode("latin-1") * 20
    assert check(tmp_path / "x.tsv", content.replace(b",", b"\t"), spec(encoding="latin-1"), split_bytes=10) > 3


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("x.csv", {"newlines_in_values": True}),
        ("x.csv.gz", {}),
        ("x.csv", {"compression": "zstd"}),
        ("x.csv", {"encoding": "utf-16"}),
        ("x.parquet", {}),
    ],
)
def test_what_cannot_be_cut_is_read_whole(tmp_path: Path, name: str, more: dict[str, Any]) -> None:
    (tmp_path / name).write_bytes(b"a,b\n" * 100)
    assert plan_splits(str(tmp_path / name), spec(**more), split_bytes=10) == [None]


def test_a_file_of_a_header_alone_has_no_rows_in_any_part(tmp_path: Path) -> None:
    assert check(tmp_path / "x.csv", b"\n\na,b", spec(), split_bytes=1) == 1


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,2\n")
    assert plan_splits(str(tmp_path / "x.csv"), spec(), split_bytes=8) == [None]


def test_a_key_that_one_line_has_is_enough_and_one_that_none_has_is_an_error(tmp_path: Path) -> None:
    lines = [b'{"a": "1"}\n'] * 50
    (tmp_path / "x.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(SourceError, match="no column 'b'"):
        plan_splits(str(tmp_path / "x.jsonl"), spec(), split_bytes=100)
    assert check(tmp_path / "x.jsonl", b"".join([*lines, b'{"b": "2"}\n']), spec(), split_bytes=100) > 2


def test_a_part_of_a_csv_file_without_a_declared_column_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,c\n" + b"1,2\n" * 100)
    split = plan_splits(str(path), spec(), split_bytes=100)[-1]
    with pytest.raises(SourceError, match="no column 'b'"):
        list(read_table_blocks(str(path), spec(), block_bytes=100, split=split))
