"""How many rows a file will have, roughly: what a progress bar needs before the file has been read."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.compression import compression_of
from preprocessing.errors import SourceError
from preprocessing.file_access import open_bytes, size_bytes

__all__ = ["estimate_rows"]

_SAMPLE_BYTES = 1 << 20
_COMPRESSION_RATIO = 4  # of text logs, about
_BYTES_A_ROW = 100


def estimate_rows(path: str, *, file_format: str) -> int:
    """Returns the number of rows of a Parquet file, or an estimate from the first lines of a text file.

    A file that cannot be read here counts 0: what is wrong with it is for its reader to say.
    """
    try:
        return _estimate(path, file_format)
    except (SourceError, OSError, pa.ArrowException):
        return 0


def _estimate(path: str, file_format: str) -> int:
    with contextlib.closing(open_bytes(path)) as file:
        if file_format == "parquet":
            return int(pq.read_metadata(file).num_rows)
        size = size_bytes(path)
        if compression_of(path, None) != "none":
            return max(1, size * _COMPRESSION_RATIO // _BYTES_A_ROW)
        sample = file.read(_SAMPLE_BYTES)
    return max(1, round(sample.count(b"\n") * size / max(1, len(sample))))
