"""The history survives torn lines and writers at once; retention and preflight as plain functions."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing.errors import ArtefactError
from serving.config import RetentionSpec
from serving.history import HISTORY, Event, append, labelled_versions, published_at, read_events
from serving.preflight import Memory, available_memory, check_disk, memory_warning
from serving.retention import versions_to_remove
from serving.version_store import publish, read_metadata, remove, version_path, versions

NOW = dt.datetime(2026, 3, 31, tzinfo=dt.UTC)


@pytest.mark.parametrize("torn", [b'{"action": "publi', b"\xff\xfe", b"{}", b'{"action": "pin", "version": "x"}', b"7"])
def test_a_torn_last_line_is_passed_over_and_closed_by_the_next_writer(tmp_path: Path, torn: bytes) -> None:
    append(tmp_path, Event("publish", 1, why="first"))
    with (tmp_path / HISTORY).open("ab") as file:
        file.write(torn)
    assert [event.version for event in read_events(tmp_path)] == [1]
    append(tmp_path, Event("promote", 2, "stable", 1, why="a\nb ü"))
    assert [(event.version, event.why) for event in read_events(tmp_path)] == [(1, "first"), (2, "a\nb ü")]
    assert len((tmp_path / HISTORY).read_bytes().splitlines()) == 3


def test_fields_of_a_later_release_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_text(json.dumps({"action": "pin", "version": 3, "ticket": "X-1"}) + "\n")
    assert read_events(tmp_path) == [Event("pin", 3)]
    assert read_events(tmp_path / "none") == []


def _append_many(store: Path, version: int) -> None:
    for _ in range(50):
        append(store, Event("pin", version, why="x" * 300))


def test_writers_at_once_lose_no_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(tmp_path, version)) for version in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = [event.version for event in read_events(tmp_path)]
    assert (found.count(1), found.count(2)) == (50, 50)


def promoted(*moves: int) -> list[Event]:
    """Returns events of `stable`: a positive number promotes, a negative one rolls back to it."""
    return [Event("promote" if move > 0 else "rollback", abs(move), "stable") for move in moves]


@pytest.mark.parametrize(
    ("moves", "stack"),
    [
        ((), []),
        ((1, 2, 3), [1, 2, 3]),
        ((1, 1, 2), [1, 2]),
        ((1, 2, 3, -2), [1, 2]),
        ((1, 2, 3, -2, 4), [1, 2, 4]),
        ((1, 2, 3, -2, -1), [1]),
        ((1, 2, 1), [1, 2, 1]),
        ((1, 2, 1, -2), [1, 2]),
        ((1, -5), [1, 5]),  # to a version whose promotion is not in the history
    ],
)
def test_the_way_back_follows_promotions_less_what_was_rolled_back(moves: tuple[int, ...], stack: list[int]) -> None:
    others = [Event("promote", 9, "canary"), Event("publish", 8)]
    assert labelled_versions(others + promoted(*moves), "stable") == stack


def test_dates_come_from_publications(tmp_path: Path) -> None:
    events = [Event("publish", 1, when=NOW.isoformat()), Event("pin", 2, when=NOW.isoformat()), Event("publish", 3)]
    assert published_at(events) == {1: NOW}


def test_a_version_goes_when_it_is_neither_new_nor_young_nor_in_use() -> None:
    published = {version: NOW - dt.timedelta(days=10 - version) for version in range(1, 10)}  # 9 is a day old
    assert versions_to_remove(published, RetentionSpec(keep_last=2, keep_days=4.5), in_use={2}, now=NOW) == [1, 3, 4, 5]
    assert versions_to_remove(published, RetentionSpec(keep_last=20, keep_days=0), in_use=(), now=NOW) == []
    assert versions_to_remove(published, RetentionSpec(keep_last=1, keep_days=0), in_use=(), now=NOW) == [*range(1, 9)]


@given(
    ages=st.dictionaries(st.integers(0, 50), st.floats(0, 100), max_size=20),
    in_use=st.sets(st.integers(0, 50)),
    keep_last=st.integers(1, 10),
    keep_days=st.floats(0, 100),
)
def test_retention_never_takes_what_is_in_use_or_newest(
    ages: dict[int, float], in_use: set[int], keep_last: int, keep_days: float
) -> None:
    published = {version: NOW - dt.timedelta(days=age) for version, age in ages.items()}
    policy = RetentionSpec(keep_last=keep_last, keep_days=keep_days)
    gone = set(versions_to_remove(published, policy, in_use=in_use, now=NOW))
    assert not gone & in_use
    assert gone <= set(ages)
    kept_before = sorted(ages)[-keep_last:]
    assert not gone & set(kept_before)
    assert all(ages[version] > keep_days - 1e-9 for version in gone)
    assert len(ages) - len(gone) >= min(len(ages), keep_last)


@pytest.mark.parametrize("text", [{"keep_last": 0}, {"keep_days": -1}, {"keep": 3}])
def test_a_policy_that_keeps_nothing_is_refused(text: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="keep"):
        RetentionSpec.model_validate(text)


def meminfo(folder: Path, available_kib: int) -> Path:
    folder.mkdir()
    (folder / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {available_kib} kB\n")
    return folder


def test_memory_is_bounded_by_the_machine_and_by_the_container(tmp_path: Path) -> None:
    proc, group = meminfo(tmp_path / "proc", 4096), tmp_path / "cgroup"
    assert available_memory(proc, group) == Memory(4096 << 10, "the memory of the machine")
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("5\n")
    assert available_memory(proc, group) == Memory(4096 << 10, "the memory of the machine")
    (group / "memory.max").write_text(f"{3 << 20}\n")
    (group / "memory.current").write_text(f"{1 << 20}\n")
    assert available_memory(proc, group) == Memory(2 << 20, "the memory limit of the container, 3 MiB")
    (group / "memory").mkdir()  # the first version of control groups
    (group / "memory" / "memory.limit_in_bytes").write_text(f"{2 << 20}\n")
    (group / "memory" / "memory.usage_in_bytes").write_text(f"{3 << 20}\n")
    assert available_memory(proc, group) == Memory(0, "the memory limit of the container, 2 MiB")
    assert available_memory(tmp_path / "none", tmp_path / "none") is None


def test_memory_is_warned_of_when_tight_and_refused_when_short() -> None:
    memory = Memory(100 << 20, "the memory of the machine")
    assert memory_warning({3: 80 << 20}, memory) == ("", False)
    text, too_much = memory_warning({3: 50 << 20, 4: 40 << 20}, memory)
    assert not too_much
    assert "loading version 3 (50 MiB), 4 (40 MiB) beside what runs takes about 90 MiB" in text
    assert memory_warning({3: 101 << 20}, memory)[1]
    assert memory_warning({3: 101 << 20}, None) == ("", False)


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_disk(tmp_path, needed_bytes=1, what="a copy")
    with pytest.raises(ArtefactError, match=r"a copy needs \d+ MiB .* are free; retire versions"):
        check_disk(tmp_path, needed_bytes=1 << 60, what="a copy")
    monkeypatch.setattr("serving.version_store.copy_bytes", lambda *_: 1 << 60)
    with pytest.raises(ArtefactError, match="retire versions"):
        publish(tmp_path / "store", saved_model(tmp_path), metadata={})
    assert versions(tmp_path / "store") == []


def saved_model(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    return folder


def test_extras_are_files_of_the_version_with_checksums(tmp_path: Path) -> None:
    (tmp_path / "more" / "deep").mkdir(parents=True)
    (tmp_path / "more" / "deep" / "a").write_bytes(b"a")
    (tmp_path / "one").write_bytes(b"one")
    extras = {"assets.extra/more": tmp_path / "more", "assets.extra/one": tmp_path / "one"}
    publish(tmp_path / "store", saved_model(tmp_path), metadata={}, extras=extras, why="with extras")
    folder = version_path(tmp_path / "store", 1)
    assert (folder / "assets.extra" / "more" / "deep" / "a").read_bytes() == b"a"
    assert (folder / "assets.extra" / "one").read_bytes() == b"one"
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {"assets.extra/more/deep/a", "assets.extra/one", "saved_model.pb", "rankmill.json"} == set(listed)
    (event,) = read_events(tmp_path / "store")
    assert (event.action, event.version, event.why) == ("publish", 1, "with extras")


def test_a_version_that_is_removed_is_gone_at_once_and_whole(tmp_path: Path) -> None:
    export = saved_model(tmp_path)
    for _ in range(2):
        publish(tmp_path / "store", export, metadata={})
    remove(tmp_path / "store", 1)
    assert versions(tmp_path / "store") == [2]
    assert not list((tmp_path / "store").glob(".tmp*"))
    with pytest.raises(ArtefactError, match="no version 1"):
        remove(tmp_path / "store", 1)
    assert read_metadata(tmp_path / "store", 2)["version"] == 2
