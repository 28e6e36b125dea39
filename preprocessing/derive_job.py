"""Third Beam job: labelled rows to examples with point-in-time columns, and the state after each period.

rows of all shards -> keys, times and labels, shuffled by each key -> `point_in_time.derive`
    -> columns, by (period, shard) -> ROOT/<key>/rows/<part>-<shard>.parquet
    -> ROOT/<key>/state/<key columns>.parquet: what was known of each user or item at the end of the period,
       the same values that a server looks up at request time
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.columnar import hash_rows
from preprocessing.days_job import ROWS_FOLDER, by_place, to_json
from preprocessing.derive_plan import Link, context_of, key_sets
from preprocessing.dictionaries import encode_text
from preprocessing.hashing import mix
from preprocessing.job_folder import job_folder
from preprocessing.joining import KNOWN_PREFIX, OTHERS
from preprocessing.log_sources import HASH_COLUMN, clock_of
from preprocessing.manifest import complete, exists
from preprocessing.point_in_time import derive
from preprocessing.row_files import read_rows, write_rows
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows
from preprocessing.shuffle import Carrier, ColumnarShuffle, Partition, Slice, cut, read_slices
from preprocessing.spec import DataSpec, DerivedColumn, HistoryColumn, columns_made
from preprocessing.visibility import visible_ms

__all__ = ["STATE_FOLDER", "derive_days", "state_file"]

STATE_FOLDER = "state"
_ROWS, _STATE = "__rows", "__state"
_PLACES = ("__period", "__shard", "__row")


def state_file(key: Sequence[str]) -> str:
    """Returns the name of the file with the state of a key, such as `user_id.parquet` or `user_id,category.parquet`."""
    return f"{','.join(key)}.parquet"


def derive_days(
    spec: DataSpec,
    chain: Sequence[Link],
    *,
    work: Path,
    rows_per_partition: int,
    pipeline: MakePipeline,
    carrier: Carrier = "files",
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Makes the periods of the chain that are not there, from the first missing one to the end.

    Args:
        spec: the data section of the config.
        chain: all periods, in order.
        work: the work folder; labelled rows are in `days`, results go to `derived`.
        rows_per_partition: about the largest number of rows in memory at once.
        pipeline: makes the Beam pipeline.
        carrier: how the shuffle moves rows.
        observe: told the number of rows done so far.
    """
    missing = [link for link in chain if not exists(work / "derived" / link.key)]
    if not missing:
        return
    wanted = [link for link in chain if link.number >= missing[0].number]
    with job_folder(work / "derived") as job:
        for link in wanted:
            (job / link.key / ROWS_FOLDER).mkdir(parents=True)
            (job / link.key / STATE_FOLDER).mkdir()
        for name in ("spill", "states"):
            (job / name).mkdir()
        with plain_errors(), follow_progress(job / "progress", observe), pipeline() as p:
            _Graph(spec, chain, wanted, work, job, rows_per_partition=rows_per_partition, carrier=carrier).build(p)
        done = json.loads((job / "shards.json").read_bytes())
        for link in wanted:
            files = sorted(file for shard in done if shard["period"] == link.number for file in shard["files"])
            content = {"number": link.number, "files": files}
            complete(job / link.key, work / "derived" / link.key, manifest={"stage": "derived", "content": content})


class _Graph:
    """Builds the graph; holds what its steps share."""

    def __init__(
        self,
        spec: DataSpec,
        chain: Sequence[Link],
        wanted: Sequence[Link],
        work: Path,
        job: Path,
        *,
        rows_per_partition: int,
        carrier: Carrier,
    ) -> None:
        self._spec, self._wanted, self._work, self._job = spec, wanted, work, job
        self._context = context_of(spec, chain, wanted[0])
        self._base_ms = max((link.end_ms for link in chain if link.number < wanted[0].number), default=-(2**63))
        self._rows, self._carrier = rows_per_partition, carrier

    def build(self, p: beam.Pipeline) -> None:
        """Adds the graph to a pipeline."""
        own = self._shards(self._wanted)
        shards = p | "Shards" >> beam.Create([((s[0], s[1]), s) for s in own]) | "Spread" >> beam.Reshuffle()
        every = [*own, *self._shards(self._context)]
        found = []
        for index, (key, columns) in enumerate(key_sets(self._spec).items()):
            found.append(self._derived(p, f"Key{index}", key, columns, every))
        write = _Write(
            {
                link.number: (str(self._work / "days" / link.days_key), str(self._job / link.key))
                for link in self._wanted
            },
            columns=[name for one in self._spec.derived for name in columns_made(one)],
            progress=str(self._job / "progress"),
        )
        results = found | "Found" >> beam.Flatten()
        done = {"shard": shards, "found": results} | "Meet" >> beam.CoGroupByKey() | "Write" >> beam.ParDo(write)
        _ = done | "ShardsDone" >> to_json(self._job / "shards.json")

    def _shards(self, links: Sequence[Link]) -> list[tuple[int, int, tuple[tuple[str, str, int], ...]]]:
        """Returns (period, shard, its files in order), for every shard."""
        shards = []
        for link in links:
            by_shard: dict[int, list[tuple[str, str, int]]] = {}
            for part, name, rows in link.files:
                by_shard.setdefault(int(Path(name).stem.rpartition("-")[2]), []).append((part, name, rows))
            shards += [(link.number, shard, tuple(sorted(files))) for shard, files in sorted(by_shard.items())]
        return shards

    def _derived(
        self, p: beam.Pipeline, label: str, key: tuple[str, ...], columns: list[DerivedColumn], shards: list[Any]
    ) -> beam.PCollection:
        """Returns slices of the columns of one key, by (period, shard); states are written on the way."""
        everything = [*self._context, *self._wanted]
        folders = {link.number: str(self._work / "days" / link.days_key) for link in everything}
        starts = {link.number: link.start_ms for link in everything}
        wanted = frozenset(link.number for link in self._wanted)
        project = functools.partial(
            _project, spec=self._spec, key=key, columns=columns, folders=folders, starts=starts, wanted=wanted
        )
        shuffle = ColumnarShuffle(
            group_by=functools.partial(_by_key, key=key),
            sized_by=_ROWS,
            rows_per_partition=self._rows,
            carrier=self._carrier,
            folder=self._job / "spill",
        )
        base = self._base(key)
        work = _Derive(
            columns,
            schema=project(shards[0])[1].schema,
            base_ms=self._base_ms,
            ends=[(link.number, link.end_ms) for link in self._wanted],
            folder=str(self._job / "states"),
        )
        rows = (
            p
            | f"{label}/Shards" >> beam.Create(shards)
            | f"{label}/Spread" >> beam.Reshuffle()
            | f"{label}/Project" >> beam.Map(project)
        )
        before = p | f"{label}/Before" >> beam.Create(base) | f"{label}/ReadState" >> beam.FlatMap(_read_state)
        outputs = (
            (rows, before)
            | f"{label}/Shuffle" >> shuffle
            | f"{label}/Derive" >> beam.ParDo(work).with_outputs("states", main="columns")
        )
        states = {link.number: str(self._job / link.key / STATE_FOLDER / state_file(key)) for link in self._wanted}
        _ = (
            outputs.states
            | f"{label}/ByPeriod" >> beam.GroupByKey()
            | f"{label}/State" >> beam.Map(_write_state, key=key, files=states)
        )
        spill = str(self._job / "spill")
        return outputs.columns | f"{label}/Cut" >> beam.FlatMap(
            cut, group_by=by_place, carrier=self._carrier, folder=spill
        )

    def _base(self, key: tuple[str, ...]) -> list[str]:
        """Returns the file of the state to go on from; none at the beginning."""
        before = self._wanted[0].before
        return [] if before is None else [str(self._work / "derived" / before / STATE_FOLDER / state_file(key))]


def _read_state(path: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1 << 17):
        yield _STATE, batch


def _by_key(_: str, batch: pa.RecordBatch, *, key: Sequence[str]) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:
    return batch, np.zeros(batch.num_rows, np.int64), mix(hash_rows(batch, key))


def _project(
    shard: tuple[int, int, tuple[tuple[str, str, int], ...]],
    *,
    spec: DataSpec,
    key: tuple[str, ...],
    columns: Sequence[DerivedColumn],
    folders: Mapping[int, str],
    starts: Mapping[int, int],
    wanted: frozenset[int],
) -> tuple[str, pa.RecordBatch]:
    """Returns what `point_in_time.derive` must know of a shard's rows, and where each row is."""
    period, number, files = shard
    clock = clock_of(spec, spec.impressions)
    labels = sorted({one.label for one in columns if one.label is not None})
    values = [one.value for one in columns if isinstance(one, HistoryColumn)]
    names = [*key, *values, *(KNOWN_PREFIX + label for label in labels)]
    times = [name for name in (clock.event_time, clock.arrival_time) if name is not None]
    read = [
        pq.read_table(Path(folders[period]) / name, columns=list(dict.fromkeys([*names, *times, HASH_COLUMN])))
        for _, name, _ in files
    ]
    table = pa.concat_tables(read).combine_chunks()
    query = np.concatenate([np.full(rows, part != OTHERS and period in wanted) for part, _, rows in files])
    event = table[times[0]].to_numpy().astype(np.int64) if times else np.zeros(table.num_rows, np.int64)
    arrival = table[times[1]].to_numpy().astype(np.int64) if len(times) > 1 else None
    cutoff = event if spec.freshness == "event" else np.full(len(event), starts[period], np.int64)
    made = {
        "__time": event,
        "__visible": visible_ms(event, arrival),
        "__cutoff": cutoff,
        "__query": query,
        "__order": table[HASH_COLUMN].to_numpy(),
        "__period": np.full(len(event), period, np.int64),
        "__shard": np.full(len(event), number, np.int64),
        "__row": np.arange(len(event), dtype=np.int64),
    }
    table = table.select(list(dict.fromkeys(names)))
    for name, column in made.items():
        table = table.append_column(name, pa.array(column))
    return _ROWS, table.combine_chunks().to_batches()[0]


class _Derive(beam.DoFn):
    """Derives the columns of one partition of keys, and writes its share of the states."""

    def __init__(
        self,
        columns: Sequence[DerivedColumn],
        *,
        schema: pa.Schema,
        base_ms: int,
        ends: Sequence[tuple[int, int]],
        folder: str,
    ) -> None:
        self._columns, self._schema, self._ends, self._folder = list(columns), schema, list(ends), folder
        self._base_ms = base_ms

    def process(self, partition: Partition) -> Iterator[Any]:
        rows = read_slices(partition.slices, source=_ROWS, schema=self._schema).combine_chunks()
        has_base = any(piece.source == _STATE for piece in partition.slices)
        result = derive(
            rows,
            self._columns,
            base=read_slices(partition.slices, source=_STATE, schema=None).combine_chunks() if has_base else None,
            base_ms=self._base_ms,
            ends_ms=[end for _, end in self._ends],
        )
        for (period, _), state in zip(self._ends, result.states, strict=True):
            path = f"{self._folder}/{uuid.uuid4().hex}.arrow"
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, state.schema) as writer:
                writer.write_table(state)
            yield beam.pvalue.TaggedOutput("states", (period, (partition.index, path)))
        asked = rows.filter(rows["__query"]).select(list(_PLACES))
        for name in result.columns.column_names:
            asked = asked.append_column(name, result.columns[name])
        for batch in asked.combine_chunks().to_batches():
            yield _ROWS, batch


def _write_state(element: tuple[int, Any], *, key: Sequence[str], files: Mapping[int, str]) -> None:
    """Writes the state of a period as one file, sorted by the hash of the key: it does not tell of partitions."""
    period, pieces = element
    parts = [pa.ipc.open_file(pa.memory_map(path)).read_all() for _, path in sorted(pieces)]
    state = encode_text(pa.concat_tables(parts))
    if len(parts) > 1:  # each is sorted
        state = state.take(pa.array(np.argsort(hash_rows(state, list(key)), kind="stable")))
    write_rows(state, Path(files[period]))


class _Write(beam.DoFn):
    """Adds the derived columns to the rows of a shard."""

    def __init__(self, folders: Mapping[int, tuple[str, str]], *, columns: Sequence[str], progress: str) -> None:
        self._folders, self._columns, self._progress = dict(folders), list(columns), progress

    def process(self, element: tuple[tuple[int, int], Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        _, met = element
        ((period, shard, files),) = met["shard"]
        source, target = self._folders[period]
        found = _columns_found(met["found"])
        first = 0
        written = []
        for part, name, rows in files:
            if part != OTHERS:
                table = read_rows(Path(source) / name, dictionaries=True)
                for column in self._columns:
                    table = table.append_column(column, _at(found[column], first, rows))
                write_rows(table, Path(target) / name)
                written.append((part, name, rows))
            first += rows
        report_rows(self._progress, first)
        yield {"period": period, "shard": shard, "files": written}


def _columns_found(pieces: Any) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Returns, of each derived column, the places in the shard and the values."""
    by_columns: dict[tuple[str, ...], list[pa.Table]] = {}
    for piece in sorted(pieces):
        part = Slice(*piece)
        table = read_slices([part], source=part.source, schema=None)
        by_columns.setdefault(tuple(table.column_names), []).append(table)
    found = {}
    for names, parts in by_columns.items():
        table = pa.concat_tables(parts).combine_chunks()
        order = np.argsort(table["__row"].to_numpy())
        table = table.take(pa.array(order)).combine_chunks()
        for name in names[len(_PLACES) :]:
            found[name] = (table["__row"].to_numpy(), table[name])
    return found


def _at(found: tuple[np.ndarray, pa.ChunkedArray], first: int, rows: int) -> pa.ChunkedArray:
    """Returns the values of the rows `first` to `first + rows`, of which each has one."""
    start = int(np.searchsorted(found[0], first))
    return found[1].slice(start, rows)
