"""Which columns belong to candidates, and what of a config an export follows from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config, load_config
from pipeline.export_stage import candidate_columns, export_parts, options_of
from preprocessing.errors import ConfigError
from tests.pipeline.configs import tiny_tree, write_config

DERIVED: list[dict[str, Any]] = [
    {"kind": "count", "name": "item_views", "key": "item"},
    {"kind": "count", "name": "user_views", "key": "user"},
    {"kind": "rate", "name": "pair_rate", "key": ["user", "category"], "label": "click", "prior": 0.1, "strength": 2},
]


def config(tmp_path: Path, **export: Any) -> Config:
    tree = tiny_tree()
    tree["data"]["labels"][0]["delay_s"] = 60
    tree["data"]["derived"] = DERIVED
    tree["features"] += [{"name": one["name"], "kind": "numeric"} for one in DERIVED]
    tree["export"] = export
    return load_config(write_config(tmp_path, tree))


def test_the_item_its_side_table_and_what_is_counted_by_either_are_of_candidates(tmp_path: Path) -> None:
    found = candidate_columns(config(tmp_path).data)
    assert found == {"item", "category", "item_views", "pair_rate"}


def test_declared_columns_take_the_place_of_the_default(tmp_path: Path) -> None:
    rank = options_of(config(tmp_path, rank={"item_columns": ["price", "item"], "top_k": 3})).rank
    assert rank is not None
    assert (rank.item_columns, rank.top_k) == (frozenset({"price", "item"}), 3)
    assert [feature.name for feature in rank.features][:2] == ["user", "item"]


def test_an_empty_list_or_no_item_means_no_signature(tmp_path: Path) -> None:
    assert options_of(config(tmp_path, rank={"item_columns": []})).rank is None
    tree = tiny_tree()
    tree["data"]["roles"].pop("item")
    assert options_of(load_config(write_config(tmp_path, tree))).rank is None


def test_a_column_that_no_feature_reads_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"export\.rank\.item_columns.*'seen_at'"):
        options_of(config(tmp_path, rank={"item_columns": ["seen_at"]}))


@pytest.mark.parametrize("sizes", [[0], [4, 4], [200_000]])
def test_batch_sizes_that_cannot_be_are_refused(tmp_path: Path, sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match="batch_sizes"):
        config(tmp_path, warmup={"batch_sizes": sizes})


def test_an_export_follows_from_what_changes_its_bytes_and_nothing_else(tmp_path: Path) -> None:
    before = export_parts(config(tmp_path))
    assert export_parts(config(tmp_path, model_name="other", promote="none")) == before
    for change in ({"tables": "float16"}, {"rank": {"top_k": 7}}, {"warmup": {"batch_sizes": [2]}}):
        assert export_parts(config(tmp_path, **change)) != before
