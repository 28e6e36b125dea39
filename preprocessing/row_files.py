"""Files of labelled rows: Parquet whose bytes follow from the rows alone, quick to write and to read.

Text is stored by its distinct values, whatever their number, and can be read so; numbers are stored as they are, since
trying a dictionary on them costs more than it saves. A reader that does not ask for dictionaries gets plain columns.

A file may have a twin for the jobs that read it next: the same table as an Arrow file, which is mapped rather than
decoded, at a thirtieth of the cost. It is several times as large, so the last of those jobs drops it; nothing needs it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.dictionaries import encode_text, is_text, one_piece
from preprocessing.errors import ArtefactError
from preprocessing.raw_values import is_list

__all__ = ["drop_twin", "read_rows", "write_rows"]

_ROW_GROUP = 1 << 17
_DICTIONARY_BYTES = 1 << 28  # above its limit a writer stores values plainly, at five times the cost


def write_rows(table: pa.Table, path: Path, *, twin: bool = False) -> None:
    """Writes rows so that a reader sees all of them or no file; on request with a twin."""
    table = encode_text(table)
    if twin:
        _write_twin(table, _twin(path))
    text = {_stored(field): is_text(_value_type(field.type)) for field in table.schema}
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    pq.write_table(
        table,
        temporary,
        row_group_size=_ROW_GROUP,
        use_dictionary=[name for name, known in text.items() if known],
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        compression="lz4",
        write_statistics=False,
        store_schema=False,  # or every reader would get dictionaries
    )
    temporary.replace(path)


def read_rows(path: str | Path, columns: Sequence[str] | None = None, *, dictionaries: bool = False) -> pa.Table:
    """Returns the rows of a file.

    Args:
        path: of the file.
        columns: names to read; None for all.
        dictionaries: whether text comes as dictionary arrays, each column in one piece.

    Raises:
        ArtefactError: if it cannot be read.
    """
    names = None if columns is None else list(columns)
    try:
        if not dictionaries:
            return pq.read_table(path, columns=names)
        twin = _read_twin(Path(path), names)
        if twin is not None:
            return twin
        text = [field.name for field in pq.read_schema(path) if is_text(field.type)]
        # The jobs read several files at once: threads within one only cost.
        table = pq.read_table(path, columns=names, read_dictionary=text, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; remove its artefact and run again") from error
    return one_piece(table)


def drop_twin(path: Path) -> None:
    """Removes the twin of a file of rows, if it has one."""
    _twin(path).unlink(missing_ok=True)


def _twin(path: Path) -> Path:
    return path.with_suffix(".arrow")


def _write_twin(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    temporary.replace(path)


def _read_twin(path: Path, columns: list[str] | None) -> pa.Table | None:
    """Returns the rows of a twin, mapped; None where there is none that can be read."""
    with contextlib.suppress(OSError, pa.ArrowException):
        table = pa.ipc.open_file(pa.memory_map(str(_twin(path)))).read_all()
        return table if columns is None else table.select(columns)
    return None


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if is_list(kind) or pa.types.is_dictionary(kind) else kind


def _stored(field: pa.Field) -> str:
    """Returns the path of the column in the file."""
    return f"{field.name}.list.element" if is_list(field.type) else field.name
