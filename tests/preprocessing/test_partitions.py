from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.cleaning import clean
from preprocessing.errors import SourceError
from preprocessing.partitions import partition_values
from preprocessing.sources import read_table_blocks
from preprocessing.spec import SourceSpec


def rows_and_reasons(path: Path, columns: dict[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    spec = SourceSpec(paths=("x",), columns=columns)
    rows: list[dict[str, Any]] = []
    reasons: list[tuple[str, str]] = []
    for block in read_table_blocks(str(path), spec, block_bytes=1 << 20):
        cleaned = clean(block, spec, source="s", path=str(path))
        rows += cleaned.rows.to_pylist()
        reasons += [(row["reason"], row["column"]) for row in cleaned.rejects.to_pylist()]
    return rows, reasons


def test_values_are_those_of_the_folders_unquoted() -> None:
    assert partition_values("s3://b/x=0/dt=2026-11-01/app=a%2Fb%20%C3%A9/n=__HIVE_DEFAULT_PARTITION__/x=1/f=2.csv") == {
        "x": b"1",
        "dt": b"2026-11-01",
        "app": "a/b é".encode(),
        "n": None,
    }
    assert partition_values("a.csv") == {}


def write_csv(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "x.csv").write_bytes(b"a,dt\n1,row\n2,row\n")
    return folder / "x.csv"


def test_a_partition_column_is_of_its_declared_type_and_goes_before_one_in_the_rows(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "dt=2026-11-01" / "shop=07")
    columns = {
        "a": "int64",
        "dt": {"type": "timestamp", "unit": "iso", "partition": True},
        "market": {"type": "int64", "partition": True, "source_name": "shop"},
    }
    moment = 1_793_491_200_000  # 2026-11-01T00:00Z
    assert rows_and_reasons(path, columns) == (
        [{"a": 1, "dt": moment, "market": 7}, {"a": 2, "dt": moment, "market": 7}],
        [],
    )


def test_parquet_files_lie_in_partitions_too(tmp_path: Path) -> None:
    (tmp_path / "shop=x").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "shop=x" / "x.parquet")
    columns = {"shop": {"type": "string", "partition": True}}  # and no column of the rows at all
    assert rows_and_reasons(tmp_path / "shop=x" / "x.parquet", columns)[0] == [{"shop": b"x"}] * 2


def test_a_folder_at_fault_rejects_its_rows_and_a_missing_value_is_missing(tmp_path: Path) -> None:
    columns = {"a": "int64", "shop": {"type": "int64", "partition": True}}
    assert rows_and_reasons(write_csv(tmp_path / "shop=x"), columns) == ([], [("invalid_int64", "shop")] * 2)
    missing = write_csv(tmp_path / "shop=__HIVE_DEFAULT_PARTITION__")
    assert rows_and_reasons(missing, columns)[0] == [{"a": 1, "shop": None}, {"a": 2, "shop": None}]


def test_a_path_without_the_folder_is_an_error(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "shops=x")
    with pytest.raises(SourceError, match="has no partition folder 'shop': the nearest name is 'shops'"):
        rows_and_reasons(path, {"shop": {"type": "int64", "partition": True}})
