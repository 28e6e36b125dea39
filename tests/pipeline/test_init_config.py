"""`rankmill init`: what it takes sources and columns for, that its configs load, and what it refuses."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Config
from pipeline.init_config import propose_config, write_config
from pipeline.init_leaks import rank_auc
from pipeline.init_split import propose_split
from preprocessing.errors import ConfigError, SourceError
from tests.pipeline.tiny_line import rankmill

DAY_MS = 86_400_000
T0 = 1_767_225_600_000  # 2026-01-01
SHARED_DATA = os.environ.get("RANKMILL_TEST_DATA", "")


def propose(folder: Path) -> tuple[Config, str]:
    proposed = propose_config(folder)
    return write_config(proposed, folder.with_name("config.yaml"), force=True), proposed.text


def kinds(config: Config) -> dict[str, str]:
    return {feature.name: feature.kind for feature in config.features}


def write_log(path: Path, *, rows: int = 600, days: int = 5) -> None:
    """Writes a log with a click, a dwell time that only clicks have, and other feedback."""
    random = np.random.default_rng(1)
    lines = ["user_id,item_id,time_ms,is_click,seconds_on_page,is_like,price,device,date"]
    for row in range(rows):
        click = int(random.random() < 0.4)
        like = int(click and random.random() < 0.3)
        dwell = int(random.integers(1, 90)) if click else 0
        day, price = row * days // rows, "" if row % 9 == 0 else f"{random.lognormal(3, 2):.2f}"
        values = [f"u{row % 40}", f"i{random.integers(0, 20)}", T0 + day * DAY_MS + row * 1000, click, dwell, like]
        lines.append(",".join(map(str, [*values, price, ["ios", "web"][row % 2], f"2026010{day + 1}"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_results_of_the_impression_are_no_features(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "log.csv")
    config, text = propose(tmp_path / "logs")
    assert config.data.labels[0].column == "is_click"
    assert kinds(config) == {
        "user_id": "categorical",
        "item_id": "categorical",
        "price": "numeric",
        "price_bucket": "numeric",
        "device": "categorical",
        "hour": "hour_of_day",
        "weekday": "day_of_week",
    }
    assert "is_like: int64  # result of the impression? then it must not be a feature" in text
    assert "seconds_on_page: suspected leak: it is other than 0 only where the label is 1 (100%)" in text
    assert "other candidates: column: is_like" in text


def test_roles_days_and_skew_are_told_from_the_log(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "log.csv")
    config, _ = propose(tmp_path / "logs")
    roles = config.data.roles
    assert (roles.user, roles.item, roles.event_time) == ("user_id", "item_id", "time_ms")
    split = config.data.time_split()
    assert split is not None
    ends = (split.train_until, split.valid_until, split.test_until)
    assert list(map(str, ends)) == ["2026-01-03", "2026-01-04", "2026-01-05"]
    (price,) = [feature for feature in config.features if feature.name == "price"]
    assert price.kind == "numeric"
    assert price.log1p


def test_few_days_are_split_by_content(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "log.csv", days=2)
    config, text = propose(tmp_path / "logs")
    assert config.data.split.kind == "hash"
    assert "only 2 day(s) were seen" in text


def test_days_that_a_broken_clock_wrote_are_no_days_to_split_by() -> None:
    days = np.repeat(np.arange(20458, 20462), 100)
    strays = np.array([24110, 24111, 24113, 300])
    times = np.asarray(np.concatenate([days, strays]) * float(DAY_MS), np.float64)
    for now_day in (20500, 25000):
        split, period, _ = propose_split(times, None, now_ms=now_day * float(DAY_MS))
        ends = [str(split[name]) for name in ("train_until", "valid_until", "test_until")]
        assert ends == ["2026-01-06", "2026-01-07", "2026-01-08"]
        assert period == "day"


def test_a_part_of_one_class_is_no_split() -> None:
    times = np.asarray(np.repeat(np.arange(20458, 20463), 20) * float(DAY_MS), np.float64)
    labels = (np.arange(100) % 2).astype(np.float64)
    assert propose_split(times, labels, now_ms=times[-1])[0]["kind"] == "time"
    labels[80:] = 0
    assert propose_split(times, labels, now_ms=times[-1])[0]["kind"] == "hash"


def test_files_of_days_are_one_source_and_partitions_are_known(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        write_log(tmp_path / "logs" / "views" / f"dt=2026-01-0{day}" / "part-0.csv", rows=90)
        write_log(tmp_path / "flat" / f"views-2026-01-0{day}.csv", rows=90)
    parted, _ = propose(tmp_path / "logs")
    assert parted.data.sources["views"].paths == ("views/dt=*/part-*.csv",)
    assert parted.data.sources["views"].day_partition == "dt"
    flat, _ = propose(tmp_path / "flat")
    assert flat.data.sources["views"].paths == ("views-*.csv",)


def test_side_tables_are_joined_by_their_unique_key(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_log(logs / "log.csv")
    items = [f'{{"item_id": "i{i}", "tags": ["t{i % 3}", "t{i % 2}"], "brand": "b{i % 4}"}}' for i in range(20)]
    logs.joinpath("items.jsonl").write_text("\n".join(items), encoding="utf-8")
    ages = pa.table({"id": [f"u{i}" for i in range(40)], "age": [20 + i % 30 for i in range(40)]})
    pq.write_table(ages, logs / "users.parquet")
    counts = "item_id,show_cnt,click_cnt,like_cnt\n" + "".join(f"i{i},{i * 7},{i * 3},{i}\n" for i in range(20))
    logs.joinpath("stats.csv.gz").write_bytes(gzip.compress(counts.encode()))
    logs.joinpath("README.md").write_text("about", encoding="utf-8")
    config, text = propose(logs)
    assert {(join.source, join.key) for join in config.data.joins} == {("items", ("item_id",)), ("users", ("user_id",))}
    assert config.data.sources["users"].columns["user_id"].source_name == "id"
    found = kinds(config)
    assert (found["tags"], found["brand"], found["age"]) == ("multivalued", "categorical", "numeric")
    assert "stats was left out: 3 of its 3 numbers" in text


def test_an_action_log_is_the_label_where_no_column_is(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    shown = [f"{row},u{row % 7},i{row % 5},{T0 + row % 6 * DAY_MS}" for row in range(300)]
    clicks = [f"{row},{T0 + row % 6 * DAY_MS + 5000}" for row in range(0, 300, 7)]
    logs.joinpath("shown.csv").write_text("event_id,user,item,at\n" + "\n".join(shown), encoding="utf-8")
    logs.joinpath("purchases.csv").write_text("event_id,bought_at\n" + "\n".join(clicks), encoding="utf-8")
    config, _ = propose(logs)
    (label,) = config.data.labels
    assert config.data.impressions == "shown"
    assert label.action is not None
    assert (label.action.source, label.action.key) == ("purchases", ("event_id",))
    assert config.data.sources["purchases"].event_time == "bought_at"
    assert config.data.sources["shown"].columns["event_id"].type == "string"


def test_a_rating_becomes_a_comparison_near_half(tmp_path: Path) -> None:
    rows = [f"u{i % 9},m{i % 11},{1 + i % 5},{T0 // 1000 + i * 86400}" for i in range(200)]
    tmp_path.joinpath("ratings.tsv").write_text(
        "userId\tmovieId\trating\ttimestamp\n" + "\n".join(rows).replace(",", "\t"), encoding="utf-8"
    )
    config = write_config(propose_config(tmp_path / "ratings.tsv"), tmp_path / "config.yaml", force=False)
    assert config.data.labels[0].when in ("rating >= 3", "rating >= 4")
    assert config.data.sources["ratings"].columns["timestamp"].unit == "s"
    assert config.data.period == "month"


def test_another_encoding_is_declared(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "log.csv")
    path = tmp_path / "logs" / "log.csv"
    path.write_bytes(path.read_text(encoding="utf-8").replace("ios", "téléphone").encode("cp1252"))
    config, _ = propose(tmp_path / "logs")
    assert config.data.sources["log"].encoding == "cp1252"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"user,item\n", "holds no rows"),
        ("blob.csv", b"\x00\x01\x02" * 50, "is binary"),
        ("numbers.csv", b"1,2\n3,4\n", "the first line holds values"),
        ("semicolon.csv", b"user;item;click\na;b;1\n", "separated by ';'"),
        ("prose.txt", b"once upon a time\nthere was\n", "is no table"),
        ("list.json", b"[1, 2]\n", "is no JSON lines file"),
        ("ids.csv", b"user,item\nu1,i1\nu2,i1\n", "nothing in it says what came of them"),
    ],
)
def test_what_is_no_log_is_refused_with_a_reason(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    tmp_path.joinpath(name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        propose_config(tmp_path / name)
    with pytest.raises(SourceError):
        propose_config(tmp_path)


def test_no_path_and_no_file_are_one_line(tmp_path: Path) -> None:
    missing = rankmill("init", tmp_path / "none")
    assert (missing.code, missing.err.startswith("error: ")) == (1, True)
    assert "no such file or folder" in missing.err
    tmp_path.joinpath("nothing").mkdir()
    assert "holds no files" in rankmill("init", tmp_path / "nothing").err


def test_a_config_is_replaced_only_by_force(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "log.csv")
    out = tmp_path / "config.yaml"
    done = rankmill("init", tmp_path / "logs", "--out", out)
    assert done.code == 0
    assert done.last_line.endswith(f"rankmill preprocess {out}")
    refused = rankmill("init", tmp_path / "logs", "--out", out)
    assert refused.code == 2
    assert "--force" in refused.err
    assert rankmill("init", tmp_path / "logs", "--out", out, "--force").code == 0
    with pytest.raises(ConfigError, match="cannot be written"):
        write_config(propose_config(tmp_path / "logs"), tmp_path / "no" / "config.yaml", force=False)


def test_a_hostile_name_breaks_no_config(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    text = 'user_id,item_id,clicked,"a: {b} # c","x\ny"\n'
    text += "".join(f"u{i % 5},i{i % 3},{i % 2},k{i % 4},v{i % 2}\n" for i in range(60))
    logs.joinpath("we[i]rd #1.csv").write_text(text, encoding="utf-8", newline="")
    config, _ = propose(logs)
    names = {
        column.source_name or name for name, column in config.data.sources[config.data.impressions].columns.items()
    }
    assert names == {"user_id", "item_id", "clicked", "a: {b} # c", "x\ny"}


def test_the_rank_auc_counts_pairs() -> None:
    scores, labels = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0, 1.0])
    assert rank_auc(scores, labels) == 3.5 / 4
    assert rank_auc(scores, np.ones(4)) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuairand-pure", "ml-latest-small", "open-bandit/bts-all", "open-bandit/random-all"])
def test_configs_of_real_logs_run_as_they_are(tmp_path: Path, name: str) -> None:
    folder = Path(SHARED_DATA) / name
    if not SHARED_DATA or not folder.is_dir():
        pytest.skip("RANKMILL_TEST_DATA does not name a folder with the public data sets")
    out = tmp_path / "config.yaml"
    assert rankmill("init", folder, "--out", out).code == 0
    done = rankmill("preprocess", out, "--set", f"work_dir={tmp_path / 'work'}")
    assert (done.code, done.err) == (0, "")
