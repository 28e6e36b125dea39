"""A run's plan as a person reads it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from pipeline.plan import RunPlan

__all__ = ["readable_bytes", "show_plan"]

_BYTES = ("B", "KB", "MB", "GB", "TB", "PB")


def readable_bytes(count: float) -> str:
    """Returns such as '1.5 GB', decimal multiples."""
    for unit in _BYTES[:-1]:
        if count < 999.5:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {_BYTES[-1]}"


def show_plan(plan: RunPlan, console: Console) -> None:
    """Prints tables, memory, traffic, steps and warnings."""
    _show_tables(plan, console)
    console.print(f"{plan.num_replicas} replicas, {_servers(plan)}global batch {plan.global_batch:,} rows")
    memory = plan.memory
    console.print(
        f"memory of the fullest replica: {readable_bytes(memory.total)} "
        f"(tables and slots {readable_bytes(memory.tables)}, dense {readable_bytes(memory.dense)}, "
        f"a batch {readable_bytes(memory.activations)})"
    )
    _show_cost(plan, console)
    for split in plan.splits:
        console.print(f"{split.split}: {split.rows:,} rows in {split.files} files")
    if plan.steps_per_epoch is not None:
        console.print(f"{plan.steps_per_epoch:,} steps an epoch, {plan.total_steps:,} in all")
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/] {warning}", soft_wrap=True)


def _servers(plan: RunPlan) -> str:
    if not plan.num_servers:
        return ""
    return f"{plan.num_servers} parameter servers with {readable_bytes(plan.server_bytes)} each, "


def _show_tables(plan: RunPlan, console: Console) -> None:
    view = Table("table", "rows", "width", "slots", "bytes", "placement", "on a replica", "sent a step")
    for column in view.columns[1:5] + view.columns[6:]:
        column.justify = "right"
    for table in plan.tables:
        placement = table.placement if table.owner is None else f"{table.placement} on {table.owner}"
        view.add_row(
            table.name,
            f"{table.num_rows:,}",
            str(table.width),
            str(table.slots),
            readable_bytes(table.total_bytes),
            placement,
            readable_bytes(table.replica_bytes),
            readable_bytes(table.bytes_per_step),
        )
    view.add_row(
        "all", "", "", "", readable_bytes(sum(t.total_bytes for t in plan.tables)), "",
        readable_bytes(plan.memory.tables), readable_bytes(plan.cost.exchange_bytes),
    )  # fmt: skip
    console.print(view)


def _show_cost(plan: RunPlan, console: Console) -> None:
    cost, rates = plan.cost, plan.rates
    console.print(
        f"a replica sends at most {readable_bytes(cost.exchange_bytes)} for tables and "
        f"{readable_bytes(cost.reduction_bytes)} for dense gradients in a step"
    )
    parts = ", ".join(
        f"{name} {seconds * 1e3:.3g}"
        for name, seconds in (
            ("dense layers", cost.compute_s),
            ("table rows", cost.rows_s),
            ("exchange", cost.exchange_s),
            ("reduction", cost.reduction_s),
            ("latency", cost.latency_s),
        )
    )
    rows_per_s = plan.global_batch / cost.total_s if cost.total_s else 0.0
    console.print(f"expected step: {cost.total_s * 1e3:.3g} ms ({parts}), {rows_per_s:,.0f} rows/s", soft_wrap=True)
    console.print(
        f"[dim]assumed of each replica: {rates.flops / 1e12:g} TFLOPS in dense layers, {rates.memory / 1e9:g} GB/s of "
        f"its memory at random rows, {rates.bandwidth / 1e9:g} GB/s to others, {rates.latency_s * 1e6:g} us a "
        "collective; nothing overlaps, ids are spread evenly, input keeps up[/]",
        soft_wrap=True,
    )
