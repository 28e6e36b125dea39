"""Numbered versions that appear whole."""

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from preprocessing.errors import ArtefactError
from serving.version_store import latest, publish, read_metadata, version_path, versions


@pytest.fixture
def export(tmp_path: Any) -> Any:
    """Returns a folder that looks like a SavedModel."""
    folder = tmp_path / "export"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"index")
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(b"data")
    return folder


def _files(folder: Any) -> Any:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_publishes_the_files_as_they_are_with_metadata_beside(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store" / "shop"
    before = _files(export)
    assert publish(store, export, metadata={"run": "r1", "auc": 0.75}) == 1
    found = _files(version_path(store, 1))
    assert json.loads(found.pop("rankmill.json")) == {"run": "r1", "auc": 0.75, "version": 1}
    manifest = json.loads(found.pop("manifest.json"))
    assert found == before == _files(export)
    assert manifest["version"] == 1
    assert manifest["files"]["saved_model.pb"] == {"size": 5, "sha256": hashlib.sha256(b"graph").hexdigest()}
    assert set(manifest["files"]) == {*before, "rankmill.json"}
    assert read_metadata(store, 1)["run"] == "r1"
    assert [name for name in os.listdir(store) if not name.startswith(".")] == ["1"]


def test_numbers_grow_and_are_not_reused_after_a_version_is_deleted(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    assert [publish(store, export, metadata={}) for _ in range(3)] == [1, 2, 3]
    for number in (2, 3):
        for path in sorted(version_path(store, number).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        version_path(store, number).rmdir()
    assert versions(store) == [1]
    assert publish(store, export, metadata={}) == 4
    assert (versions(store), latest(store)) == ([1, 4], 4)


def test_numbers_pass_over_versions_put_there_by_others(tmp_path: Any, export: Any) -> None:
    (tmp_path / "store" / "00041").mkdir(parents=True)
    assert publish(tmp_path / "store", export, metadata={"export_key": "k"}) == 42


def test_the_same_export_key_as_the_latest_gives_the_latest(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    assert publish(store, export, metadata={"export_key": "a"}) == 1
    assert publish(store, export, metadata={"export_key": "a"}) == 1
    assert publish(store, export, metadata={"export_key": "b"}) == 2
    assert publish(store, export, metadata={"export_key": "a"}) == 3


def test_an_incomplete_saved_model_is_refused_and_leaves_no_trace(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    (export / "variables" / "variables.data-00000-of-00001").unlink()
    with pytest.raises(ArtefactError, match="incomplete"):
        publish(store, export, metadata={})
    (export / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ArtefactError, match="not a SavedModel"):
        publish(store, export, metadata={})
    assert versions(store) == []


def test_metadata_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Any, export: Any) -> None:
    with pytest.raises(ArtefactError, match="JSON"):
        publish(tmp_path / "store", export, metadata={"x": object()})
    assert not (tmp_path / "store").exists()


def test_a_failed_copy_leaves_no_version_and_the_next_publish_cleans_up(
    tmp_path: Any, export: Any, monkeypatch: Any
) -> None:
    store = tmp_path / "store"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("serving.version_store.write_json", full)
        with pytest.raises(ArtefactError, match="No space left on device"):
            publish(store, export, metadata={})
    (store / ".tmp-9").mkdir()
    assert versions(store) == []
    publish(store, export, metadata={})
    assert not (store / ".tmp-9").exists()


def test_a_damaged_counter_is_an_error_not_a_reused_number(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    publish(store, export, metadata={})
    (store / ".rankmill-counter.json").write_text("{")
    with pytest.raises(ArtefactError, match="damaged"):
        publish(store, export, metadata={})


def test_reading_what_is_not_there_names_what_is(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    assert (versions(store), latest(store)) == ([], None)
    publish(store, export, metadata={})
    with pytest.raises(ArtefactError, match="no version 5; there are: 1"):
        read_metadata(store, 5)
    (version_path(store, 1) / "rankmill.json").unlink()
    with pytest.raises(ArtefactError, match="published by rankmill"):
        read_metadata(store, 1)


_PUBLISHER = """
import sys
from pathlib import Path
from serving.version_store import publish
for _ in range(10):
    sys.stdout.write(f"{publish(Path(sys.argv[1]), Path(sys.argv[2]), metadata={'by': sys.argv[3]})}\\n")
"""


def test_publishers_at_once_never_collide(tmp_path: Any, export: Any) -> None:
    store = tmp_path / "store"
    publishers = [
        subprocess.Popen(
            [sys.executable, "-c", _PUBLISHER, str(store), str(export), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("x", "y")
    ]
    numbers = [list(map(int, process.communicate(timeout=60)[0].split())) for process in publishers]
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 21)) == versions(store)
    assert {read_metadata(store, number)["by"] for number in numbers[0]} == {"x"}
    assert all(process.returncode == 0 for process in publishers)
