"""The simulator: the same bytes for the same seed, a truth that its clicks agree with, dirt that is counted."""

from __future__ import annotations

import collections
import csv
import datetime as dt
import functools
import json
import zoneinfo
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing import simulate_shop, simulate_truth
from preprocessing.errors import ArtefactError, ConfigError
from preprocessing.simulate import SimulationSummary, simulate
from preprocessing.simulate_day import day_start_ms, simulate_day

START = dt.date(2026, 10, 24)  # the second day has 25 hours in Berlin
ZONE = zoneinfo.ZoneInfo("Europe/Berlin")
ROWS = 15_000
DAYS = 3
DIRT = 0.1


def run(out: Path, *, days: int = 2, rows: int = 500, seed: int = 5, dirt: float = 0.0) -> SimulationSummary:
    return simulate(out, days=days, rows_per_day=rows, seed=seed, dirt=dirt, start=START, time_zone="Europe/Berlin")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> SimulationSummary:
    return run(tmp_path_factory.mktemp("clean") / "logs", days=DAYS, rows=ROWS)


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> SimulationSummary:
    return run(tmp_path_factory.mktemp("dirty") / "logs", days=DAYS, rows=ROWS, dirt=DIRT)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cells(folder: Path, log: str) -> list[list[str]]:
    """Returns all rows of a log without the headers, whatever their number of cells."""
    rows = []
    for path in sorted((folder / log).glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += list(csv.reader(file))[1:]
    return rows


@functools.cache
def columns(folder: Path, log: str) -> dict[str, np.ndarray]:
    rows = cells(folder, log)
    with next((folder / log).glob("*.csv")).open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def truth_of(folder: Path) -> dict[str, float]:
    tables = [pq.read_table(path) for path in sorted((folder / "truth").glob("*.parquet"))]
    return {
        key: value
        for table in tables
        for key, value in zip(table["impression_id"].to_pylist(), table["click_probability"].to_pylist(), strict=True)
    }


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a", dirt=0.1), run(tmp_path / "b", dirt=0.1)
    assert contents(first.folder) == contents(second.folder)


def test_another_seed_gives_another_shop(tmp_path: Path) -> None:
    first, second = contents(run(tmp_path / "a").folder), contents(run(tmp_path / "b", seed=6).folder)
    assert not [name for name in first if first[name] == second.get(name)]


def test_a_day_does_not_depend_on_how_many_follow(tmp_path: Path) -> None:
    short = contents(run(tmp_path / "short", days=2, dirt=0.1).folder)
    long = contents(run(tmp_path / "long", days=4, dirt=0.1).folder)
    for day in ("2026-10-24", "2026-10-25"):
        for name in (f"impressions/dt={day}.csv", f"clicks/dt={day}.csv", f"truth/dt={day}.parquet"):
            assert short[name] == long[name]
    assert long["items.jsonl"].startswith(short["items.jsonl"])
    assert len(long["items.jsonl"]) > len(short["items.jsonl"])


def test_clean_logs_have_every_impression_once_in_its_day(clean: SimulationSummary) -> None:
    for day in range(DAYS):
        date = START + dt.timedelta(days=day)
        with (clean.folder / "impressions" / f"dt={date}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        times = [int(row["timestamp_ms"]) for row in rows]
        assert len({row["impression_id"] for row in rows}) == len(rows) == ROWS
        assert times == sorted(times)
        assert {dt.datetime.fromtimestamp(ms / 1000, ZONE).date() for ms in (times[0], times[-1])} == {date}
    assert len(list((clean.folder / "impressions").iterdir())) == DAYS
    assert not any(clean.dirt.values())


def test_requests_show_distinct_items_at_positions_from_one(clean: SimulationSummary) -> None:
    log = columns(clean.folder, "impressions")
    items = collections.defaultdict(list)
    for request, item, position in zip(log["request_id"], log["item_id"], log["position"], strict=True):
        items[request].append((int(position), item))
    for shown in items.values():
        assert [position for position, _ in shown] == list(range(1, 11))
        assert len({item for _, item in shown}) == 10


def test_every_click_follows_its_impression_within_a_day(clean: SimulationSummary) -> None:
    impressions, clicks = columns(clean.folder, "impressions"), columns(clean.folder, "clicks")
    shown = dict(
        zip(
            impressions["impression_id"],
            zip(
                impressions["user_id"],
                impressions["item_id"],
                impressions["timestamp_ms"].astype(np.int64),
                strict=True,
            ),
            strict=True,
        )
    )
    delays = []
    rows = zip(clicks["impression_id"], clicks["user_id"], clicks["item_id"], clicks["clicked_ms"], strict=True)
    for impression, user, item, clicked_ms in rows:
        assert shown[impression][:2] == (user, item)
        delays.append((int(clicked_ms) - shown[impression][2]) / 1000)
    assert len(set(clicks["impression_id"])) == len(delays) == clean.num_clicks
    assert 1 <= min(delays) < 60
    assert 3 * 3600 < max(delays) < 24 * 3600


def test_some_clicks_stand_in_the_next_days_file(clean: SimulationSummary) -> None:
    with (clean.folder / "clicks" / "dt=2026-10-25.csv").open(encoding="utf-8", newline="") as file:
        days = collections.Counter(row["impression_id"][:8] for row in csv.DictReader(file))
    assert set(days) == {"20261024", "20261025"}
    assert (clean.folder / "clicks" / "dt=2026-10-27.csv").exists()


def test_the_truth_is_calibrated(clean: SimulationSummary) -> None:
    truth = truth_of(clean.folder)
    clicked = set(columns(clean.folder, "clicks")["impression_id"])
    probabilities = np.array(list(truth.values()))
    labels = np.array([key in clicked for key in truth])
    # Overall and in ten equal groups of rising probability, within 4 standard errors.
    for rows in (np.arange(labels.size), *np.array_split(np.argsort(probabilities), 10)):
        p = probabilities[rows]
        error = np.sqrt((p * (1 - p)).sum()) / rows.size
        assert abs(labels[rows].mean() - p.mean()) < 4 * error


def test_position_lowers_the_probability_as_documented(clean: SimulationSummary) -> None:
    table = pq.read_table(clean.folder / "truth" / "dt=2026-10-24.parquet")
    ratio = table["click_probability"].to_numpy() / table["examined_click_probability"].to_numpy()
    assert np.allclose(ratio[:10], np.arange(1, 11) ** -0.5, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_auc_bands_hold_for_any_seed(seed: int, tmp_path: Path) -> None:
    made = run(tmp_path / "logs", rows=10_000, seed=seed)
    assert 0.75 <= made.best_auc <= 0.85
    assert made.popularity_auc <= made.best_auc - 0.05
    assert 0.05 <= made.click_rate <= 0.15


def test_best_auc_is_that_of_the_truth_on_the_last_days_clicks(clean: SimulationSummary) -> None:
    truth = {key: value for key, value in truth_of(clean.folder).items() if key.startswith("20261026")}
    clicked = set(columns(clean.folder, "clicks")["impression_id"])
    positive = np.array([value for key, value in truth.items() if key in clicked])
    negative = np.sort([value for key, value in truth.items() if key not in clicked])
    observed = np.searchsorted(negative, positive).sum() / (positive.size * negative.size)
    # The standard error of an AUC is at most sqrt(AUC (1 - AUC) / positives).
    assert abs(observed - clean.best_auc) < 4 * np.sqrt(0.25 / positive.size)


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.25, 0.9]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1))
def test_expected_auc_equals_its_definition_by_pairs(rows: list[tuple[float, float]]) -> None:
    won = total = 0.0
    for p, score in rows:
        for q, other in rows:
            total += p * (1 - q)
            won += p * (1 - q) * (1.0 if score > other else 0.5 if score == other else 0.0)
    probabilities, scores = np.array(rows).T
    assert simulate_truth.expected_auc(probabilities, scores) == pytest.approx(won / total, rel=1e-12)


def test_new_items_appear_every_day_and_are_shown(clean: SimulationSummary) -> None:
    items = [json.loads(line) for line in (clean.folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(items) == clean.num_items
    log = columns(clean.folder, "impressions")
    first_day = {item["item_id"]: dt.datetime.fromtimestamp(item["created_ms"] / 1000, ZONE).date() for item in items}
    new_days = collections.Counter(day for day in first_day.values() if day >= START)
    assert set(new_days) == {START, START + dt.timedelta(days=1)}  # created the day before they are first shown
    created_ms = {item["item_id"]: item["created_ms"] for item in items}
    shown_ms = log["timestamp_ms"].astype(np.int64)
    assert all(created_ms[item] < ms for item, ms in zip(log["item_id"], shown_ms, strict=True))
    newcomers = {item for item, day in first_day.items() if day >= START}
    assert newcomers & set(log["item_id"])


def test_side_tables_cover_the_logs_and_have_gaps_and_unicode(clean: SimulationSummary) -> None:
    users = pq.read_table(clean.folder / "users.parquet")
    assert users.num_rows == clean.num_users
    assert set(columns(clean.folder, "impressions")["user_id"]) <= set(users["user_id"].to_pylist())
    for name in ("age", "gender", "city"):
        assert 0 < users[name].null_count < 0.1 * users.num_rows
    assert users["segment"].null_count == 0
    assert not (clean.folder / "items.jsonl").read_text(encoding="utf-8").isascii()


def test_probabilities_drift_over_days() -> None:
    sizes = simulate_shop.sizes_for(1000)
    truth = simulate_truth.build_truth(sizes, seed=1, days=20)
    shown = simulate_day(truth, sizes, seed=1, day=0, date=START, zone=ZONE, num_rows=1000).shown
    today = truth.examined_click_probability(shown, day=0)
    moves = [np.abs(truth.examined_click_probability(shown, day=day) - today).mean() for day in (1, 7)]
    assert 0 < moves[0] < moves[1] < 0.1


def test_local_hours_follow_the_zone_through_a_change_of_clocks() -> None:
    sizes = simulate_shop.sizes_for(1000)
    truth = simulate_truth.build_truth(sizes, seed=1, days=2)
    date = dt.date(2026, 10, 25)
    events = simulate_day(truth, sizes, seed=1, day=1, date=date, zone=ZONE, num_rows=20_000)
    assert events.end_ms - day_start_ms(date, zone=ZONE) == 25 * 3_600_000
    hours = [dt.datetime.fromtimestamp(ms / 1000, ZONE).hour for ms in events.timestamp_ms]
    assert events.shown.hour.tolist() == hours


def test_the_share_of_dirt_is_what_was_asked(dirty: SimulationSummary) -> None:
    spoilt = sum(count for kind, count in dirty.dirt.items() if kind.startswith("impressions/"))
    num_rows = ROWS * DAYS
    assert abs(spoilt - DIRT * num_rows) < 4 * np.sqrt(DIRT * num_rows)
    assert all(count > 0 for count in dirty.dirt.values())


def test_each_kind_of_dirt_is_in_the_log_as_often_as_counted(dirty: SimulationSummary) -> None:
    rows = cells(dirty.folder, "impressions")
    whole = [tuple(row) for row in rows if len(row) == 9]
    assert len(rows) == ROWS * DAYS + dirty.dirt["impressions/duplicate"]
    assert len(rows) - len(whole) == dirty.dirt["impressions/malformed"]
    assert len(whole) - len(set(whole)) == dirty.dirt["impressions/duplicate"]
    unique = set(whole)
    assert sum(row[5] == "" or row[7] == "" for row in unique) == dirty.dirt["impressions/missing"]
    assert sum(row[5] not in {*simulate_truth.DEVICES, ""} for row in unique) == dirty.dirt["impressions/unicode"]
    end_ms = day_start_ms(START + dt.timedelta(days=DAYS), zone=ZONE)
    assert sum(int(row[6]) > end_ms for row in unique) == dirty.dirt["impressions/future"]
    absurd = [row[7] for row in unique if row[7] and not row[7].replace(".", "").isdigit()]
    assert len(absurd) == dirty.dirt["impressions/absurd"]


def test_late_lines_stand_in_the_next_days_file(dirty: SimulationSummary) -> None:
    late = 0
    for path in (dirty.folder / "impressions").glob("*.csv"):
        day = path.stem.removeprefix("dt=").replace("-", "")
        with path.open(encoding="utf-8", newline="") as file:
            late += sum(row[0][:8] != day for row in list(csv.reader(file))[1:])
    assert late == dirty.dirt["impressions/late"]


def test_dirty_rows_that_stay_valid_keep_their_truth_and_their_clicks(
    clean: SimulationSummary, dirty: SimulationSummary
) -> None:
    before, after = truth_of(clean.folder), truth_of(dirty.folder)
    lost = dirty.dirt["impressions/malformed"] + dirty.dirt["impressions/future"]
    assert len(after) == len(before) - lost
    assert all(before[key] == value for key, value in after.items())
    true_clicks = set(columns(clean.folder, "clicks")["impression_id"])
    found = {row[0] for row in cells(dirty.folder, "clicks") if len(row) == 5 and not row[0].startswith("never")}
    assert found == true_clicks


def test_progress_is_told_after_each_day(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    simulate(
        tmp_path / "logs",
        days=3,
        rows_per_day=100,
        seed=1,
        start=START,
        progress=lambda done, of: told.append((done, of)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("rows", [100, 101, 119])
def test_small_logs_work(rows: int, tmp_path: Path) -> None:
    made = run(tmp_path / "logs", days=1, rows=rows, dirt=0.5)
    assert made.num_impressions == rows


def test_a_second_run_leaves_the_folder_as_it_is(tmp_path: Path) -> None:
    first = run(tmp_path / "logs")
    (first.folder / "impressions" / "dt=2026-10-24.csv").write_text("touched")
    assert run(tmp_path / "logs") == first
    assert (first.folder / "impressions" / "dt=2026-10-24.csv").read_text() == "touched"


def test_refuses_a_folder_of_another_simulation(tmp_path: Path) -> None:
    run(tmp_path / "logs")
    with pytest.raises(ArtefactError, match="another simulation"):
        run(tmp_path / "logs", seed=9)


def test_refuses_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ArtefactError, match="no simulated logs"):
        run(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def stop(_done: int, _of: int) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        simulate(tmp_path / "logs", days=2, rows_per_day=100, seed=1, start=START, progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"days": 0}, "days must be at least 1, not 0"),
        ({"rows_per_day": 99}, "rows_per_day must be at least 100, not 99"),
        ({"dirt": 0.9}, "dirt must be a share"),
        ({"dirt": float("nan")}, "dirt must be a share"),
        ({"time_zone": "Mars/Base"}, "'Mars/Base'"),
    ],
)
def test_refuses_arguments_that_break_a_rule(change: dict[str, object], message: str, tmp_path: Path) -> None:
    arguments: dict[str, object] = {"days": 1, "rows_per_day": 100, "seed": 1, "start": START} | change
    with pytest.raises(ConfigError, match=message):
        simulate(tmp_path / "logs", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "logs").exists()
