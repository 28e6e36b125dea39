"""What the README shows must work as shown."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.__main__ import app
from pipeline.config import load_config

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_config_walked_through_is_valid(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(block, encoding="utf-8")
    assert load_config(path).name == "demo"


def test_every_command_named_exists() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    named = {word for line in re.findall(r"rankmill ([a-z|]+)", README) for word in line.split("|")}
    assert named - known == set()
    assert "predict" in named
