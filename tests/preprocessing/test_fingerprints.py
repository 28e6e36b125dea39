import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from preprocessing import fingerprints
from preprocessing.errors import SourceError
from preprocessing.fingerprints import FingerprintCache

NOW_S = 4_000_000_000.0  # later than the clock of any machine that runs this


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths whose content has been read, as it grows."""
    seen: list[str] = []
    real = fingerprints.fingerprint

    def noted(path: str) -> dict[str, Any]:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(fingerprints, "fingerprint", noted)
    return seen


def settled(path: Path, content: bytes, *, mtime_s: int = 1_000) -> str:
    path.write_bytes(content)
    os.utime(path, (mtime_s, mtime_s))
    return str(path)


def cache(folder: Path, now_s: float = NOW_S) -> FingerprintCache:
    return FingerprintCache(folder / "cache" / "prints.json", now_s=lambda: now_s)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_an_unchanged_file_is_read_once_in_all_runs(tmp_path: Path, reads: list[str]) -> None:
    path = settled(tmp_path / "a.csv", b"abc")
    expected = {"path": path, "size_bytes": 3, "sha256": sha(b"abc")}
    for _ in range(3):
        run = cache(tmp_path)
        assert run.fingerprint(path) == expected
        assert run.fingerprint(path) == expected
        run.save()
    assert reads == [path]


def test_any_change_is_seen(tmp_path: Path, reads: list[str]) -> None:
    path = settled(tmp_path / "a.csv", b"abc")
    run = cache(tmp_path)
    run.fingerprint(path)
    assert run.fingerprint(settled(tmp_path / "a.csv", b"abd", mtime_s=1_001))["sha256"] == sha(b"abd")  # a new time
    other = tmp_path / "b.csv"
    settled(other, b"abx", mtime_s=1_001)
    other.replace(path)  # the same size and time, another inode
    assert run.fingerprint(path)["sha256"] == sha(b"abx")
    settled(tmp_path / "a.csv", b"aby", mtime_s=1_001)  # the same size, time and inode: the time set back after an edit
    assert run.fingerprint(path)["sha256"] == sha(b"aby")


def test_a_file_that_has_just_changed_is_not_trusted(tmp_path: Path, reads: list[str]) -> None:
    path = settled(tmp_path / "a.csv", b"abc", mtime_s=int(NOW_S) - 1)
    run = cache(tmp_path)
    run.fingerprint(path)
    run.fingerprint(path)
    assert reads == [path, path]
    later = cache(tmp_path, NOW_S + 5)
    later.fingerprint(path)
    later.fingerprint(path)
    assert reads == [path] * 3


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1}', b'{"a": {"stamp": [1]}}', b"\xff"])
def test_a_damaged_cache_is_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = settled(tmp_path / "a.csv", b"abc")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "prints.json").write_bytes(content)
    assert cache(tmp_path).fingerprint(path)["sha256"] == sha(b"abc")


def test_files_that_are_gone_leave_the_cache(tmp_path: Path) -> None:
    run = cache(tmp_path)
    paths = [settled(tmp_path / name, b"abc") for name in ("a", "b")]
    for path in paths:
        run.fingerprint(path)
    os.remove(paths[0])
    run.save()
    assert list(json.loads((tmp_path / "cache" / "prints.json").read_bytes())) == [paths[1]]
    with pytest.raises(SourceError, match="cannot be opened"):
        run.fingerprint(paths[0])
