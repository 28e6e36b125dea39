"""The gate on a finished line: what its rules need is brought together, and its decision written down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline import runs
from pipeline.artefacts import Artefact
from pipeline.config import Config
from pipeline.evaluate_spec import GateRule
from pipeline.export_stage import options_of
from pipeline.gate import Compared, Measured, Verdict, judge
from pipeline.leaks import repeated_rows, telling_column
from pipeline.live_model import Contest, folder_mb, measured_ms
from pipeline.parity import measured_parity
from pipeline.stages import SAVED_MODEL
from preprocessing.dataset import open_dataset
from preprocessing.errors import ArtefactError
from serving.labels import live_version
from serving.version_store import read_metadata, version_path

__all__ = ["gate_run"]


def gate_run(
    config: Config, run: Path, *, dataset: Path, checkpoint: Path, export: Artefact, evaluation: Artefact
) -> list[Verdict]:
    """Judges a model by the config's rules, writes the verdicts into its run folder and returns them.

    Args:
        config: has the rules.
        run: the run folder.
        dataset: folder of the dataset that the model was evaluated on.
        checkpoint: the weights that were exported.
        export: the model.
        evaluation: its metrics and scores.
    """
    saved_model = export.folder / SAVED_MODEL

    def scores(split: str) -> npt.NDArray[np.float32]:
        loaded: npt.NDArray[np.float32] = np.load(evaluation.folder / f"scores-{split}.npy", allow_pickle=False)
        return loaded

    def measure(rule: GateRule) -> Measured:
        if rule.metric == "size_mb":
            return Measured(folder_mb(saved_model))
        if rule.metric == "latency_ms":
            times = measured_ms([saved_model], open_dataset(dataset), num_rows=config.evaluate.latency_rows)
            return Measured(times[0])
        if rule.metric == "parity":
            return _parity(config, dataset, checkpoint=checkpoint, saved_model=saved_model, rule=rule)
        return _leak(config, dataset, rule=rule)

    def contest(live: Path) -> Callable[[GateRule], Compared]:
        return Contest(config, open_dataset(dataset), candidate=saved_model, scores=scores, live=live).compare

    live = _live_model(config.store(), export.key)
    compare = live if isinstance(live, str) else contest(live)
    verdicts = judge(config.gate, evaluation.content, measure=measure, compare=compare)
    runs.write_verdicts(run, verdicts)
    return verdicts


def _parity(config: Config, dataset: Path, *, checkpoint: Path, saved_model: Path, rule: GateRule) -> Measured:
    found = measured_parity(
        open_dataset(dataset),
        config.features,
        model=config.model,
        checkpoint=checkpoint,
        options=options_of(config),
        saved_model=saved_model,
        num_rows=config.evaluate.parity_rows,
        tolerance=rule.max or 0.0,
    )
    return Measured(found.difference, found.note)


def _leak(config: Config, dataset: Path, *, rule: GateRule) -> Measured:
    roles, opened = config.data.roles, open_dataset(dataset)
    if rule.metric == "column_auc":
        found = telling_column(opened, rule.split, item=roles.item)
    else:
        also = [name for name in (roles.user, roles.item, roles.event_time) if name is not None]
        found = repeated_rows(opened, rule.split, also=also)
    return Measured(found.value, found.note)


def _live_model(store: Path, export_key: str) -> Path | str:
    """Returns the SavedModel of the live version, or why there is none to compare with."""
    version = live_version(store)
    if version is None:
        return "no live model to compare with"
    try:
        same = read_metadata(store, version).get("export_key") == export_key
    except ArtefactError:
        same = False
    return f"this model is live, as version {version}" if same else version_path(store, version)
