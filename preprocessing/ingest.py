"""First Beam job: every file of a log, cleaned once and kept sorted by period, so that a new day reads new files only.

    ROOT/<key>/block-00000.arrow    cleaned rows and their hashes, sorted by (period, bucket)
    ROOT/<key>/slices.parquet       where each (period, bucket) lies in which block
    ROOT/<key>/rejects.parquet      dead letters, if there are any
    ROOT/<key>/manifest.json        counts, and of each period the number and a digest of its rows

The key follows from the file's content, its partition columns and the declaration of its source alone. Side tables
are kept in the order of reading, as one period.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.cleaning import REJECTS, FutureRule, clean
from preprocessing.columnar import hash_rows, partition_slices
from preprocessing.hashing import mix
from preprocessing.job_folder import job_folder
from preprocessing.log_sources import HASH_COLUMN, EventClock
from preprocessing.manifest import complete, digest, exists
from preprocessing.partitions import partition_cells
from preprocessing.periods import WITHOUT_PERIOD
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows
from preprocessing.sources import Split, read_table_blocks
from preprocessing.spec import SourceSpec
from preprocessing.splits import day_of, period_of
from preprocessing.visibility import arrived_late, visible_ms

__all__ = ["BUCKETS", "IngestUnit", "block_path", "future_rule", "ingest_files", "merge_period"]

BUCKETS = 256
BLOCK_BYTES = 32 << 20

# Raised when a change of our code changes what is written.
_FORMAT = 3
_SLICES = pa.schema(
    [("period", pa.int64()), ("bucket", pa.int16()), ("block", pa.int32()), ("start", pa.int64()), ("rows", pa.int32())]
)


@dataclasses.dataclass(frozen=True)
class IngestUnit:
    """A file, or a part of it, to be read once.

    Attributes:
        source: name of the source.
        spec: its declaration, as it is to be cleaned.
        clock: None for a side table.
        path: of the file.
        split: the part, as `sources.plan_splits` gives it; None for the whole.
        fingerprint: what tells the content of the file.
        now_ms: the clock of the run, not part of the key: an event of the future that was judged when it was first
            seen stays judged.
    """

    source: str
    spec: SourceSpec
    clock: EventClock | None
    path: str
    split: Split | None
    fingerprint: str
    now_ms: int

    @property
    def key(self) -> str:
        """Digest of everything that the content of the folder follows from.

        Of the path these are the partition columns alone: files of equal content in two partitions are two units.
        """
        spec = self.spec.model_dump(mode="json", exclude={"paths", "day_partition"})
        clock = None if self.clock is None else dataclasses.asdict(self.clock)
        partitions = partition_cells(self.path, self.spec)
        cells = {name: None if cell is None else cell.hex() for name, cell in partitions.items()}
        return digest([_FORMAT, self.source, spec, clock, self.fingerprint, self.split, cells])


def block_path(folder: Path, block: int) -> str:
    """Returns the file of a block."""
    return str(folder / f"block-{block:05d}.arrow")


def ingest_files(
    units: Sequence[IngestUnit],
    *,
    root: Path,
    pipeline: MakePipeline,
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Makes the folder of each unit below `root` unless it is there; each is complete as soon as its file is read."""
    missing = [unit for unit in units if not exists(root / unit.key)]
    if not missing:
        return
    with job_folder(root) as job, plain_errors(), follow_progress(job / "progress", observe), pipeline() as p:
        work = beam.ParDo(_Ingest(root=str(root), job=str(job)))
        _ = p | beam.Create(missing) | beam.Reshuffle() | work


class _Ingest(beam.DoFn):
    """Reads one unit into a temporary folder and completes it; a repeated attempt finds it done."""

    def __init__(self, *, root: str, job: str) -> None:
        self._root, self._job = Path(root), Path(job)

    def process(self, unit: IngestUnit) -> None:
        final = self._root / unit.key
        temporary = self._job / f"{unit.key}-{uuid.uuid4().hex}"
        temporary.mkdir()
        try:
            content = _read_unit(unit, temporary, observe=lambda rows: report_rows(str(self._job / "progress"), rows))
            complete(temporary, final, manifest={"stage": "ingest", "content": content})
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _read_unit(unit: IngestUnit, folder: Path, *, observe: Callable[[int], None]) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    periods: dict[int, dict[str, int]] = {}
    slices: list[pa.Table] = []
    counts = {"rows": 0, "kept": 0, "too_late": 0, "empty_lists": 0}
    future = future_rule(unit.clock, now_ms=unit.now_ms)
    with _DeadLetters(folder / "rejects.parquet") as dead:
        blocks = read_table_blocks(unit.path, unit.spec, block_bytes=BLOCK_BYTES, split=unit.split, dictionaries=True)
        for block in blocks:
            cleaned = clean(block, unit.spec, source=unit.source, path=unit.path, dictionaries=True, future=future)
            dead.write(cleaned.rejects)
            for reason in cleaned.rejects.column("reason").to_pylist():
                reasons[reason] = reasons.get(reason, 0) + 1
            counts["rows"] += cleaned.num_kept + cleaned.rejects.num_rows
            counts["empty_lists"] += cleaned.num_empty
            rows, placed = place_rows(cleaned.rows, unit.clock)
            counts["too_late"] += cleaned.rows.num_rows - rows.num_rows
            counts["kept"] += rows.num_rows
            if rows.num_rows:
                slices.append(_write_block(rows, placed, folder, block=len(slices), clock=unit.clock))
                _add_periods(periods, rows, placed)
            observe(cleaned.num_kept + cleaned.rejects.num_rows)
    pq.write_table(pa.concat_tables([_SLICES.empty_table(), *slices]), folder / "slices.parquet")
    return {
        "source": unit.source,
        "path": unit.path,
        **counts,
        "reasons": dict(sorted(reasons.items())),
        "periods": {str(number): periods[number] for number in sorted(periods)},
    }


def future_rule(clock: EventClock | None, *, now_ms: int) -> FutureRule | None:
    """Returns which events of a log are of the future; None without a clock."""
    if clock is None or clock.event_time is None:
        return None
    return FutureRule(clock.event_time, clock.arrival_time, now_ms, clock.future_tolerance_ms)


@dataclasses.dataclass(frozen=True)
class _Placed:
    """Of each row: its period, bucket, event time and the time it was known."""

    periods: npt.NDArray[np.int64]
    buckets: npt.NDArray[np.int64]
    event_ms: npt.NDArray[np.int64]
    visible_ms: npt.NDArray[np.int64]


def place_rows(rows: pa.RecordBatch, clock: EventClock | None) -> tuple[pa.RecordBatch, _Placed]:
    """Returns the rows that are not too late, with `HASH_COLUMN`, and where they belong."""
    hashes = hash_rows(rows, rows.column_names)
    event = known = np.zeros(rows.num_rows, np.int64)
    if clock is not None and clock.event_time is not None:
        event = _times(rows, clock.event_time)
        arrival = None if clock.arrival_time is None else _times(rows, clock.arrival_time)
        known = visible_ms(event, arrival)
        if arrival is not None and clock.allowed_lateness_ms is not None:
            kept = ~arrived_late(event, arrival, allowed_lateness_ms=clock.allowed_lateness_ms)
            rows, hashes = rows.filter(pa.array(kept)), hashes[kept]
            event, known = event[kept], known[kept]
    rows = rows.append_column(HASH_COLUMN, pa.array(hashes))
    buckets = np.zeros(rows.num_rows, np.int64)
    periods = np.full(rows.num_rows, WITHOUT_PERIOD, np.int64)
    if clock is not None:
        keys = hash_rows(rows, clock.bucket_key) if clock.bucket_key else hashes
        buckets = (mix(keys) % np.uint64(BUCKETS)).astype(np.int64)
        if clock.event_time is not None:
            periods = period_of(day_of(event, time_zone=clock.time_zone), clock.period)
    return rows, _Placed(periods, buckets, event, known)


def _times(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    return np.asarray(rows.column(column).to_numpy(zero_copy_only=False)).astype(np.int64)


def _write_block(
    rows: pa.RecordBatch, placed: _Placed, folder: Path, *, block: int, clock: EventClock | None
) -> pa.Table:
    """Writes the rows, sorted unless they are of a side table, and returns their slices."""
    keys, codes = np.unique(placed.periods * BUCKETS + placed.buckets, return_inverse=True)
    order, offsets = partition_slices(codes)
    if clock is not None:
        rows = rows.take(pa.array(order))
    with pa.OSFile(block_path(folder, block), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows)
    columns = [keys // BUCKETS, keys % BUCKETS, np.full(len(keys), block), offsets[:-1], np.diff(offsets)]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, _SLICES, strict=True)], schema=_SLICES
    )


def _add_periods(periods: dict[int, dict[str, int]], rows: pa.RecordBatch, placed: _Placed) -> None:
    """Adds number, digest and span of time of the rows of each period; the digest is a sum, so no order matters."""
    hashes = mix(rows.column(HASH_COLUMN).to_numpy())
    order, offsets = partition_slices(np.unique(placed.periods, return_inverse=True)[1])
    for start, end in itertools.pairwise(offsets):
        members = order[start:end]
        number = int(placed.periods[members[0]])
        found = {
            "rows": len(members),
            "digest": int(hashes[members].sum(dtype=np.uint64)),
            "first_ms": int(placed.event_ms[members].min()),
            "last_ms": int(placed.event_ms[members].max()),
            "last_visible_ms": int(placed.visible_ms[members].max()),
        }
        periods[number] = merge_period(periods.get(number), found)


def merge_period(known: Mapping[str, int] | None, found: Mapping[str, int]) -> dict[str, int]:
    """Returns the summary of the rows of two summaries of one period."""
    if known is None:
        return dict(found)
    return {
        "rows": known["rows"] + found["rows"],
        "digest": (known["digest"] + found["digest"]) % 2**64,
        "first_ms": min(known["first_ms"], found["first_ms"]),
        "last_ms": max(known["last_ms"], found["last_ms"]),
        "last_visible_ms": max(known["last_visible_ms"], found["last_visible_ms"]),
    }


class _DeadLetters:
    """A Parquet file of rejected rows that exists only if there are any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _DeadLetters:
        return self

    def write(self, rejects: pa.RecordBatch) -> None:
        """Adds rows of the `REJECTS` schema."""
        if rejects.num_rows:
            self._writer = self._writer or pq.ParquetWriter(self._path, REJECTS, compression="zstd")
            self._writer.write_batch(rejects)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
