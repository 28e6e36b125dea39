"""The commands about a running server: put load on it, replay requests to two versions, watch what is asked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipeline.config import load_config
from pipeline.quiet import import_tensorflow
from preprocessing.errors import ConfigError

__all__ = ["register"]

_FAILED = 1

ConfigPath = Annotated[Path, typer.Argument(help="The YAML file that describes the line.")]
LogPath = Annotated[Path, typer.Argument(help="Folder of a request log, or one of its files.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: a.b.c=VALUE. May be given again.", metavar="A.B=C"),
]
Api = Annotated[Literal["grpc", "rest"], typer.Option(help="Which of TF Serving's protocols to use.")]
MaxRows = Annotated[int, typer.Option(min=1, help="So many of the newest rows of the log.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command("loadtest")(loadtest)
    app.command("shadow")(shadow)
    app.command("monitor")(monitor)


def loadtest(
    *,
    config: ConfigPath,
    qps: Annotated[float, typer.Option(min=0.01, help="Requests a second, whatever the server makes of them.")] = 200.0,
    duration: Annotated[float, typer.Option(min=0.1, help="Seconds.")] = 30.0,
    api: Api = "grpc",
    signature: Annotated[str, typer.Option(help="serving_default, packed or rank.")] = "serving_default",
    rows: Annotated[Path | None, typer.Option(help="JSON lines, an object of raw columns each; - is stdin.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Instead of --rows: so many rows of the test split.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Rows a request; of rank, candidates.")] = 1,
    arrivals: Annotated[
        Literal["poisson", "uniform"], typer.Option(help="Gaps by chance, as of many users, or equal.")
    ] = "poisson",
    timeout: Annotated[float, typer.Option(min=0.001, help="Deadline of each request, in seconds.")] = 10.0,
    processes: Annotated[int, typer.Option(min=0, help="That send; 0: as many as the rate asks for.")] = 0,
    version: Annotated[int | None, typer.Option(help="Of the model; the newest by default.")] = None,
    label: Annotated[str | None, typer.Option(help="Instead of a version, such as stable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for loadtest.json and loadtest.png.")] = None,
    max_errors: Annotated[
        float, typer.Option(min=0, max=1, help="Share of requests that may fail; more is exit code 1.")
    ] = 0.0,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="The server may be another machine.")] = False,
    as_json: AsJson = False,
    set_: Overrides = None,
) -> None:
    """Send requests at a rate and report latencies from when they were due, errors and what the client kept up with."""
    from pipeline import serve_display
    from pipeline.display import Display
    from pipeline.loadtest import Load, run_loadtest, write_result
    from pipeline.request_rows import request_rows
    from serving.load_send import check_loopback

    loaded = load_config(config, set_ or ())
    if version is not None and label is not None:
        raise ConfigError("give one of --version and --label")
    if not allow_remote:
        check_loopback(f"{loaded.serve.host}:0")
    import_tensorflow()
    load = Load(
        qps=qps,
        duration_s=duration,
        api=api,
        signature=signature,
        batch=batch,
        arrivals=arrivals,
        timeout_s=timeout,
        processes=processes,
        version=version,
        label=label,
        allow_remote=allow_remote,
    )
    wanted = sample or (0 if rows else max(1000, batch))
    found = request_rows(loaded, rows=rows, sample=wanted)
    with Display().bar("loadtest", total=round(qps * duration), unit="requests") as bar:
        result = run_loadtest(loaded, load, found, observe=bar)
    paths = [] if out is None else write_result(result, load, out)
    if as_json:
        print(json.dumps({"load": dataclasses.asdict(load), **result.to_json()}))  # noqa: T201
    else:
        serve_display.load_result(result, paths)
    if result.num_due and 1 - result.num_ok / result.num_due > max_errors:
        raise typer.Exit(_FAILED)


def shadow(
    *,
    config: ConfigPath,
    log: LogPath,
    against: Annotated[
        str, typer.Option(metavar="SIDE", help="A version, a label, newest, or the folder of a SavedModel.")
    ],
    base: Annotated[
        str, typer.Option(metavar="SIDE", help="What it is held against; log: the scores given at the time.")
    ] = "log",
    api: Api = "grpc",
    max_rows: MaxRows = 100_000,
    tolerance: Annotated[float, typer.Option(min=0, help="Differences up to it do not count.")] = 1e-6,
    max_difference: Annotated[
        float | None, typer.Option(min=0, help="A larger difference of any row is exit code 1.")
    ] = None,
    max_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="A larger share of rows above the tolerance is exit code 1.")
    ] = None,
    as_json: AsJson = False,
    set_: Overrides = None,
) -> None:
    """Score the rows of a request log by two versions and report how their scores differ."""
    from pipeline import serve_display
    from pipeline.display import Display

    loaded = load_config(config, set_ or ())
    import_tensorflow()
    from pipeline.shadow import run_shadow

    with Display().bar("shadow", total=None) as bar:
        found = run_shadow(
            loaded, log, base=base, against=against, max_rows=max_rows, tolerance=tolerance, api=api, observe=bar
        )
    if as_json:
        values = {name: dataclasses.asdict(one) for name, one in found.items()}
        print(json.dumps(values, default=_text))  # noqa: T201
    else:
        serve_display.differences(found, base=base, against=against, tolerance=tolerance)
    limits = [(one, max_difference, max_share) for one in found.values()]
    if any(_is_beyond(one.largest, most) or _is_beyond(one.above, share) for one, most, share in limits):
        raise typer.Exit(_FAILED)
    if any(one.undefined for one in found.values()) and (max_difference is not None or max_share is not None):
        raise typer.Exit(_FAILED)


def _is_beyond(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit


def _text(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def monitor(
    *,
    config: ConfigPath,
    log: LogPath,
    html: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    max_rows: MaxRows = 200_000,
    max_psi: Annotated[float | None, typer.Option(min=0, help="Instead of serve.monitor.max_psi.")] = None,
    max_score_psi: Annotated[float | None, typer.Option(min=0, help="Instead of serve.monitor.max_score_psi.")] = None,
    max_missing_increase: Annotated[
        float | None, typer.Option(min=0, max=1, help="Instead of serve.monitor.max_missing_increase.")
    ] = None,
    max_oov_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Instead of serve.monitor.max_oov_share.")
    ] = None,
    as_json: AsJson = False,
    set_: Overrides = None,
) -> None:
    """Hold the columns and scores of a request log against the training data; what passes a limit is exit code 1."""
    from pipeline import serve_display

    given = {
        "max_psi": max_psi,
        "max_score_psi": max_score_psi,
        "max_missing_increase": max_missing_increase,
        "max_oov_share": max_oov_share,
    }
    loaded = load_config(config, set_ or ())
    import_tensorflow()
    limits = loaded.serve.monitor.model_copy(update={name: one for name, one in given.items() if one is not None})
    from pipeline.monitor import monitor_log

    found = monitor_log(loaded, log, max_rows=max_rows, limits=limits)
    if html is not None:
        from pipeline.monitor_page import write_monitor_page

        write_monitor_page(found, html, name=loaded.name)
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))  # noqa: T201
    else:
        serve_display.monitored(found, html)
    if found.all_findings():
        raise typer.Exit(_FAILED)
