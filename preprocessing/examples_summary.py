"""What was read, labelled and left out, and whether that is fit to learn from."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocessing.dataset_job import RowFile
from preprocessing.errors import DataError, LabelError, RejectBudgetError, SourceError
from preprocessing.example_days import Period
from preprocessing.inventory import Log
from preprocessing.joining import ALL
from preprocessing.spec import SPLITS, DataSpec, RollingSplit, TimeSplit

__all__ = ["ExamplesSummary", "check_examples", "check_sources", "split_files", "summarise", "training_windows"]

_EPOCH = dt.date(1970, 1, 1)


@dataclasses.dataclass(frozen=True)
class ExamplesSummary:
    """What there is after labelling.

    Attributes:
        sources: of each source: files, rows, rejected, too_late, and rejects by reason.
        counts: sums over all periods: duplicates, unmatched joins, held_back, orphans, rows and positives by split, ...
        label_rates: of each label, (period, rows, positives).
        held_back: impressions whose labels may still change.
    """

    sources: dict[str, dict[str, Any]]
    counts: dict[str, int]
    label_rates: dict[str, list[tuple[str, int, int]]]
    held_back: int


def summarise(spec: DataSpec, periods: Sequence[Period], logs: Mapping[str, Log]) -> ExamplesSummary:
    """Returns the summary of finished periods."""
    counts: dict[str, int] = {f"{split}_rows": 0 for split in SPLITS}
    counts |= {f"{split}_positive_{label.name}": 0 for split in SPLITS for label in spec.labels}
    rates: dict[str, list[tuple[str, int, int]]] = {label.name: [] for label in spec.labels}
    for period in periods:
        for name, count in period.counts.items():
            counted = _counted_as(name, spec, period)
            counts[counted] = counts.get(counted, 0) + count
        for label in spec.labels:
            rows, positives = (_over_parts(period, suffix) for suffix in ("rows", f"positive_{label.name}"))
            rates[label.name].append((period.name, rows, positives))
    return ExamplesSummary(
        {name: _source(log) for name, log in sorted(logs.items())},
        dict(sorted(counts.items())),
        rates,
        counts.get("held_back", 0),
    )


def _source(log: Log) -> dict[str, Any]:
    reasons: dict[str, int] = {}
    for content in log.contents:
        for reason, count in content["reasons"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    return {
        "files": len({content["path"] for content in log.contents}),
        "rows": sum(content["rows"] for content in log.contents),
        "kept": sum(content["kept"] for content in log.contents),
        "rejected": sum(reasons.values()),
        "too_late": sum(content["too_late"] for content in log.contents),
        "reasons": dict(sorted(reasons.items())),
    }


def _counted_as(name: str, spec: DataSpec, period: Period) -> str:
    """Returns the name of a count of a period: what is split by day counts for the split of the day."""
    if not name.startswith(f"{ALL}_"):
        return name
    split = _split_of(spec.time_split(), period)
    if split is None:
        return "outside_splits" if name == f"{ALL}_rows" else f"outside_splits_{name.removeprefix(f'{ALL}_')}"
    return f"{split}_{name.removeprefix(f'{ALL}_')}"


def _over_parts(period: Period, suffix: str) -> int:
    return sum(period.counts.get(f"{part}_{suffix}", 0) for part in (ALL, *SPLITS))


def _split_of(split: TimeSplit | None, period: Period) -> str | None:
    if split is None:
        return None
    day = _EPOCH + dt.timedelta(days=period.number)
    if (split.train_from is not None and day < split.train_from) or (
        split.test_until is not None and day > split.test_until
    ):
        return None
    return "train" if day <= split.train_until else "valid" if day <= split.valid_until else "test"


def split_files(spec: DataSpec, periods: Sequence[Period]) -> dict[str, list[RowFile]]:
    """Returns the files of labelled rows of each split, in the order of time."""
    files: dict[str, list[RowFile]] = {split: [] for split in SPLITS}
    for period in periods:
        for part, name, rows in period.files:
            split = _split_of(spec.time_split(), period) if part == ALL else part
            if split in files:
                files[split].append(RowFile(period.name, f"{period.folder}/{name}", rows))
    return files


def training_windows(spec: DataSpec, periods: Sequence[Period], *, since: dt.date) -> list[list[RowFile]]:
    """Returns the files of the training window of each day from `since` to the last training day, oldest first.

    A day without examples has no window of its own.
    """
    split = spec.time_split()
    if split is None:
        raise DataError("a vocabulary grows along days: data.split must be of kind time or rolling")
    rolls = spec.split.train_days if isinstance(spec.split, RollingSplit) else None
    files = [
        (_EPOCH + dt.timedelta(days=period.number), RowFile(period.name, f"{period.folder}/{name}", rows))
        for period in periods
        for part, name, rows in period.files
        if part == ALL
    ]
    ends = sorted({day for day, _ in files if since <= day <= split.train_until})
    windows = []
    for end in ends:
        first = split.train_from if rolls is None else end - dt.timedelta(days=rolls - 1)
        windows.append([file for day, file in files if day <= end and (first is None or day >= first)])
    return windows


def check_sources(spec: DataSpec, logs: Mapping[str, Log], *, rejects: str, repaired: Mapping[str, int]) -> None:
    """Passes if every source holds rows and little enough was rejected.

    Args:
        spec: the data section of the config.
        logs: what was ingested.
        rejects: where the dead letters are, for the message.
        repaired: of each source, how many rejects have been replayed: they no longer count.

    Raises:
        SourceError: a source holds no row.
        RejectBudgetError: more was rejected than `data.max_reject_share`.
    """
    for name, log in logs.items():
        total = _source(log)
        if total["rows"] == 0:
            raise SourceError(f"data.sources.{name}: {total['files']} file(s) hold no row; there is nothing to do")
        rejected = max(0, total["rejected"] - repaired.get(name, 0))
        share = rejected / total["rows"]
        if share > spec.max_reject_share or rejected == total["rows"]:
            reasons = ", ".join(f"{reason} {count}" for reason, count in total["reasons"].items())
            raise RejectBudgetError(
                f"data.sources.{name}: {rejected} of {total['rows']} rows rejected ({share:.2%}), more than "
                f"data.max_reject_share = {spec.max_reject_share:.2%}: {reasons}; see {rejects}"
            )


def check_examples(
    summary: ExamplesSummary, spec: DataSpec, logs: Mapping[str, Log], periods: Sequence[Period]
) -> None:
    """Passes if no row was lost, and every split can be learned from or judged by.

    Raises:
        DataError: rows were lost on the way, or a split has none.
        LabelError: a label is the same in all rows of a split.
    """
    read = sum(logs[spec.impressions].periods[period.number]["rows"] for period in periods)
    if summary.counts["rows"] != read:
        raise DataError(
            f"data.sources.{spec.impressions}: {read} rows were read and kept, {summary.counts['rows']} reached the "
            "join; the runner lost or repeated some, so nothing is written; run the same command again"
        )
    held = f"; {summary.held_back} rows are held back until their labels are known" if summary.held_back else ""
    for split in SPLITS:
        num_rows = summary.counts[f"{split}_rows"]
        if num_rows == 0:
            raise DataError(
                f"split {split!r} has no rows; data.split does not fit the days or values in the data{held}"
            )
        for label in spec.labels:
            positive = summary.counts[f"{split}_positive_{label.name}"]
            if positive in (0, num_rows):
                only = 1 if positive else 0
                raise LabelError(
                    f"label {label.name!r} is {only} in all {num_rows} rows of split {split!r}: nothing can be learned "
                    "from one class; look at data.labels, the action log's key and window, and data.split"
                )


def rejects_of(work: Path, logs: Mapping[str, Log]) -> list[Path]:
    """Returns the dead-letter files of all sources."""
    keys = [key for _, log in sorted(logs.items()) for key in log.keys]
    return [path for key in keys if (path := work / "ingest" / key / "rejects.parquet").exists()]
