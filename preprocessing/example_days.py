"""From files to labelled examples, period by period: what is there already is used, what changed is made anew.

    WORK/ingest/<key>/    a file of a log, cleaned                                        (`ingest`)
    WORK/days/<key>/      a period, joined and labelled                                   (`days_job`)
    WORK/derived/<key>/   a period with its point-in-time columns, and the state after it (`derive_job`)

A daily run reads the new files, labels the new period and those that late rows touched, and goes on from the state
of the period before. The result equals that of one run over everything, byte for byte.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocessing.day_plan import DayPlan, plan_days
from preprocessing.days_job import label_days
from preprocessing.derive_job import derive_days
from preprocessing.derive_plan import Link, plan_derived
from preprocessing.errors import SourceError
from preprocessing.ingest import IngestUnit, ingest_files
from preprocessing.inventory import Log
from preprocessing.log_sources import SourceFile, cleaned_source, clock_of, event_sources, side_sources
from preprocessing.manifest import digest, exists, read_manifest, write_json
from preprocessing.runner import MakePipeline
from preprocessing.sources import Split, is_large_text, plan_splits
from preprocessing.spec import DataSpec, SourceSpec

__all__ = ["Period", "ingest_units", "make_examples"]

# Periods are labelled together up to so many rows, so that a run that is killed loses no more than these.
_ROWS_AT_A_TIME = 25_000_000


@dataclasses.dataclass(frozen=True)
class Period:
    """A finished period.

    Attributes:
        number: periods since 1970.
        name: such as 2026-11-30.
        key: digest of everything that its rows follow from.
        folder: where its files are, relative to the work folder.
        files: (part, file relative to `folder`, rows).
        counts: what the job counted.
        state: folder of the state after it, relative to the work folder; None without derived columns.
    """

    number: int
    name: str
    key: str
    folder: str
    files: list[tuple[str, str, int]]
    counts: dict[str, int]
    state: str | None


def ingest_units(
    spec: DataSpec, files: Mapping[str, Sequence[SourceFile]], *, root: Path, split_bytes: int, now_ms: int
) -> dict[str, list[IngestUnit]]:
    """Returns the units of each source that is used, in the order of its files.

    Args:
        spec: the data section of the config.
        files: of each source, its files.
        root: folder of ingested files; where a large file is cut is kept there too.
        split_bytes: larger text files are read in parts.
        now_ms: the clock of the run.
    """
    units = {}
    for source in [*event_sources(spec), *side_sources(spec)]:
        clock = clock_of(spec, source) if source in event_sources(spec) else None
        cleaned = cleaned_source(spec, source)
        units[source] = [
            IngestUnit(source, cleaned, clock, file.path, split, file.fingerprint, now_ms)
            for file in files[source]
            for split in _splits(file, cleaned, root=root, split_bytes=split_bytes)
        ]
    return units


def _splits(file: SourceFile, spec: SourceSpec, *, root: Path, split_bytes: int) -> list[Split | None]:
    """Returns the parts of a file; where to cut a large one is found once, by reading it."""
    if not is_large_text(file.path, spec, split_bytes=split_bytes):
        return [None]
    rules = spec.model_dump(mode="json", exclude={"paths", "duplicates", "day_partition"})
    kept = root / f"splits-{digest([file.fingerprint, split_bytes, rules])}.json"
    if not kept.exists():
        root.mkdir(parents=True, exist_ok=True)
        write_json(kept, plan_splits(file.path, spec, split_bytes=split_bytes))
    return [None if split is None else Split(*split) for split in json.loads(kept.read_bytes())]


def make_examples(
    spec: DataSpec,
    files: Mapping[str, Sequence[SourceFile]],
    *,
    work: Path,
    rows_per_shard: int,
    split_bytes: int,
    as_of_ms: int,
    now_ms: int,
    pipeline: MakePipeline,
    observe: Callable[[str, int], None] = lambda step, rows: None,
    check: Callable[[dict[str, Log], list[DayPlan]], None] = lambda logs, plans: None,
) -> tuple[list[Period], dict[str, Log]]:
    """Returns the finished periods in order, and what was ingested of each source.

    Args:
        spec: the data section of the config.
        files: of each source, its files in order.
        work: the work folder.
        rows_per_shard: about the largest number of impressions of a period in one file.
        split_bytes: larger text files are read in parts.
        as_of_ms: what arrives later is not seen.
        now_ms: the clock of the run; event times beyond it and the tolerance are rejects.
        pipeline: makes a Beam pipeline.
        observe: told the step and the number of rows it has done so far.
        check: called once all files are ingested; it raises if there is no point in going on.
    """
    units = ingest_units(spec, files, root=work / "ingest", split_bytes=split_bytes, now_ms=now_ms)
    flat = list({unit.key: unit for members in units.values() for unit in members}.values())
    ingest_files(flat, root=work / "ingest", pipeline=pipeline, observe=lambda rows: observe("ingest", rows))
    logs = {name: Log.load(work / "ingest", [unit.key for unit in members]) for name, members in units.items()}
    sides = {name: [unit.key for unit in units[name]] for name in side_sources(spec)}
    plans = plan_days(spec, logs, sides=sides, rows_per_shard=rows_per_shard, as_of_ms=as_of_ms)
    check(logs, plans)
    if not plans:
        raise SourceError("no impression lies within data.days; widen the range, or look at data.sources")
    label = functools.partial(
        label_days,
        spec,
        logs={name: logs[name] for name in event_sources(spec)},
        sides={name: logs[name].all_ranges() for name in side_sources(spec)},
        root=work / "days",
        rows_per_shard=rows_per_shard,
        as_of_ms=as_of_ms,
        pipeline=pipeline,
    )
    _label_missing(label, plans, logs[spec.impressions], root=work / "days", observe=observe)
    contents = [read_manifest(work / "days" / plan.key)["content"] for plan in plans]
    derive = functools.partial(
        derive_days,
        spec,
        work=work,
        rows_per_partition=rows_per_shard,
        pipeline=pipeline,
        observe=lambda rows: observe("derive", rows),
    )
    chain = plan_derived(spec, plans, contents, logs[spec.impressions]) if spec.derived else []
    return _periods(plans, contents, chain, derive, work=work), logs


def _label_missing(
    label: Callable[..., None],
    plans: Sequence[DayPlan],
    log: Log,
    *,
    root: Path,
    observe: Callable[[str, int], None],
) -> None:
    """Labels the periods that are not there yet, some at a time."""
    done_rows = 0
    for batch in _batches([plan for plan in plans if not exists(root / plan.key)], log):
        label(batch, observe=functools.partial(_observe_after, observe, done_rows))
        done_rows += sum(log.periods[plan.number]["rows"] for plan in batch)


def _periods(
    plans: Sequence[DayPlan],
    contents: Sequence[Mapping[str, Any]],
    chain: Sequence[Link],
    derive: Callable[..., None],
    *,
    work: Path,
) -> list[Period]:
    """Returns the finished periods; those of a chain once `derive` has added their point-in-time columns."""
    if not chain:
        return [_period(plan, content, "days", plan.key, None) for plan, content in zip(plans, contents, strict=True)]
    derive(chain)
    periods = []
    for plan, content, link in zip(plans, contents, chain, strict=True):
        derived = read_manifest(work / "derived" / link.key)["content"]
        periods.append(_period(plan, {**content, "files": derived["files"]}, "derived", link.key, "state"))
    return periods


def _observe_after(observe: Callable[[str, int], None], before: int, rows: int) -> None:
    observe("label", before + rows)


def _period(plan: DayPlan, content: Mapping[str, Any], kind: str, key: str, state: str | None) -> Period:
    folder = f"{kind}/{key}"
    files = [(part, name, rows) for part, name, rows in content["files"]]
    return Period(
        plan.number,
        plan.name,
        key,
        folder,
        files,
        dict(content["counts"]),
        None if state is None else f"{folder}/{state}",
    )


def _batches(plans: Sequence[DayPlan], log: Log) -> list[list[DayPlan]]:
    """Returns runs of periods of about `_ROWS_AT_A_TIME` rows together."""
    batches: list[list[DayPlan]] = []
    rows = 0
    for plan in plans:
        if not batches or rows + log.periods[plan.number]["rows"] > _ROWS_AT_A_TIME:
            batches.append([])
            rows = 0
        batches[-1].append(plan)
        rows += log.periods[plan.number]["rows"]
    return batches
