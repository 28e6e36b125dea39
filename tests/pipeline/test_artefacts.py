"""Stages run once: made aside, renamed when complete, skipped when there, locked while written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from filelock import FileLock

from pipeline.artefacts import Plan, finish, open_artefact
from preprocessing.errors import ArtefactError, DataError
from preprocessing.manifest import MANIFEST, exists, read_manifest


def plan(root: Path, *, resumable: bool = False, **inputs: Any) -> Plan:
    return Plan("train", root, {"seed": 1, **inputs}, resumable=resumable)


def writer(text: str) -> Callable[[Path], dict[str, Any]]:
    def work(folder: Path) -> dict[str, Any]:
        (folder / "content").write_text(text)
        (folder / "scratch").mkdir(exist_ok=True)
        (folder / "scratch" / "temporary").write_text("x")
        return {"text": text}

    return work


def never(_: Path) -> dict[str, Any]:
    raise AssertionError("this was done before")


def test_what_is_made_once_is_not_made_again(tmp_path: Path) -> None:
    first = finish(plan(tmp_path), writer("a"))
    again = finish(plan(tmp_path), never)
    assert (first.skipped, again.skipped) == (False, True)
    assert first.folder == again.folder == tmp_path / "train" / plan(tmp_path).key
    assert first.content == again.content == {"text": "a"}
    assert open_artefact(plan(tmp_path)) == again


def test_the_key_follows_from_stage_and_inputs_and_not_from_the_place(tmp_path: Path) -> None:
    assert plan(tmp_path).key == plan(tmp_path / "elsewhere", resumable=True).key
    assert plan(tmp_path).key != plan(tmp_path, seed=2).key
    assert plan(tmp_path).key != Plan("export", tmp_path, {"seed": 1}).key


def test_scratch_goes_and_the_manifest_says_what_made_it(tmp_path: Path) -> None:
    made = finish(plan(tmp_path), writer("a"))
    assert sorted(path.name for path in made.folder.iterdir()) == ["content", MANIFEST]
    manifest = read_manifest(made.folder)
    assert (manifest["stage"], manifest["key"], manifest["inputs"]) == ("train", made.key, {"seed": 1})
    assert {"tensorflow", "apache-beam", "pyarrow"} <= set(manifest["versions"])


@pytest.mark.parametrize("resumable", [False, True])
def test_a_stage_that_fails_does_not_exist_and_only_a_resumable_one_goes_on(tmp_path: Path, resumable: bool) -> None:
    def fail(folder: Path) -> dict[str, Any]:
        writer("x")(folder)
        (folder / "content").rename(folder / "half")
        raise DataError("no")

    this = plan(tmp_path, resumable=resumable)
    with pytest.raises(DataError, match=r"^no$"):
        finish(this, fail)
    assert not exists(this.folder)
    assert not this.folder.exists()
    with pytest.raises(ArtefactError, match="run `rankmill train` first"):
        open_artefact(this)
    found: list[str] = []

    def look(folder: Path) -> dict[str, Any]:
        found.extend(path.name for path in folder.iterdir())
        return {}

    finish(this, look)
    assert found == (["half"] if resumable else [])
    assert exists(this.folder)


def test_a_folder_without_a_manifest_is_replaced(tmp_path: Path) -> None:
    this = plan(tmp_path)
    this.folder.mkdir(parents=True)
    (this.folder / "torn").write_text("x")
    with pytest.raises(ArtefactError):
        open_artefact(this)
    made = finish(this, writer("b"))
    assert not made.skipped
    assert not (made.folder / "torn").exists()


def test_a_lock_that_is_held_is_an_error_and_one_that_was_left_is_not(tmp_path: Path) -> None:
    this = plan(tmp_path)
    lock = this.folder.with_name(f".{this.key}.lock")
    lock.parent.mkdir(parents=True)
    lock.write_text("")  # left by a process that died
    with FileLock(lock), pytest.raises(ArtefactError, match=r"another process is writing .*; wait for it to end"):
        finish(this, never)
    assert not finish(this, writer("a")).skipped


def disk_full(_: Path) -> dict[str, Any]:
    raise OSError(errno.ENOSPC, "No space left on device")


def disk_full_in_tensorflow(_: Path) -> dict[str, Any]:
    raise tf.errors.ResourceExhaustedError(None, None, "x.pb; No space left on device\nand a stack")


@pytest.mark.parametrize("work", [disk_full, disk_full_in_tensorflow])
def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path: Path, work: Callable[[Path], Any]) -> None:
    with pytest.raises(ArtefactError) as caught:
        finish(plan(tmp_path), work)
    text = str(caught.value)
    assert text.startswith(f"stage 'train' could not write to {tmp_path}: ")
    assert "No space left on device; free some space" in text
    assert "\n" not in text
    assert not finish(plan(tmp_path), writer("a")).skipped


def test_a_work_folder_below_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtefactError, match=r"could not write to .*Not a directory"):
        finish(plan(tmp_path / "file" / "work"), never)


def test_other_faults_are_not_dressed_up(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="done before"):
        finish(plan(tmp_path), never)
