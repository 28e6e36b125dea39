"""The commands about data: propose a config, look at a record, repair rejected rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipeline.init_config import Proposed, propose_config, write_config

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("init")(init)


def init(
    *,
    data: Annotated[Path, typer.Argument(help="A log file, or a folder with logs and side tables.")],
    out: Annotated[Path, typer.Option(help="Where to write the config.")] = Path("config.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the config that is there.")] = False,
) -> None:
    """Look at logs and propose a config for them, with comments on what to decide."""
    proposed = propose_config(data)
    write_config(proposed, out, force=force)
    console = Console(highlight=False)
    console.print(_overview(proposed))
    label = proposed.plan.label
    what = label.column or label.when or (f"actions in {label.action.table.name}" if label.action else "")
    console.print(f"label {label.name}: {what}; {proposed.num_features} features", markup=False, soft_wrap=True)
    for pattern, reason in proposed.found.skipped:
        console.print(f"not used: {pattern} ({reason})", style="dim", markup=False, soft_wrap=True)
    console.print(f"read the comments in {out}, then: rankmill preprocess {out}", markup=False, soft_wrap=True)


def _overview(proposed: Proposed) -> Table:
    """Returns a row for each source: what it was taken for."""
    plan, features = proposed.plan, {lines.table.name: len(lines.features) for _, lines in proposed.sides}
    features[plan.impressions.name] = len(proposed.impressions.features)
    parts = {plan.impressions.name: "impressions"}
    parts |= {lines.table.name: f"side table by {key}" for key, lines in proposed.sides}
    if plan.label.action is not None:
        parts[plan.label.action.table.name] = "action log"
    table = Table("source", "files", "rows, about", "columns", "features", "taken for")
    for found in proposed.found.tables:
        made = features.get(found.name)
        table.add_row(
            found.name,
            str(found.num_files),
            f"{found.rows:,}",
            str(len(found.columns)),
            "" if made is None else str(made),
            parts.get(found.name, "not used"),
        )
    return table
