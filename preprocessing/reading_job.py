"""Reading and cleaning as a step of a Beam job: files in, batches of declared columns and dead letters out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.cleaning import REJECTS, clean
from preprocessing.joining import MS_PER_S
from preprocessing.runner import report_rows
from preprocessing.sources import read_table_blocks
from preprocessing.spec import DataSpec, SourceSpec

__all__ = ["PROGRESS_FOLDER", "REJECTS_FOLDER", "ReadFiles", "cleaned_sources", "event_sources"]

BLOCK_BYTES = 16 << 20
REJECTS_FOLDER = "rejects"
PROGRESS_FOLDER = "scratch/progress"
_LATEST_MS = float(2**62)


def event_sources(spec: DataSpec) -> dict[str, str | None]:
    """Returns the sources that are shuffled, the impressions and the action logs, with the clock of each."""
    clocks = {spec.impressions: spec.roles.event_time}
    for label in spec.labels:
        if label.action is not None:
            clocks[label.action.source] = spec.sources[label.action.source].event_time
    return clocks


def cleaned_sources(spec: DataSpec, *, as_of_ms: int) -> dict[str, SourceSpec]:
    """Returns every source that is read, as it is to be cleaned.

    The clock of an event is required, and absurd before 1970 or later than the run by more than the tolerance.
    A sample weight below 0 is out of range.
    """
    latest_ms = as_of_ms + spec.future_tolerance_s * MS_PER_S
    sides = {join.source: spec.sources[join.source] for join in spec.joins}
    events = {
        name: _with_clock(spec.sources[name], clock, latest_ms=latest_ms) for name, clock in event_sources(spec).items()
    }
    return {name: _with_weight(source, spec.roles.weight) for name, source in {**sides, **events}.items()}


def _with_weight(source: SourceSpec, name: str | None) -> SourceSpec:
    column = source.columns.get(name) if name is not None else None
    if name is None or column is None:
        return source
    least = column.model_copy(update={"min": max(0.0, column.min or 0.0)})
    return source.model_copy(update={"columns": {**source.columns, name: least}})


def _with_clock(source: SourceSpec, clock: str | None, *, latest_ms: float) -> SourceSpec:
    if clock is None:
        return source
    column = source.columns[clock]
    bounds = {
        "required": True,
        "min": max(0.0, column.min or 0.0),
        "max": min(latest_ms, _LATEST_MS if column.max is None else column.max),
    }
    return source.model_copy(update={"columns": {**source.columns, clock: column.model_copy(update=bounds)}})


class ReadFiles(beam.PTransform):
    """Begins a graph: files to (source, file number, block number, batch), and a summary of each file.

    Applied to a pipeline it returns both collections as a pair.
    """

    def __init__(self, files: Mapping[str, Sequence[str]], *, sources: Mapping[str, SourceSpec], folder: Path) -> None:
        super().__init__()
        self._elements = [(source, i, path) for source, paths in files.items() for i, path in enumerate(paths)]
        self._read = _Read(sources=sources, folder=str(folder))

    def expand(self, pbegin: Any) -> tuple[beam.PCollection, beam.PCollection]:
        """Builds the graph: create, spread, read."""
        outputs = (
            pbegin
            | "Files" >> beam.Create(self._elements)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(self._read).with_outputs("summary", main="batches")
        )
        return outputs.batches, outputs.summary


class _Read(beam.DoFn):
    """Reads and cleans one file: (source, batch) for its rows, a dead-letter file for its rejects."""

    def __init__(self, *, sources: Mapping[str, SourceSpec], folder: str) -> None:
        self._sources = sources
        self._folder = folder

    def process(self, element: tuple[str, int, str]) -> Iterator[Any]:
        source, number, path = element
        spec = self._sources[source]
        reasons: dict[str, int] = {}
        num_rows = block_number = 0
        with _DeadLetters(Path(self._folder) / REJECTS_FOLDER / f"{source}-{number:05d}.parquet") as dead:
            for block in read_table_blocks(path, spec, block_bytes=BLOCK_BYTES):
                cleaned = clean(block, spec, source=source, path=path)
                dead.write(cleaned.rejects)
                for reason in cleaned.rejects.column("reason").to_pylist():
                    reasons[reason] = reasons.get(reason, 0) + 1
                num_rows += cleaned.rows.num_rows + cleaned.rejects.num_rows
                report_rows(f"{self._folder}/{PROGRESS_FOLDER}", cleaned.rows.num_rows)
                yield source, number, block_number, cleaned.rows
                block_number += 1
        summary = {"source": source, "path": path, "rows": num_rows, "reasons": reasons}
        yield beam.pvalue.TaggedOutput("summary", summary)


class _DeadLetters:
    """A Parquet file of rejected rows that exists only if there are any, and only when complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.{id(self)}")
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _DeadLetters:
        return self

    def write(self, rejects: pa.RecordBatch) -> None:
        """Adds rows of the `REJECTS` schema."""
        if rejects.num_rows:
            self._writer = self._writer or pq.ParquetWriter(self._temporary, REJECTS, compression="zstd")
            self._writer.write_batch(rejects)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                self._temporary.replace(self._path)
