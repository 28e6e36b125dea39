"""What the examples job read and wrote, and whether that is fit to learn from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from preprocessing.errors import DataError, LabelError, RejectBudgetError, SourceError
from preprocessing.spec import SPLITS, DataSpec

__all__ = ["ExamplesSummary", "check_summary", "summarise"]


@dataclasses.dataclass(frozen=True)
class ExamplesSummary:
    """What the job read and wrote.

    Attributes:
        sources: of each source, rows read, rejected, and rejected by reason.
        counts: sums over all partitions: duplicates, unmatched joins, rows and positives by split, ...
        shards: of each split, (period, file relative to the artefact, rows), sorted.
    """

    sources: dict[str, dict[str, Any]]
    counts: dict[str, int]
    shards: dict[str, list[tuple[str, str, int]]]


def summarise(reads: list[dict[str, Any]], partitions: list[dict[str, Any]]) -> ExamplesSummary:
    """Returns the summary of what each file and each partition reported, whatever the order they came in."""
    sources: dict[str, dict[str, Any]] = {}
    for read in sorted(reads, key=lambda read: (read["source"], read["path"])):
        total = sources.setdefault(read["source"], {"files": 0, "rows": 0, "rejected": 0, "reasons": {}})
        total["files"] += 1
        total["rows"] += read["rows"]
        total["rejected"] += sum(read["reasons"].values())
        for reason, count in read["reasons"].items():
            total["reasons"][reason] = total["reasons"].get(reason, 0) + count
    counts: dict[str, int] = {}
    shards: dict[str, list[tuple[str, str, int]]] = {split: [] for split in SPLITS}
    for partition in partitions:
        for name, count in partition["counts"].items():
            counts[name] = counts.get(name, 0) + count
        for split, period, path, num_rows in partition["shards"]:
            shards[split].append((period, path, num_rows))
    return ExamplesSummary(sources, dict(sorted(counts.items())), {split: sorted(shards[split]) for split in SPLITS})


def check_summary(summary: ExamplesSummary, spec: DataSpec, *, rejects: Path) -> None:
    """Passes if enough was read, little enough rejected, and every split can be learned from or judged by.

    Raises:
        SourceError: a source holds no row.
        RejectBudgetError: more was rejected than `data.max_reject_share`; the rows are in `rejects`.
        LabelError: a label is the same in all rows of a split.
        DataError: a split has no rows.
    """
    for name, total in summary.sources.items():
        if total["rows"] == 0:
            raise SourceError(f"data.sources.{name}: {total['files']} file(s) hold no row; there is nothing to do")
        share = total["rejected"] / total["rows"]
        if share > spec.max_reject_share or total["rejected"] == total["rows"]:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(total["reasons"].items()))
            raise RejectBudgetError(
                f"data.sources.{name}: {total['rejected']} of {total['rows']} rows rejected ({share:.2%}), more than "
                f"data.max_reject_share = {spec.max_reject_share:.2%}: {reasons}; see {rejects}"
            )
    _check_all_arrived(summary, spec)
    for split in SPLITS:
        num_rows = summary.counts.get(f"{split}_rows", 0)
        if num_rows == 0:
            raise DataError(f"split {split!r} has no rows; data.split does not fit the days or values in the data")
        for label in spec.labels:
            positive = summary.counts[f"{split}_positive_{label.name}"]
            if positive in (0, num_rows):
                only = 1 if positive else 0
                raise LabelError(
                    f"label {label.name!r} is {only} in all {num_rows} rows of split {split!r}: nothing can be learned "
                    "from one class; look at data.labels, the action log's key and window, and data.split"
                )


def _check_all_arrived(summary: ExamplesSummary, spec: DataSpec) -> None:
    """Passes if every impression that was read and kept has been joined, or counted as a duplicate before."""
    total = summary.sources[spec.impressions]
    by_key = spec.sources[spec.impressions].duplicates not in ("row", "keep")
    arrived = summary.counts["rows"] + (summary.counts["duplicates"] if by_key else 0)
    if arrived != total["rows"] - total["rejected"]:
        raise DataError(
            f"data.sources.{spec.impressions}: {total['rows'] - total['rejected']} rows were read and kept, {arrived} "
            "reached the join; the runner lost or repeated some, so nothing is written; run the same command again"
        )
