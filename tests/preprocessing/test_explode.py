from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.blocks import Block, no_rejects
from preprocessing.cleaning import Cleaned, arrow_schema, clean
from preprocessing.explode import columns_after
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec

SPEC = SourceSpec(
    paths=("x",),
    columns={
        "request": "string",
        "item": {"type": "list<string>", "delimiter": "|"},
        "price": {"type": "list<float64>", "delimiter": "|", "on_invalid": "missing", "min": 0},
        "tags": {"type": "list<string>", "delimiter": "|"},
        "click": {"type": "list<int64>", "delimiter": "|"},
    },
    explode=("item", "price", "click"),
    explode_position="place",
)


def clean_csv(tmp_path: Path, text: str, spec: SourceSpec = SPEC) -> Cleaned:
    (tmp_path / "x.csv").write_text(text)
    (block,) = read_table_blocks(str(tmp_path / "x.csv"), spec, block_bytes=1 << 20)
    return clean(block, spec, source="s", path="x.csv")


def test_a_row_becomes_a_row_for_each_place(tmp_path: Path) -> None:
    cleaned = clean_csv(
        tmp_path,
        "request,item,price,tags,click\n"
        "r1,a|b|c,1|x|-1,t|u,0|1|0\n"  # prices at fault are missing at their places
        "r2,,,t,\n"  # no places
        "r3,a|b,1|2,,0\n"  # unequal
        "r4,d||e,4||5,,1|0|\n"  # missing at places
        "r5,a|b,1|2,,0|no\n",  # a click at fault rejects its row
    )
    assert cleaned.rows.to_pylist() == [
        {"request": b"r1", "item": b"a", "price": 1.0, "tags": [b"t", b"u"], "click": 0, "place": 0},
        {"request": b"r1", "item": b"b", "price": None, "tags": [b"t", b"u"], "click": 1, "place": 1},
        {"request": b"r1", "item": b"c", "price": None, "tags": [b"t", b"u"], "click": 0, "place": 2},
        {"request": b"r4", "item": b"d", "price": 4.0, "tags": None, "click": 1, "place": 0},
        {"request": b"r4", "item": None, "price": None, "tags": None, "click": 0, "place": 1},
        {"request": b"r4", "item": b"e", "price": 5.0, "tags": None, "click": None, "place": 2},
    ]
    assert cleaned.positions.tolist() == [2, 2, 2, 5, 5, 5]
    assert (cleaned.num_kept, cleaned.num_empty) == (3, 1)
    rejects = [(row["position"], row["reason"], row["raw"]) for row in cleaned.rejects.to_pylist()]
    assert rejects == [(4, "unequal_lists", b"r3,a|b,1|2,,0"), (6, "invalid_int64", b"r5,a|b,1|2,,0|no")]


def test_the_schema_follows_from_the_declaration(tmp_path: Path) -> None:
    expected = pa.schema(
        [
            ("request", pa.binary()),
            ("item", pa.binary()),
            ("price", pa.float64()),
            ("tags", pa.list_(pa.binary())),
            ("click", pa.int64()),
            ("place", pa.int64()),
        ]
    )
    assert arrow_schema(SPEC) == expected
    assert {name: column.type for name, column in columns_after(SPEC).items()} == {
        "request": "string",
        "item": "string",
        "price": "float64",
        "tags": "list<string>",
        "click": "int64",
        "place": "int64",
    }
    plain = SPEC.model_copy(update={"explode": (), "explode_position": None})
    assert columns_after(plain) == SPEC.columns


@pytest.mark.parametrize(("cell", "kept"), [("a|b", 2), ("a|", 0), ("", 0)])
def test_a_required_list_needs_a_value_at_each_place(tmp_path: Path, cell: str, kept: int) -> None:
    columns = {"item": {"type": "list<string>", "delimiter": "|", "required": True}}
    spec = SourceSpec(paths=("x",), columns=columns, explode=("item",))
    cleaned = clean_csv(tmp_path, f"item,z\n{cell},1\n", spec)
    assert cleaned.rows.num_rows == kept
    assert cleaned.rejects.column("reason").to_pylist() == ([] if kept else ["missing_required"])


LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.sampled_from(["1", "2", "x"])), max_size=3))


@given(st.lists(st.tuples(LISTS, LISTS), max_size=8), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=60)
def test_places_are_those_of_a_loop_over_rows(rows: list[tuple[Any, Any]], encoded: bool, sliced: bool) -> None:
    spec = SourceSpec(
        paths=("x",),
        columns={"k": "int64", "a": "list<string>", "b": "list<int64>"},
        explode=("a", "b"),
        explode_position="p",
    )
    all_rows = [(["9"], ["9"]), *rows] if sliced else rows
    kind = pa.list_(pa.string())
    arrays = [pa.array([row[side] for row in all_rows], kind).slice(int(sliced)) for side in (0, 1)]
    keys = pa.array(range(len(rows)), pa.int64())
    batch = pa.RecordBatch.from_arrays([keys, *arrays], names=["k", "a", "b"])
    block = Block(1, batch, None, no_rejects(), np.arange(1, len(rows) + 1))
    expected: list[tuple[Any, ...]] = []
    reasons: list[tuple[int, str]] = []
    for row, (a, b) in enumerate(rows):
        if "x" in (b or []):
            reasons.append((row + 1, "invalid_int64"))
        elif len(a or []) != len(b or []):
            reasons.append((row + 1, "unequal_lists"))
        else:
            pairs = zip(a or [], b or [], strict=True)
            expected += [(row, x and x.encode(), y and int(y), place) for place, (x, y) in enumerate(pairs)]
    cleaned = clean(block, spec, source="s", path="x", dictionaries=encoded)
    assert [tuple(row.values()) for row in cleaned.rows.to_pylist()] == expected
    assert [(row["position"], row["reason"]) for row in cleaned.rejects.to_pylist()] == reasons
    assert cleaned.num_kept + len(reasons) == len(rows)
    assert cleaned.num_empty == cleaned.num_kept - len({row[0] for row in expected})
    assert cleaned.rows.schema == arrow_schema(spec, dictionaries=encoded)
