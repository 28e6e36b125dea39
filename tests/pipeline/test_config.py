"""Each mistake in a config gives one line with the dotted path, the rule and the nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipeline
from pipeline.config import load_config
from preprocessing.errors import ConfigError
from tests.pipeline.configs import tiny_tree, write_config

CONFIGS = Path(pipeline.__file__).parent / "configs"

MISTAKES = [
    ("train.batch_sze=3", "train.batch_sze: unknown key; did you mean 'batch_size'?"),
    ("data.sources.log.colums=3", "data.sources.log.colums: unknown key; did you mean 'columns'?"),
    ("features.user.min_cout=3", "features[0].min_cout: unknown key; did you mean 'min_count'?"),
    ("features.user.kind=categoricl", "features[0].kind: no such value 'categoricl'; did you mean 'categorical'?"),
    ("model.attention.targets={prices: item}", "model.attention.targets: no feature that is a list of tokens 'prices'"),
    ("train.label_weights={clik: 2.0}", "train.label_weights: no label 'clik'; did you mean 'click'?"),
    ("train.early_stopping.label=click", "train.early_stopping.label: 'click' is the only label; leave it out"),
    ("gate=[{metric: auc, label: buy}]", "gate[0].label: no label 'buy'; there are: click"),
    ("model.position={feature: prise}", "model.position.feature: no feature of kind integer 'prise'"),
    ("model.kind=deepfmm", "model.kind: no such value 'deepfmm'; did you mean 'deepfm'?"),
    ("train.batch_size=many", "train.batch_size: Input should be a valid integer"),
    ("train.batch_size=0", "train.batch_size: Input should be greater than or equal to 1 (given: 0)"),
    ("data.time_zone=Europe/Zurih", "data.time_zone: no time zone 'Europe/Zurih'; did you mean 'Europe/Zurich'?"),
    ("features.price.column=prise", "features[3] (price).column: no column 'prise'; did you mean 'price'?"),
    ("features.price.column=clicked", "column 'clicked' is the label 'click'; a label cannot be a feature"),
    ("features.price.column=user", "kind numeric needs bool or float64 or int64, column 'user' is string"),
    ("features.item.name=user", "features[1] (user): the name is taken by an earlier feature"),
    ("data.impressions=logs", "data.impressions: no source 'logs'; did you mean 'log'?"),
    ("data.joins.0.source=itms", "data.joins[0].source: no source 'itms'; did you mean 'items'?"),
    ("data.joins.0.key=itm", "data.joins[0].key: no column of source 'items' 'itm'; did you mean 'item'?"),
    ("data.sources.items.columns.price=float64", "column 'price' is in 'log' and in 'items'"),
    ("data.roles.user=usr", "data.roles.user: no column 'usr'; did you mean 'user'?"),
    ("data.roles.event_time=price", "data.roles.event_time: column 'price' must be a timestamp, it is float64"),
    ("data.roles.event_time=null", "data.split: a split by time needs data.roles.event_time"),
    ("data.labels.click.column=clicks", "data.labels[0].column: no column 'clicks'; did you mean 'clicked'?"),
    ("data.labels.click.when=price > 3", "data.labels[0]: give exactly one of column, when, action"),
    ("data.labels.click={name: click, when: 'price is 3'}", "is not a comparison such as 'rating >= 4'"),
    ("data.split.train_until=2026-01-30", "days must be in order"),
    (
        "features.item={name: item, kind: hashed, buckets: 9, table: user}",
        "shares table 'user' with 'user' but differs",
    ),
    ("gate=[{metric: gauk}]", "gate[0].metric: no such value 'gauk'; did you mean 'gauc'?"),
    ("data.joins.0.source=log", "data.joins[0].source: 'log' is a log of events, not a side table"),
    (
        "data.labels.click={name: click, action: {source: log, key: user}}",
        "'log' holds the impressions, so it cannot be their action log as well",
    ),
    ("data.split={kind: hash, train: 0.9, valid: 0.1}", "train + valid must be below 1; test is the rest"),
    ("name=a/b", "name: String should match pattern"),
    (
        "data.checks=[{measure: psi, column: usr, max: 1}]",
        "data.checks[0].column: no column 'usr'; did you mean 'user'",
    ),
    ("data.checks=[{measure: label_rate, column: user, max: 1}]", "no label 'user'; there are: click"),
    ("features.item.table=a/b", "features[1].table: String should match pattern"),
]


@pytest.mark.parametrize(("override", "expected"), MISTAKES, ids=[override for override, _ in MISTAKES])
def test_names_the_mistake_and_the_nearest_name(tmp_path: Path, override: str, expected: str) -> None:
    path = write_config(tmp_path, tiny_tree())
    with pytest.raises(ConfigError) as caught:
        load_config(path, [override])
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


def test_the_tiny_config_itself_is_valid(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, tiny_tree()))
    assert config.store() == Path("work/store/ranker")
    assert config.features[3].name == "price"


def test_override_reaches_named_and_numbered_items(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_tree())
    config = load_config(path, ["features.user.min_count=7", "features.1.min_count=9", "model.hidden_units=[3, 2]"])
    assert config.features[0].min_count == 7  # type: ignore[union-attr]
    assert config.features[1].min_count == 9  # type: ignore[union-attr]
    assert config.model.hidden_units == (3, 2)


def test_features_may_share_a_table_whose_rows_mean_the_same(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_tree())
    for other in ("kind: categorical, column: category", "kind: categorical, min_count: 1"):
        load_config(path, [f"features.item={{name: item, table: user, {other}}}"])
    with pytest.raises(ConfigError, match="shares table 'user'"):
        load_config(path, ["features.item={name: item, kind: categorical, table: user, min_count: 2}"])


@pytest.mark.parametrize("override", ["train", "=3", "train.batch_size.x=3", "features.nobody.min_count=1", "a=[1"])
def test_rejects_a_malformed_override(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        load_config(write_config(tmp_path, tiny_tree()), [override])


def test_gauc_rule_needs_a_user(tmp_path: Path) -> None:
    tree = tiny_tree()
    tree["gate"] = [{"metric": "gauc", "min": 0.5}]
    del tree["data"]["roles"]["user"]
    with pytest.raises(ConfigError, match=r"gate\[0\].metric: gauc is a mean over users"):
        load_config(write_config(tmp_path, tree))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1", "a config is a mapping of sections, this file holds list"),
        ("name: a\nname: b", "key 'name' is given twice"),
        ("", "holds NoneType"),
    ],
)
def test_rejects_what_is_no_config(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        load_config(path)
    assert expected in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        load_config(tmp_path / "nowhere.yaml")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write_config(tmp_path, tiny_tree()), ["train.epoch=1", "model.dropout=2"])
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("name", ["demo", "kuairand", "large_tables", "movielens"])
def test_shipped_configs_are_valid(name: str) -> None:
    assert load_config(CONFIGS / f"{name}.yaml").name == name


def test_a_date_that_no_calendar_holds_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("data: {as_of: 2026-13-01}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid YAML: month must be in"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"data\.as_of=2026-02-30: .*day is out of range"):
        load_config(write_config(tmp_path, tiny_tree()), ["data.as_of=2026-02-30"])


def test_a_wrong_label_is_told_once(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_tree())
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["data.labels=[{name: a}]"])
    assert str(caught.value).count("\n") == 0


def test_a_list_that_is_too_short_is_told(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_tree())
    with pytest.raises(ConfigError, match=r"data\.labels: .* at least 1 item"):
        load_config(path, ["data.labels=[]"])


def test_not_all_of_six_hundred_names_are_listed(tmp_path: Path) -> None:
    path = write_config(tmp_path, tiny_tree())
    with pytest.raises(ConfigError, match=r"no time zone 'Mars'; there are \d+, such as") as caught:
        load_config(path, ["data.time_zone=Mars"])
    assert len(str(caught.value)) < 300
