"""The line's own state at request time: rows completed online are the rows that preprocessing makes the day after."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import stages
from pipeline.artefacts import open_artefact
from pipeline.config import Config, load_config
from pipeline.display import Display
from pipeline.publish_features import looked_up, open_completer, publish_features, served_period
from preprocessing.dataset import Dataset, open_dataset
from preprocessing.errors import ArtefactError
from preprocessing.periods import period_start_ms
from preprocessing.raw_values import raw_tensors
from preprocessing.schema import RawColumn
from serving.client import connect
from serving.launch import wait_until_available
from serving.rows import InputColumn, rows_to_arrays
from tests.pipeline.configs import tiny_tree, write_config
from tests.pipeline.test_line_served import free_ports
from tests.pipeline.tiny_line import rankmill
from tests.serving.test_features_redis import url  # noqa: F401

ZONE = "Europe/Berlin"
# The clocks go forward on 29 March, the day that is asked about; the last day of the state ends at 23:00 UTC.
FIRST, LAST = dt.date(2026, 3, 24), dt.date(2026, 3, 28)
ASKED = dt.date(2026, 3, 29)
ROWS_PER_DAY = 80
TIMEOUT_S = 400.0  # starting a server takes minutes where many things run at once


def derived() -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = [
        {"kind": "history", "name": "clicks", "key": "user", "value": "item", "label": "click", "length": 5,
         "ages": "click_ages"},
        {"kind": "history", "name": "categories", "key": "user", "value": "category", "label": "click",
         "horizon_s": 130_000, "length": 4},
        {"kind": "rate", "name": "pair_rate", "key": ["user", "category"], "label": "click", "prior": 0.3,
         "strength": 4, "window_s": 604_800},
        {"kind": "rate", "name": "item_rate", "key": "item", "label": "click", "prior": 0.4, "strength": 9},
    ]  # fmt: skip
    for name, window_s in {"1h": 3600, "1d": 86_400, "7d": 604_800, "all": None}.items():
        columns.append({"kind": "count", "name": f"item_{name}", "key": "item", "window_s": window_s})
    columns.append({"kind": "count", "name": "unused", "key": "price_band", "window_s": 60})
    return columns


def features() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "item", "kind": "categorical"},
        {"name": "category", "kind": "categorical"},
        {"name": "price", "kind": "numeric"},
        {"name": "clicks", "kind": "multivalued", "table": "item", "max_length": 4},
        {"name": "categories", "kind": "multivalued", "table": "category"},
        {"name": "click_ages", "kind": "bucketed_list", "boundaries": [3600, 40_000, 90_000]},
        {"name": "pair_rate", "kind": "numeric"},
        {"name": "item_rate", "kind": "numeric"},
    ]
    return found + [
        {"name": f"item_{window}", "kind": "numeric", "log1p": True} for window in ("1h", "1d", "7d", "all")
    ]


def input_of(column: RawColumn) -> InputColumn:
    """Returns the column as a server describes it."""
    dtype = {"string": "DT_STRING", "int64": "DT_INT64", "float32": "DT_FLOAT"}[column.dtype]
    return InputColumn(column.name, dtype, (-1,) if column.length is None else (-1, column.length))


def at(day: dt.date, hour: int) -> int:
    """Returns milliseconds since 1970 UTC."""
    return int(dt.datetime.combine(day, dt.time(hour), zoneinfo.ZoneInfo(ZONE)).timestamp() * 1000)


def write_logs(root: Path, *, until: dt.date) -> None:
    """Writes the log of the days until one, in which each day is the same whatever comes after it."""
    root.mkdir(parents=True, exist_ok=True)
    lines = ["user,item,clicked,price,price_band,seen_at"]
    day = FIRST
    while day <= until:
        random = np.random.default_rng(day.toordinal())
        start, end = (at(one, 0) // 1000 for one in (day, day + dt.timedelta(days=1)))
        last_hour = end - random.integers(1, 3600, ROWS_PER_DAY // 5)
        for second in sorted([*random.integers(start, end, ROWS_PER_DAY - len(last_hour)), *last_hour]):
            item = int(random.integers(0, 12))
            clicked = int(random.random() < (0.8 if item % 2 == 0 else 0.3))
            user = "" if random.random() < 0.05 else f"u{random.integers(0, 20)}"
            lines.append(f"{user},i{item},{clicked},{random.lognormal():.2f},b1,{second * 1000}")
        day += dt.timedelta(days=1)
    root.joinpath("log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    items = "".join(f"i{item},c{item % 3}\n" for item in range(11))
    root.joinpath("items.csv").write_text("item,category\n" + items, encoding="utf-8")


def line_config(root: Path, **changes: Any) -> Path:
    """Writes the config of a line with point-in-time columns that are as old as a day."""
    tree = tiny_tree()
    data = tree["data"]
    data["sources"]["log"]["columns"]["price_band"] = "string"
    data |= {"root": str(root / "logs"), "time_zone": ZONE, "freshness": "day", "derived": derived()}
    data["labels"] = [{"name": "click", "column": "clicked", "delay_s": 7200}]
    data["split"] = {"kind": "rolling", "last_day": str(LAST), "train_days": 3}
    tree |= {"features": features(), "work_dir": str(root / "work"), "preprocess": {"workers": 1}, **changes}
    return write_config(root, tree)


def dataset_of(config: Config) -> Dataset:
    inputs = stages.find_inputs(config)
    return open_dataset(open_artefact(stages.plan("dataset", config, inputs)).folder)


def preprocessed(path: Path, *overrides: str, names: Sequence[str] = ("examples", "dataset")) -> Config:
    config = load_config(path, overrides)
    inputs = stages.find_inputs(config)
    for name in names:
        stages.make(name, config, inputs, display=Display())
    return config


def rows_of(config: Config, day: dt.date, columns: list[str]) -> pa.Table:
    """Returns the rows of a day with their point-in-time columns, in the order of the files."""
    examples = open_artefact(stages.plan("examples", config, stages.find_inputs(config))).content
    (period,) = (period for period in examples["periods"] if period["name"] == str(day))
    folder = Path(config.work_dir) / period["folder"]
    files = sorted(folder / name for _, name, _ in period["files"])
    return pa.concat_tables(pq.read_table(path, columns=columns) for path in files)


def a_day_later(path: Path) -> list[str]:
    """Returns the overrides that let the line of a config go on by a day."""
    return [f"data.split.last_day={ASKED}", f"data.root={path.parent / 'later'}"]


def request(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as a client sends it: text as text, what is missing left out."""
    plain = {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
    return {name: value for name, value in plain.items() if value is not None}


RAW = ["user", "item", "category", "price"]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state after the last day is published as version 7; beside the log lies the same one a day later."""
    root = tmp_path_factory.mktemp("online")
    write_logs(root / "logs", until=LAST)
    write_logs(root / "later", until=ASKED)
    path = line_config(root)
    config = preprocessed(path)
    assert publish_features(config, 7) == config.store() / "features" / "7" / "1"
    return path


def test_rows_completed_online_equal_the_rows_of_the_day_after_made_offline(line: Path) -> None:
    config = preprocessed(line, *a_day_later(line), names=["examples"])
    names = list(looked_up(config))
    assert set(names) == {feature["name"] for feature in features()} - {"item", "category", "price"}
    offline = rows_of(config, ASKED, [*RAW, *names])
    assert offline.num_rows == ROWS_PER_DAY
    completer = open_completer(config)
    assert completer is not None
    assert completer.layout.clock.state_ms == period_start_ms((ASKED - dt.date(1970, 1, 1)).days, "day", time_zone=ZONE)
    completed = completer.complete([request(row) for row in offline.select(RAW).to_pylist()], at(ASKED, 12))
    for name in names:
        expected = offline[name].combine_chunks()
        found = pa.array([row[name] for row in completed], expected.type)
        assert found.equals(expected), name
        assert len(set(map(str, found.to_pylist()))) > 1, name  # the log says something about each
    raw_columns = dataset_of(load_config(line)).schema.raw_columns
    tensors = raw_tensors(offline, raw_columns)  # what offline scores are made of
    for column, array in rows_to_arrays(completed, [input_of(column) for column in raw_columns]).items():
        np.testing.assert_array_equal(array, tensors[column], err_msg=column)
    assert all("user" not in row and "item" in row for row in completed)  # the model takes no user
    assert {str(row["clicks"]) for row in completed} != {"[]"}


def test_the_same_state_is_published_once_and_each_version_has_its_own(line: Path) -> None:
    config = preprocessed(line, *a_day_later(line))
    store = config.store()
    second = publish_features(config, 7)
    assert second == publish_features(config, 7) == store / "features" / "7" / "2"
    assert publish_features(config, 8) == store / "features" / "8" / "1"
    assert not (store / "features" / "7").exists()  # the store has no version 7
    manifest = json.loads((store / "features" / "8" / "1" / "manifest.json").read_text())
    keys = [key_set["key"] for key_set in manifest["content"]["layout"]["key_sets"]]
    assert keys == [["user"], ["user", "category"], ["item"]]  # none of the column that no feature takes


AS_OF = {
    "2026-03-29T04:00+02:00": "28",
    "2026-03-28T23:00+00:00": "28",
    "2026-03-28T22:59+00:00": "27",
    "2026-01-01T00:00+00:00": "28",  # where none is over, the last one has to do
}


@pytest.mark.parametrize(("as_of", "served"), AS_OF.items())
def test_a_period_that_is_not_over_is_not_what_is_served(tmp_path: Path, as_of: str, served: str) -> None:
    config = load_config(line_config(tmp_path))
    days = [(LAST - dt.timedelta(days=back) - dt.date(1970, 1, 1)).days for back in (1, 0)]
    periods = [{"number": day, "name": str(27 + place), "state": "s"} for place, day in enumerate(days)]
    as_of_ms = round(dt.datetime.fromisoformat(as_of).timestamp() * 1000)
    period, state_ms = served_period(config, {"periods": periods, "as_of_ms": as_of_ms})
    assert period["name"] == served
    assert state_ms == period_start_ms(period["number"] + 1, "day", time_zone=ZONE)


def test_a_model_without_such_columns_publishes_and_asks_nothing(tmp_path: Path) -> None:
    plain = [{"name": "item", "kind": "categorical"}]
    write_logs(tmp_path / "logs", until=FIRST)
    config = load_config(line_config(tmp_path, features=plain))
    assert publish_features(config, 1) is None
    assert open_completer(config) is None
    outcome = rankmill("features", tmp_path / "config.yaml")
    assert outcome.code == 2
    assert "takes no column of data.derived" in outcome.err


def test_before_anything_is_published_the_error_says_what_to_run(tmp_path: Path) -> None:
    config = load_config(line_config(tmp_path))
    with pytest.raises(ArtefactError, match="holds no features; run `rankmill publish`"):
        open_completer(config)


def test_the_command_shows_what_a_user_would_get(tmp_path: Path, line: Path) -> None:
    config = load_config(line)
    overview = rankmill("features", line)
    assert (overview.code, overview.err) == (0, "")
    assert all(text in overview.out for text in ("user, category", "item_1h", "freshness day", "ranker version"))
    completer = open_completer(config)
    assert completer is not None
    expected = completer.lookup([{"user": "u3", "item": "i2", "category": "c2"}], at(ASKED, 12))
    keys = ["--show", "user=u3", "--show", "item=i2", "--show", "category=c2"]
    shown = json.loads(rankmill("features", line, *keys, "--json").out)
    assert shown["clicks"] == [value.decode() for value in expected["clicks"][0]]
    assert shown["item_all"] == expected["item_all"][0] > 0
    table = rankmill("features", line, "--show", "user=u3")
    assert table.code == 0
    assert "no item" in table.out
    assert "as of " in table.out
    wrong = rankmill("features", line, "--show", "usr=u3")
    assert wrong.code == 2
    assert "one of the keys user, category, item" in wrong.err
    push = rankmill("features", line, "--push")
    assert push.code == 2
    assert "serve.features.store is embedded" in push.err


def test_the_command_pushes_to_redis_which_then_answers(line: Path, url: str) -> None:  # noqa: F811
    to_redis = ["--set", "serve.features.store=redis", "--set", f"serve.features.url={url}"]
    keys = ["--show", "user=u3", "--show", "item=i2", "--show", "category=c2", "--json"]
    before = rankmill("features", line, *keys, *to_redis)
    assert before.code == 1
    assert "run `rankmill features CONFIG --push`" in before.err
    pushed = rankmill("features", line, "--push", *to_redis)
    assert (pushed.code, pushed.err) == (0, "")
    assert "keys written" in pushed.out
    assert "it was there already" in rankmill("features", line, "--push", *to_redis).out
    shown = [json.loads(rankmill("features", line, *keys, *more).out) for more in (to_redis, [])]
    assert shown[0] == shown[1]
    assert shown[0]["clicks"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A trained, published and served line, and beside its log the same one a day later."""
    root = tmp_path_factory.mktemp("served")
    port, rest_port = free_ports(2)
    write_logs(root / "logs", until=LAST)
    write_logs(root / "later", until=ASKED)
    path = line_config(root, serve={"port": port, "rest_port": rest_port})
    outcome = rankmill("run", path)
    assert outcome.code == 0, outcome.err
    with (root / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "serve", str(path)], stdout=log, stderr=log, env=dict(os.environ)
        )
    try:
        wait_until_available("127.0.0.1", rest_port, model_name="ranker", timeout_s=TIMEOUT_S)
        yield path
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.serving
@pytest.mark.parametrize("api", ["grpc", "rest"])
def test_scores_of_rows_completed_online_equal_the_offline_scores_of_the_day_after(served: Path, api: Any) -> None:
    from serving.server.servable import Servable

    trained = load_config(served)
    schema = dataset_of(trained).schema
    config = preprocessed(served, *a_day_later(served), names=["examples"])
    offline = rows_of(config, ASKED, [*RAW, *looked_up(config)])
    servable = Servable.load(trained.store() / "1")
    expected = servable.run("serving_default", raw_tensors(offline, schema.raw_columns), ["click"])["click"]
    servable.close()
    completer = open_completer(trained)
    assert completer is not None
    rows = completer.complete([request(row) for row in offline.select(RAW).to_pylist()], at(ASKED, 12))
    port = trained.serve.port if api == "grpc" else trained.serve.rest_port
    with connect(f"127.0.0.1:{port}", api=api, timeout_s=TIMEOUT_S) as client:
        found = client.predict("ranker", rows)["click"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert np.ptp(expected) > 1e-4


@pytest.mark.serving
def test_predict_completes_rows_and_leaves_complete_ones_alone(served: Path) -> None:
    rows = [{"user": f"u{user}", "item": f"i{user % 12}", "category": "c1", "price": 2.5} for user in range(15)]
    path = served.parent / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = rankmill("predict", served, "--rows", path, "--wait", TIMEOUT_S)
    assert (outcome.code, outcome.err) == (0, "")
    scores = [json.loads(line)["click"] for line in outcome.out.splitlines()]
    assert len(scores) == len(rows)
    config = load_config(served)
    completer = open_completer(config)
    assert completer is not None
    now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    with connect(f"127.0.0.1:{config.serve.port}", timeout_s=TIMEOUT_S) as client:
        found = client.predict("ranker", completer.complete(rows, now))["click"]
        bare = client.predict("ranker", [{k: v for k, v in row.items() if k != "user"} for row in rows])["click"]
    np.testing.assert_allclose(scores, found, rtol=0, atol=1e-6)
    assert np.abs(found - bare).max() > 1e-4  # what was looked up matters
    sample = rankmill("predict", served, "--sample", 5, "--wait", TIMEOUT_S)
    assert (sample.code, sample.err, len(sample.out.splitlines())) == (0, "", 5)
