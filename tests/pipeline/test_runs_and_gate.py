"""The gate's verdicts, the run folder and the publication, without any stage being run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.artefacts import Artefact
from pipeline.config import Config
from pipeline.evaluate_spec import GateRule
from pipeline.gate import Compared, Measured, Verdict, judge
from pipeline.runs import open_run, publish_run, write_summary, write_verdicts
from preprocessing.errors import ArtefactError, GateError
from serving.version_store import read_metadata, versions
from tests.pipeline.configs import tiny_tree

METRICS: dict[str, dict[str, Any]] = {"valid": {"auc": 0.7, "gauc": None}, "test": {"auc": 0.8, "calibration": 1.1}}


def rule(**values: Any) -> GateRule:
    return GateRule.model_validate(values)


def judged(
    rules: list[GateRule],
    metrics: dict[str, dict[str, Any]] = METRICS,
    compare: Callable[[GateRule], Compared] | str = "nothing is live",
) -> list[Verdict]:
    return judge(
        rules,
        metrics,
        measure=lambda rule: Measured({"size_mb": 12.5, "latency_ms": 2.0}[rule.metric]),
        compare=compare,
    )


def gate_run(setting: Config, run: Path, metrics: dict[str, dict[str, Any]]) -> list[Verdict]:
    verdicts = judged(list(setting.gate), metrics)
    write_verdicts(run, verdicts)
    return verdicts


def test_a_rule_may_be_about_one_of_several_labels() -> None:
    metrics = {**METRICS, "test": {"auc": 0.8, "labels": {"click": {"auc": 0.8}, "buy": {"auc": 0.6}}}}
    (verdict,) = judged([rule(metric="auc", label="buy", min=0.7)], metrics)
    assert (verdict.rule, verdict.value, verdict.passed) == ("test auc of buy", 0.6, False)


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
    (verdict,) = judged([rule(metric="auc", **bounds)])
    assert (verdict.rule, verdict.value, verdict.passed) == ("test auc", 0.8, passed)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_metric_without_a_value_passes_no_rule(value: float | None) -> None:
    for bounds in ({}, {"min": 0.0}, {"max": 1.0}):
        (verdict,) = judged([rule(split="valid", metric="gauc", **bounds)], {"valid": {"gauc": value}})
        assert not verdict.passed


def test_each_rule_looks_at_its_own_split_and_metric() -> None:
    rules = [rule(split="valid", metric="auc", min=0.75), rule(metric="calibration", min=1.0, max=1.2)]
    assert [verdict.passed for verdict in judged(rules)] == [False, True]
    assert judged([]) == []


def test_a_slice_has_bounds_of_its_own_and_one_that_is_not_there_fails() -> None:
    metrics = {"test": {"auc": 0.8, "slices": {"tab=1": {"auc": 0.6}}}}
    rules = [rule(metric="auc", slice="tab=1", min=0.7), rule(metric="auc", slice="tab=2", min=0.0)]
    low, absent = judged(rules, metrics)
    assert (low.rule, low.value, low.passed) == ("test auc [tab=1]", 0.6, False)
    assert (absent.passed, absent.note) == (False, "no such slice; there are tab=1")


def test_size_and_latency_are_measured_when_a_rule_asks() -> None:
    verdicts = judged([rule(metric="size_mb", max=12), rule(metric="latency_ms", max=2)])
    assert [(verdict.rule, verdict.value, verdict.passed) for verdict in verdicts] == [
        ("size_mb", 12.5, False),
        ("latency_ms", 2.0, True),
    ]


@pytest.mark.parametrize(("loss", "passed"), [(-0.1, True), (0.002, True), (0.0021, False), (math.nan, False)])
def test_a_candidate_may_be_worse_than_live_by_the_margin(loss: float, passed: bool) -> None:
    (verdict,) = judged(
        [rule(metric="auc", against="live", margin=0.002)], compare=lambda _: Compared(0.75, 0.76, loss)
    )
    assert (verdict.value, verdict.passed) == (0.75, passed)
    assert "live 0.76" in verdict.note
    assert "95% confidence" in verdict.note


def test_without_a_live_model_nothing_is_compared_and_a_failed_comparison_does_not_pass() -> None:
    rules = [rule(metric="auc", against="live")]
    (verdict,) = judged(rules)
    assert (verdict.passed, verdict.note) == (True, "nothing is live")

    def fails(_: GateRule) -> Compared:
        raise ArtefactError("it takes column 'x'")

    (verdict,) = judged(rules, compare=fails)
    assert (verdict.passed, verdict.note) == (False, "cannot be compared: it takes column 'x'")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"metric": "auc", "against": "live", "min": 0.5}, "rules of their own"),
        ({"metric": "auc", "margin": 0.5}, "against: live"),
        ({"metric": "size_mb", "slice": "x=1"}, "not measured by slice"),
        ({"metric": "agreement", "against": "live"}, "the live model has none"),
    ],
)
def test_rules_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule(**values)


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
    model = export(tmp_path)
    with pytest.raises(GateError, match="did not pass its gate"):
        publish_run(setting, run, model)
    assert not setting.store().exists()
    version = publish_run(setting, run, model, forced="the shop is down without it")
    published = read_metadata(setting.store(), version)
    assert (published["forced"], published["gate"]["passed"]) == ("the shop is down without it", False)


def test_the_summary_names_each_stage(tmp_path: Path) -> None:
    write_summary(tmp_path, [artefact(tmp_path, "train", {}), artefact(tmp_path, "export", {})])
    summary = json.loads((tmp_path / "run.json").read_text())
    assert summary["train"] == {
        "key": "k" * 16, "folder": str(tmp_path / "train" / ("k" * 16)), "skipped": False, "seconds": 1.5,
    }  # fmt: skip
    assert set(summary) == {"train", "export"}
