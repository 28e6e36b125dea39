import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def read(
    path: Path, content: bytes, encoding: str, block_bytes: int = 1 << 20
) -> tuple[list[tuple[str, str]], list[tuple[int, str, bytes]]]:
    path.write_bytes(content)
    spec = SourceSpec(paths=("x",), columns={"a": "string", "b": "string"}, encoding=encoding)
    rows: list[tuple[str, str]] = []
    rejects: list[tuple[int, str, bytes]] = []
    for block in read_table_blocks(str(path), spec, block_bytes=block_bytes):
        found: list[dict[str, Any]] = block.batch.to_pylist()
        assert len(found) == len(block.positions) and block.raw is not None and len(block.raw) == len(found)
        rows += [(row["a"].decode(), row["b"].decode()) for row in found]
        rejects += [(row["position"], row["reason"], row["raw"]) for row in block.malformed.to_pylist()]
    return rows, rejects


ENCODINGS = [
    "utf-8",
    "utf-8-sig",
    "latin-1",
    "cp1252",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "shift_jis",
    "gbk",
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("block_bytes", [1, 3, 1 << 20])
def test_text_of_any_encoding_is_read(tmp_path: Path, encoding: str, block_bytes: int) -> None:
    special = "?é" if encoding in ("latin-1", "cp1252") else "?語"
    if encoding.startswith("utf"):
        special += "🙂e\u0301\x00"
    content = f'a,b\r\n1,"x,{special}\r\ny"\r\n{special},2'.encode(encoding)
    rows, rejects = read(tmp_path / "x.csv", content, encoding, block_bytes)
    assert rows == [("1", f"x,{special}\r\ny"), (special, "2")]
    assert rejects == []


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_a_byte_order_mark_is_dropped_where_the_encoding_does_not_ask_for_one(tmp_path: Path, encoding: str) -> None:
    assert read(tmp_path / "x.csv", "\ufeffa,b\n1,2\n".encode(encoding), encoding)[0] == [("1", "2")]


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_an_undecodable_byte_rejects_its_row_alone_and_is_shown(tmp_path: Path, block_bytes: int) -> None:
    content = b'a,b\n1,\xe9\n2,\x81\xe9\n3,4\n5,6,\x8d\n7,"8\n\x81"\n9,10\n'
    rows, rejects = read(tmp_path / "x.csv", content, "cp1252", block_bytes)
    assert rows == [("1", "é"), ("3", "4"), ("9", "10")]
    assert rejects == [
        (3, "invalid_encoding", "2,\\x81é".encode()),
        (5, "invalid_encoding", b"5,6,\\x8d"),
        (6, "invalid_encoding", b'7,"8\n\\x81"'),
    ]


def test_bytes_that_would_make_valid_utf_8_by_chance_are_undecodable_all_the_same(tmp_path: Path) -> None:
    assert read(tmp_path / "x.csv", "a,b\n1,é\n".encode(), "ascii") == (
        [],
        [(2, "invalid_encoding", b"1,\\xc3\\xa9")],
    )


def test_utf_16_that_ends_within_a_character_rejects_its_last_row(tmp_path: Path) -> None:
    content = "a,b\n1,2\n3,4".encode("utf-16") + b"\x41"
    assert read(tmp_path / "x.csv", content, "utf-16") == ([("1", "2")], [(3, "invalid_encoding", b"3,4\\x41")])
    lone = "a,b\n1,2\n3,".encode("utf-16-le") + b"\x00\xd8" + "\n5,6\n".encode("utf-16-le")
    rows, rejects = read(tmp_path / "x.csv", lone, "utf-16-le")
    assert rows == [("1", "2"), ("5", "6")]
    assert [(position, reason) for position, reason, _ in rejects] == [(3, "invalid_encoding")]


def test_json_lines_have_encodings_too(tmp_path: Path) -> None:
    lines = [json.dumps({"a": value, "b": "é"}, ensure_ascii=False).encode("cp1252") for value in ("x", "y", "z")]
    lines[1] = lines[1].replace(b"y", b"\x81")
    rows, rejects = read(tmp_path / "x.jsonl", b"\n".join(lines), "cp1252")
    assert rows == [("x", "é"), ("z", "é")]
    assert rejects == [(2, "invalid_encoding", '{"a": "\\x81", "b": "é"}'.encode())]


@given(st.binary(max_size=40), st.sampled_from(["cp1252", "utf-16", "shift_jis", "ascii"]), st.sampled_from([1, 64]))
@example(b"\xff\xfe", "utf-16", 1)
@SAME_FOLDER
def test_no_bytes_kill_a_decoder_and_kept_rows_are_valid_text(
    tmp_path: Path, tail: bytes, encoding: str, block_bytes: int
) -> None:
    read(tmp_path / "x.csv", "a,b\n".encode(encoding) + tail, encoding, block_bytes)  # decodes what is kept


@pytest.mark.parametrize("name", ["base64", "rot13", "nonsense", "undefined"])
def test_only_encodings_of_text_may_be_declared(name: str) -> None:
    with pytest.raises(ValidationError, match="no such encoding"):
        SourceSpec(paths=("x",), columns={"a": "string"}, encoding=name)
