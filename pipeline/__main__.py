"""The `rankmill` command: reads arguments, calls one function, prints what came of it.

TensorFlow and Beam are imported by the commands that need them: `rankmill schema` answers at once.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from pipeline import (
    cluster_commands,
    data_commands,
    deploy_commands,
    features_commands,
    report_commands,
    serve_commands,
    store_commands,
)
from pipeline.config import Config, load_config
from pipeline.interrupts import noticed_interrupts
from pipeline.quiet import import_tensorflow, quiet_libraries
from preprocessing.errors import ConfigError, RankmillError

__all__ = ["app", "main"]

app = typer.Typer(
    name="rankmill",
    help="From raw behaviour logs to a ranking model served by TensorFlow Serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_INTERRUPTED = 130


def main() -> None:
    """Runs the command line; errors made on purpose become one clear text and an exit code."""
    quiet_libraries()
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    with noticed_interrupts() as was_interrupted:
        try:
            code = app(standalone_mode=False) or 0  # the library returns the code of an early exit, as of an interrupt
        except (Exception, KeyboardInterrupt) as error:
            interrupted = was_interrupted() or isinstance(error, KeyboardInterrupt | typer.Abort)
            code = EXIT_INTERRUPTED if interrupted else _report(errors, error)
    if code == EXIT_INTERRUPTED:
        errors.print("interrupted; the same command goes on from here")
    sys.exit(code)


def _report(console: Console, error: BaseException) -> int:
    """Prints an error made on purpose and returns the exit code for it; raises any other."""
    if isinstance(error, RankmillError | OSError):
        _print_error(console, error)
        return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
    if hasattr(error, "show"):  # a usage error of the command line library
        error.show()
        return EXIT_CONFIG
    raise error


def _print_error(console: Console, error: Exception) -> None:
    console.print("[bold red]error:[/] ", end="")
    console.print(str(error), markup=False)


@app.command()
def schema() -> None:
    """Print the JSON schema of config files, for editors."""
    print(json.dumps(Config.model_json_schema(), indent=2))  # noqa: T201


@app.command()
def simulate(
    *,
    out: Annotated[Path, typer.Option(help="Folder to write the logs to; the same logs are not written twice.")],
    days: Annotated[int, typer.Option(min=1)] = 7,
    rows_per_day: Annotated[int, typer.Option(min=100, help="Impressions a day.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0)] = 7,
    dirt: Annotated[float, typer.Option(min=0, max=0.5, help="Share of rows spoiled in some way.")] = 0.0,
    start: Annotated[str, typer.Option(help="First day.", metavar="YYYY-MM-DD")] = "2026-01-05",
    time_zone: Annotated[str, typer.Option(help="Zone of the days.")] = "UTC",
) -> None:
    """Write behaviour logs of a shop whose true click probabilities are known."""
    from pipeline.display import Display
    from preprocessing.simulate import simulate as write_logs

    display = Display()
    with display.bar("simulate", total=days * rows_per_day) as bar:
        summary = write_logs(
            out,
            days=days,
            rows_per_day=rows_per_day,
            seed=seed,
            dirt=dirt,
            start=_date(start),
            time_zone=time_zone,
            progress=lambda done, _total: bar(done),
        )
    display.console.print(f"best possible AUC {summary.best_auc:.4f}, by item popularity {summary.popularity_auc:.4f}")
    display.console.print(str(out))


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--start {text}: not a day such as 2026-01-05") from error


@app.command()
def run(config: ConfigPath, set_: Overrides = None) -> None:
    """Run every stage that is not done yet: preprocess, train, export, evaluate, gate, publish."""
    import_tensorflow()
    from pipeline import line
    from pipeline.display import Display

    display = Display()
    folder = line.run(load_config(config, set_ or ()), display=display)
    display.console.print(str(folder), soft_wrap=True)


def _one(config: Path, overrides: list[str] | None, *names: str) -> None:
    import_tensorflow()
    from pipeline import line
    from pipeline.display import Display

    display = Display()
    made = line.run_stages(load_config(config, overrides or ()), names, display=display)
    display.console.print(str(made[names[-1]].folder), soft_wrap=True)


@app.command()
def preprocess(config: ConfigPath, set_: Overrides = None) -> None:
    """Logs to labelled rows to records."""
    _one(config, set_, "examples", "dataset")


@app.command()
def train(config: ConfigPath, set_: Overrides = None) -> None:
    """Records to the best checkpoint."""
    _one(config, set_, "train")


@app.command()
def export(config: ConfigPath, set_: Overrides = None) -> None:
    """The best checkpoint to a SavedModel."""
    _one(config, set_, "export")


@app.command()
def evaluate(config: ConfigPath, set_: Overrides = None) -> None:
    """Score the SavedModel on the raw rows of valid and test."""
    _one(config, set_, "evaluate")


@app.command()
def gate(config: ConfigPath, set_: Overrides = None) -> None:
    """Hold the metrics against the rules of the config."""
    import_tensorflow()
    from pipeline import line
    from pipeline.display import Display

    display = Display()
    folder = line.gate(load_config(config, set_ or ()), display=display)
    display.console.print(str(folder), soft_wrap=True)


@app.command()
def publish(
    *,
    config: ConfigPath,
    force: Annotated[bool, typer.Option("--force", help="Also if the gate said no; give --why.")] = False,
    why: Annotated[str, typer.Option(help="Stays with the version.")] = "",
    set_: Overrides = None,
) -> None:
    """Put the model that passed the gate into the store, under a new version."""
    if force != bool(why):
        raise ConfigError("--force and --why REASON are given together")
    import_tensorflow()
    from pipeline import line
    from pipeline.display import Display

    loaded = load_config(config, set_ or ())
    display = Display()
    version = line.publish(loaded, forced=why, display=display)
    display.console.print(str(loaded.store() / str(version)), soft_wrap=True)


@app.command()
def serve(config: ConfigPath, set_: Overrides = None) -> None:
    """Serve the labelled versions of the store until interrupted; labels may move meanwhile."""
    import_tensorflow()
    from pipeline.serve import serve_forever

    serve_forever(load_config(config, set_ or ()))


@app.command()
def predict(
    *,
    config: ConfigPath,
    rows: Annotated[Path | None, typer.Option(help="JSON lines, an object of raw columns each; - is stdin.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Instead of --rows: so many rows of the test split.")] = 0,
    api: Annotated[Literal["grpc", "rest"], typer.Option(help="Which of TF Serving's protocols to use.")] = "grpc",
    wait_s: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the server to come up.")] = 0.0,
    set_: Overrides = None,
) -> None:
    """Send rows to the model server and print their scores, a JSON object a row."""
    from pipeline.serve import predict_rows

    loaded = load_config(config, set_ or ())
    if api == "grpc":
        import_tensorflow()

    for scores in predict_rows(loaded, rows=rows, sample=sample, api=api, wait_s=wait_s):
        print(json.dumps(scores))  # noqa: T201


data_commands.register(app)
cluster_commands.register(app)
deploy_commands.register(app)
features_commands.register(app)
report_commands.register(app)
serve_commands.register(app)
store_commands.register(app)

if __name__ == "__main__":
    main()
