"""The commands that make pages and tables of runs: `report`, `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.config import load_config
from pipeline.quiet import import_tensorflow

__all__ = ["register"]

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(report)
    app.command()(compare)


def report(config: ConfigPath, set_: Overrides = None) -> None:
    """Write the report of a finished run again and print its path; `rankmill run` writes it too."""
    import_tensorflow()
    from pipeline import runs, stages
    from pipeline.artefacts import open_artefact
    from pipeline.display import Display
    from pipeline.run_report import write_run_report

    loaded = load_config(config, set_ or ())
    evaluation = open_artefact(stages.plan("evaluate", loaded, stages.find_inputs(loaded)))
    path = write_run_report(loaded, runs.open_run(loaded, evaluation))
    Display().console.print(str(path), soft_wrap=True)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, such as work/runs/demo-1234abcd.")],
    *,
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    html: Annotated[Path | None, typer.Option(help="Also write a page with plots.")] = None,
) -> None:
    """Show runs side by side: what differs in their configs, their figures, where the intervals lie."""
    from pipeline.compare import compared, show_comparison, write_comparison
    from pipeline.display import Display

    console = Display().console
    found = compared(runs, split=split)
    show_comparison(found, console)
    if html is not None:
        write_comparison(found, html)
        console.print(str(html), soft_wrap=True)
