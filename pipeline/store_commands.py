"""The commands about versions: list, promote, roll back, retire, pin, history, sync."""

from __future__ import annotations

import datetime as dt
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.config import load_config
from pipeline.quiet import import_tensorflow
from preprocessing.errors import ConfigError

__all__ = ["register"]

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Version = Annotated[int, typer.Argument(help="Number of the version, as `rankmill versions` lists it.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]
Why = Annotated[str, typer.Option("--why", help="Stays in the history.")]
_MiB = 1 << 20


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("versions")(versions)
    app.command("promote")(promote)
    app.command("rollback")(rollback)
    app.command("retire")(retire)
    app.command("pin")(pin)
    app.command("unpin")(unpin)
    app.command("history")(history)
    app.command("sync")(sync)


def versions(
    config: ConfigPath,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a version, for machines.")] = False,
    set_: Overrides = None,
) -> None:
    """List the versions in the store: labels, pins, age, size, metrics, who published or promoted them and why."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving.lifecycle import list_infos

    console, loaded = _console(), load_config(config, set_ or ())
    place = place_of(loaded, _dim(console))
    infos = list_infos(place)
    if as_json:
        for info in infos:
            print(json.dumps({**vars(info), "pin": info.pin and vars(info.pin)}, default=str))  # noqa: T201
        return
    table = Table("version", "labels", "pinned", "age", "MiB", "metrics", "loaded at", "who", "why")
    now = dt.datetime.now(dt.UTC)
    for info in infos:
        pinned = "" if info.pin is None else ("served " if info.pin.served else "yes ") + info.pin.why
        figures = _figures(info.metadata.get("metrics"))
        size = f"{info.size_bytes / _MiB:.1f}"
        cells = (", ".join(info.labels), pinned, _age(now - info.published), size, figures)
        table.add_row(str(info.version), *map(escape, (*cells, ", ".join(info.servers), info.who, info.why)))
    console.print(table)
    console.print(str(place.store), markup=False, soft_wrap=True)


def promote(
    config: ConfigPath,
    version: Version,
    *,
    label: Annotated[Literal["stable", "canary"], typer.Option(help="Which label to put on it.")] = "stable",
    why: Why = "",
    set_: Overrides = None,
) -> None:
    """Put a label on a version: servers load it, then the label moves, then the version before is dropped."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving import labels

    console, loaded = _console(), load_config(config, set_ or ())
    place = place_of(loaded, _dim(console))
    done = labels.promote(place, version, label, why=why, memory=loaded.serve.memory_check)
    console.print(done, markup=False, soft_wrap=True)


def rollback(config: ConfigPath, *, why: Why = "", set_: Overrides = None) -> None:
    """Put `stable` back on the version that had it before."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving import labels

    console, loaded = _console(), load_config(config, set_ or ())
    place = place_of(loaded, _dim(console))
    done = labels.rollback(place, why=why, memory=loaded.serve.memory_check)
    console.print(done, markup=False, soft_wrap=True)


def retire(config: ConfigPath, version: Version, *, why: Why = "", set_: Overrides = None) -> None:
    """Remove a version that is neither labelled nor pinned nor served."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving import lifecycle

    console = _console()
    place = place_of(load_config(config, set_ or ()), _dim(console))
    console.print(lifecycle.retire(place, version, why=why), markup=False, soft_wrap=True)


def pin(
    config: ConfigPath,
    version: Version,
    *,
    served: Annotated[bool, typer.Option("--served", help="Keep it loaded as well, for requests by number.")] = False,
    why: Why = "",
    set_: Overrides = None,
) -> None:
    """Keep a version whatever retention says."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving import lifecycle

    console, loaded = _console(), load_config(config, set_ or ())
    place = place_of(loaded, _dim(console))
    done = lifecycle.pin(place, version, served=served, why=why, memory=loaded.serve.memory_check)
    console.print(done, markup=False, soft_wrap=True)


def unpin(config: ConfigPath, version: Version, *, why: Why = "", set_: Overrides = None) -> None:
    """Let retention decide about a version again."""
    import_tensorflow()
    from pipeline.store_place import place_of
    from serving import lifecycle

    console = _console()
    place = place_of(load_config(config, set_ or ()), _dim(console))
    console.print(lifecycle.unpin(place, version, why=why), markup=False, soft_wrap=True)


def history(
    config: ConfigPath,
    *,
    last: Annotated[int, typer.Option(min=1, help="So many of the newest entries.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an entry, for machines.")] = False,
    set_: Overrides = None,
) -> None:
    """Who did what to which version, when and why; the newest last."""
    from serving.history import read_events

    events = read_events(load_config(config, set_ or ()).store())[-last:]
    if as_json:
        for event in events:
            print(json.dumps(vars(event)))  # noqa: T201
        return
    table = Table("when (UTC)", "who", "what", "version", "label", "before", "why")
    for event in events:
        before = "" if event.before is None else str(event.before)
        cells = (event.when[:19].replace("T", " "), event.who, event.action, str(event.version), event.label or "")
        table.add_row(*map(escape, (*cells, before, event.why)))
    _console().print(table)


def sync(
    *,
    source: Annotated[str, typer.Argument(help="Root of a store: a folder, or s3://BUCKET/PREFIX.")],
    dest: Annotated[str, typer.Argument(help="Likewise; a server reads models.config there.")],
    every_s: Annotated[
        float | None, typer.Option("--every", min=1, help="Go on, looking so often, in seconds.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after one round; the default without --every.")] = False,
    server: Annotated[
        list[str] | None,
        typer.Option(help="Server of the copy to wait for when labels move, host:port of REST. May be given again."),
    ] = None,
    poll_s: Annotated[float, typer.Option(min=0.1, help="How often that server reads models.config.")] = 2.0,
    prune: Annotated[bool, typer.Option("--prune", help="Uploading: remove versions that the source lacks.")] = False,
) -> None:
    """Copy the finished versions of a store, then its models.config: down from object storage, or up to it."""
    import_tensorflow()
    from serving.sync import SyncOptions, sync_forever, sync_once

    if once and every_s is not None:
        raise ConfigError("give one of --once and --every SECONDS")
    console = _console()
    options = SyncOptions(
        servers=tuple(server or ("127.0.0.1:8501",)),
        poll_s=poll_s,
        prune=prune,
        say=lambda text: console.print(text, markup=False, soft_wrap=True),
    )
    if every_s is None:
        sync_once(source, dest, options)
    else:
        # As the first process of a container this one would not end by itself when it is asked to.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        sync_forever(source, dest, options, every_s=every_s)


def _console() -> Console:
    return Console(highlight=False)


def _dim(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, markup=False, style="dim", soft_wrap=True)


def _age(age: dt.timedelta) -> str:
    seconds = int(age.total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _figures(metrics: object) -> str:
    """Returns the figures of the last split that is known, as text."""
    if not isinstance(metrics, dict):
        return ""
    split = next((name for name in ("test", "valid") if isinstance(metrics.get(name), dict)), None)
    if split is None:
        return ""
    found = {name: metrics[split].get(name) for name in ("auc", "gauc", "log_loss")}
    return " ".join(f"{name} {value:.4f}" for name, value in found.items() if isinstance(value, float))
