"""The first tensor that is not finite is named, before the update that would spread it."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.ranking_model import RankingModel
from tests.models.samples import SCHEMA, Batch, make_batch, make_optimizers, make_spec

NAN, INFINITE = float("nan"), float("inf")


def poison(batch: Batch, key: str, column: int, value: float) -> None:
    batch[key][3, column] = value


def break_row(model: RankingModel, batch: Batch, table: str, column: int, group: str = "embedding") -> None:
    row = int(batch["ids"][2, column])
    values = np.full((1, model.tables.width(group)), NAN)
    model.tables.write(table, group, array="weights", ids=range(row, row + 1), values=values)


CASES: dict[str, Callable[[RankingModel, Batch], object]] = {
    "dense input 'price'": lambda model, batch: poison(batch, "dense", 1, NAN),
    "the labels": lambda model, batch: poison(batch, "labels", 0, INFINITE),
    "the sample weights": lambda model, batch: poison(batch, "weight", 0, NAN),
    "looked-up rows of table 'user' (embedding)": lambda model, batch: break_row(model, batch, "user", 0),
    "looked-up rows of table 'item' (first_order)": lambda model, batch: break_row(
        model, batch, "item", 1, "first_order"
    ),
    "dense weights 'mlp/1/bias'": lambda model, batch: model.dense_variables["mlp/1/bias"].assign([NAN, 0, 0, 0, 0, 0]),
}


def stepped(change: Callable[[RankingModel, Batch], object]) -> tuple[float, list[str]]:
    model = build_model(SCHEMA, make_spec("deepfm"), optimizers=make_optimizers("sgd"), seed=3)
    batch = make_batch(8, seed=0)
    change(model, batch)
    outputs = model.train_step(
        {key: tf.constant(value) for key, value in batch.items()},
        step=tf.constant(0, tf.int64),
        learning_rate_scale=tf.constant(1.0),
    )
    flags = outputs["suspects"].numpy()
    return float(outputs["loss"]), [name for name, flag in zip(model.suspects, flags, strict=True) if flag]


@pytest.mark.parametrize("name", list(CASES))
def test_what_made_the_loss_not_finite_is_named_and_nothing_else(name: str) -> None:
    loss, found = stepped(CASES[name])
    assert not np.isfinite(loss)
    assert found == [name]


def test_a_finite_loss_has_no_suspects() -> None:
    loss, found = stepped(lambda model, batch: None)
    assert np.isfinite(loss)
    assert found == []


def test_finite_tensors_that_overflow_on_the_way_are_not_accused() -> None:
    def widen(model: RankingModel, batch: Batch) -> None:
        model.dense_variables["mlp/1/bias"].assign(np.full(6, 1e308))
        model.dense_variables["mlp/1/kernel"].assign(np.full((8, 6), 1e308))
        model.dense_variables["mlp/0/bias"].assign(np.full(8, 10.0))

    loss, found = stepped(widen)
    assert not np.isfinite(loss)
    assert found == []
