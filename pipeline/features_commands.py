"""The command about online features: what is published, what a request would get, and the push to Redis."""

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
    """Adds the command to the command line."""
    app.command("features")(features)


def features(
    *,
    config: ConfigPath,
    show: Annotated[
        list[str] | None,
        typer.Option("--show", metavar="KEY=VALUE", help="What a request with this key gets. May be given again."),
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Write the published state to the Redis of the config.")] = False,
    version: Annotated[int | None, typer.Option(help="Of the model; by default the live one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")] = False,
    set_: Overrides = None,
) -> None:
    """Look at the online features that complete requests, or push them to Redis."""
    import_tensorflow()
    from pipeline.features_view import view_features

    view_features(load_config(config, set_ or ()), show=show or [], push=push, version=version, as_json=as_json)
