"""What the key of an ingested file follows from."""

from __future__ import annotations

import pytest

from preprocessing.errors import SourceError
from preprocessing.ingest import IngestUnit
from preprocessing.spec import SourceSpec


def key(path: str, *, partition: bool, fingerprint: str = "f") -> str:
    columns = {"y": "int64", "dt": {"type": "string", "partition": partition}}
    spec = SourceSpec.model_validate({"paths": "*.csv", "columns": columns})
    return IngestUnit("log", spec, None, path, None, fingerprint, now_ms=0).key


def test_files_of_equal_content_in_two_partitions_are_two_units() -> None:
    keys = {key(f"{root}/dt={day}/a.csv", partition=True) for root in ("x", "y") for day in ("1", "2")}
    assert len(keys) == 2  # where the folder lies does not matter


def test_without_partition_columns_a_file_may_move() -> None:
    assert key("x/dt=1/a.csv", partition=False) == key("b.csv", partition=False)
    assert key("b.csv", partition=False) != key("b.csv", partition=False, fingerprint="g")


def test_a_path_without_the_partition_is_refused() -> None:
    with pytest.raises(SourceError, match="dt"):
        _ = key("x/a.csv", partition=True)
