"""The commands about data: propose a config, look at a record, repair rejected rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipeline.config import load_config
from pipeline.init_config import Proposed, propose_config, write_config
from preprocessing.errors import ConfigError

__all__ = ["register"]

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("init")(init)
    app.command("show")(show)
    app.command("replay")(replay)


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


def show(
    *,
    target: Annotated[Path, typer.Argument(help="The config, or a file of records: DATASET/SPLIT/FILE.tfrecord.")],
    split: Annotated[str, typer.Option(help="Of the record.")] = "train",
    row: Annotated[int, typer.Option(help="Number of the record in its split, or file, from 0.")] = 0,
    raw: Annotated[
        Path | None, typer.Option(help="Follow rows of raw columns through the transform: JSON lines.")
    ] = None,
    row_id: Annotated[str | None, typer.Option(help="Follow the row with this value of data.roles.row_id.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a row, for machines.")] = False,
    set_: Overrides = None,
) -> None:
    """Decode a record of the dataset, or follow a raw row through cleaning and transform."""
    from pipeline import show_display
    from pipeline.quiet import import_tensorflow
    from pipeline.show import dataset_of, show_file, show_record
    from pipeline.show_raw import follow_row, follow_rows

    if target.name.endswith(".tfrecord"):
        if raw is not None or row_id is not None or set_:
            raise ConfigError(f"{target} is a file of records: --raw, --row-id and --set need the config instead")
        import_tensorflow()
        show_display.records([show_file(target, row=row)], as_json=as_json)
        return
    if raw is not None and row_id is not None:
        raise ConfigError("give one of --raw and --row-id")
    loaded = load_config(target, set_ or ())
    dataset = dataset_of(loaded)
    import_tensorflow()
    if raw is not None:
        show_display.followed(follow_rows(loaded, dataset, raw), as_json=as_json)
    elif row_id is not None:
        show_display.followed(follow_row(loaded, dataset, row_id), as_json=as_json)
    else:
        show_display.records([show_record(dataset, split=split, row=row)], as_json=as_json)


def replay(
    *,
    config: ConfigPath,
    folder: Annotated[Path | None, typer.Argument(help="Folder of repaired rows, exported before.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the rejected rows into this new folder.")] = None,
    set_: Overrides = None,
) -> None:
    """Export rejected rows as text to repair; take the repaired ones back in."""
    loaded = load_config(config, set_ or ())
    if (folder is None) == (export is None):
        raise ConfigError(
            "give one of --export NEW_FOLDER, to write the rejected rows, and FOLDER, to take them back in"
        )
    from pipeline import data_display
    from pipeline.replay import export_rejects, replay_rejects

    if export is not None:
        from pipeline.example_stage import find_inputs

        data_display.exported(export_rejects(loaded, find_inputs(loaded), export), export, config)
    elif folder is not None:
        data_display.replayed(replay_rejects(loaded, folder), config)


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
