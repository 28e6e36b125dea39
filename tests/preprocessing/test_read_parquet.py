import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.cleaning import arrow_schema, clean
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec


def cleaned(path: Path, columns: dict[str, Any], *, dictionaries: bool = False) -> pa.Table:
    spec = SourceSpec(paths=("x",), columns=columns)
    blocks = read_table_blocks(str(path), spec, block_bytes=1 << 10, dictionaries=dictionaries)
    batches = [clean(block, spec, source="s", path=str(path), dictionaries=dictionaries).rows for block in blocks]
    return pa.Table.from_batches(batches, arrow_schema(spec, dictionaries=dictionaries))


MOMENT = dt.datetime(2026, 11, 1, 12, 0, 0, 5000)
MOMENT_MS = 1_793_534_400_005
DAY_MS = 1_793_491_200_000


@pytest.mark.parametrize(
    ("kind", "array", "expected"),
    [
        ("int64", pa.array([7, None], pa.int32()), [7, None]),
        ("int64", pa.array([7, None], pa.uint8()), [7, None]),
        ("int64", pa.array([7.0, None], pa.float32()), [7, None]),
        ("int64", pa.array([decimal.Decimal("7.00"), None]), [7, None]),
        ("int64", pa.array(["7", None], pa.large_string()), [7, None]),
        ("int64", pa.array(["7", None]).dictionary_encode(), [7, None]),
        ("int64", pa.array([7, None], pa.int16()).dictionary_encode(), [7, None]),
        ("float64", pa.array([7, None], pa.int8()), [7.0, None]),
        ("float64", pa.array([0.5, None], pa.float16()), [0.5, None]),
        ("float64", pa.array([decimal.Decimal("0.5"), None], pa.decimal256(40, 3)), [0.5, None]),
        ("string", pa.array([b"\xff", None], pa.binary()), [b"\xff", None]),
        ("string", pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
        ("string", pa.array(["é", None], pa.string_view()), ["é".encode(), None]),
        ("string", pa.array([12, None], pa.int32()), [b"12", None]),
        ("timestamp", pa.array([MOMENT, None], pa.timestamp("ns", "Asia/Shanghai")), [MOMENT_MS, None]),
        ("timestamp", pa.array([MOMENT, None], pa.timestamp("us")), [MOMENT_MS, None]),
        ("timestamp", pa.array([MOMENT.date(), None], pa.date32()), [DAY_MS, None]),
        ("list<string>", pa.array([["a", None], None], pa.list_(pa.large_string())), [[b"a"], None]),
        ("list<int64>", pa.array([[1], None], pa.large_list(pa.int8())), [[1], None]),
        ("list<int64>", pa.array([5, None], pa.int8()), [[5], None]),
    ],
)
def test_types_that_changed_between_files_come_out_as_declared(
    tmp_path: Path, kind: str, array: pa.Array, expected: list[Any]
) -> None:
    pq.write_table(pa.table({"other": [1, 2], "v": array}), tmp_path / "x.parquet")
    assert cleaned(tmp_path / "x.parquet", {"v": kind}).column("v").to_pylist() == expected


@pytest.mark.parametrize("dictionaries", [False, True])
def test_a_column_that_a_file_lacks_is_missing_in_its_rows(tmp_path: Path, dictionaries: bool) -> None:
    pq.write_table(pa.table({"a": ["x", "y"]}), tmp_path / "x.parquet")
    columns = {"a": "string", "b": "string", "n": "int64", "l": "list<string>"}
    rows = cleaned(tmp_path / "x.parquet", columns, dictionaries=dictionaries).to_pylist()
    assert rows == [{"a": a, "b": None, "n": None, "l": None} for a in (b"x", b"y")]
    assert cleaned(tmp_path / "x.parquet", {"b": "string"}).column("b").to_pylist() == [None, None]


def test_text_stays_dictionary_encoded_if_asked(tmp_path: Path) -> None:
    values = [None if i % 7 == 0 else f"v{i % 5}" for i in range(1000)]
    table = pa.table({"s": values, "n": pa.array(values).dictionary_encode(), "i": [str(i % 3) for i in range(1000)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    columns = {"s": {"type": "string", "missing": ["v3"]}, "n": "string", "i": "int64"}
    plain, encoded = (cleaned(tmp_path / "x.parquet", columns, dictionaries=choice) for choice in (False, True))
    assert plain.to_pylist() == encoded.to_pylist()
    assert encoded.schema.types == [pa.dictionary(pa.int32(), pa.binary())] * 2 + [pa.int64()]
    assert all(chunk.dictionary.null_count == 0 for chunk in encoded.column("s").chunks)
    spec = SourceSpec(paths=("x",), columns=columns)
    block = next(read_table_blocks(str(tmp_path / "x.parquet"), spec, block_bytes=1 << 10, dictionaries=True))
    assert [pa.types.is_dictionary(kind) for kind in block.batch.schema.types] == [True, True, False]
