"""The data report of a run: profiles of the periods that are new, drift against the run before, a page.

WORK/profiles/<period key>/<file>.profile    what each file of labelled rows holds
WORK/reports/<key>/report.html, report.json
WORK/reports/<config name>.last.json         the runs that the next report is held against
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts import Artefact, Plan, finish
from pipeline.beam_runner import pipeline_maker
from pipeline.config import Config
from pipeline.config_columns import joined_columns
from pipeline.data_report import DataReport, build_report, to_json
from pipeline.data_summary import data_summary
from pipeline.display import Display
from pipeline.report_page import write_page
from preprocessing.data_checks import Finding, raise_failures
from preprocessing.errors import ArtefactError
from preprocessing.manifest import exists, read_manifest, write_json
from preprocessing.profile import Profile
from preprocessing.profile_job import profile_rows
from preprocessing.profile_state import load_profile

__all__ = ["report_data"]

# Raised when a change of our code changes a profile or the page.
_PROFILE_FORMAT, _PAGE_FORMAT = 1, 1


def report_data(config: Config, examples: Artefact, *, display: Display) -> Path:
    """Makes the report of finished examples, prints its summary, and returns the page.

    Raises:
        DataError: if a check of the config that may fail a run does.
    """
    work = Path(config.work_dir)
    previous = _previous(config, examples)
    parts = {
        "code": [_PROFILE_FORMAT, _PAGE_FORMAT],
        "examples": examples.key,
        "previous": previous,
        "name": config.name,
        "checks": [check.model_dump(mode="json") for check in config.data.checks],
    }
    plan = Plan("reports", work, parts)
    is_new = not exists(plan.folder)
    made = finish(plan, lambda folder: _make(config, examples, previous, folder, display))
    page = plan.folder / "report.html"
    if is_new:
        display.console.print(f"  data report: {page}", soft_wrap=True)
    raise_failures([Finding(**failure) for failure in made.content["failures"]], report=page)
    # After the checks: data that failed them is nothing that later data should be held against.
    if is_new:
        write_json(_last_file(config), {"current": examples.key, "previous": previous})
    return page


def _make(
    config: Config, examples: Artefact, previous: str | None, folder: Path, display: Display
) -> Mapping[str, Any]:
    report = _report(config, examples, previous, display)
    write_page(report, folder / "report.html")
    write_json(folder / "report.json", to_json(report))
    display.console.print(data_summary(report))
    values = to_json(report)["findings"]
    return {"failures": [finding for finding in values if finding["verdict"] == "fail"], "findings": len(values)}


def _report(config: Config, examples: Artefact, previous: str | None, display: Display) -> DataReport:
    content = examples.content
    files = _profiles(Path(config.work_dir), content)
    missing = [(rows, target) for _, rows, target in files if not target.exists()]
    if missing:
        total = sum(rows for period in content["periods"] for _, _, rows in period["files"])
        with tempfile.TemporaryDirectory() as progress, display.bar("profile", total=total) as bar:
            profile_rows(
                missing,
                labels=[label.name for label in config.data.labels],
                progress=Path(progress),
                pipeline=pipeline_maker(config),
                observe=bar,
            )
    roles = config.data.roles
    clocks = [name for name, column in joined_columns(config.data).items() if column.type == "timestamp"]
    return build_report(
        name=config.name,
        counts=content["counts"],
        sources=content["sources"],
        periods=((period, load_profile([target])) for period, _, target in files),
        previous=_profile_of(config, previous),
        checks=config.data.checks,
        clocks=clocks,
        not_compared=[name for name in (roles.row_id, roles.request) if name is not None],
    )


def _profiles(work: Path, content: Mapping[str, Any]) -> list[tuple[str, Path, Path]]:
    """Returns (period, file of rows, its profile) of all files of examples."""
    return [
        (
            period["name"],
            work / period["folder"] / name,
            work / "profiles" / f"{period['key']}-{_PROFILE_FORMAT}" / f"{Path(name).stem}.profile",
        )
        for period in content["periods"]
        for part, name, _ in period["files"]
        if part != "others"
    ]


def _profile_of(config: Config, examples_key: str | None) -> Profile | None:
    """Returns the profile of an earlier run, or None if it is there no more."""
    folder = Path(config.work_dir) / "examples" / str(examples_key)
    if examples_key is None or not exists(folder):
        return None
    paths = [target for _, _, target in _profiles(Path(config.work_dir), read_manifest(folder)["content"])]
    return load_profile(paths) if paths and all(path.exists() for path in paths) else None


def _last_file(config: Config) -> Path:
    return Path(config.work_dir) / "reports" / f"{config.name}.last.json"


def _previous(config: Config, examples: Artefact) -> str | None:
    """Returns the key of the examples of the run before; asked twice about one run it answers the same."""
    path = _last_file(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        last = json.loads(path.read_text(encoding="utf-8"))
        return last["previous"] if last["current"] == examples.key else last["current"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; remove it and run again") from error
