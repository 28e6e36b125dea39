"""Parquet by row groups, the declared columns only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.blocks import Block, absent_column, no_rejects
from preprocessing.errors import SourceError
from preprocessing.spec import SourceSpec

__all__ = ["read_parquet"]


def read_parquet(file: IO[bytes], path: str, spec: SourceSpec, *, block_bytes: int) -> Iterator[Block]:
    """Yields the rows of a Parquet file in batches of about `block_bytes` of uncompressed data.

    Raises:
        SourceError: if a declared column is absent or named twice, or the file cannot be read.
    """
    try:
        parquet = pq.ParquetFile(file)
        names = _declared(parquet.schema_arrow, spec, path)
        row = 1
        for group in range(parquet.num_row_groups):
            size = _batch_rows(parquet.metadata.row_group(group), block_bytes)
            for batch in parquet.iter_batches(batch_size=size, row_groups=[group], columns=names, use_threads=False):
                positions = np.arange(row, row + batch.num_rows, dtype=np.int64)
                yield Block(row, batch, None, no_rejects(), positions)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}; is the file cut short?") from error


def _declared(schema: pa.Schema, spec: SourceSpec, path: str) -> list[str]:
    names = [column.source_name or key for key, column in spec.columns.items()]
    for name in names:
        count = schema.names.count(name)
        if count == 0:
            raise absent_column(path, name, schema.names)
        if count > 1:
            raise SourceError(f"{path} has {count} columns named {name!r}; a declared column must be unique")
    return list(dict.fromkeys(names))


def _batch_rows(group: pq.RowGroupMetaData, block_bytes: int) -> int:
    bytes_a_row = max(1, group.total_byte_size // max(1, group.num_rows))
    return max(1, block_bytes // bytes_a_row)
