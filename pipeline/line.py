"""The whole line: every stage in order, then gate and publication, with what a person sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from models.config import NETWORK_KINDS
from models.own_network import find_class
from pipeline import runs, stages
from pipeline.artefacts import Artefact, open_artefact
from pipeline.config import Config
from pipeline.display import Display, shown
from pipeline.faults import plain_faults
from pipeline.gate import Verdict
from pipeline.gate_stage import gate_run
from pipeline.report_stage import report_data
from pipeline.run_report import write_run_report
from pipeline.store_place import after_publication
from preprocessing.errors import GateError

__all__ = ["gate", "publish", "run", "run_stages"]


def run(config: Config, *, display: Display) -> Path:
    """Runs what is not done yet and returns the run folder.

    Raises:
        GateError: if the model did not pass; all that led to it is kept.
    """
    made = run_stages(config, stages.STAGES, display=display)
    with _run_folder_faults(config):
        folder = runs.open_run(config, made["evaluate"])
        verdicts = gate_run(
            config,
            folder,
            dataset=made["dataset"].folder,
            checkpoint=stages.best_checkpoint(made["train"]),
            export=made["export"],
            evaluation=made["evaluate"],
        )
        passed = all(verdict.passed for verdict in verdicts)
        version = runs.publish_run(config, folder, made["export"]) if passed else None
        runs.write_summary(folder, list(made.values()))
        data_report = report_data(config, made["examples"], display=display)
        report = write_run_report(config, folder, data_report=data_report)
    display.summary(
        stages=list(made.values()),
        metrics=made["evaluate"].content,
        verdicts=verdicts,
        store=config.store(),
        version=version,
        report=report,
    )
    if version is None:
        raise GateError(_failure(verdicts, folder))
    _after_publication(config, version, why=f"passed the gate: {folder.name}", display=display)
    return folder


def _after_publication(config: Config, version: int, *, why: str, display: Display) -> None:
    after_publication(
        config, version, why=why, say=lambda text: display.console.print(text, markup=False, soft_wrap=True)
    )


def _run_folder_faults(config: Config) -> AbstractContextManager[None]:
    return plain_faults(f"the run could not be recorded below {config.work_dir}/runs")


def _failure(verdicts: Sequence[Verdict], run_folder: Path) -> str:
    failed = [f"{v.rule} = {shown(v.value)}, {v.bound}{v.note and f' ({v.note})'}" for v in verdicts if not v.passed]
    return (
        f"not published: {len(failed)} of {len(verdicts)} rules of the gate failed ({'; '.join(failed)}); {run_folder}"
    )


def run_stages(config: Config, names: tuple[str, ...], *, display: Display) -> dict[str, Artefact]:
    """Runs the named stages in order and returns their artefacts; examples are reported on before they are used."""
    if config.model.kind not in NETWORK_KINDS:
        find_class(config.model.kind)  # one that is not there stops the run before its work starts
    inputs = stages.find_inputs(config)
    made = {}
    for name in names:
        made[name] = stages.make(name, config, inputs, display=display)
        if name == "examples":
            report_data(config, made[name], display=display)
    return made


def gate(config: Config, *, display: Display) -> Path:
    """Judges the evaluated model and returns the run folder.

    Raises:
        GateError: if it did not pass.
    """
    inputs = stages.find_inputs(config)
    evaluation = open_artefact(stages.plan("evaluate", config, inputs))
    with _run_folder_faults(config):
        folder = runs.open_run(config, evaluation)
        verdicts = gate_run(
            config,
            folder,
            dataset=stages.plan("dataset", config, inputs).folder,
            checkpoint=stages.best_checkpoint(open_artefact(stages.plan("train", config, inputs))),
            export=open_artefact(stages.plan("export", config, inputs)),
            evaluation=evaluation,
        )
    display.verdicts(verdicts)
    if not all(verdict.passed for verdict in verdicts):
        raise GateError(_failure(verdicts, folder))
    return folder


def publish(config: Config, *, forced: str = "", display: Display) -> int:
    """Publishes and promotes the judged model and returns its version; with a reason to, also one that did not pass.

    Raises:
        GateError: if it did not pass, and no reason is given.
        ServingError: if it is published and a running server does not load it.
    """
    inputs = stages.find_inputs(config)
    export = open_artefact(stages.plan("export", config, inputs))
    evaluation = open_artefact(stages.plan("evaluate", config, inputs))
    with _run_folder_faults(config):
        folder = runs.open_run(config, evaluation)
        version = runs.publish_run(config, folder, export, forced=forced)
    why = f"forced: {forced}" if forced else f"passed the gate: {folder.name}"
    _after_publication(config, version, why=why, display=display)
    return version
