"""Feature look-ups a second: the mapped snapshot and Redis, beside a Python dict and a bare Redis GET.

python -m tests.benchmarks.features [--keys 1000000] [--seconds 1.0] [--no-redis]

A million users with a history of 20 item names, its ages, two counts and a rate; a tenth as many items with three
numbers. Keys are drawn by Zipf's law, a tenth of them unknown. Both stores answer the same, which is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis

from preprocessing.columnar import hash_rows
from preprocessing.spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn, columns_made
from serving.features import FeatureCompleter
from serving.features_embedded import EmbeddedStore
from serving.features_layout import Clock
from serving.features_push import push_snapshot
from serving.features_records import key_bytes
from serving.features_redis import RedisStore
from serving.features_snapshot import write_snapshot
from serving.features_spec import FeaturesSpec
from tests.benchmarks.measure import machine
from tests.serving.test_features_redis import find_redis, free_port

STATE_MS = 1_790_000_000_000
LENGTH = 20
BATCHES = (1, 20, 500)


def columns_of(key: str) -> list[DerivedColumn]:
    """Returns a rate and counts of a key, and for users a history."""
    found: list[DerivedColumn] = [
        CountColumn(kind="count", name=f"{key}_shown_1d", key=(key,), window_s=86_400),
        CountColumn(kind="count", name=f"{key}_shown", key=(key,)),
        RateColumn(kind="rate", name=f"{key}_rate", key=(key,), label="click", prior=0.1, strength=10),
    ]
    if key == "user":
        found.append(
            HistoryColumn(
                kind="history", name="seen", key=("user",), value="item", label="click", length=LENGTH, ages="seen_ages"
            )
        )
    return found


def state_of(key: str, num_keys: int, num_items: int) -> pa.Table:
    """Returns a state as preprocessing writes it."""
    random = np.random.default_rng(1)
    columns: dict[str, Any] = {
        key: pa.array([f"{key}-{number}" for number in range(num_keys)], pa.binary()),
        f"{key}_shown_1d": pa.array(random.integers(0, 50, num_keys)),
        f"{key}_shown": pa.array(random.integers(50, 5000, num_keys)),
        f"{key}_rate": pa.array(random.random(num_keys)),
    }
    if key == "user":
        lengths = random.integers(0, LENGTH + 1, num_keys)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        items = pa.array([f"item-{number}" for number in range(num_items)], pa.binary())
        values = items.take(pa.array(random.integers(0, num_items, lengths.sum())))
        known = pa.array(STATE_MS - 1 - random.integers(0, 10**9, lengths.sum()))
        columns |= {"seen": pa.ListArray.from_arrays(offsets, values)}
        columns |= {"__known_seen": pa.ListArray.from_arrays(offsets, known)}
    table = pa.table(columns)
    return table.take(pa.array(np.argsort(hash_rows(table, [key])))).combine_chunks()


def snapshot(folder: Path, num_keys: int) -> dict[str, float]:
    """Writes the snapshot and returns what it took."""
    num_items = max(num_keys // 10, 10)
    states = [(columns_of(key), state_of(key, n, num_items)) for key, n in (("user", num_keys), ("item", num_items))]
    inputs = ["item", *(name for columns, _ in states for one in columns for name in columns_made(one))]
    clock = Clock(freshness="day", period="day", time_zone="UTC", state_ms=STATE_MS)
    start = time.process_time()
    write_snapshot(folder, states, clock=clock, model_name="m", version=1, inputs=inputs, note={})
    seconds = time.process_time() - start
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "write_cpu_s": round(seconds, 2),
        "size_mb": round(size / 2**20, 1),
        "bytes_per_key": round(size / num_keys),
    }


def keys_drawn(num_keys: int, count: int) -> list[bytes]:
    """Returns users by Zipf's law, a tenth of them unknown."""
    random = np.random.default_rng(2)
    places = np.where(random.random(count) < 0.1, num_keys + 1, random.zipf(1.2, count) % num_keys)
    return [f"user-{place}".encode() for place in places]


def timed(ask: Callable[[list[bytes]], Any], keys: list[bytes], *, batch: int, seconds: float) -> dict[str, float]:
    """Returns keys a second and microseconds a batch, asked for some seconds."""
    batches = _batches(keys, batch)
    ask(next(batches))
    took: list[float] = []
    cpu, begin = time.process_time(), time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        ask(next(batches))
        took.append(time.perf_counter() - now)
    cpu_us = (time.process_time() - cpu) / len(took) * 1e6
    p50, p99 = np.percentile(took, [50, 99]) * 1e6
    return {
        "keys_per_s": round(batch * len(took) / sum(took)),
        "p50_us": round(float(p50), 1),
        "p99_us": round(float(p99), 1),
        "cpu_us": round(cpu_us, 1),
    }


def _batches(keys: list[bytes], size: int) -> Iterator[list[bytes]]:
    while True:
        for start in range(0, len(keys) - size + 1, size):
            yield keys[start : start + size]


def look_up(store: Any) -> Callable[[list[bytes]], Any]:
    """Returns the look-up of users in a store."""
    return lambda batch: store.fetch([[(key,) for key in dict.fromkeys(batch)], []])


def requests(store: Any, keys: list[bytes], *, num_items: int, seconds: float) -> dict[str, float]:
    """Measures whole requests: a user with a number of candidates, rows in and rows out."""
    completer = FeatureCompleter(store)

    def ask(batch: list[bytes]) -> Any:
        return completer.complete([{"user": batch[0], "item": f"item-{i}"} for i in range(num_items)], STATE_MS + 5)

    return timed(ask, keys, batch=1, seconds=seconds)


def measure(store: Any, keys: list[bytes], *, seconds: float) -> dict[str, Any]:
    """Returns the figures of a store."""
    figures = {f"batch_{size}": timed(look_up(store), keys, batch=size, seconds=seconds) for size in BATCHES}
    for items in (1, 100):
        figures[f"request_1_user_{items}_items"] = requests(store, keys, num_items=items, seconds=seconds)
    return figures


def in_dict(store: EmbeddedStore, keys: list[bytes], num_keys: int, *, seconds: float) -> dict[str, Any]:
    """Returns the figures of a Python dict that holds ready records, as a floor."""
    found: dict[Any, Any] = {}
    for start in range(0, num_keys, 20_000):
        users, records = store.rows(0, start, start + 20_000)
        found |= {user[0]: record for user, record in zip(users, records, strict=True)}
    return {
        f"batch_{size}": timed(lambda batch: [found.get(key) for key in batch], keys, batch=size, seconds=seconds)
        for size in BATCHES
    }


def with_redis(program: str, folder: Path, keys: list[bytes], *, seconds: float) -> dict[str, Any]:
    """Returns the figures of a Redis server of our own."""
    port = free_port()
    options = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder.parent),
    ]
    server = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    client: Any = redis.Redis(port=port)
    try:
        _wait(client)
        spec = FeaturesSpec(store="redis", url=f"redis://127.0.0.1:{port}/0", timeout_s=10.0)
        start, cpu = time.perf_counter(), time.process_time()
        pushed = push_snapshot(spec, folder)
        push = {
            "keys": pushed.keys,
            "seconds": round(time.perf_counter() - start, 2),
            "client_cpu_s": round(time.process_time() - cpu, 2),
            "redis_mb": round(client.info("memory")["used_memory"] / 2**20),
        }
        store = RedisStore(spec, model_name="m")
        embedded = EmbeddedStore(folder)
        wanted = [[(key,) for key in dict.fromkeys(keys[:5000])], []]
        if store.fetch(wanted)[1] != embedded.fetch(wanted)[1]:
            raise SystemExit("the two stores differ")
        name = f"rankmill:m:g:{pushed.generation}:0:".encode() + key_bytes((keys[0],))
        bare = timed(lambda _: client.get(name), keys, batch=1, seconds=seconds)
        return {"push": push, "bare_get": bare, **measure(store, keys, seconds=seconds)}
    finally:
        server.terminate()
        server.wait(30)


def _wait(client: Any) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            client.ping()
            return
        except redis.exceptions.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-redis", action="store_true")
    options = parser.parse_args()
    keys = keys_drawn(options.keys, 100_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "snapshot"
        result: dict[str, Any] = {"keys": options.keys, "snapshot": snapshot(folder, options.keys)}
        for name, verify in (("open_verified_s", True), ("open_s", False)):
            start = time.perf_counter()
            store = EmbeddedStore(folder, verify=verify)
            result["snapshot"][name] = round(time.perf_counter() - start, 3)
        result["embedded"] = measure(store, keys, seconds=options.seconds)
        program = None if options.no_redis else find_redis()
        if program is not None:
            result["redis"] = with_redis(program, folder, keys, seconds=options.seconds)
        result["dict"] = in_dict(store, keys, options.keys, seconds=options.seconds)
    print(json.dumps({**result, "load": os.getloadavg(), "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
