"""The commands that are about many processes: `launch` and `plan`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from pipeline.config import load_config
from pipeline.display import Bar, Display
from pipeline.progress_lines import parse_progress

__all__ = ["register", "strategy_overrides"]

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the application."""
    app.command()(launch)
    app.command()(plan)


def launch(
    command: Annotated[Literal["train"], typer.Argument(help="What all processes do.")],
    config: ConfigPath,
    *,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train.")] = 2,
    ps: Annotated[int, typer.Option(min=0, help="Parameter servers; without any, workers go in step.")] = 0,
    set_: Overrides = None,
) -> None:
    """Train with a cluster of processes on this machine; ends them all when one dies."""
    from pipeline import stages
    from pipeline.artefacts import open_artefact
    from pipeline.launch import launch as run_all
    from pipeline.launch import local_cluster

    overrides = [*(set_ or ()), *strategy_overrides(ps > 0)]
    loaded = load_config(config, overrides)
    open_artefact(stages.plan("dataset", loaded, stages.find_inputs(loaded)))  # one clear error instead of many
    flags = [part for override in overrides for part in ("--set", override)]
    display = Display()
    cluster = local_cluster(workers=workers, servers=ps)
    display.console.print(f"{len(cluster.names)} processes: {', '.join(cluster.names)}")
    with display.bar("train", total=None, unit="steps") as bar:
        run_all(
            cluster,
            [sys.executable, "-m", "pipeline.launched", command, str(config), *flags],
            say=_lines(display.console, bar),
        )
    display.console.print(str(stages.plan("train", loaded, stages.find_inputs(loaded)).folder), soft_wrap=True)


def plan(
    config: ConfigPath,
    *,
    replicas: Annotated[int | None, typer.Option(min=1, help="In place of what strategy says.")] = None,
    device_memory: Annotated[str | None, typer.Option(help="Of each replica, such as 80GB; checked.")] = None,
    bandwidth: Annotated[str, typer.Option(help="That a replica sends to others with.")] = "100GB/s",
    memory_bandwidth: Annotated[str, typer.Option(help="Of a replica's memory at random rows.")] = "500GB/s",
    flops: Annotated[str, typer.Option(help="That dense layers reach on a replica.")] = "30TFLOPS",
    latency_us: Annotated[float, typer.Option(min=0, help="Of one collective operation.")] = 50.0,
    set_: Overrides = None,
) -> None:
    """Say what training will take: tables, bytes, traffic, steps; refuse what cannot fit. Does no work."""
    from pipeline.cost_model import Rates, parse_quantity
    from pipeline.plan import plan_run
    from pipeline.plan_view import show_plan

    rates = Rates(
        flops=parse_quantity(flops, unit="FLOPS", flag="--flops"),
        memory=parse_quantity(memory_bandwidth, unit="B/s", flag="--memory-bandwidth"),
        bandwidth=parse_quantity(bandwidth, unit="B/s", flag="--bandwidth"),
        latency_s=latency_us / 1e6,
    )
    limit = None if device_memory is None else int(parse_quantity(device_memory, unit="B", flag="--device-memory"))
    planned = plan_run(load_config(config, set_ or ()), replicas=replicas, device_memory=limit, rates=rates)
    show_plan(planned, Display().console)


def strategy_overrides(has_servers: bool) -> list[str]:
    """Returns what makes a config train with a cluster that somebody else describes."""
    kind = "parameter_server" if has_servers else "multi_worker_mirrored"
    return [f"strategy.kind={kind}", "strategy.cluster=null", "strategy.cross_device_ops=auto"]


def _lines(console: Console, bar: Bar) -> Callable[[str, str], None]:
    """Returns what prints lines of processes under their names, and moves the bar by what the leader says of it."""

    def say(name: str, line: str) -> None:
        progress = parse_progress(line)
        if progress is None:
            console.print(f"[dim]\\[{name}][/] {escape(line)}", soft_wrap=True)
            return
        completed, note, total = progress
        bar(completed, note=note, total=total)

    return say
