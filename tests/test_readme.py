"""What the README shows must work as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import TypeAdapter

from models.config import ModelSpec
from pipeline.__main__ import app
from pipeline.config import load_config
from pipeline.evaluate_spec import EvaluateSpec, GateRule
from pipeline.train_spec import StrategySpec, TrainSpec
from preprocessing.spec import DataCheck, DerivedColumn, FeatureSpec, JoinSpec

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
PARTS: dict[str, TypeAdapter[Any]] = {
    "joins": TypeAdapter(tuple[JoinSpec, ...]),
    "derived": TypeAdapter(tuple[DerivedColumn, ...]),
    "checks": TypeAdapter(tuple[DataCheck, ...]),
    "freshness": TypeAdapter(Literal["event", "day"]),
    "features": TypeAdapter(tuple[FeatureSpec, ...]),
    "strategy": TypeAdapter(StrategySpec),
    "model": TypeAdapter(ModelSpec),
    "train": TypeAdapter(TrainSpec),
    "evaluate": TypeAdapter(EvaluateSpec),
    "gate": TypeAdapter(tuple[GateRule, ...]),
}


def test_the_config_walked_through_is_valid(tmp_path: Path) -> None:
    block = BLOCKS[0]
    path = tmp_path / "config.yaml"
    path.write_text(block, encoding="utf-8")
    assert load_config(path).name == "demo"


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_parts_of_configs_are_valid(block: str) -> None:
    tree = yaml.safe_load(block)
    for name, value in {**tree.pop("data", {}), **tree}.items():
        PARTS[name].validate_python(value)


def test_every_command_named_exists() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {group.name or "" for group in app.registered_groups}
    named = {word for line in re.findall(r"rankmill ([a-z|]+)", README) for word in line.split("|")}
    assert named - known == set()
    assert "predict" in named
