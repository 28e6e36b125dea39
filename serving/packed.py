"""The packed form of a request: all columns of one dtype side by side in one matrix, three tensors at most.

A tensor costs a Python server as much as ten strings in it, so a row of 40 columns is several times cheaper packed.
The layout follows from the inputs of `serving_default` alone, which every server tells: columns of a dtype in the
order of their names, a list column taking as many places as it is long.

    strings    string  [B, S]
    floats     float32 [B, D]
    integers   int64   [B, I]

A matrix without columns is left out. `assets.extra/rankmill_packed.json` of a version says the same in words.
`B` rows, `L` length of a list column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from preprocessing.errors import ServingError
from serving.rows import InputColumn, Row, rows_to_arrays

__all__ = ["MATRICES", "PACKED_FILE", "PACKED_SIGNATURE", "PackedColumn", "PackedLayout", "rows_to_packed"]

PACKED_SIGNATURE = "packed"
PACKED_FILE = "rankmill_packed.json"
MATRICES = {"DT_STRING": "strings", "DT_FLOAT": "floats", "DT_INT64": "integers"}
_NUMPY = {"strings": np.object_, "floats": np.float32, "integers": np.int64}

Columns = TypeVar("Columns", bound=Any)


@dataclasses.dataclass(frozen=True)
class PackedColumn:
    """Where a column is in its matrix; `length` None: one value a row."""

    name: str
    start: int
    length: int | None

    @property
    def stop(self) -> int:
        """The place after its last."""
        return self.start + (1 if self.length is None else self.length)


@dataclasses.dataclass(frozen=True)
class PackedLayout:
    """The columns of each matrix that is not empty, in order."""

    matrices: dict[str, tuple[PackedColumn, ...]]

    @classmethod
    def of(cls, columns: Sequence[InputColumn]) -> PackedLayout:
        """Returns the layout for the inputs of `serving_default`.

        Raises:
            ServingError: if an input is none that a matrix can hold.
        """
        found: dict[str, list[PackedColumn]] = {}
        for column in sorted(columns, key=lambda one: one.name):
            if column.dtype not in MATRICES:
                raise ServingError(f"column {column.name!r} of type {column.dtype} has no packed form")
            shape = column.shape or (-1,)
            length = shape[1] if len(shape) > 1 else None
            if length is not None and length < 0:
                raise ServingError(f"column {column.name!r} is a list of open length, which has no packed form")
            matrix = found.setdefault(MATRICES[column.dtype], [])
            matrix.append(PackedColumn(column.name, matrix[-1].stop if matrix else 0, length))
        return cls({name: tuple(found[name]) for name in MATRICES.values() if name in found})

    def width(self, matrix: str) -> int:
        """Returns the number of places of a matrix."""
        return self.matrices[matrix][-1].stop

    def pack(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Returns the matrices that hold the arrays of all columns, each [B] or [B, L]."""
        num_rows = len(next(iter(arrays.values()))) if arrays else 0
        packed: dict[str, NDArray[Any]] = {}
        for matrix, columns in self.matrices.items():
            packed[matrix] = np.empty((num_rows, self.width(matrix)), _NUMPY[matrix])
            for column in columns:
                values = arrays[column.name]
                packed[matrix][:, column.start : column.stop] = values if values.ndim == 2 else values[:, None]
        return packed

    def unpack(self, packed: Mapping[str, Columns]) -> dict[str, Columns]:
        """Returns the columns in matrices, arrays or tensors: [B] or [B, L]."""
        return {
            column.name: packed[matrix][:, column.start]
            if column.length is None
            else packed[matrix][:, column.start : column.stop]
            for matrix, columns in self.matrices.items()
            for column in columns
        }

    def described(self) -> dict[str, Any]:
        """Returns the layout as JSON holds it."""
        return {
            "signature": PACKED_SIGNATURE,
            "inputs": {
                matrix: {"width": self.width(matrix), "columns": [dataclasses.asdict(column) for column in columns]}
                for matrix, columns in self.matrices.items()
            },
        }


def rows_to_packed(
    rows: Sequence[Row], columns: Sequence[InputColumn], *, ignore_unknown: bool = False
) -> dict[str, NDArray[Any]]:
    """Returns the inputs of the signature `packed` for rows as JSON holds them.

    Args:
        rows: by column name; what is absent or None becomes the missing marker.
        columns: the inputs of `serving_default`.
        ignore_unknown: whether keys that no column has are let pass.

    Raises:
        ServingError: as `rows.rows_to_arrays`.
    """
    return PackedLayout.of(columns).pack(rows_to_arrays(rows, columns, ignore_unknown=ignore_unknown))
