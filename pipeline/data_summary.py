"""The data report in a terminal: what came in, what was found, what moved most, in some twenty lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.column_figures import shown_name
from pipeline.data_report import DataReport

__all__ = ["data_summary"]

_MAX_FINDINGS = 5
_MAX_SOURCES = 5
_MAX_DRIFT = 4


def data_summary(report: DataReport) -> RenderableType:
    """Returns what a person should know of the data of a run without opening the page."""
    return Group(*_lines(report))


def _lines(report: DataReport) -> Iterator[RenderableType]:
    yield _sources(report)
    rates = ", ".join(f"{label} {_rate(report, label)}" for label in report.labels)
    yield Text(f"labelled rows {report.num_rows:,} in {len(report.periods)} period(s); positive: {rates}")
    if report.previous_rows is None:
        yield Text("no run before this one to compare with", style="dim")
    else:
        yield _drift(report)
    for finding in report.findings[:_MAX_FINDINGS]:
        yield Text(f"{finding.verdict}: {finding.message}", style="bold red" if finding.verdict == "fail" else "yellow")
    if len(report.findings) > _MAX_FINDINGS:
        yield Text(f"and {len(report.findings) - _MAX_FINDINGS} more findings, in the report", style="dim")


def _sources(report: DataReport) -> Table:
    table = Table("source", "rows", "rejected", "reasons")
    for name, total in list(report.sources.items())[:_MAX_SOURCES]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(total["reasons"].items()))
        table.add_row(Text(name), f"{total['rows']:,}", f"{total['rejected']:,}", Text(reasons))
    if len(report.sources) > _MAX_SOURCES:
        table.add_row(f"and {len(report.sources) - _MAX_SOURCES} more")
    return table


def _rate(report: DataReport, label: str) -> str:
    known = [(period.num_rows, period.label_rates[label]) for period in report.periods]
    rows = sum(num_rows for num_rows, rate in known if rate is not None)
    return "-" if not rows else f"{sum(num_rows * (rate or 0.0) for num_rows, rate in known) / rows:.2%}"


def _drift(report: DataReport) -> Table:
    table = Table("moved most since the last run", "PSI", "by chance", "Jensen-Shannon", "new tokens")
    for name, one in list(report.drift.items())[:_MAX_DRIFT]:
        new = "" if one.new_token_share is None else f"{one.new_token_share:.2%}"
        table.add_row(Text(shown_name(name)), f"{one.psi:.4f}", f"{one.chance:.4f}", f"{one.jensen_shannon:.4f}", new)
    return table
