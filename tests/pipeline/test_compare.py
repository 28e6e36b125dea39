import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from pipeline.compare import compared, show_comparison, write_comparison
from preprocessing.errors import ArtefactError, ConfigError


def run_folder(root: Path, name: str, config: dict[str, Any], **figures: Any) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.json").write_text(json.dumps({"test": figures, "valid": {}}))
    return folder


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    first = {"model": {"kind": "deepfm", "units": [8, 4]}, "features": [{"name": "a", "min": 1}, {"name": "b"}]}
    second = {"model": {"kind": "dcn", "units": [8, 4]}, "features": [{"name": "b"}, {"name": "a", "min": 2}]}
    return [
        run_folder(tmp_path, "one", first, auc=0.7, gauc=None, intervals={"auc": [0.65, 0.75]}, num_rows=1000),
        run_folder(tmp_path, "two<b>", second, auc=0.8, gauc=0.6),
    ]


def test_only_what_differs_is_told_and_members_of_lists_go_by_their_name(two: list[Path]) -> None:
    found = compared(two, split="test")
    assert found.settings == {"model.kind": ('"deepfm"', '"dcn"'), "features.a.min": ("1", "2")}
    assert found.metrics == {"auc": (0.7, 0.8), "gauc": (None, 0.6), "num_rows": (1000, None)}
    assert found.intervals["auc"] == ((0.65, 0.75), None)


def test_the_tables_show_figures_with_their_intervals(two: list[Path]) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    show_comparison(compared(two, split="test"), console)
    text = console.export_text()
    assert "0.7000 0.6500 to 0.7500" in text
    assert "features.a.min" in text
    same = Console(record=True, width=120, file=io.StringIO())
    show_comparison(compared([two[0], two[0]], split="test"), same)
    assert "the configs are the same" in same.export_text()


def test_the_page_stands_alone_and_escapes_names(two: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "out" / "page.html"
    write_comparison(compared(two, split="test"), path)
    text = path.read_text()
    assert "two&lt;b&gt;" in text
    assert "two<b>" not in text
    assert text.count("<svg") == 2
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_what_is_no_run_is_said(two: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two runs or more"):
        compared(two[:1], split="test")
    with pytest.raises(ConfigError, match=r"--split train: .* has test, valid"):
        compared(two, split="train")
    with pytest.raises(ArtefactError, match="is not the folder of an evaluated run"):
        compared([two[0], tmp_path / "none"], split="test")
