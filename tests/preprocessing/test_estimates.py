import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing.estimates import estimate_rows


def test_rows_of_parquet_are_known_and_those_of_text_estimated(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(1234)}), tmp_path / "x.parquet")
    assert estimate_rows(str(tmp_path / "x.parquet"), file_format="parquet") == 1234
    lines = b"".join(b"%09d\n" % i for i in range(300_000))  # ten bytes each: longer than the sample
    (tmp_path / "x.csv").write_bytes(lines)
    assert estimate_rows(str(tmp_path / "x.csv"), file_format="csv") == pytest.approx(300_000, rel=1e-4)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(lines))
    assert estimate_rows(str(tmp_path / "x.csv.gz"), file_format="csv") > 1


def test_what_cannot_be_read_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    assert estimate_rows(str(tmp_path / "x.parquet"), file_format="parquet") == 0
    assert estimate_rows(str(tmp_path / "absent.csv"), file_format="csv") == 0
    assert estimate_rows("nowhere://x.csv", file_format="csv") == 0
