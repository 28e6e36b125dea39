"""Blocks of a file to rows of declared types; what cannot be a row becomes a reject with a reason code.

The rules for dirt, and the reason codes, are in `reasons`. Of several faults of a row the first in the order of the
declared columns is kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.blocks import REJECTS, Block, make_rejects, merge_rejects
from preprocessing.coercion import Coerced, arrow_type, coerce
from preprocessing.explode import UNEQUAL_LISTS, columns_after, explode_rows, list_sizes, without_value
from preprocessing.partitions import partition_cells
from preprocessing.spec import ColumnSpec, SourceSpec
from preprocessing.visibility import arrivals_of, is_from_future, times_of

__all__ = ["REJECTS", "Cleaned", "FutureRule", "arrow_schema", "arrow_type", "clean", "columns_after"]


@dataclass(frozen=True)
class Cleaned:
    """A cleaned block.

    Attributes:
        rows: in the form of `arrow_schema`.
        rejects: in the form of `REJECTS`, by position; those that the reader found are among them.
        positions: int64 [rows]: place of each row in its file, from 1; of rows that explode, once for each place.
        num_kept: How many rows of the file `rows` are from: as many, unless rows explode.
        num_empty: How many of these gave no row, since all their lists are empty.
    """

    rows: pa.RecordBatch
    rejects: pa.RecordBatch
    positions: npt.NDArray[np.int64]
    num_kept: int
    num_empty: int = 0


def arrow_schema(spec: SourceSpec, *, dictionaries: bool = False) -> pa.Schema:
    """Returns the columns of a source after cleaning, in declared order, exploded, then the position if there is one.

    Args:
        spec: the declaration of the source.
        dictionaries: whether string columns are dictionary-encoded.
    """
    columns = columns_after(spec)
    return pa.schema([(name, arrow_type(column, dictionaries=dictionaries)) for name, column in columns.items()])


@dataclass(frozen=True)
class FutureRule:
    """Which events are of the future: later than their arrival, or without one than `now_ms`, by more than a tolerance.

    Attributes:
        event_time: timestamp column.
        arrival_time: timestamp column; None if a row arrives as it happens.
        now_ms: the clock of the run.
        tolerance_ms: at least 0.
    """

    event_time: str
    arrival_time: str | None
    now_ms: int
    tolerance_ms: int


def clean(
    block: Block,
    spec: SourceSpec,
    *,
    source: str,
    path: str,
    dictionaries: bool = False,
    future: FutureRule | None = None,
) -> Cleaned:
    """Returns the rows of a block in their declared types, and its rejects.

    Args:
        block: what the reader gives.
        spec: the declaration of the source.
        source: name of the source, for the rejects.
        path: name of the file, for the rejects and the values of its folders.
        dictionaries: whether string columns come out dictionary-encoded.
        future: which events are rejects; None: none for their time.

    Raises:
        SourceError: if the path lacks the folder of a partition column.
    """
    verdict = _Verdict.of(len(block.positions))
    cells = partition_cells(path, spec)
    columns = {}
    for name, column in spec.columns.items():
        if column.partition:
            coerced = _from_folder(cells[name], column, num_rows=len(block.positions), dictionaries=dictionaries)
        else:
            coerced = coerce(
                block.batch.column(column.source_name or name),
                column,
                empty_is_missing=block.empty_is_missing,
                keep_places=name in spec.explode,
                dictionaries=dictionaries,
            )
        verdict.judge(coerced, column, name=name, exploded=name in spec.explode)
        columns[name] = coerced.values
    if future is not None:
        verdict.reject(_of_the_future(columns, future), "future_time", future.event_time)
    found = _found_before(block.malformed, source, path)
    return _finish(block, spec, columns, verdict, found, source=source, path=path, dictionaries=dictionaries)


def _finish(
    block: Block,
    spec: SourceSpec,
    columns: dict[str, pa.Array],
    verdict: _Verdict,
    found: pa.RecordBatch,
    *,
    source: str,
    path: str,
    dictionaries: bool,
) -> Cleaned:
    sizes = None
    if spec.explode:
        sizes, unequal = list_sizes(columns, spec)
        verdict.reject(unequal, UNEQUAL_LISTS, spec.explode[-1])
    positions, bad = block.positions, verdict.fault >= 0
    rejects = found
    if bad.any():
        rejects = merge_rejects([found, _rejects(block, verdict, source=source, path=path)])
        good = pa.array(~bad)
        columns = {name: values.filter(good) for name, values in columns.items()}
        positions = positions[~bad]
    arrays, num_kept, num_empty = list(columns.values()), len(positions), 0
    if sizes is not None:
        sizes = sizes[~bad]
        num_empty = int((sizes == 0).sum())
        arrays, rows = explode_rows(columns, spec, sizes=sizes)
        positions = positions[rows]
    schema = arrow_schema(spec, dictionaries=dictionaries)
    return Cleaned(pa.RecordBatch.from_arrays(arrays, schema=schema), rejects, positions, num_kept, num_empty)


def _of_the_future(columns: dict[str, pa.Array], rule: FutureRule) -> npt.NDArray[np.bool_]:
    event, present = times_of(pa.chunked_array([columns[rule.event_time]]))
    arrival = None if rule.arrival_time is None else arrivals_of(pa.chunked_array([columns[rule.arrival_time]]))
    return present & is_from_future(event, arrival, now_ms=rule.now_ms, tolerance_ms=rule.tolerance_ms)


def _from_folder(cell: bytes | None, column: ColumnSpec, *, num_rows: int, dictionaries: bool) -> Coerced:
    """Returns the column of a value that the path holds, the same in each row."""
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(num_rows, np.int32)), pa.array([cell], pa.binary()))
    return coerce(cells, column, empty_is_missing=True, dictionaries=dictionaries)


@dataclass(frozen=True)
class _Verdict:
    """The first fault of each row: its index in `kinds`, or -1."""

    fault: npt.NDArray[np.int64]
    kinds: list[tuple[str, str]]

    @classmethod
    def of(cls, num_rows: int) -> _Verdict:
        return cls(np.full(num_rows, -1, np.int64), [])

    def judge(self, coerced: Coerced, column: ColumnSpec, *, name: str, exploded: bool) -> None:
        """Rejects the rows that the declaration of a column does not allow."""
        if column.on_invalid == "reject":
            for reason, mask in coerced.faults:
                self.reject(mask, reason, name)
        if column.required:
            missing = coerced.values.is_null().to_numpy(zero_copy_only=False)
            self.reject(missing | without_value(coerced.values) if exploded else missing, "missing_required", name)

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
