"""Rules between the parts of a config: each broken one gives exactly one line, with its path and a way out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import TypeAdapter

from models.config import ModelSpec
from pipeline.config_checks import check_config, joined_columns
from pipeline.evaluate_spec import EvaluateSpec
from pipeline.train_spec import TrainSpec
from preprocessing.spec import DataSpec, FeatureSpec

FEATURES: TypeAdapter[tuple[FeatureSpec, ...]] = TypeAdapter(tuple[FeatureSpec, ...])

_DATA: dict[str, Any] = {
    "sources": {
        "log": {
            "paths": "log/dt=*/*.csv",
            "day_partition": "dt",
            "arrival_time": "got_at",
            "columns": {
                "user": "string",
                "item": "string",
                "request": "int64",
                "clicked": "int64",
                "price": "float64",
                "seen_at": "timestamp",
                "got_at": "timestamp",
            },
        },
        "clicks": {
            "paths": "clicks.csv",
            "event_time": "at",
            "arrival_time": "came_at",
            "columns": {
                "request": "int64",
                "item": "string",
                "at": "timestamp",
                "came_at": "timestamp",
                "dwell": "float64",
                "page": "string",
            },
        },
        "buys": {
            "paths": "buys.csv",
            "event_time": "at",
            "columns": {"user": "string", "item": "string", "at": "timestamp", "paid": "int64"},
        },
        "items": {
            "paths": "items.jsonl",
            "arrival_time": "written_at",
            "columns": {
                "item": "string",
                "category": "string",
                "tags": "list<string>",
                "since": "timestamp",
                "written_at": "timestamp",
            },
        },
    },
    "impressions": "log",
    "joins": [{"source": "items", "key": "item", "valid_from": "since"}],
    "roles": {"user": "user", "item": "item", "event_time": "seen_at"},
    "labels": [
        {"name": "click", "action": {"source": "clicks", "key": ["request", "item"], "window_s": 600}},
        {"name": "buy", "action": {"source": "buys", "key": ["user", "item"], "touch": "first"}},
        {"name": "liked", "column": "clicked", "delay_s": 60},
    ],
    "weight": {"source": "clicks", "key": "request", "value": "dwell"},
    "derived": [
        {"kind": "history", "name": "seen", "key": "user", "value": "item", "label": "click", "ages": "seen_ages"},
        {"kind": "history", "name": "prices", "key": "user", "value": "price", "label": "liked"},
        {"kind": "count", "name": "shown", "key": ["user", "category"]},
        {"kind": "rate", "name": "ctr", "key": "item", "label": "buy", "prior": 0.1, "strength": 20},
    ],
    "freshness": "day",
    "allowed_lateness_s": 3600,
    "split": {"kind": "rolling", "last_day": "2026-01-09", "train_days": 5},
}
_FEATURES: list[dict[str, Any]] = [
    {"kind": "categorical", "name": "item"},
    {"kind": "multivalued", "name": "seen", "table": "item"},
    {"kind": "bucketed_list", "name": "ages", "column": "seen_ages", "boundaries": [60, 3600]},
    {"kind": "bucketed_list", "name": "prices", "boundaries": [1.5]},
    {"kind": "numeric", "name": "shown", "log1p": True},
    {"kind": "numeric", "name": "ctr"},
    {"kind": "hour_of_day", "name": "hour", "column": "seen_at"},
]
_LABEL = {"name": "click", "action": {"source": "clicks", "key": "request"}}
_HISTORY = {"kind": "history", "name": "seen", "key": "user", "value": "item", "label": "click"}


def problems_of(changes: dict[str, Any], features: list[dict[str, Any]] | None = None) -> list[str]:
    """Returns what is wrong with the valid config after `changes`: dotted path to value, None to take a key out."""
    tree = copy.deepcopy(_DATA)
    for path, value in changes.items():
        *above, last = path.split(".")
        node: Any = tree
        for part in above:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if value is None:
            node.pop(int(last) if isinstance(node, list) else last)
        else:
            node[int(last) if isinstance(node, list) else last] = value
    parsed = FEATURES.validate_python(_FEATURES if features is None else features)
    return check_config(
        data=DataSpec.model_validate(tree),
        features=parsed,
        model=ModelSpec(),
        train=TrainSpec(),
        evaluate=EvaluateSpec(),
        gate=(),
    )


def test_the_config_itself_is_valid() -> None:
    assert problems_of({}) == []


BROKEN: list[tuple[dict[str, Any], str]] = [
    # actions
    (
        {"labels.0.action.key": ["request", "user"]},
        "data.labels[0].action.key: no column of the action log 'user'; there are: at, came_at",
    ),
    (
        {"labels.0.action.key": "page"},
        "data.labels[0].action.key: no column of the impressions 'page'; there are: clicked, got_at",
    ),
    (
        {"sources.clicks.columns.request": "string", "weight": None},
        "data.labels[0].action.key: column 'request' is int64 on one side and string on the other; declare one type",
    ),
    ({"labels.0.action.source": "click"}, "data.labels[0].action.source: no source 'click'; did you mean 'clicks'?"),
    ({"sources.buys.event_time": None}, "data.sources.buys.event_time: is required for an action log"),
    ({"joins.0.source": "buys"}, "data.joins[0].source: 'buys' is a log of events, not a side table"),
    ({"labels.2.name": "buy", "derived.1.label": "click"}, "data.labels[2].name: 'buy' is taken by an earlier label"),
    (
        {"labels.2.column": "user", "derived": []},
        "data.labels[2].column: column 'user' is string, and must be bool or float64 or int64",
    ),
    # weights
    ({"weight.value": "page"}, "data.weight.value: column 'page' is string, and must be bool or float64 or int64"),
    ({"weight.value": "dwel"}, "data.weight.value: no column of the action log 'dwel'; did you mean 'dwell'?"),
    ({"weight.key": "page"}, "data.weight.key: no column of the impressions 'page'"),
    ({"weight.source": "klicks"}, "data.weight.source: no source 'klicks'; did you mean 'clicks'?"),
    (
        {"weight": {"source": "log", "key": "user", "value": "price"}},
        "data.weight.source: 'log' holds the impressions",
    ),
    (
        {"weight": {"source": "items", "key": "item", "value": "x"}},
        "data.joins[0].source: 'items' is a log of events, not a side table",
    ),
    ({"roles.weight": "price"}, "data.weight: rows have a weight already, data.roles.weight; leave one of them out"),
    # sampling
    ({"negative_sampling": {"keep": 0.1}}, "data.negative_sampling: needs exactly one label, there are 3"),
    # clocks
    (
        {"sources.clicks.arrival_time": "dwell"},
        "data.sources.clicks.arrival_time: column 'dwell' is float64, and must be timestamp",
    ),
    (
        {"sources.clicks.arrival_time": "came"},
        "data.sources.clicks.arrival_time: no column 'came'; did you mean 'came_at'?",
    ),
    (
        {"sources.buys.event_time": "paid"},
        "data.sources.buys.event_time: column 'paid' is int64, and must be timestamp",
    ),
    (
        {"roles.arrival_time": "seen_at"},
        "data.roles.arrival_time: is 'seen_at', but data.sources.log.arrival_time is 'got_at'; leave one of them out",
    ),
    (
        {"sources.log.event_time": "got_at"},
        "data.roles.event_time: is 'seen_at', but data.sources.log.event_time is 'got_at'; leave one of them out",
    ),
    (
        {"roles.arrival_time": "since", "sources.log.arrival_time": None},
        "data.roles.arrival_time: 'since' must be a column of the impressions",
    ),
    (
        {f"sources.{name}.arrival_time": None for name in ("log", "clicks", "items")},
        "data.allowed_lateness_s: without an arrival_time no row is late; name the arrival_time of a source",
    ),
    ({"days": {"first": "2026-01-02", "last": "2026-01-01"}}, "data.days: last, 2026-01-01, is before first"),
    # sources and joins
    (
        {"sources.log.day_partition": "dt="},
        "data.sources.log.day_partition: 'dt=' is not the name of a partition folder; give dt for folders",
    ),
    (
        {"sources.items.explode": ["tags"]},
        "data.sources.items.explode: only the impressions explode; write the lists out as rows",
    ),
    (
        {"joins.0.valid_from": "category"},
        "data.joins[0].valid_from: column 'category' is string, and must be timestamp",
    ),
    ({"joins.0.valid_from": "sinc"}, "data.joins[0].valid_from: no column 'sinc'; did you mean 'since'?"),
    (
        {"sources.items.columns.item": "int64"},
        "data.joins[0].key: column 'item' is string on one side and int64 on the other; declare one type for both",
    ),
    # point-in-time columns
    ({"derived.0.name": "price"}, "data.derived[0] (price): the name 'price' is taken by a declared column"),
    ({"derived.0.ages": "tags"}, "data.derived[0] (seen): the name 'tags' is taken by a declared column"),
    ({"derived.3.name": "shown"}, "data.derived[3] (shown): the name 'shown' is taken by an earlier point-in-time"),
    ({"derived.0.ages": "seen"}, "data.derived[0] (seen): the name 'seen' is taken by an earlier point-in-time"),
    ({"derived.2.name": "__shown"}, "data.derived[2] (__shown): names that begin with __ are kept for preprocessing"),
    ({"derived.2.key": ["user", "categry"]}, "(shown).key: no column 'categry'; did you mean 'category'?"),
    ({"derived.2.key": "tags"}, "(shown).key: column 'tags' is list<string>, and a list is not one value"),
    ({"derived.2.key": "ctr"}, "data.derived[2] (shown).key: no column 'ctr'"),
    ({"derived.2.key": ["clicked"]}, "(shown).key: column 'clicked' is the label 'liked', which is not known when"),
    ({"derived.0.value": "items"}, "(seen).value: no column 'items'; did you mean 'item'?"),
    ({"derived.0.value": "tags"}, "(seen).value: column 'tags' is list<string>, and must be float64 or int64 or str"),
    ({"derived.0.value": "seen_at"}, "(seen).value: column 'seen_at' is timestamp, and must be float64 or int64"),
    ({"derived.0.value": "clicked"}, "(seen).value: column 'clicked' is the label 'liked', which is not known when"),
    ({"derived.2.key": "got_at"}, "(shown).key: column 'got_at' is an arrival time, which is not known when"),
    ({"derived.0.label": "clck"}, "data.derived[0] (seen).label: no label 'clck'; did you mean 'click'?"),
    (
        {"labels.2.delay_s": None},
        "data.derived[1] (prices).label: 'liked' comes from a column and has no time of its own; "
        "data.labels[2].delay_s says from when it is known",
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected"), BROKEN, ids=[f"{i}-{next(iter(c))}" for i, (c, _) in enumerate(BROKEN)]
)
def test_a_broken_rule_gives_one_line(changes: dict[str, Any], expected: str) -> None:
    problems = problems_of(changes, features=[])
    assert len(problems) == 1, problems
    assert expected in problems[0]


WITHOUT_A_CLOCK: list[tuple[dict[str, Any], str]] = [
    ({"derived": [_HISTORY]}, "data.derived[0] (seen): needs to know when an impression was; name data.roles.event"),
    ({"freshness": "day"}, "data.freshness: day: needs to know when an impression was; name data.roles.event_time"),
    ({"joins": _DATA["joins"]}, "data.joins[0].valid_from: needs to know when an impression was; name data.roles.ev"),
    ({"labels": [{"name": "a", "column": "clicked", "delay_s": 5}]}, "data.labels[0].delay_s: counts from the time of"),
    (
        {"labels": [{"name": "a", "action": {"source": "clicks", "key": "request", "touch": "first"}}]},
        "data.labels[0].action.touch: without data.roles.event_time there is no first impression",
    ),
    (
        {"weight": {"source": "clicks", "key": "request", "value": "dwell", "touch": "first"}},
        "data.weight.touch: without data.roles.event_time there is no first impression",
    ),
    ({"split": {"kind": "rolling", "last_day": "2026-01-09", "train_days": 5}}, "data.split: a split by time needs"),
]


@pytest.mark.parametrize(("changes", "expected"), WITHOUT_A_CLOCK)
def test_what_looks_at_times_needs_a_clock(changes: dict[str, Any], expected: str) -> None:
    clockless: dict[str, Any] = {
        "roles.event_time": None,
        "labels": [_LABEL],
        "weight": None,
        "derived": [],
        "joins": [],
        "freshness": "event",
        "split": {"kind": "hash"},
    }
    assert problems_of(clockless, features=[]) == []
    kept = {key: value for key, value in clockless.items() if not (value is None and key in changes)}
    problems = problems_of({**kept, **changes}, features=[])
    assert len(problems) == 1, problems
    assert expected in problems[0]


LATE: list[tuple[dict[str, Any], str]] = [
    (
        {"kind": "hour_of_day", "name": "hour", "column": "got_at"},
        "column 'got_at' is an arrival time; it is not known",
    ),
    ({"kind": "hour_of_day", "name": "hour", "column": "written_at"}, "column 'written_at' is an arrival time"),
    ({"kind": "numeric", "name": "clicked"}, "column 'clicked' is the label 'liked'; a label cannot be a feature"),
    (
        {"kind": "crossed", "name": "x", "columns": ["user", "clicked"], "buckets": 9},
        "column 'clicked' is the label 'liked'",
    ),
    (
        {"kind": "multivalued", "name": "prices"},
        "kind multivalued needs list<int64> or list<string>, column 'prices' is",
    ),
    ({"kind": "bucketed_list", "name": "seen", "boundaries": [1]}, "needs list<float64> or list<int64>, column 'seen'"),
    ({"kind": "categorical", "name": "ctr"}, "kind categorical needs bool or int64 or string, column 'ctr' is float64"),
    ({"kind": "numeric", "name": "shwn"}, "features[0] (shwn).column: no column 'shwn'; did you mean 'shown'?"),
]


@pytest.mark.parametrize(("feature", "expected"), LATE)
def test_features_read_what_fits_and_is_known_in_time(feature: dict[str, Any], expected: str) -> None:
    problems = problems_of({}, features=[feature])
    assert len(problems) == 1, problems
    assert expected in problems[0]


def test_an_arrival_that_is_the_event_time_may_be_a_feature() -> None:
    hour = [{"kind": "hour_of_day", "name": "hour", "column": "seen_at"}]
    assert problems_of({"sources.log.arrival_time": "seen_at"}, features=hour) == []


def test_point_in_time_columns_have_types() -> None:
    columns = joined_columns(DataSpec.model_validate(_DATA))
    made = {name: columns[name].type for name in ("seen", "seen_ages", "prices", "shown", "ctr")}
    assert made == {
        "seen": "list<string>",
        "seen_ages": "list<int64>",
        "prices": "list<float64>",
        "shown": "int64",
        "ctr": "float64",
    }
    assert list(columns)[:7] == list(_DATA["sources"]["log"]["columns"])


def test_exploded_columns_are_named_by_their_elements() -> None:
    changes: dict[str, Any] = {
        "sources.log.columns.item": "list<string>",
        "sources.log.columns.clicked": "list<int64>",
        "sources.log.explode": ["item", "clicked"],
        "sources.log.explode_position": "place",
    }
    assert problems_of(changes, features=[*_FEATURES, {"kind": "integer", "name": "place", "size": 10}]) == []
    unexploded = {**changes, "sources.log.explode": ["clicked"]}
    assert any("column 'item' is list<string>, and a list is not one value" in line for line in problems_of(unexploded))


def test_one_label_may_sample_its_negatives() -> None:
    changes = {"labels": [_LABEL], "derived": [], "negative_sampling": {"keep": 0.1}}
    assert problems_of(changes, features=[]) == []
