"""The files of a checkpoint: what each holds, written with a checksum and read back against it.

<folder>/tables/<table>/<group>.<array>.<first row>[.<step>].npy   every `step`-th row from the first one on
<folder>/dense/<name>.npy                                         dense weights and batch-norm statistics
<folder>/slots/<slot>/<name>.npy                                  state of the dense optimizer

Names are percent-quoted. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.ranking_model import RankingModel
from preprocessing.errors import ArtefactError, CorruptError

__all__ = ["ArrayFile", "RowsFile", "checked", "dense_files", "meets", "read_array", "rows_files", "write_array"]

Floats = NDArray[np.floating]
Entry = dict[str, Any]
_FILE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True)
class RowsFile:
    """A file of rows of one array of a logical table."""

    table: str
    group: str
    array: str
    ids: range

    @property
    def path(self) -> str:
        """Where it lies in the checkpoint."""
        step = f".{self.ids.step}" if self.ids.step > 1 else ""
        return f"tables/{quote(self.table, safe='')}/{self.group}.{self.array}.{self.ids.start:012d}{step}.npy"

    def entry(self) -> Entry:
        """Returns what the manifest says of it besides its checksum."""
        rows = [self.ids.start, self.ids.stop, self.ids.step]
        return {"table": self.table, "group": self.group, "array": self.array, "rows": rows}


@dataclasses.dataclass(frozen=True)
class ArrayFile:
    """A file of dense numbers: a weight, a statistic or a slot of one."""

    path: str
    read: Callable[[], Floats]
    write: Callable[[Floats], object]
    shape: tuple[int, ...]
    dtype: str


def rows_files(model: RankingModel, *, process: int, num_processes: int) -> Iterator[RowsFile]:
    """Yields the files that one process writes: the rows it alone holds, and its share of those that all hold."""
    number = 0
    for table in model.tables.plan.tables:
        shared = model.tables.plan.shelf(table).num_shards == 1
        for ids in model.tables.held_rows(table.name):
            for group in model.tables.groups:
                per_file = max(1, _FILE_BYTES // (model.tables.width(group) * 8))
                for array in model.tables.arrays(group):
                    for start in range(0, len(ids), per_file):
                        number += 1
                        if not shared or number % num_processes == process:
                            yield RowsFile(table.name, group, array, ids[start : start + per_file])


def dense_files(model: RankingModel, *, slots: bool) -> Iterator[ArrayFile]:
    """Yields the files of dense weights, statistics and, with `slots`, of the dense optimizer's state."""
    named = [(f"dense/{quote(name, safe='')}.npy", variable) for name, variable in model.dense_variables.items()]
    for slot, variables in model.dense_slots.items() if slots else ():
        named += [(f"slots/{slot}/{quote(name, safe='')}.npy", variable) for name, variable in variables.items()]
    for path, variable in named:
        yield ArrayFile(
            path,
            functools.partial(_copied, variable),
            variable.assign,
            tuple(variable.shape.as_list()),
            variable.dtype.name,
        )


def _copied(variable: tf.Variable) -> Floats:
    return np.array(variable.numpy())  # `numpy` alone may share memory that the next step overwrites


def write_array(folder: Path, path: str, *, values: Floats) -> Entry:
    """Writes an array and returns its size and CRC-32."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(buffer.getbuffer())
    return {"crc32": zlib.crc32(buffer.getbuffer()), "size_bytes": buffer.getbuffer().nbytes}


def checked(folder: Path, path: str, *, files: dict[str, Entry]) -> bytes:
    """Returns the content of a file.

    Raises:
        ArtefactError: if the manifest does not have it.
        CorruptError: if it cannot be read or is not what was written.
    """
    if path not in files:
        raise ArtefactError(f"checkpoint {folder} has no {path}; it was written by another version")
    try:
        content = (folder / path).read_bytes()
    except OSError as error:
        raise CorruptError(f"{folder / path} cannot be read: {error}; use an earlier checkpoint") from error
    if len(content) != files[path]["size_bytes"] or zlib.crc32(content) != files[path]["crc32"]:
        raise CorruptError(
            f"{folder / path}: {len(content)} bytes with CRC-32 {zlib.crc32(content)}, the manifest says "
            f"{files[path]['size_bytes']} and {files[path]['crc32']}; use an earlier checkpoint"
        )
    return content


def read_array(folder: Path, path: str, *, files: dict[str, Entry], shape: tuple[int, ...], dtype: str) -> Floats:
    """Returns an array.

    Raises:
        CorruptError: as `checked`.
        ArtefactError: if it has another shape or dtype.
    """
    values: Floats = np.load(io.BytesIO(checked(folder, path, files=files)), allow_pickle=False)
    if values.shape != shape or values.dtype != np.dtype(dtype):
        raise ArtefactError(
            f"{folder / path} holds {values.dtype} {values.shape}, this model needs {dtype} {shape}; "
            "load it into the model that wrote it"
        )
    return values


def meets(one: range, others: Iterable[range]) -> bool:
    """Returns whether two rising ranges may have a number in common; never False where they have."""
    return any(
        one.start < other.stop
        and other.start < one.stop
        and (one.start - other.start) % math.gcd(one.step, other.step) == 0
        for other in others
    )
