"""How many rows a file will have, roughly: what a progress bar needs before the file has been read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["estimate_rows"]

_SAMPLE_BYTES = 1 << 20
_COMPRESSION_RATIO = 4  # of text logs under gzip, about


def estimate_rows(path: str, *, file_format: str) -> int:
    """Returns the number of rows of a Parquet file, or an estimate from the first lines of a text file.

    A file that cannot be read here counts 0: what is wrong with it is for its reader to say.
    """
    try:
        return _estimate(path, file_format)
    except (OSError, pa.ArrowException):
        return 0


def _estimate(path: str, file_format: str) -> int:
    if file_format == "parquet":
        return int(pq.read_metadata(path).num_rows)
    with Path(path).open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    size_bytes = Path(path).stat().st_size
    if path.endswith(".gz"):
        return max(1, size_bytes * _COMPRESSION_RATIO // 100)
    return max(1, round(sample.count(b"\n") * size_bytes / max(1, len(sample))))
