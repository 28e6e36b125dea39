import datetime as dt
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preprocessing.blocks import make_rejects, no_rejects
from preprocessing.cleaning import REJECTS, Cleaned, arrow_schema, clean
from preprocessing.coercion import arrow_type, coerce
from preprocessing.sources import Block
from preprocessing.spec import ColumnSpec, SourceSpec

LIMITS = settings(deadline=None, max_examples=60)  # machines under test are busy

MAX, MIN = 2**63 - 1, -(2**63)


def convert(values: pa.Array, kind: str, *, empty_is_missing: bool = True, **more: Any) -> tuple[list[Any], list[str]]:
    """Returns the values and, for each row, the reason code of its fault or ''."""
    spec = ColumnSpec(type=kind, **more)
    coerced = coerce(values, spec, empty_is_missing=empty_is_missing)
    assert coerced.values.type == arrow_type(spec)
    assert len(coerced.values) == len(values)
    reasons = [""] * len(values)
    for reason, mask in coerced.faults:
        for row in np.flatnonzero(mask):
            reasons[row] = reason
    return coerced.values.to_pylist(), reasons


def text(*cells: bytes | None) -> pa.Array:
    return pa.array(cells, pa.binary())


def slow_int(cell: bytes) -> int | str | None:
    """An integer, None for missing, or a text for an invalid cell; from the rule, by exact fractions."""
    try:
        number = decimal.Decimal(cell.decode())
    except (decimal.InvalidOperation, UnicodeDecodeError):
        return "invalid" if cell.strip() else None
    if not number.is_finite():
        return None
    if number.adjusted() > 30:
        return "invalid"
    whole = number == int(number)
    return int(number) if whole and MIN <= int(number) <= MAX else "invalid"


INTEGERS = st.one_of(
    st.integers(MIN - 2, MAX + 2).map(str),
    st.integers(MIN - 2, MAX + 2).map(lambda value: f"{value}.0"),
    st.sampled_from(
        ["", " 7 ", "+5", "1e3", "1.5", "nan", "-inf", "abc", "1_0", "0x1F", "12.", "00012", "-0", "1e400"]
    ),
).map(str.encode)


@LIMITS
@given(st.lists(INTEGERS, max_size=12))
@example([b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"-9223372036854775809"])
@example([b"9223372036854775807"])
@example([b"0x1F"])
def test_integers_are_exact_or_rejected(cells: list[bytes]) -> None:
    values, reasons = convert(text(*cells, None), "int64")
    expected = [slow_int(cell) if b"_" not in cell else "invalid" for cell in cells]
    assert values == [*(None if value == "invalid" else value for value in expected), None]
    assert reasons == [*("invalid_int64" if value == "invalid" else "" for value in expected), ""]


FLOATS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(
        ["", " 1.5", "+2", ".5", "3.", "1e5", "-1E-3", "x", "0x10", "1_0", "1e", "NaN", "Infinity", "1e999"]
    ),
).map(str.encode)


@LIMITS
@given(st.lists(FLOATS, max_size=12))
def test_floats_are_those_of_python_and_never_infinite(cells: list[bytes]) -> None:
    values, reasons = convert(text(*cells), "float64")
    for cell, value, reason in zip(cells, values, reasons, strict=True):
        if cell in {b"x", b"0x10", b"1_0", b"1e"}:
            assert (value, reason) == (None, "invalid_float64")
        elif cell and math.isfinite(float(cell)):
            assert (value, reason) == (float(cell), "")
        else:
            assert (value, reason) == (None, "")


@LIMITS
@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=20), st.booleans())
def test_strings_stay_the_bytes_they_are(cells: list[bytes | None], empty_is_missing: bool) -> None:
    values, reasons = convert(text(*cells), "string", empty_is_missing=empty_is_missing)
    assert values == [None if empty_is_missing and cell == b"" else cell for cell in cells]
    assert not any(reasons)


@LIMITS
@given(st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=20))
@pytest.mark.parametrize("kind", ["int64", "float64", "bool", "timestamp", "list<int64>", "list<string>"])
def test_no_bytes_break_a_conversion(kind: str, cells: list[bytes | None]) -> None:
    variants: list[dict[str, Any]] = [{}, {"unit": "iso", "delimiter": ","}, {"unit": "s"}]
    for more in variants:
        values, reasons = convert(text(*cells), kind, **more)
        assert all(value is None for value, reason in zip(values, reasons, strict=True) if reason)


def test_truth_values() -> None:
    cells = text(b"true", b"FALSE", b"1", b"0", b" Yes", b"no", b"1.0", b"", None, b"2", b"y")
    values, reasons = convert(cells, "bool")
    assert values == [1, 0, 1, 0, 1, 0, 1, None, None, None, None]
    assert reasons == [""] * 9 + ["invalid_bool"] * 2
    assert convert(pa.array([True, None]), "bool")[0] == [1, None]
    assert convert(pa.array([0, 1, 2]), "bool") == ([0, 1, None], ["", "", "invalid_bool"])


@pytest.mark.parametrize(
    ("unit", "cells", "expected"),
    [
        ("ms", [b"1650812741436", b"-1", b"1650812741436.0"], [1650812741436, -1, 1650812741436]),
        ("s", [b"964982703", b"-1", b"1.5", b"964982703.1239"], [964982703000, -1000, 1500, 964982703124]),
        ("us", [b"1650812741436999", b"-1", b"0"], [1650812741436, -1, 0]),
    ],
)
def test_numeric_times(unit: str, cells: list[bytes], expected: list[int]) -> None:
    assert convert(text(*cells), "timestamp", unit=unit) == (expected, [""] * len(cells))
    numbers = pa.array([float(cell) for cell in cells])
    assert convert(numbers, "timestamp", unit=unit)[0] == pytest.approx(expected, abs=1)


def test_iso_times() -> None:
    base = 1_767_323_045_000  # 2026-01-02T03:04:05Z
    cells = {
        b"2026-01-02T03:04:05Z": base,
        b"2026-01-02 03:04:05": base,
        b"2026-01-02T08:34:05+05:30": base,
        b"2026-01-01T22:04:05-0500": base,
        b"2026-01-02T03:04:05.123456Z": base + 123,
        b"2026-01-02": base - (3 * 3600 + 4 * 60 + 5) * 1000,
        b"1969-12-31T23:59:59.999Z": -1,
    }
    assert convert(text(*cells), "timestamp", unit="iso") == (list(cells.values()), [""] * len(cells))
    dirty = text(*cells, b"2026-02-30", b"noon", b"1767323045000", b"", b"2026-01-02T03:04:05.1234567Z")
    values, reasons = convert(dirty, "timestamp", unit="iso")
    assert values == [*cells.values(), None, None, None, None, base + 123]
    assert reasons == [""] * len(cells) + ["invalid_timestamp"] * 3 + ["", ""]
    for cell, expected in cells.items():  # each form alone takes the fast way
        assert convert(text(cell), "timestamp", unit="iso") == ([expected], [""])


def test_times_that_no_calendar_holds_are_out_of_range() -> None:
    for unit in ("s", "ms", "us"):
        values, reasons = convert(text(str(MAX).encode(), str(MIN).encode(), b"1e18"), "timestamp", unit=unit)
        assert (values, reasons) == ([None] * 3, ["out_of_range"] * 3)
    assert convert(pa.array([2**64 - 1], pa.uint64()), "timestamp")[1] == ["out_of_range"]


def test_times_of_arrow_keep_their_own_unit() -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 123_000)
    for kind in (pa.timestamp("us"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("ms", "UTC")):
        array = pa.array([moment, None], pa.timestamp(kind.unit)).cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
        assert convert(array, "timestamp", unit="s") == ([1_767_323_045_123, None], ["", ""])
    days = pa.array([dt.date(1970, 1, 2)], pa.date32())
    assert convert(days, "timestamp")[0] == [86_400_000]
    assert convert(days.cast(pa.date64()), "timestamp")[0] == [86_400_000]


@pytest.mark.parametrize(
    ("array", "kind", "expected", "reasons"),
    [
        (pa.array([1, None], pa.int8()), "int64", [1, None], ["", ""]),
        (pa.array([2**63, 5], pa.uint64()), "int64", [None, 5], ["invalid_int64", ""]),
        (
            pa.array([1.0, 1.5, math.nan, 2.0**63]),
            "int64",
            [1, None, None, None],
            ["", "invalid_int64", "", "invalid_int64"],
        ),
        (pa.array([-(2.0**63)]), "int64", [MIN], [""]),
        (pa.array([12, -7]), "string", [b"12", b"-7"], ["", ""]),
        (pa.array([1.5, math.nan]), "string", [b"1.5", None], ["", ""]),
        (pa.array([True, False]), "string", [b"true", b"false"], ["", ""]),
        (pa.array([True, None]), "float64", [1.0, None], ["", ""]),
        (pa.array(["a", None]).dictionary_encode(), "string", [b"a", None], ["", ""]),
        (pa.array(["7"], pa.large_string()), "int64", [7], [""]),
        (pa.array([decimal.Decimal("12.00")]), "int64", [12], [""]),
        (pa.array([decimal.Decimal("12.50")]), "float64", [12.5], [""]),
        (pa.array([math.inf, -math.inf, 1.0]), "float64", [None, None, 1.0], ["", "", ""]),
        (pa.array([{"k": 1}, None]), "string", [None, None], ["invalid_string", ""]),
        (pa.array([[1], None]), "int64", [None, None], ["invalid_int64", ""]),
        (pa.nulls(2), "float64", [None, None], ["", ""]),
        (pa.nulls(2), "list<int64>", [None, None], ["", ""]),
    ],
)
def test_typed_columns(array: pa.Array, kind: str, expected: list[Any], reasons: list[str]) -> None:
    assert convert(array, kind) == (expected, reasons)


def test_sentinels_are_missing_as_text_and_as_numbers() -> None:
    cells = text(b"-124", b"-124.0", b"N/A", b"5")
    assert convert(cells, "int64", missing=(-124, "N/A")) == ([None, None, None, 5], [""] * 4)
    assert convert(cells, "float64", missing=(-124, "N/A")) == ([None, None, None, 5.0], [""] * 4)
    assert convert(cells, "string", missing=(-124, "N/A")) == ([None, b"-124.0", None, b"5"], [""] * 4)
    assert convert(pa.array([-124, 0]), "int64", missing=(-124,)) == ([None, 0], ["", ""])
    assert convert(pa.array([-124, 0]), "int64", missing=("-124", 0.5)) == ([None, 0], ["", ""])
    assert convert(text(b"(none)", b"a"), "list<string>", missing=("(none)",), delimiter="|")[0] == [None, [b"a"]]


def test_a_sentinel_is_missing_and_not_out_of_range() -> None:
    assert convert(text(b"-1", b"-2", b"3"), "int64", missing=(-1,), min=0, max=2) == (
        [None, None, None],
        ["", "out_of_range", "out_of_range"],
    )


def test_integer_bounds_are_exact() -> None:
    array = pa.array([2**53, 2**53 + 1, MAX])
    assert convert(array, "int64", max=2.0**53)[1] == ["", "out_of_range", "out_of_range"]
    assert convert(array, "int64", min=-1e300, max=float(2**63))[1] == ["", "", ""]
    assert convert(pa.array([0, 1]), "int64", min=0.5)[1] == ["out_of_range", ""]
    assert convert(pa.array([0, 1]), "int64", max=0.5)[1] == ["", "out_of_range"]
    assert convert(pa.array([0, 1]), "int64", max=-1e300)[1] == ["out_of_range"] * 2


def test_lists() -> None:
    cells = text(b"a|b", b"a||c|", b"", None, b"|", b"\xff|\xfe")
    assert convert(cells, "list<string>", delimiter="|")[0] == [
        [b"a", b"b"],
        [b"a", b"c"],
        None,
        None,
        [],
        [b"\xff", b"\xfe"],
    ]
    assert convert(text(b"1,x", b"2,3.0"), "list<int64>", delimiter=",") == ([None, [2, 3]], ["invalid_int64", ""])
    assert convert(text(b"1,99"), "list<float64>", delimiter=",", max=50) == ([None], ["out_of_range"])
    assert convert(text(b'["a", null, 1.50]', b"[]", b"null", b"a", b'{"a":1}', None), "list<string>") == (
        [[b"a", b"1.50"], [], None, None, None, None],
        ["", "", "", "invalid_list", "invalid_list", ""],
    )
    assert convert(pa.array([7, None]), "list<int64>") == ([[7], None], ["", ""])


def test_list_columns_of_any_arrow_type_and_offset() -> None:
    values: list[Any] = [[9], ["1", None, "2"], None, [], ["x"]]
    strings = pa.array([None if row is None else [None if v is None else str(v) for v in row] for row in values])
    expected = ([[1, 2], None, [], None], ["", "", "", "invalid_int64"])
    assert convert(strings.slice(1), "list<int64>") == expected
    assert convert(strings.cast(pa.large_list(pa.string())).slice(1), "list<int64>") == expected
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    assert convert(fixed, "list<float64>")[0] == [[1.0, 2.0], None, [3.0, 4.0]]
    assert convert(fixed.slice(1), "list<float64>")[0] == [None, [3.0, 4.0]]


def test_no_elements_are_left_under_a_list_at_fault() -> None:
    coerced = coerce(text(b"1,x", b"2"), ColumnSpec(type="list<int64>", delimiter=","), empty_is_missing=True)
    assert coerced.values.values.to_pylist() == [2]


def test_empty_strings_of_json_lists_are_values() -> None:
    lists = pa.array([["", "a"]], pa.list_(pa.binary()))
    assert convert(lists, "list<string>", empty_is_missing=False)[0] == [[b"", b"a"]]


@LIMITS
@given(st.lists(st.sampled_from([b"1", b"", b"x", b"9223372036854775807", b"2.0"]), min_size=1, max_size=8), st.data())
def test_slices_convert_like_whole_arrays(cells: list[bytes], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(cells)))
    for kind in ("int64", "float64", "bool", "string", "timestamp", "list<int64>"):
        whole = convert(text(*cells), kind, delimiter=",")
        part = convert(text(*cells).slice(start), kind, delimiter=",")
        assert part == (whole[0][start:], whole[1][start:])


SPEC = SourceSpec(
    paths=("x",),
    columns={
        "n": ColumnSpec(type="int64", min=0),
        "s": ColumnSpec(type="string", source_name="text", required=True),
        "f": ColumnSpec(type="float64", on_invalid="missing", max=10),
        "r": ColumnSpec(type="float64", on_invalid="missing", required=True),
    },
)


def clean_rows(*rows: tuple[bytes | None, ...], raw: bool = True) -> Cleaned:
    names = ["r", "f", "text", "n", "other"]
    columns = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    positions = np.arange(10, 10 + 2 * len(rows), 2)
    malformed = make_rejects("?", np.array([11]), reason="malformed_row", raw=pa.array([b"bad"], pa.binary()))
    texts = pa.array([b",".join(cell or b"" for cell in row) + b"\r\n" for row in rows], pa.binary()) if raw else None
    block = Block(10, batch, texts, malformed if raw else no_rejects(), positions, empty_is_missing=True)
    return clean(block, SPEC, source="log", path="a.csv")


def test_rows_come_in_declared_order_and_types() -> None:
    cleaned = clean_rows((b"1", b"2", b"a", b"3", b"z"), (b"1.5", b"", b"b", b"", b"z"))
    assert cleaned.rows.schema == arrow_schema(SPEC)
    assert cleaned.rows.to_pylist() == [
        {"n": 3, "s": b"a", "f": 2.0, "r": 1.0},
        {"n": None, "s": b"b", "f": None, "r": 1.5},
    ]
    assert cleaned.positions.tolist() == [10, 12]


def test_faults_reject_the_row_or_become_missing_as_declared() -> None:
    cleaned = clean_rows(
        (b"1", b"x", b"a", b"1", b"0"),  # f: invalid becomes missing
        (b"1", b"11", b"a", b"2", b"1"),  # f: out of range becomes missing
        (b"1", b"1", b"a", b"x", b"2"),
        (b"1", b"1", b"a", b"-1", b"3"),
        (b"1", b"1", b"", b"1", b"4"),
        (b"y", b"1", b"a", b"1", b"5"),  # r: invalid becomes missing, and a missing one rejects
        (b"y", b"1", b"", b"x", b"6"),  # of three faults the first declared
    )
    assert [(row["n"], row["f"]) for row in cleaned.rows.to_pylist()] == [(1, None), (2, None)]
    assert cleaned.rejects.schema == REJECTS
    found = [(row["position"], row["reason"], row["column"], row["raw"]) for row in cleaned.rejects.to_pylist()]
    assert found == [
        (11, "malformed_row", "", b"bad"),
        (14, "invalid_int64", "n", b"1,1,a,x,2"),
        (16, "out_of_range", "n", b"1,1,a,-1,3"),
        (18, "missing_required", "s", b"1,1,,1,4"),
        (20, "missing_required", "r", b"y,1,a,1,5"),
        (22, "invalid_int64", "n", b"y,1,,x,6"),
    ]
    assert {(row["source"], row["file"]) for row in cleaned.rejects.to_pylist()} == {("log", "a.csv")}
    assert cleaned.positions.tolist() == [10, 12]


def test_a_row_without_text_is_kept_as_json() -> None:
    cleaned = clean_rows((b"1", b"1", b"\xff", b"x", None), raw=False)
    assert cleaned.rejects["raw"].to_pylist() == [b'{"r": "1", "f": "1", "text": "\\\\xff", "n": "x", "other": null}']
    assert cleaned.rows.num_rows == 0


def test_a_clean_block_still_hands_on_what_the_reader_rejected() -> None:
    cleaned = clean_rows((b"1", b"1", b"a", b"1", b""))
    assert cleaned.rejects.to_pylist() == [
        {"source": "log", "file": "a.csv", "position": 11, "reason": "malformed_row", "column": "", "raw": b"bad"}
    ]
