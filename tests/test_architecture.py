"""The house rules that a reader relies on, enforced: who imports whom, and who may touch Beam, YAML and Keras."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("preprocessing", "models", "serving", "pipeline")  # each imports only from those before it
BEAM_MODULES = {
    "preprocessing/attribution_job.py",
    "preprocessing/dataset_job.py",
    "preprocessing/encode_job.py",
    "preprocessing/days_job.py",
    "preprocessing/derive_job.py",
    "preprocessing/ingest.py",
    "preprocessing/profile_job.py",
    "preprocessing/remote_files.py",
    "preprocessing/runner.py",
    "preprocessing/shuffle.py",
}
MAX_LINES = 400


def modules() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_down_only(path: Path) -> None:
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    above = {name for name in imports(path) if name.split(".")[0] in (*LAYERS[layer + 1 :], "tests")}
    assert not above


def test_beam_is_imported_by_the_graph_builders_only() -> None:
    found = {name_of(path) for path in modules() if any(name.split(".")[0] == "apache_beam" for name in imports(path))}
    assert found <= BEAM_MODULES
    assert "preprocessing/shuffle.py" in found  # the rule looks where it should


def test_config_files_are_parsed_in_one_place() -> None:
    for path in modules():
        if "yaml.load" in path.read_text(encoding="utf-8"):
            assert name_of(path) == "pipeline/config.py"


def test_keras_three_and_pickle_are_nowhere() -> None:
    for path in modules():
        names = set(imports(path))
        assert not names & {"keras", "tensorflow.keras", "pickle", "cloudpickle", "dill"}, path
        assert "tf.keras" not in path.read_text(encoding="utf-8"), path


def test_no_file_carries_everything() -> None:
    long = {name_of(path) for path in modules() if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES}
    assert not long
