"""Online features: what a request is completed with is what preprocessing makes of the same row at that freshness."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.columnar import hash_rows
from preprocessing.errors import ArtefactError, CorruptError, ServingError
from preprocessing.periods import period_start_ms
from preprocessing.splits import day_of, period_of
from serving import features_embedded
from serving.features import FeatureCompleter, open_features, served_snapshot
from serving.features_embedded import EmbeddedStore
from serving.features_folder import newest_snapshot, publish_snapshot, snapshot_versions
from serving.features_hash import hash_key
from serving.features_layout import Clock
from serving.features_records import RecordCodec, key_bytes
from serving.features_spec import FeaturesSpec
from tests.serving.feature_states import (
    ALL_COLUMNS,
    KEYS,
    as_columns,
    completer,
    content,
    random_days,
    raw,
    requests,
    specs_of,
    write_days,
)


def day_number(text: str) -> int:
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days


# The day of the state is followed by one that begins before, at or after a change of the clocks.
ZONES = [
    ("UTC", "2026-03-01"),
    ("Europe/Berlin", "2026-03-28"),
    ("Europe/Berlin", "2026-03-29"),
    ("America/Sao_Paulo", "2018-11-03"),  # midnight of 4 November did not exist
    ("America/Havana", "2026-10-31"),  # clocks go back at one
    ("Asia/Kolkata", "2026-06-01"),
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("few", [0, 10**6])
def test_online_columns_equal_the_offline_columns_of_the_day_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: tuple[str, str], seed: int, few: int
) -> None:
    monkeypatch.setattr(features_embedded, "_FEW", few)  # every key by numpy, or every key by itself
    days = random_days(seed, time_zone=zone[0], state_day=day_number(zone[1]))
    start, end = days.state_ms, days.starts_ms(days.state_day + 2)
    now_ms = random.Random(seed).choice([start, end - 1, (start + end) // 2])
    asked = requests(seed, days, now_ms=now_ms, cutoff_ms=start)
    offline = days.offline(asked)
    online = completer(write_days(days, tmp_path / "s")).lookup(raw(asked), now_ms)
    assert online.keys() == set(offline.column_names)
    assert content(as_columns(online, offline.schema)) == content(offline)
    assert any(any(online[name]) for name in ALL_COLUMNS if name.startswith("users_"))  # the log says something


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32), hours=st.integers(0, 22))  # the day has 23
def test_online_columns_equal_offline_columns_over_random_logs(
    tmp_path_factory: pytest.TempPathFactory, seed: int, hours: int
) -> None:
    days = random_days(seed, time_zone="Europe/Berlin", state_day=20_540, size=60)
    now_ms = days.state_ms + hours * 3_600_000
    asked = requests(seed, days, now_ms=now_ms, cutoff_ms=days.state_ms, size=15)
    offline = days.offline(asked)
    folder = write_days(days, tmp_path_factory.mktemp("random") / "s")
    assert content(as_columns(completer(folder).lookup(raw(asked), now_ms), offline.schema)) == content(offline)


def test_a_state_two_days_old_keeps_ages_horizons_and_totals_exact(tmp_path: Path) -> None:
    days = random_days(5, time_zone="Europe/Berlin", state_day=day_number("2026-03-28")).settled()
    later = days.starts_ms(days.state_day + 2)
    asked = requests(5, days, now_ms=later + 5_000, cutoff_ms=later)
    offline = days.offline(asked)
    exact = [name for name in offline.column_names if not any(window in name for window in ("_1h_", "_1d_", "_7d_"))]
    exact = [name for name in exact if not name.startswith("buys_")]
    online = as_columns(completer(write_days(days, tmp_path / "s")).lookup(raw(asked), later + 5_000), offline.schema)
    assert content(online.select(exact)) == content(offline.select(exact))


def test_with_freshness_event_ages_run_to_the_request(tmp_path: Path) -> None:
    days = random_days(6, time_zone="UTC", state_day=day_number("2026-03-28")).settled()
    now_ms = days.state_ms + 12_345_678
    asked = requests(6, days, now_ms=now_ms, cutoff_ms=now_ms)
    names = [f"age_{'_'.join(key)}" for key in KEYS] + [f"users_{'_'.join(key)}" for key in KEYS]
    offline = days.offline(asked)
    found = completer(write_days(days, tmp_path / "s", freshness="event")).lookup(raw(asked), now_ms)
    assert content(as_columns(found, offline.schema).select(names)) == content(offline.select(names))


ZONE_NAMES = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia"])


@settings(deadline=None, max_examples=200)
@given(now_ms=st.integers(0, 4_000_000_000_000), zone=ZONE_NAMES, period=st.sampled_from(["day", "month", "year"]))
def test_a_request_is_answered_as_of_the_start_of_its_period(now_ms: int, zone: str, period: Any) -> None:
    number = int(period_of(day_of(np.array([now_ms]), time_zone=zone), period)[0])
    clock = Clock(freshness="day", period=period, time_zone=zone, state_ms=-(2**62))
    assert clock.cutoff_ms(now_ms) == period_start_ms(number, period, time_zone=zone)
    assert clock.model_copy(update={"state_ms": now_ms + 7}).cutoff_ms(now_ms) == now_ms + 7


PARTS = st.one_of(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))


@settings(deadline=None, max_examples=150)
@given(st.lists(PARTS, min_size=1, max_size=4))
def test_the_hash_of_one_key_is_that_of_its_row(key: list[Any]) -> None:
    kinds = {bytes: pa.binary(), int: pa.int64(), float: pa.float64()}
    table = pa.table([pa.array([part], kinds[type(part)]) for part in key], names=[str(i) for i in range(len(key))])
    assert hash_rows(table, table.column_names).tolist() == [hash_key(key)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    days = random_days(9, time_zone="UTC", state_day=day_number("2026-03-01"))
    return write_days(days, tmp_path_factory.mktemp("snapshot") / "s")


NOW = int(dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC).timestamp() * 1000)


def test_a_row_keeps_the_columns_that_it_has_and_loses_keys_that_the_model_does_not_take(folder: Path) -> None:
    row = {"user": "a", "category": 0, "item": 3, "shown_1h_user": 77, "seen_item": None, "other": 1.5}
    (completed,) = completer(folder).complete([row], NOW)
    assert completed.keys() == {*ALL_COLUMNS, "item", "other"}
    assert (completed["shown_1h_user"], completed["seen_item"], completed["item"]) == (77, None, 3)
    (plain,) = completer(folder).complete([{"user": "a", "category": 0, "item": 3}], NOW)
    assert {k: v for k, v in completed.items() if k not in ("shown_1h_user", "seen_item", "other")} == {
        k: v for k, v in plain.items() if k not in ("shown_1h_user", "seen_item")
    }
    assert row == {"user": "a", "category": 0, "item": 3, "shown_1h_user": 77, "seen_item": None, "other": 1.5}


def test_a_request_without_keys_is_that_of_a_user_without_events(folder: Path) -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"user": "nobody"},
        {"user": None, "item": float("nan")},
        {"user": b"\x00", "item": -(2**63)},
    ]
    for completed in completer(folder).complete(rows, NOW):
        for key in KEYS:
            end = "_".join(key)
            for name in ("seen", "age", "users", "plain"):
                assert completed[f"{name}_{end}"] == []
            for window in ("1h", "1d", "7d", "all"):
                assert completed[f"shown_{window}_{end}"] == 0
                assert completed[f"ctr_{window}_{end}"] == 0.1


def test_a_row_that_lacks_nothing_asks_nothing(folder: Path) -> None:
    class Silent:
        layout = EmbeddedStore(folder).layout

        def fetch(self, wanted: Any) -> Any:
            raise AssertionError(wanted)

        def close(self) -> None: ...

    row = dict.fromkeys(ALL_COLUMNS, 1)
    assert FeatureCompleter(Silent()).complete([row], NOW) == [row]
    assert FeatureCompleter(Silent()).complete([], NOW) == []


@pytest.mark.parametrize("bad", [{"user": 1.5}, {"user": True}, {"item": "x"}, {"item": 1.5}, {"item": 2**63}])
def test_a_key_of_another_type_is_refused_with_its_row_and_column(folder: Path, bad: dict[str, Any]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ServingError, match=rf"row 1: '{name}' is a key of .* got {value!r}".replace("'x'", "'x'")):
        completer(folder).complete([{}, bad], NOW)


def test_whole_numbers_find_text_keys_by_their_digits(tmp_path: Path) -> None:
    days = random_days(3, time_zone="UTC", state_day=day_number("2026-03-01"))
    folder = write_days(days, tmp_path / "s")
    found = completer(folder).lookup([{"item": 3}, {"item": 3.0}, {"item": np.int64(3)}, {"item": "3"}], NOW)
    assert len(set(map(str, zip(*found.values(), strict=True)))) == 1
    assert found["shown_all_item"][0] > 0


def test_keys_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("features_embedded", "features_snapshot"):
        monkeypatch.setattr(f"serving.{module}.hash_rows", lambda table, _: np.full(table.num_rows, 5, np.uint64))
    monkeypatch.setattr(features_embedded, "hash_key", lambda _: 5)
    days = random_days(4, time_zone="UTC", state_day=day_number("2026-03-01"))
    asked = requests(4, days, now_ms=NOW, cutoff_ms=days.state_ms)
    offline = days.offline(asked)
    found = completer(write_days(days, tmp_path / "s"))
    for few in (0, 10**6):
        monkeypatch.setattr(features_embedded, "_FEW", few)
        assert content(as_columns(found.lookup(raw(asked), NOW), offline.schema)) == content(offline)


def test_an_empty_state_knows_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = random_days(4, time_zone="UTC", state_day=day_number("2026-03-01"), size=0)
    found = completer(write_days(days, tmp_path / "s"))
    for few in (0, 10**6):
        monkeypatch.setattr(features_embedded, "_FEW", few)
        (row,) = found.complete([{"user": "a", "item": 1, "category": 2}], NOW)
        assert (row["seen_user"], row["shown_all_item"], row["ctr_1d_user_category"]) == ([], 0, 0.1)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    days = random_days(4, time_zone="UTC", state_day=day_number("2026-03-01"))
    folder = write_days(days, tmp_path / "s")
    path = folder / "1.arrow"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    with pytest.raises(CorruptError, match=r"1\.arrow does not match its checksum"):
        EmbeddedStore(folder)
    path.unlink()
    with pytest.raises(ArtefactError, match="cannot be read"):
        EmbeddedStore(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["content"]["layout"]["format"] = 99
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="has format 99, and 1 is read here"):
        EmbeddedStore(folder)


def test_a_snapshot_is_published_once_per_content_and_only_the_last_two_stay(tmp_path: Path) -> None:
    def publish(key: int, version: int = 3) -> Path:
        days = random_days(key, time_zone="UTC", state_day=day_number("2026-03-01"), size=5)

        def write(folder: Path, note: Any) -> None:
            write_days(days, folder)
            manifest = json.loads((folder / "manifest.json").read_text())
            (folder / "manifest.json").write_text(json.dumps(manifest | note))

        return publish_snapshot(tmp_path, version, key={"k": key}, write=write)

    assert (newest_snapshot(tmp_path), snapshot_versions(tmp_path)) == (None, [])
    first = publish(1)
    assert publish(1) == first == tmp_path / "features" / "3" / "1"
    second, third = publish(2), publish(1)
    assert [path.name for path in (second, third)] == ["2", "3"]
    assert not first.exists()
    assert second.exists()
    (tmp_path / "features" / "3" / "9").mkdir()  # unfinished: it does not exist for a reader
    assert newest_snapshot(tmp_path) == third
    newer = publish(1, version=12)
    assert (newest_snapshot(tmp_path), newest_snapshot(tmp_path, 3)) == (newer, third)
    assert snapshot_versions(tmp_path) == [3, 12]


def test_a_running_client_takes_up_a_newer_snapshot_and_survives_a_bad_one(tmp_path: Path) -> None:
    def publish(seed: int) -> Path:
        days = random_days(seed, time_zone="UTC", state_day=day_number("2026-03-01") + seed)
        return publish_snapshot(tmp_path, 1, key={"k": seed}, write=lambda folder, _: write_days(days, folder))

    def wait_for(state_ms: int) -> None:
        deadline = time.monotonic() + 10
        while features.layout.clock.state_ms != state_ms:
            assert time.monotonic() < deadline
            assert len(features.complete([{"user": "a"}], NOW)) == 1
            time.sleep(0.01)

    publish(0)
    features = open_features(FeaturesSpec(poll_s=0.0), store=tmp_path, model_name="m")
    first = features.layout.clock.state_ms
    bad = publish(1)
    (bad / "0.arrow").write_bytes(b"")
    for _ in range(5):
        features.complete([{"user": "a"}], NOW)
        time.sleep(0.01)
    assert features.layout.clock.state_ms == first
    publish(2)
    wait_for(first + 2 * 86_400_000)
    publish(3)
    wait_for(first + 3 * 86_400_000)
    features.close()


def test_the_live_version_is_served_though_a_newer_one_has_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = random_days(1, time_zone="UTC", state_day=day_number("2026-03-01"), size=5)
    for version in (3, 4):
        publish_snapshot(tmp_path, version, key={}, write=lambda folder, _: write_days(days, folder))
    assert served_snapshot(tmp_path) == tmp_path / "features" / "4" / "1"
    for live, found in ((3, 3), (4, 4), (2, 4), (None, 4)):
        monkeypatch.setattr("serving.features.live_version", lambda _, live=live: live)
        assert served_snapshot(tmp_path) == tmp_path / "features" / str(found) / "1"
    assert served_snapshot(tmp_path, 2) is None


def test_without_features_the_error_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="holds no features; run `rankmill publish`"):
        open_features(FeaturesSpec(), store=tmp_path, model_name="m")
    with pytest.raises(ArtefactError, match="holds no features of version 4"):
        open_features(FeaturesSpec(), store=tmp_path, model_name="m", version=4)


def test_many_threads_get_the_answers_of_one(folder: Path) -> None:
    features = completer(folder)
    rows = [{"user": user, "item": item, "category": 0} for user in ("a", "b", "") for item in range(30)]
    expected = features.complete(rows, NOW)
    wrong: list[int] = []

    def ask() -> None:
        wrong.extend(i for i in range(20) if features.complete(rows, NOW) != expected)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong


def test_records_and_keys_survive_as_bytes(folder: Path) -> None:
    store = EmbeddedStore(folder)
    seen: set[bytes] = set()
    for place, key_set in enumerate(store.layout.key_sets):
        codec = RecordCodec(key_set)
        keys, records = store.rows(place, 0, 10**6)
        assert len(keys) == key_set.rows
        for record in records:
            encoded = codec.encode(record)
            assert codec.decode(encoded) == record
            with pytest.raises(CorruptError):
                codec.decode(encoded[:-1])
            with pytest.raises(CorruptError):
                codec.decode(encoded + b"\x00")
        assert len({key_bytes(key) for key in keys}) == len(keys)
        seen |= {key_bytes(key) for key in keys}
    assert key_bytes((b"ab", b"c")) != key_bytes((b"a", b"bc"))


def test_only_needed_columns_are_kept(folder: Path) -> None:
    for key_set, key in zip(EmbeddedStore(folder).layout.key_sets, KEYS, strict=True):
        assert key_set.columns == tuple(specs_of(key))
        lists = key_set.lists()
        end = "_".join(key)
        assert list(lists) == [
            f"seen_{end}",
            f"__known_seen_{end}",
            f"users_{end}",
            f"__known_users_{end}",
            f"plain_{end}",
        ]
        names = pa.ipc.open_file(pa.memory_map(str(folder / key_set.file))).schema.names
        assert not [name for name in names if name.startswith(("age_", "__impressions", "__positives"))]
