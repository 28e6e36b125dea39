"""Which run a data report is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline import report_stage
from pipeline.artefacts import Artefact
from pipeline.config import Config
from pipeline.display import Display
from pipeline.example_stage import Inputs, examples_parts
from preprocessing.errors import DataError
from preprocessing.log_sources import SourceFile

FAILURE = {"measure": "psi", "column": "u", "value": 0.5, "bound": 0.2, "verdict": "fail", "message": "psi of u"}


def config(work: Path, **data: Any) -> Config:
    tree = {
        "name": "shop",
        "work_dir": str(work),
        "data": {
            "sources": {"log": {"paths": "*.csv", "columns": {"u": "string", "y": "int64"}}},
            "impressions": "log",
            "labels": [{"name": "y", "column": "y"}],
            "split": {"kind": "hash"},
            **data,
        },
        "features": [{"name": "u", "kind": "categorical"}],
    }
    return Config.model_validate(tree)


def test_data_that_failed_its_checks_is_nothing_that_later_data_is_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_against: list[Any] = []
    failures: list[dict[str, Any]] = []

    def finish(plan: Any, work: Any) -> Artefact:
        held_against.append(plan.inputs["previous"])
        return Artefact("reports", plan.key, plan.folder, {"failures": list(failures)}, skipped=False, seconds=0.0)

    monkeypatch.setattr(report_stage, "finish", finish)

    def run(key: str) -> None:
        examples = Artefact("examples", key, tmp_path / key, {}, skipped=False, seconds=0.0)
        report_stage.report_data(config(tmp_path), examples, display=Display())

    run("good")
    failures.append(FAILURE)
    for _ in range(2):  # the second time says the same as the first
        with pytest.raises(DataError, match="psi of u"):
            run("bad")
    failures.clear()
    run("mended")
    run("mended")
    run("next")
    assert held_against == [None, "good", "good", "good", "good", "mended"]


def test_another_limit_makes_no_examples_anew(tmp_path: Path) -> None:
    inputs = Inputs({"log": [SourceFile("a.csv", "f")]})
    limited = config(tmp_path, checks=[{"measure": "psi", "max": 0.2}])
    assert examples_parts(config(tmp_path), inputs) == examples_parts(limited, inputs)
    assert examples_parts(config(tmp_path), inputs) != examples_parts(config(tmp_path, max_reject_share=0.5), inputs)
