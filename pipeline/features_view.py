"""What the command about online features shows: what is published, what a request would get, and the push to Redis."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from pipeline.config import Config
from pipeline.publish_features import looked_up, open_completer
from preprocessing.errors import ArtefactError, ConfigError
from preprocessing.shown_text import shown_text
from serving.features import FeatureCompleter, served_snapshot
from serving.features_keys import key_of
from serving.features_layout import Layout

__all__ = ["view_features"]

_MS_PER_S = 1000
_LONG = 12  # elements of a list that are shown


def view_features(config: Config, *, show: list[str], push: bool, version: int | None, as_json: bool) -> None:
    """Shows what the look-ups hold, or what a request with these keys gets; or pushes them to Redis.

    Raises:
        ConfigError: if there is nothing to look up, or the arguments do not go together.
        ArtefactError: if nothing has been published.
    """
    if not looked_up(config):
        raise ConfigError("the model takes no column of data.derived, so there is nothing to look up")
    if push and show:
        raise ConfigError("give one of --push and --show")
    if push:
        _push(config, version, as_json=as_json)
        return
    completer = open_completer(config, version=version)
    if completer is None:
        return
    try:
        if show:
            _show(completer, _row(show, completer.layout), as_json=as_json)
        else:
            _overview(completer.layout, as_json=as_json)
    finally:
        completer.close()


def _push(config: Config, version: int | None, *, as_json: bool) -> None:
    from serving.features_push import push_snapshot

    if config.serve.features.store != "redis":
        raise ConfigError("--push writes to Redis, and serve.features.store is embedded; set it to redis, and its url")
    snapshot = served_snapshot(config.store(), version)
    if snapshot is None:
        raise ArtefactError(f"{config.store()} holds no features to push; run `rankmill publish`")
    console = Console(highlight=False)
    columns = (TextColumn("pushed"), BarColumn(), MofNCompleteColumn(), TextColumn("keys"))
    with Progress(*columns, console=console, disable=as_json or not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        pushed = push_snapshot(
            config.serve.features, snapshot, observe=lambda keys: progress.update(task, completed=keys)
        )
    if as_json:
        console.print_json(data={"generation": pushed.generation, "keys": pushed.keys, "removed": list(pushed.removed)})
        return
    done = f"{pushed.keys:,} keys written" if pushed.keys else "it was there already"
    console.print(f"{snapshot} is what Redis answers from: generation {pushed.generation}, {done}", soft_wrap=True)
    if pushed.removed:
        console.print(f"removed: {', '.join(pushed.removed)}", style="dim", soft_wrap=True)


def _row(pairs: list[str], layout: Layout) -> dict[str, str]:
    known = dict.fromkeys(name for key_set in layout.key_sets for name in key_set.key)
    row = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            raise ConfigError(f"--show {pair}: expected KEY=VALUE with one of the keys {', '.join(known)}")
        row[name] = value
    return row


def _show(completer: FeatureCompleter, row: Mapping[str, str], *, as_json: bool) -> None:
    now_ms = round(time.time() * _MS_PER_S)
    layout = completer.layout
    values = {name: column[0] for name, column in completer.lookup([row], now_ms).items()}
    console = Console(highlight=False)
    if as_json:
        console.print_json(data={name: _plain(value) for name, value in values.items()})
        return
    table = Table("column", "key", "value")
    for key_set in layout.key_sets:
        given = key_of(row, key_set, position=0) is not None
        key = ", ".join(f"{name}={row[name]}" for name in key_set.key) if given else f"no {', '.join(key_set.key)}"
        for name in layout.made(key_set):
            table.add_row(name, key, _text(values[name]))
    console.print(table)
    cutoff = _time(layout.clock.cutoff_ms(now_ms))
    console.print(f"as of {cutoff}; state of {_time(layout.clock.state_ms)}, version {layout.version}", soft_wrap=True)


def _overview(layout: Layout, *, as_json: bool) -> None:
    console = Console(highlight=False)
    key_sets = [(", ".join(one.key), one.rows, ", ".join(layout.made(one))) for one in layout.key_sets]
    if as_json:
        entries = [{"key": list(one.key), "keys": one.rows, "columns": layout.made(one)} for one in layout.key_sets]
        console.print_json(
            data={"version": layout.version, "state_ms": layout.clock.state_ms, "key_sets": entries}, default=list
        )
        return
    table = Table("key", "keys", "columns")
    for key, rows, columns in key_sets:
        table.add_row(key, f"{rows:,}", columns)
    console.print(table)
    age_h = (time.time() - layout.clock.state_ms / _MS_PER_S) / 3600
    console.print(
        f"state of {_time(layout.clock.state_ms)} ({age_h:,.0f} h ago), {layout.model_name} version {layout.version}, "
        f"freshness {layout.clock.freshness}",
        soft_wrap=True,
    )


def _time(moment_ms: int) -> str:
    return dt.datetime.fromtimestamp(moment_ms / _MS_PER_S, dt.UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        more = f" ... ({len(value)})" if len(value) > _LONG else ""
        return ", ".join(map(_text, value[:_LONG])) + more if value else "(none)"
    return shown_text(value) if isinstance(value, bytes) else json.dumps(value)
