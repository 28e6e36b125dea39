"""Second Beam job: ingested logs to labelled rows, a folder for each period.

    actions, impressions  -> `attribution_job`: what actions bring to each row, by (period, shard) -\\
    shards of impressions -> side tables, labels, weight, split  <--------------------------------/
        -> ROOT/<key>/rows/<part>-<shard>.parquet, sorted by the hash of the row

What labels leave open is written apart, as `others`: it counts in point-in-time columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.shared import Shared

from preprocessing.attribution_job import Attributions, by_place
from preprocessing.block_dictionaries import BlockDictionaries
from preprocessing.day_plan import DayPlan, shard_tasks
from preprocessing.day_rows import ShardTask, event_schema, shard_rows
from preprocessing.inventory import Log, Range, read_ranges
from preprocessing.job_folder import job_folder
from preprocessing.joining import KNOWN_PREFIX, join_shard
from preprocessing.log_sources import actions_of
from preprocessing.manifest import complete, write_json
from preprocessing.row_files import write_rows
from preprocessing.runner import MakePipeline, follow_progress, plain_errors, report_rows
from preprocessing.shuffle import Carrier, Slice, read_slices
from preprocessing.spec import DataSpec
from preprocessing.worker_results import all_results, put_result

__all__ = ["ROWS_FOLDER", "SideFiles", "by_place", "label_days", "to_json"]

ROWS_FOLDER = "rows"
_SHARDS, _ORPHANS = "shards", "orphans.json"

# Of each side table, where its rows lie, in the order of reading.
SideFiles = Mapping[str, Sequence[Range]]


def label_days(
    spec: DataSpec,
    plans: Sequence[DayPlan],
    *,
    logs: Mapping[str, Log],
    sides: SideFiles,
    root: Path,
    rows_per_shard: int,
    as_of_ms: int,
    pipeline: MakePipeline,
    carrier: Carrier = "files",
    observe: Callable[[int], None] = lambda rows: None,
) -> None:
    """Makes the folders of some periods below `root`; each is complete when all are.

    Args:
        spec: the data section of the config.
        plans: the periods to make.
        logs: the ingested impressions and actions.
        sides: the ingested side tables.
        root: where folders are named by their keys.
        rows_per_shard: about the largest number of impressions in memory at once.
        as_of_ms: the time of the run.
        pipeline: makes the Beam pipeline.
        carrier: how the shuffle moves rows.
        observe: told the number of rows joined so far.
    """
    with job_folder(root) as work:
        folders = {plan.number: work / plan.key for plan in plans}
        for folder in folders.values():
            (folder / ROWS_FOLDER).mkdir(parents=True)
        (work / "spill").mkdir()
        (work / _SHARDS).mkdir()
        with plain_errors(), follow_progress(work / "progress", observe), pipeline() as p:
            graph = _Graph(spec, logs, sides, work, rows_per_shard=rows_per_shard, as_of_ms=as_of_ms, carrier=carrier)
            graph.build(p, plans)
        shards = all_results(work / _SHARDS)
        orphans = json.loads((work / _ORPHANS).read_bytes()) if actions_of(spec) else []
        for plan in plans:
            content = _content(plan, [s for s in shards if s["period"] == plan.number], orphans)
            complete(folders[plan.number], root / plan.key, manifest={"stage": "days", "content": content})


def _content(plan: DayPlan, shards: list[dict[str, Any]], orphans: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Returns what the manifest of a period says."""
    counts: dict[str, int] = {}
    for shard in shards:
        for name, count in shard["counts"].items():
            counts[name] = counts.get(name, 0) + count
    for label, period, count in orphans:
        if period == plan.number:
            name = f"orphans_{label}" if label else "orphans_of_weight"
            counts[name] = counts.get(name, 0) + count
    return {
        "number": plan.number,
        "period": plan.name,
        "counts": dict(sorted(counts.items())),
        "files": sorted(file for shard in shards for file in shard["files"]),
        "last_known_ms": max((shard["last_known_ms"] for shard in shards), default=-(2**63)),
    }


class _Graph:
    """Builds the graph; holds what its steps share."""

    def __init__(
        self,
        spec: DataSpec,
        logs: Mapping[str, Log],
        sides: SideFiles,
        work: Path,
        *,
        rows_per_shard: int,
        as_of_ms: int,
        carrier: Carrier,
    ) -> None:
        self._spec, self._logs, self._sides, self._work = spec, logs, sides, work
        self._rows_per_shard, self._as_of_ms, self._carrier = rows_per_shard, as_of_ms, carrier

    def build(self, p: beam.Pipeline, plans: Sequence[DayPlan]) -> None:
        """Adds the graph to a pipeline."""
        log = self._logs[self._spec.impressions]
        own = [task for plan in plans for task in shard_tasks(self._spec, log, plan.number, plan.shards)]
        tasks = p | "Shards" >> beam.Create([((task.period, task.shard), task) for task in own]) | beam.Reshuffle()
        join = _Join(
            self._spec,
            {plan.number: str(self._work / plan.key) for plan in plans},
            sides=self._sides,
            as_of_ms=self._as_of_ms,
            work=str(self._work),
        )
        met = self._met(p, tasks, own) if actions_of(self._spec) else tasks | "Alone" >> beam.Map(_alone)
        _ = met | "Join" >> beam.ParDo(join)

    def _met(self, p: beam.Pipeline, tasks: beam.PCollection, own: Sequence[ShardTask]) -> beam.PCollection:
        """Returns each shard together with what actions bring to its rows."""
        attributions = Attributions(
            self._spec,
            self._logs,
            own,
            rows_per_shard=self._rows_per_shard,
            as_of_ms=self._as_of_ms,
            carrier=self._carrier,
            folder=self._work / "spill",
        )
        found, orphans = attributions.build(p)
        _ = orphans | "Orphans" >> to_json(self._work / _ORPHANS)
        return {"task": tasks, "found": found} | "Meet" >> beam.CoGroupByKey()


def _alone(element: tuple[tuple[int, int], ShardTask]) -> tuple[tuple[int, int], dict[str, list[Any]]]:
    place, task = element
    return place, {"task": [task], "found": []}


class _Join(beam.DoFn):
    """Makes the labelled rows of one shard and writes a Parquet file for each part that has rows."""

    def __init__(
        self, spec: DataSpec, folders: Mapping[int, str], *, sides: SideFiles, as_of_ms: int, work: str
    ) -> None:
        self._spec, self._folders, self._files = spec, dict(folders), dict(sides)
        self._as_of_ms, self._work = as_of_ms, Path(work)
        self._sides: dict[str, pa.Table] | None = None
        self._shared = Shared()
        self._dictionaries: BlockDictionaries | None = None

    def setup(self) -> None:
        """Takes the dictionaries that all threads of this process share."""
        self._dictionaries = self._shared.acquire(BlockDictionaries)

    def process(self, element: tuple[tuple[int, int], Mapping[str, Any]]) -> None:
        _, met = element
        (task,) = met["task"]
        if self._sides is None:
            self._sides = {
                name: read_ranges(ranges, schema=event_schema(self._spec.sources[name])).combine_chunks()
                for name, ranges in self._files.items()
            }
        rows, counts = shard_rows(task, self._spec, as_of_ms=self._as_of_ms, dictionaries=self._dictionaries)
        joined = join_shard(
            rows, spec=self._spec, sides=self._sides, found=_places_found(met["found"]), as_of_ms=self._as_of_ms
        )
        files = []
        for part, table in joined.parts.items():
            if table.num_rows:
                name = f"{ROWS_FOLDER}/{part}-{task.shard:05d}.parquet"
                write_rows(table, Path(self._folders[task.period]) / name, twin=not self._spec.derived)
                files.append((part, name, table.num_rows))
        report_rows(str(self._work / "progress"), rows.num_rows)
        last = max((_last_known(table) for table in joined.parts.values()), default=-(2**63))
        result = {"period": task.period, "files": files, "counts": counts | joined.counts, "last_known_ms": last}
        put_result(self._work / _SHARDS, f"{task.period}-{task.shard}", result)


def _last_known(table: pa.Table) -> int:
    known = [pa.compute.max(table[name]).as_py() for name in table.column_names if name.startswith(KNOWN_PREFIX)]
    return max((value for value in known if value is not None), default=-(2**63))


def _places_found(pieces: Any) -> dict[str, tuple[np.ndarray, pa.Array]]:
    """Returns, by column, the rows of a shard that something was found for, and the values."""
    found: dict[str, list[pa.Table]] = {}
    for piece in sorted(pieces):
        part = Slice(*piece)
        table = read_slices([part], source=part.source, schema=None)
        found.setdefault(table.column_names[-1], []).append(table)
    tables = {name: pa.concat_tables(parts).combine_chunks() for name, parts in found.items()}
    return {name: (t["__row"].to_numpy(), t[name].combine_chunks()) for name, t in tables.items()}


def to_json(path: Path) -> beam.PTransform:
    """Returns a transform that writes all elements, plain values, as one JSON list."""

    def expand(pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | beam.combiners.ToList() | beam.Map(_write_list, str(path))

    return beam.ptransform_fn(expand)()


def _write_list(values: list[Any], path: str) -> None:
    write_json(Path(path), values)
