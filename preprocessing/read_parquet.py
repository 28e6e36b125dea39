"""Parquet by row groups, the declared columns only.

Files of one source may differ: a declared column that a file lacks is null in its rows (`parquet_columns.check_columns`
refuses one that no file has), columns that are not declared are not read, and types are brought together by cleaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.blocks import Block, absent_column, no_rejects
from preprocessing.errors import SourceError
from preprocessing.nested import array_at, leaf_paths
from preprocessing.parquet_columns import find_leaves, text_columns
from preprocessing.partitions import stored_columns
from preprocessing.remote_files import is_remote
from preprocessing.spec import SourceSpec

__all__ = ["read_parquet"]


def read_parquet(
    file: IO[bytes], path: str, spec: SourceSpec, *, block_bytes: int, dictionaries: bool = False
) -> Iterator[Block]:
    """Yields the rows of a Parquet file in batches of about `block_bytes` of uncompressed data.

    Args:
        file: the stored bytes.
        path: for messages.
        spec: the declared columns.
        block_bytes: about how much uncompressed data makes a block.
        dictionaries: whether text columns are left dictionary-encoded.

    Raises:
        SourceError: if a required column is absent, a declared one is there twice, or the file cannot be read.
    """
    try:
        parquet = _open(file, spec, dictionaries=dictionaries)
        leaves = find_leaves(parquet, dict.fromkeys(stored_columns(spec).values()), path)
        _check_required(leaves, spec, parquet.schema_arrow, path)
        row = 1
        for group in range(parquet.num_row_groups):
            for batch in _batches(parquet, group, leaves, block_bytes=block_bytes):
                positions = np.arange(row, row + batch.num_rows, dtype=np.int64)
                yield Block(row, _flat(batch, leaves), None, no_rejects(), positions)
                row += batch.num_rows
    except SourceError:
        raise
    except Exception as error:
        if not isinstance(error, pa.ArrowException | OSError) and not is_remote(path):
            raise  # only stores raise errors of other kinds
        raise SourceError(f"{path} cannot be read as Parquet: {error}; is the file cut short?") from error


def _open(file: IO[bytes], spec: SourceSpec, *, dictionaries: bool) -> pq.ParquetFile:
    parquet = pq.ParquetFile(file)
    names = text_columns(parquet.schema_arrow, spec) if dictionaries else []
    return pq.ParquetFile(file, metadata=parquet.metadata, read_dictionary=names) if names else parquet


def _check_required(leaves: Mapping[str, Sequence[str]], spec: SourceSpec, schema: pa.Schema, path: str) -> None:
    for key, name in stored_columns(spec).items():
        if spec.columns[key].required and not leaves[name]:
            raise absent_column(path, name, [".".join(leaf) for leaf in leaf_paths(schema)])


def _batches(
    parquet: pq.ParquetFile, group: int, leaves: Mapping[str, Sequence[str]], *, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    metadata = parquet.metadata.row_group(group)
    wanted = list(dict.fromkeys(stored for paths in leaves.values() for stored in paths))
    size = max(1, block_bytes // max(1, metadata.total_byte_size // max(1, metadata.num_rows)))
    yield from parquet.iter_batches(batch_size=size, row_groups=[group], columns=wanted, use_threads=False)


def _flat(batch: pa.RecordBatch, names: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Returns the columns by their dotted names; null where the file has none."""
    return pa.RecordBatch.from_arrays([_column_at(batch, name) for name in names], names=list(names))


def _column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    root, *parts = name.split(".")
    found = array_at(batch.column(root), parts) if parts and root in batch.schema.names else None
    return pa.nulls(batch.num_rows) if found is None else found
