import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from preprocessing.cleaning import clean
from preprocessing.errors import SourceError
from preprocessing.nested import array_at, value_at
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def spec(**columns: Any) -> SourceSpec:
    return SourceSpec(paths=("x",), columns={name: {"on_invalid": "missing", **one} for name, one in columns.items()})


def cleaned(path: Path, source: SourceSpec, *, block_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    blocks = read_table_blocks(str(path), source, block_bytes=block_bytes)
    return [row for block in blocks for row in clean(block, source, source="s", path=str(path)).rows.to_pylist()]


@pytest.mark.parametrize(
    ("row", "name", "expected"),
    [
        ({"a": {"b": {"c": 1}}}, "a.b.c", 1),
        ({"a": {"b": {"c": 1}}}, "a.b", {"c": 1}),
        ({"a": {"b": 1}, "a.b": 2}, "a.b", 2),
        ({"a": {"b": 1}, "a.b": None}, "a.b", 1),
        ({"a": [{"b": 1}, {}, None, {"b": 2}]}, "a.b", [1, None, None, 2]),
        ({"a": []}, "a.b", []),
        ({"a": 5}, "a.b", None),
        ({}, "a.b", None),
        ({"": {"": 3}}, ".", 3),
    ],
)
def test_values_by_path(row: dict[str, Any], name: str, expected: Any) -> None:
    assert value_at(row, name) == expected


def test_parts_of_arrays_keep_the_nulls_above_them_whatever_their_offset() -> None:
    values: list[Any] = [{"b": {"c": 9}}, {"b": {"c": 1}}, {"b": None}, None, {"b": {"c": None}}]
    array = pa.array(values, pa.struct([("b", pa.struct([("c", pa.int8())]))]))
    found = array_at(array.slice(1), ["b", "c"])
    assert found is not None and found.to_pylist() == [1, None, None, None]
    lists: list[Any] = [[{"b": 9}], [{"b": 1}, None, {"b": 2}], None, []]
    for kind in (pa.list_, pa.large_list):
        part = array_at(pa.array(lists, kind(pa.struct([("b", pa.int8())]))).slice(1), ["b"])
        assert part is not None and part.to_pylist() == [[1, None, 2], None, []]
    assert array_at(array, ["x"]) is None
    assert array_at(pa.array([1]), ["x"]) is None


NESTED = spec(
    city={"type": "string", "source_name": "user.home.city"},
    age={"type": "int64", "source_name": "user.age"},
    ids={"type": "list<string>", "source_name": "items.id"},
    prices={"type": "list<float64>", "source_name": "items.price"},
    dotted={"type": "int64", "source_name": "x.y"},
)
ROWS: list[dict[str, Any]] = [
    {"user": {"home": {"city": "Bonn"}, "age": 7}, "items": [{"id": "a", "price": 1}, {"id": "b"}], "x": {"y": 1}},
    {"user": {"home": None}, "items": [], "x.y": 2, "x": {"y": 3}},
    {"user": None, "items": None},
    {"x": {"y": 4}, "items": [{"price": 2.5}, None]},
]
EXPECTED: list[dict[str, Any]] = [
    {"city": b"Bonn", "age": 7, "ids": [b"a", b"b"], "prices": [1.0], "dotted": 1},
    {"city": None, "age": None, "ids": [], "prices": [], "dotted": 2},
    {"city": None, "age": None, "ids": None, "prices": None, "dotted": None},
    {"city": None, "age": None, "ids": [], "prices": [2.5], "dotted": 4},
]


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("more", ["", "{}{}\n"])  # two objects on a line make Arrow give up: all is read line by line
def test_json_lines_by_path(tmp_path: Path, more: str) -> None:
    path = write_lines(tmp_path / "x.jsonl", ROWS)
    path.write_text(path.read_text() + more)
    assert cleaned(path, NESTED) == EXPECTED


def test_a_path_that_no_line_has_is_an_error_that_knows_nested_names(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{"user": {"ages": 1}}])
    with pytest.raises(SourceError, match=r"no column 'user\.age': the nearest name is 'user\.ages'"):
        cleaned(path, spec(age={"type": "int64", "source_name": "user.age"}))


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 2.0, "", "1", "x", [1], [], ["a", None], [[1]]])
)
VALUES = st.one_of(LEAVES, st.dictionaries(st.sampled_from(["b", "c"]), LEAVES, max_size=2))
TREES = st.dictionaries(st.sampled_from(["a", "a.b"]), st.one_of(VALUES, st.lists(VALUES, max_size=2)), max_size=2)


@given(
    st.lists(TREES, min_size=1, max_size=5), st.sampled_from(["string", "int64", "bool", "list<string>", "list<int64>"])
)
@example([{"a": {"b": True}}], "int64")
@example([{"a": {"b": ["a", None]}}], "string")
@example([{"a": [{"b": 1}]}], "string")
@example([{"a": {"b": "x"}}], "list<string>")
@example([{"a": {"b": [[1]]}}], "list<string>")
@example([{"a": [], "a.b": False}], "list<string>")
@SAME_FOLDER
def test_what_a_json_row_becomes_does_not_depend_on_the_rows_around_it(
    tmp_path: Path, rows: list[dict[str, Any]], kind: str
) -> None:
    source = spec(v={"type": kind, "source_name": "a.b"}, all={"type": "string", "source_name": "k"})
    path = write_lines(tmp_path / "x.jsonl", [{**row, "k": "a b"} for row in rows])
    path.write_text(path.read_text() + '{"k": "a", "a": {"b": null}}\n')
    together = cleaned(path, source)
    alone = cleaned(path, source, block_bytes=1)
    path.write_text(path.read_text() + "{}{}\n")
    assert together == alone == cleaned(path, source)


def test_parquet_by_path(tmp_path: Path) -> None:
    kind = pa.schema(
        [
            (
                "user",
                pa.struct([("home", pa.struct([("city", pa.string()), ("zip", pa.string())])), ("age", pa.int8())]),
            ),
            ("items", pa.list_(pa.struct([("id", pa.string()), ("price", pa.float32()), ("z", pa.int8())]))),
            ("x.y", pa.int32()),
            ("map", pa.map_(pa.string(), pa.int8())),
            ("x", pa.struct([("y", pa.int32())])),
        ]
    )
    rows = [{"map": [("k", 1)], **row, "x.y": row.get("x.y", row.get("x", {}).get("y"))} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows, schema=kind), tmp_path / "x.parquet", row_group_size=3)
    assert cleaned(tmp_path / "x.parquet", NESTED) == EXPECTED
    block = next(read_table_blocks(str(tmp_path / "x.parquet"), NESTED, block_bytes=1 << 20))
    assert block.batch.schema.names == ["user.home.city", "user.age", "items.id", "items.price", "x.y"]


def test_only_the_leaves_that_are_declared_are_read_from_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {"m": [[("k", 1)]], "s": [{"a": 1, "b": "x" * 100}], "l": [[{"a": 1, "b": 2}]]},
        schema=pa.schema(
            [
                ("m", pa.map_(pa.string(), pa.int8())),
                ("s", pa.struct([("a", pa.int8()), ("b", pa.string())])),
                ("l", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.int8())]))),
            ]
        ),
    )
    pq.write_table(table, tmp_path / "x.parquet")
    from preprocessing.parquet_columns import find_leaves

    leaves = find_leaves(pq.ParquetFile(tmp_path / "x.parquet"), ["s.a", "l.b", "s", "none.b"], "x")
    assert leaves == {"s.a": ["s.a"], "l.b": ["l.list.element.b"], "s": ["s.a", "s.b"], "none.b": []}
