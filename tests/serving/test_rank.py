"""The signature `rank`: equal to scoring each pair by `serving_default`; padding; the best of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from models.config import AttentionSpec, ModelSpec, PositionSpec
from preprocessing.errors import ConfigError
from preprocessing.raw_values import raw_tensors
from serving.export import export_model
from serving.server.servable import Servable
from tests.serving.exported import FEATURES, ITEM_COLUMNS, ranked, some_rows, write_checkpoint, write_dataset

SPECS = {
    "deepfm": ModelSpec(kind="deepfm", embedding_dim=4, hidden_units=(8, 4)),
    "wide_deep": ModelSpec(kind="wide_deep", embedding_dim=3, hidden_units=(8,)),
    "dcn": ModelSpec(kind="dcn", embedding_dim=4, hidden_units=(8,), cross_layers=2, batch_norm=True),
    "dlrm": ModelSpec(kind="dlrm", embedding_dim=4, hidden_units=(8,), bottom_units=(5,)),
    "tower": ModelSpec(
        kind="wide_deep", embedding_dim=4, hidden_units=(8,), position=PositionSpec(feature="category", kind="tower")
    ),
    "fixed": ModelSpec(
        kind="deepfm", embedding_dim=4, hidden_units=(8,), position=PositionSpec(feature="category", value=2)
    ),
    "attention": ModelSpec(
        kind="deepfm", embedding_dim=4, hidden_units=(8,), attention=AttentionSpec(targets={"past": "item"})
    ),
}
USERS, CANDIDATES, TOP_K = 3, 7, 5

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module", params=list(SPECS))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Servable:
    folder = tmp_path_factory.mktemp("rank")
    dataset = write_dataset(folder, some_rows(60), labels=("click", "like"))
    spec = SPECS[request.param]
    checkpoint = write_checkpoint(folder / "checkpoint", dataset, spec)
    export_model(dataset, checkpoint, model=spec, folder=folder / "model", options=ranked(top_k=TOP_K))
    return Servable.load(folder / "model")


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_dataset(tmp_path_factory.mktemp("columns"), some_rows(60)).schema.raw_columns


def pairs(columns: Any, *, seed: int) -> tuple[Arrays, Arrays]:
    """Returns the arrays of a `rank` request, and of the same pairs row by row."""
    found = raw_tensors(some_rows(USERS * CANDIDATES, seed=seed), columns)
    rows = {name: values.copy() for name, values in found.items()}
    rows["item"][rows["item"] == b"\x00"] = b"i1"  # no candidate is padding
    asked, by_row = {}, {}
    for name, values in rows.items():
        tail = values.shape[1:]
        grid = values.reshape(USERS, CANDIDATES, *tail)
        if name in ITEM_COLUMNS:
            asked[name], by_row[name] = grid, values
        else:
            asked[name] = grid[:, 0]
            by_row[name] = np.repeat(grid[:, 0], CANDIDATES, axis=0)
    return asked, by_row


@pytest.mark.parametrize("seed", [1, 2])
def test_scores_are_those_of_serving_default_on_each_pair(exported: Servable, columns: Any, seed: int) -> None:
    asked, by_row = pairs(columns, seed=seed)
    found = exported.run("rank", asked)
    expected = exported.run("serving_default", by_row)
    for label in ("click", "like"):
        assert found[label].shape == (USERS, CANDIDATES)
        np.testing.assert_allclose(found[label].ravel(), expected[label], atol=1e-6, rtol=0)
    assert np.ptp(expected["click"]) > 0.05  # scores that are all alike would agree by chance


def test_the_best_are_the_highest_of_the_first_label_in_order(exported: Servable, columns: Any) -> None:
    found = exported.run("rank", pairs(columns, seed=3)[0])
    order = np.argsort(-found["click"], axis=1, kind="stable")[:, :TOP_K]
    np.testing.assert_array_equal(found["top_indices"], order)
    np.testing.assert_array_equal(found["top_scores"], np.take_along_axis(found["click"], order, axis=1))


def test_padded_candidates_score_minus_infinity_and_are_never_among_the_best(exported: Servable, columns: Any) -> None:
    whole = pairs(columns, seed=4)[0]
    padded = {name: values.copy() for name, values in whole.items()}
    markers = {column.name: column.missing_marker() for column in columns}
    for name in ITEM_COLUMNS:
        padded[name][1, 3:] = markers[name]
    before, found = exported.run("rank", whole), exported.run("rank", padded)
    np.testing.assert_array_equal(found["click"][1, 3:], np.full(CANDIDATES - 3, -np.inf))
    np.testing.assert_allclose(found["click"][1, :3], before["click"][1, :3], atol=1e-6)
    np.testing.assert_allclose(found["like"][[0, 2]], before["like"][[0, 2]], atol=1e-6)
    assert sorted(found["top_indices"][1, :3]) == [0, 1, 2]
    np.testing.assert_array_equal(found["top_indices"][1, 3:], -1)
    np.testing.assert_array_equal(found["top_scores"][1, 3:], np.full(TOP_K - 3, -np.inf))


def test_a_candidate_with_any_value_is_not_padding(exported: Servable, columns: Any) -> None:
    asked = pairs(columns, seed=5)[0]
    for column in columns:
        if column.name in ITEM_COLUMNS - {"price"}:
            asked[column.name][0, 0] = column.missing_marker()
    asked["price"][0, 0] = 3.5
    assert np.isfinite(exported.run("rank", asked)["click"][0, 0])


def test_fewer_candidates_than_top_k_and_none_at_all(exported: Servable, columns: Any) -> None:
    asked = pairs(columns, seed=6)[0]
    for count in (2, 0):
        few = {name: values[:, :count] if name in ITEM_COLUMNS else values for name, values in asked.items()}
        found = exported.run("rank", few)
        assert found["click"].shape == (USERS, count)
        assert found["top_indices"].shape == (USERS, TOP_K)
        assert (found["top_indices"][:, count:] == -1).all()
        assert (found["top_indices"][:, :count] >= 0).all()


@pytest.mark.parametrize("item_columns", [set(ITEM_COLUMNS) | {"user", "age", "past", "ages", "seen_ms"}, {"price"}])
def test_either_side_may_have_hardly_any_column(tmp_path: Path, item_columns: set[str]) -> None:
    dataset = write_dataset(tmp_path, some_rows(40))
    checkpoint = write_checkpoint(tmp_path / "checkpoint", dataset, SPECS["deepfm"])
    options = ranked(item_columns=frozenset(item_columns))
    export_model(dataset, checkpoint, model=SPECS["deepfm"], folder=tmp_path / "model", options=options)
    servable = Servable.load(tmp_path / "model")
    row = raw_tensors(some_rows(1, seed=8), dataset.schema.raw_columns) | {"price": np.array([2.0], np.float32)}
    asked = {name: values[None] if name in item_columns else values for name, values in row.items()}
    expected = servable.run("serving_default", row)["click"]
    np.testing.assert_allclose(servable.run("rank", asked)["click"][0], expected, atol=1e-6)


def test_columns_that_no_feature_reads_make_no_candidates(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, some_rows(40))
    checkpoint = write_checkpoint(tmp_path / "checkpoint", dataset, SPECS["deepfm"])
    with pytest.raises(ConfigError, match="item_columns"):
        export_model(
            dataset,
            checkpoint,
            model=SPECS["deepfm"],
            folder=tmp_path / "model",
            options=ranked(features=FEATURES, item_columns=frozenset({"colour"})),
        )
