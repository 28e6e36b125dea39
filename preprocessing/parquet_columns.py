"""Which columns of a Parquet file are declared columns: by name or dotted path, some of them absent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.blocks import absent_column
from preprocessing.errors import SourceError
from preprocessing.file_access import open_bytes
from preprocessing.formats import is_parquet
from preprocessing.nested import leaf_paths
from preprocessing.partitions import stored_columns
from preprocessing.spec import SourceSpec

__all__ = ["check_columns", "find_leaves", "text_columns"]


def find_leaves(parquet: pq.ParquetFile, names: Iterable[str], path: str) -> dict[str, list[str]]:
    """Returns for each name the leaf columns that hold it, by their paths in the file; none where it is absent.

    A column whose own name has the dots goes before a nested one.

    Raises:
        SourceError: if a top-level column of a name is there twice.
    """
    schema = parquet.schema_arrow
    leaves = list(zip(leaf_paths(schema), _stored_paths(parquet), strict=False))
    found = {}
    for name in names:
        count = schema.names.count(name.split(".")[0] if name not in schema.names else name)
        if count > 1:
            raise SourceError(f"{path} has {count} columns named {name!r}; a declared column must be unique")
        wanted = (name,) if name in schema.names else tuple(name.split("."))
        found[name] = [stored for leaf, stored in leaves if leaf[: len(wanted)] == wanted]
    return found


def _stored_paths(parquet: pq.ParquetFile) -> list[str]:
    return [parquet.schema.column(index).path for index in range(len(parquet.schema))]


def text_columns(schema: pa.Schema, spec: SourceSpec) -> list[str]:
    """Returns the top-level text columns of a file that are declared as strings: those worth a dictionary."""
    declared = {name for key, name in stored_columns(spec).items() if spec.columns[key].type == "string"}
    return [field.name for field in schema if field.name in declared and _is_text(field.type)]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def check_columns(files: Sequence[str], spec: SourceSpec) -> None:
    """Checks that each declared column is in one of the Parquet files at least: one that is in none is misspelt.

    Footers are read until all columns were seen, as a rule one.

    Raises:
        SourceError: if a column is in no file, or a file cannot be read.
    """
    unseen, known, looked_at = set(stored_columns(spec).values()), dict[str, None](), ""
    for path in files:
        if not unseen:
            return
        if is_parquet(path, spec.format):
            present, names = _present(path, unseen)
            unseen -= present
            known.update(dict.fromkeys(names))
            looked_at = looked_at or path
    if looked_at and unseen:
        where = looked_at if len(files) == 1 else f"{looked_at} (like the other {len(files) - 1} files)"
        raise absent_column(where, min(unseen), known)


def _present(path: str, names: set[str]) -> tuple[set[str], list[str]]:
    with contextlib.closing(open_bytes(path)) as file:
        try:
            parquet = pq.ParquetFile(file)
            leaves = find_leaves(parquet, names, path)
            paths = [".".join(leaf) for leaf in leaf_paths(parquet.schema_arrow)]
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{path} cannot be read as Parquet: {error}; is the file cut short?") from error
    return {name for name, stored in leaves.items() if stored}, paths
