"""The data report: what was read, kept and rejected, what each column holds, and how it has moved since the last run.

A `DataReport` is plain values. `to_json` stores it, `pipeline.report_page` shows it in a browser and
`pipeline.data_summary` in a terminal.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.column_figures import ColumnFigures, column_figures
from preprocessing.data_checks import Finding, check_findings
from preprocessing.drift import ColumnDrift, drift
from preprocessing.profile import Profile, label_counts, merge_all
from preprocessing.spec import DataCheck

__all__ = ["ColumnFigures", "DataReport", "PeriodFigures", "build_report", "to_json"]


@dataclasses.dataclass(frozen=True)
class PeriodFigures:
    """Rows of one period and the rate of each label in it (None of no rows)."""

    period: str
    num_rows: int
    label_rates: dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class DataReport:
    """What a run found in its data.

    Attributes:
        name: of the config.
        num_rows: labelled rows of all periods.
        counts: what became of the impressions, by name.
        sources: of each source, files, rows, rejected and reasons.
        labels: their names.
        periods: in order of time.
        columns: in the order of the rows.
        previous_rows: labelled rows of the run before; None without one.
        drift: of the columns compared with the run before, by falling PSI; empty without one.
        columns_added: not in the run before.
        columns_removed: in the run before only.
        columns_retyped: of another kind in the run before.
        findings: what breaks a check, failures first.
    """

    name: str
    num_rows: int
    counts: dict[str, int]
    sources: dict[str, dict[str, Any]]
    labels: tuple[str, ...]
    periods: tuple[PeriodFigures, ...]
    columns: tuple[ColumnFigures, ...]
    previous_rows: int | None
    drift: dict[str, ColumnDrift]
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    columns_retyped: tuple[str, ...]
    findings: tuple[Finding, ...]


def build_report(
    *,
    name: str,
    counts: Mapping[str, int],
    sources: Mapping[str, Mapping[str, Any]],
    periods: Iterable[tuple[str, Profile]],
    previous: Profile | None,
    checks: Sequence[DataCheck],
    clocks: Collection[str] = (),
    not_compared: Collection[str] = (),
) -> DataReport:
    """Returns the report of a run.

    Args:
        name: of the config.
        counts: of the examples' summary.
        sources: of the examples' summary.
        periods: (period, profile of some of its rows), in any order; those of one period are added up,
            and no more than a few are held at a time, so give an iterator where they are many.
        previous: the profile of the run before, if there was one.
        checks: limits.
        clocks: columns of ms since 1970 UTC; shown as times, and not compared.
        not_compared: further columns that differ by nature, such as row ids.

    Raises:
        ArtefactError: there is no period, or periods have different columns.
    """
    tallies: dict[str, _Tally] = {}
    current = merge_all(_tallied(periods, tallies))
    moved = None if previous is None else drift(previous, current, without={*clocks, *not_compared})
    before = current.columns if previous is None else previous.columns
    shared = [column for column in current.columns if column in before]
    return DataReport(
        name=name,
        num_rows=current.num_rows,
        counts=dict(counts),
        sources={source: dict(total) for source, total in sources.items()},
        labels=current.labels,
        periods=tuple(_period(period, tally) for period, tally in sorted(tallies.items())),
        columns=tuple(
            column_figures(column, one, is_clock=column in clocks) for column, one in current.columns.items()
        ),
        previous_rows=None if previous is None else previous.num_rows,
        drift=dict(sorted((moved or {}).items(), key=lambda item: -item[1].psi)),
        columns_added=tuple(column for column in current.columns if column not in before),
        columns_removed=tuple(column for column in before if column not in current.columns),
        columns_retyped=tuple(column for column in shared if before[column].kind != current.columns[column].kind),
        findings=tuple(check_findings(checks, current, moved)),
    )


@dataclasses.dataclass
class _Tally:
    """Rows of a period, and of each label its positives and all that have it."""

    num_rows: int = 0
    positives: Counter[str] = dataclasses.field(default_factory=Counter)
    labelled: Counter[str] = dataclasses.field(default_factory=Counter)


def _tallied(periods: Iterable[tuple[str, Profile]], tallies: dict[str, _Tally]) -> Iterator[Profile]:
    """Passes profiles on, and adds each to the tally of its period."""
    for period, one in periods:
        tally = tallies.setdefault(period, _Tally())
        tally.num_rows += one.num_rows
        for label in one.labels:
            positives, labelled = label_counts(one, label)
            tally.positives[label] += positives
            tally.labelled[label] += labelled
        yield one


def _period(period: str, tally: _Tally) -> PeriodFigures:
    rates = {label: tally.positives[label] / total if total else None for label, total in tally.labelled.items()}
    return PeriodFigures(period, tally.num_rows, rates)


def to_json(report: DataReport) -> dict[str, Any]:
    """Returns the report as JSON values."""
    return dataclasses.asdict(report)
