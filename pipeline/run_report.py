"""The report of a run: one HTML file that needs no network, made from what the run folder and its artefacts hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from pipeline.config import Config
from pipeline.pages import page_template, write_text
from pipeline.run_plots import plot_curves, plot_reliability, plot_scores
from pipeline.stages import STAGES
from preprocessing.errors import ArtefactError
from preprocessing.manifest import read_manifest

__all__ = ["run_page", "write_run_report"]

DATA_REPORT = "data_report.html"
_TEMPLATE = "run_report.html"
_TITLES = {
    "auc": "AUC",
    "gauc": "GAUC, by user",
    "pr_auc": "PR-AUC",
    "ndcg": "NDCG, by request",
    "recall": "recall, by request",
    "log_loss": "log loss",
    "normalised_entropy": "normalised entropy",
    "calibration": "calibration, predicted by observed",
    "ece": "expected calibration error",
    "positive_rate": "positive rate",
    "num_rows": "rows",
    "agreement": "largest difference to the trainer",
}


def write_run_report(config: Config, run: Path, *, data_report: Path | None = None) -> Path:
    """Writes `report.html` into a run folder, with the report of its data beside it, and returns its path.

    Raises:
        ArtefactError: if the run has not been through the whole line.
    """
    if data_report is not None:
        write_text(data_report.read_text(encoding="utf-8"), run / DATA_REPORT)
    path = run / "report.html"
    write_text(run_page(config, run), path)
    return path


def run_page(config: Config, run: Path) -> str:
    """Returns the HTML text of a run's report."""
    stages = _read(run / "run.json")
    metrics, gate = _read(run / "metrics.json"), _read(run / "gate.json")
    published = _read(run / "published.json") if (run / "published.json").exists() else None
    train = Path(stages["train"]["folder"])
    history, trained = _read(train / "history.json"), read_manifest(train)["content"]
    scores = np.load(Path(stages["evaluate"]["folder"]) / "scores-test.npy", allow_pickle=False)
    return page_template(_TEMPLATE).render(
        name=config.name,
        run=run.name,
        kind=config.model.kind,
        metrics=metrics,
        titles=_TITLES,
        gate=gate,
        published=published,
        stages={name: stages[name] for name in STAGES},
        best_step=trained["best_step"],
        num_steps=trained["num_steps"],
        data_report=DATA_REPORT if (run / DATA_REPORT).exists() else None,
        config_text=(run / "config.yaml").read_text(encoding="utf-8"),
        curves={
            figure: Markup(plot_curves(history["evaluations"], figure, best_step=trained["best_step"]))
            for figure in ("auc", "log_loss")
            if history["evaluations"]
        },
        reliability=Markup(plot_reliability(metrics["test"]["reliability"])),
        distribution=Markup(plot_scores(scores[:, 0])),
        importance=_bars(metrics["test"].get("importance", {})),
    )


def _bars(importance: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Returns name, loss and the bar's width in percent of each column."""
    lost = sorted((-value, name) for name, value in importance.items() if value is not None)
    most = max((-value for value, _ in lost), default=0.0)
    return [
        {"name": name, "lost": -value, "width": 100 * max(-value, 0.0) / most if most > 0 else 0.0}
        for value, name in lost
    ]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}; run `rankmill run` first") from error
