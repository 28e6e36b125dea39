"""The gate's verdicts, the run folder and the publication, without any stage being run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pipeline.artefacts import Artefact
from pipeline.config import Config, GateRule
from pipeline.gate import judge
from pipeline.runs import gate_run, open_run, publish_run, write_summary
from preprocessing.errors import ArtefactError, GateError
from serving.version_store import versions
from tests.pipeline.configs import tiny_tree

METRICS: dict[str, dict[str, Any]] = {"valid": {"auc": 0.7, "gauc": None}, "test": {"auc": 0.8, "calibration": 1.1}}


def rule(**values: Any) -> GateRule:
    return GateRule.model_validate(values)


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [
        ({"min": 0.8}, True),  # a bound itself is within
        ({"max": 0.8}, True),
        ({"min": 0.8000001}, False),
        ({"max": 0.7999999}, False),
        ({"min": 0.5, "max": 0.9}, True),
        ({"min": 0.81, "max": 0.9}, False),
        ({}, True),
    ],
)
def test_a_rule_holds_within_its_bounds(bounds: dict[str, float], passed: bool) -> None:
    (verdict,) = judge([rule(metric="auc", **bounds)], METRICS)
    assert (verdict.split, verdict.value, verdict.passed) == ("test", 0.8, passed)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_metric_without_a_value_passes_no_rule(value: float | None) -> None:
    for bounds in ({}, {"min": 0.0}, {"max": 1.0}):
        (verdict,) = judge([rule(split="valid", metric="gauc", **bounds)], {"valid": {"gauc": value}})
        assert not verdict.passed


def test_each_rule_looks_at_its_own_split_and_metric() -> None:
    rules = [rule(split="valid", metric="auc", min=0.75), rule(metric="calibration", min=1.0, max=1.2)]
    assert [verdict.passed for verdict in judge(rules, METRICS)] == [False, True]
    assert judge([], METRICS) == []


def config(root: Path, **changes: Any) -> Config:
    return Config.model_validate({**tiny_tree(), "work_dir": str(root), **changes})


def artefact(root: Path, stage: str, content: dict[str, Any], *, key: str = "k" * 16) -> Artefact:
    return Artefact(stage, key, root / stage / key, content, skipped=False, seconds=1.5)


def export(root: Path, *, key: str = "e" * 16) -> Artefact:
    made = artefact(root, "export", {"schema": "s"}, key=key)
    (made.folder / "saved_model").mkdir(parents=True)
    (made.folder / "saved_model" / "saved_model.pb").write_bytes(b"graph")
    return made


def test_the_same_evaluation_and_gate_are_the_same_run(tmp_path: Path) -> None:
    evaluated = artefact(tmp_path, "evaluate", METRICS)
    run = open_run(config(tmp_path), evaluated)
    assert open_run(config(tmp_path), evaluated) == run
    others = [
        open_run(config(tmp_path, gate=[{"metric": "auc", "min": 0.5}]), evaluated),
        open_run(config(tmp_path, export={"model_name": "other"}), evaluated),
        open_run(config(tmp_path), artefact(tmp_path, "evaluate", METRICS, key="other")),
    ]
    assert len({run, *others}) == 4
    assert json.loads((run / "metrics.json").read_text()) == METRICS


def test_a_run_that_passed_is_published_once_and_a_new_model_again(tmp_path: Path) -> None:
    setting = config(tmp_path, gate=[{"metric": "auc", "min": 0.5}])
    run = open_run(setting, artefact(tmp_path, "evaluate", METRICS))
    with pytest.raises(ArtefactError, match="run `rankmill gate` first"):
        publish_run(setting, run, export(tmp_path, key="early"))
    assert all(verdict.passed for verdict in gate_run(setting, run, METRICS))
    model = export(tmp_path)
    assert [publish_run(setting, run, model) for _ in range(2)] == [1, 1]
    assert publish_run(setting, run, export(tmp_path, key="another")) == 2
    assert versions(setting.store()) == [1, 2]
    assert json.loads((run / "published.json").read_text()) == {"store": str(setting.store()), "version": 2}


def test_a_run_that_failed_is_not_published(tmp_path: Path) -> None:
    setting = config(tmp_path, gate=[{"metric": "auc", "min": 0.9}, {"split": "valid", "metric": "gauc", "min": 0.5}])
    run = open_run(setting, artefact(tmp_path, "evaluate", METRICS))
    gate_run(setting, run, METRICS)
    stored = json.loads((run / "gate.json").read_text())
    assert (stored["passed"], [verdict["value"] for verdict in stored["verdicts"]]) == (False, [0.8, None])
    with pytest.raises(GateError, match="did not pass its gate"):
        publish_run(setting, run, export(tmp_path))
    assert not setting.store().exists()


def test_the_summary_names_each_stage(tmp_path: Path) -> None:
    write_summary(tmp_path, [artefact(tmp_path, "train", {}), artefact(tmp_path, "export", {})])
    summary = json.loads((tmp_path / "run.json").read_text())
    assert summary["train"] == {
        "key": "k" * 16, "folder": str(tmp_path / "train" / ("k" * 16)), "skipped": False, "seconds": 1.5,
    }  # fmt: skip
    assert set(summary) == {"train", "export"}
