"""Blocks of a file to rows of declared types; what cannot be a row becomes a reject with a reason code.

Reason codes: `malformed_row`, `malformed_json` (from the reader), `invalid_<type>`, `invalid_list`, `out_of_range`,
`missing_required`. Of several faults of a row the first in the order of the declared columns is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.blocks import REJECTS, Block, make_rejects
from preprocessing.coercion import arrow_type, coerce
from preprocessing.spec import SourceSpec

__all__ = ["REJECTS", "Cleaned", "arrow_schema", "arrow_type", "clean"]


@dataclass(frozen=True)
class Cleaned:
    """A cleaned block.

    Attributes:
        rows: in the form of `arrow_schema`.
        rejects: in the form of `REJECTS`, by position; those that the reader found are among them.
        positions: int64 [rows]: place of each row in its file, from 1.
    """

    rows: pa.RecordBatch
    rejects: pa.RecordBatch
    positions: npt.NDArray[np.int64]


def arrow_schema(spec: SourceSpec) -> pa.Schema:
    """Returns the columns of a source after cleaning, in declared order."""
    return pa.schema([(name, arrow_type(column)) for name, column in spec.columns.items()])


def clean(block: Block, spec: SourceSpec, *, source: str, path: str) -> Cleaned:
    """Returns the rows of a block in their declared types, and its rejects.

    Args:
        block: what the reader gives.
        spec: the declaration of the source.
        source: name of the source, for the rejects.
        path: name of the file, for the rejects.
    """
    verdict = _Verdict.of(block.batch.num_rows)
    columns = []
    for name, column in spec.columns.items():
        values = block.batch.column(column.source_name or name)
        coerced = coerce(values, column, empty_is_missing=block.empty_is_missing)
        if column.on_invalid == "reject":
            for reason, mask in coerced.faults:
                verdict.reject(mask, reason, name)
        if column.required:
            verdict.reject(coerced.values.is_null().to_numpy(zero_copy_only=False), "missing_required", name)
        columns.append(coerced.values)
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(spec))
    found = _found_before(block.malformed, source, path)
    bad = verdict.fault >= 0
    if not bad.any():
        return Cleaned(rows, found, block.positions)
    rejects = _in_order([found, _rejects(block, verdict, source=source, path=path)])
    return Cleaned(rows.filter(pa.array(~bad)), rejects, block.positions[~bad])


@dataclass(frozen=True)
class _Verdict:
    """The first fault of each row: its index in `kinds`, or -1."""

    fault: npt.NDArray[np.int64]
    kinds: list[tuple[str, str]]

    @classmethod
    def of(cls, num_rows: int) -> _Verdict:
        return cls(np.full(num_rows, -1, np.int64), [])

    def reject(self, mask: npt.NDArray[np.bool_], reason: str, column: str) -> None:
        self.fault[mask & (self.fault < 0)] = len(self.kinds)
        self.kinds.append((reason, column))


def _rejects(block: Block, verdict: _Verdict, *, source: str, path: str) -> pa.RecordBatch:
    bad = verdict.fault >= 0
    fault = pa.array(verdict.fault[bad])
    reasons, columns = zip(*verdict.kinds, strict=True)
    return make_rejects(
        path,
        block.positions[bad],
        reason=pa.array(reasons, pa.string()).take(fault),
        raw=_raw(block, pa.array(bad)),
        column=pa.array(columns, pa.string()).take(fault),
        source=source,
    )


def _raw(block: Block, bad: pa.Array) -> pa.Array:
    """Returns the text of the rejected rows; of a format without text, a JSON object of the columns read."""
    if block.raw is not None:
        return pa.array([text.rstrip(b"\r\n") for text in block.raw.filter(bad).to_pylist()], pa.binary())
    rows = block.batch.filter(bad).to_pylist()
    return pa.array([json.dumps(row, default=_show, ensure_ascii=False).encode() for row in rows], pa.binary())


def _show(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _found_before(malformed: pa.RecordBatch, source: str, path: str) -> pa.RecordBatch:
    positions = malformed.column("position").to_numpy()
    reasons, raw = malformed.column("reason"), malformed.column("raw")
    return make_rejects(path, positions, reason=reasons, raw=raw, column=malformed.column("column"), source=source)


def _in_order(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=REJECTS).sort_by("position").combine_chunks()
    return table.to_batches()[0]
