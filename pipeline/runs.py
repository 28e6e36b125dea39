"""The run folder: what one pass over the line used, found and decided, readable without our code.

    WORK_DIR/runs/<name>-<key>/config.yaml       the resolved config
                               metrics.json      every figure by split
                               gate.json         each rule with its value and verdict
                               published.json    the version in the store
                               run.json          each stage: key, folder, seconds; written last

The key follows from the artefacts and the gate: the same command again finds the same run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from pipeline.artefacts import Artefact
from pipeline.config import Config
from pipeline.gate import Verdict
from pipeline.publish_features import publish_features
from pipeline.stages import SAVED_MODEL
from preprocessing.errors import ArtefactError, GateError
from preprocessing.manifest import digest, write_json
from serving.version_store import publish

__all__ = ["open_run", "publish_run", "write_summary", "write_verdicts"]

METRICS = "metrics.json"
GATE = "gate.json"
PUBLISHED = "published.json"
RUN = "run.json"


def open_run(config: Config, evaluation: Artefact) -> Path:
    """Returns the run folder of an evaluated model, with its config and metrics written."""
    rules = [rule.model_dump(mode="json") for rule in config.gate]
    key = digest({"evaluation": evaluation.key, "gate": rules, "store": str(config.store())})
    folder = Path(config.work_dir) / "runs" / f"{config.name}-{key[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    temporary = folder / f".config.yaml.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / "config.yaml")
    write_json(folder / METRICS, evaluation.content)
    return folder


def write_verdicts(run: Path, verdicts: Sequence[Verdict]) -> None:
    """Writes the gate's decision into the run folder."""
    passed = all(verdict.passed for verdict in verdicts)
    write_json(run / GATE, {"passed": passed, "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts]})


def publish_run(config: Config, run: Path, export: Artefact, *, forced: str = "") -> int:
    """Returns the version under which the run's model stands in the store; the same model is not published twice.

    Args:
        config: names the store.
        run: its folder.
        export: the model.
        forced: why it is published although it did not pass; stays with the version.

    Raises:
        ArtefactError: if the run has not been judged.
        GateError: if it was, and failed.
    """
    try:
        gate = json.loads((run / GATE).read_bytes())
    except FileNotFoundError as error:
        raise ArtefactError(f"{run} has not been through the gate; run `rankmill gate` first") from error
    if not gate["passed"] and not forced:
        raise GateError(
            f"{run} did not pass its gate, so it is not published; see {run / GATE}, or publish it all the same with "
            "rankmill publish CONFIG --force --why REASON"
        )
    metadata = {
        "export_key": export.key,
        "run": run.name,
        "schema": export.content["schema"],
        "metrics": json.loads((run / METRICS).read_bytes()),
        "gate": gate,
        "forced": forced if not gate["passed"] else "",
    }
    version = publish(
        config.store(), export.folder / SAVED_MODEL, metadata=metadata, why=metadata["forced"] or run.name
    )
    publish_features(config, version)  # before the version is promoted: then its requests can be completed
    write_json(run / PUBLISHED, {"store": str(config.store()), "version": version})
    return version


def write_summary(run: Path, stages: Sequence[Artefact]) -> None:
    """Writes the stages of a run; a run folder with this file went through the whole line."""
    entries = {
        stage.stage: {"key": stage.key, "folder": str(stage.folder), "skipped": stage.skipped, "seconds": stage.seconds}
        for stage in stages
    }
    write_json(run / RUN, entries)
