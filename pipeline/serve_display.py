"""What the commands about a running server print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from preprocessing.shown_text import shown_text
from serving.load_figures import LoadResult
from serving.monitor import Monitored, Watched
from serving.shadow import Difference

__all__ = ["differences", "load_result", "monitored"]

_LONG = 160


def load_result(result: LoadResult, paths: Sequence[Path]) -> None:
    """Prints the figures of a load test."""
    console = Console(highlight=False)
    table = Table("ms", "latency", "from when sent", "sent late by")
    for share in result.lateness_ms:
        parts = (result.latency_ms, result.service_ms, result.lateness_ms)
        table.add_row(share, *(f"{part[share]:,.2f}" if share in part else "" for part in parts))
    console.print(table)
    errors = ", ".join(f"{count:,} {code}" for code, count in result.errors.items()) or "none"
    console.print(
        f"{result.num_ok:,} of {result.num_due:,} answered, {result.achieved_qps:,.1f} a second of "
        f"{result.offered_qps:,.1f} offered; errors: {errors}"
    )
    if result.client_is_late:
        console.print(
            "[yellow]the client could not keep its own schedule: latencies say more of it than of the server; "
            "lower --qps, add --processes, or send from another machine[/]",
            soft_wrap=True,
        )
    for path in paths:
        console.print(str(path), markup=False, soft_wrap=True)


def differences(found: Mapping[str, Difference], *, base: str, against: str, tolerance: float) -> None:
    """Prints how the scores of two sides differ."""
    console = Console(highlight=False)
    first = next(iter(found.values()))
    table = Table(
        "output", "rows", "largest", *first.quantiles, f"above {tolerance:g}", "mean change", "rank correlation"
    )
    for name, one in found.items():
        correlation = "undefined" if one.correlation is None else f"{one.correlation:.6f}"
        table.add_row(
            escape(name),
            f"{one.num_rows:,}",
            f"{one.largest:.3g}",
            *(f"{value:.3g}" for value in one.quantiles.values()),
            f"{one.above:.2%}",
            f"{one.mean:+.3g}",
            correlation,
        )
    console.print(table)
    for name, one in found.items():
        if one.undefined:
            console.print(f"{name}: {one.undefined:,} rows are scored by one side only", markup=False)
        for row in one.worst:
            if row.base != row.other:
                text = f"{name}: {base} {row.base:.6g}, {against} {row.other:.6g}: {_row(row.row)}"
                console.print(text, markup=False, soft_wrap=True)


def _row(row: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={_value(value)}" for name, value in row.items())
    return text if len(text) <= _LONG else text[:_LONG] + " ..."


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + " ".join(map(_value, value)) + "]"
    return shown_text(value) if isinstance(value, bytes) else f"{value:.6g}" if isinstance(value, float) else str(value)


def monitored(found: Monitored, page: Path | None) -> None:
    """Prints requests held against the training data, and what passes a limit."""
    console = Console(highlight=False)
    table = Table("column", "PSI", "chance", "JS", "missing, in training", "OOV", "mean, in training")
    for one in found.columns:
        table.add_row(*_cells(one))
    console.print(table)
    console.print(f"{found.num_rows:,} requested rows against {found.reference_rows:,} of the training split")
    for text in found.all_findings():
        console.print(f"[red]{escape(text)}[/]", soft_wrap=True)
    if not found.all_findings():
        console.print("nothing passes a limit")
    if page is not None:
        console.print(str(page), markup=False, soft_wrap=True)


def _cells(one: Watched) -> list[str]:
    """Returns a column as the cells of a table."""
    moved = one.drift
    before, now = one.missing
    mean_before, mean = one.means
    return [
        escape(f"score {one.name}" if one.is_score else one.name),
        "" if moved is None else f"{moved.psi:.4f}",
        "" if moved is None else f"{moved.chance:.4f}",
        "" if moved is None else f"{moved.jensen_shannon:.4f}",
        f"{now:.2%}" + ("" if before is None else f", {before:.2%}"),
        "" if one.oov_share is None else f"{one.oov_share:.2%}",
        "" if mean is None else f"{mean:.4g}" + ("" if mean_before is None else f", {mean_before:.4g}"),
    ]
