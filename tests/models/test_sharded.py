"""Placements must not change the answer: every network, optimizer, placement and number of replicas against one device.

The default run has every pair of settings once, the slow one their full product.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models.build import NETWORKS, build_model
from models.config import ModelSpec, OptimizersSpec
from models.ranking_model import RankingModel
from preprocessing.errors import ConfigError, TrainingError
from tests.models.samples import (
    KINDS,
    SCHEMA,
    Batch,
    Stepper,
    largest_difference,
    make_batch,
    make_optimizers,
    make_spec,
    state,
)

Strategies = dict[str, tf.distribute.Strategy | None]
STEPS, SIZE = 50, 24
MIXED = {"tables": {"user": "mirrored", "item": "sharded", "tag": "table_wise"}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "mixed": MIXED,
    "all_gather": {**MIXED, "exchange": "all_gather"},
    "repeated": {**MIXED, "dedupe": "off"},
}
STRATEGIES = ("mirrored", "mirrored4")


def pairwise(*factors: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns settings in which every pair of values of two factors occurs; greedily few."""
    product = list(itertools.product(*factors))

    def pairs(row: tuple[str, ...]) -> set[tuple[int, str, int, str]]:
        return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}

    missing, chosen = set().union(*map(pairs, product)), []
    while missing:
        chosen.append(max(product, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(chosen[-1])
    return chosen


FACTORS = (tuple(NETWORKS), KINDS, tuple(LAYOUTS), STRATEGIES)
# Four replicas take twice the time to compile: by default with the network that has the smallest graph.
PAIRWISE = [(*row, "mirrored4" if row[0] == "dcn" else "mirrored") for row in pairwise(*FACTORS[:3])]
ALL = [
    pytest.param(row, marks=() if row in PAIRWISE else pytest.mark.slow, id="-".join(row))
    for row in itertools.product(*FACTORS)
]


def build(network: str, optimizer: str, strategy: tf.distribute.Strategy | None, **settings: object) -> RankingModel:
    rate = {"sgd": 0.5, "adagrad": 0.1, "adam": 0.01, "ftrl": 0.1}[optimizer]
    spec = make_spec(network, **{"hidden_units": (6,), "cross_layers": 1, "embedding_init_scale": 0.3, **settings})
    return build_model(
        SCHEMA, spec, optimizers=make_optimizers(optimizer, learning_rate=rate), seed=3, strategy=strategy
    )


def batches() -> list[Batch]:
    return [make_batch(SIZE - 4, seed=i, padded=4) for i in range(STEPS)]


@pytest.fixture(scope="module")
def reference(strategies: Strategies) -> Any:
    """Returns a function that gives losses, weights and scores of a network on one device."""
    known: dict[tuple[str, str], tuple[list[float], dict[str, np.ndarray], np.ndarray]] = {}

    def found(network: str, optimizer: str) -> tuple[list[float], dict[str, np.ndarray], np.ndarray]:
        if (network, optimizer) not in known:
            stepper = Stepper(build(network, optimizer, strategies["one_device"]))
            losses = [stepper(batch) for batch in batches()]
            known[network, optimizer] = losses, state(stepper.model), scores(stepper.model)
        return known[network, optimizer]

    return found


def scores(model: RankingModel) -> np.ndarray:
    return np.asarray(model.logits({key: tf.constant(value) for key, value in make_batch(40, seed=99).items()}))


@pytest.mark.parametrize("case", ALL)
def test_losses_weights_and_scores_are_those_of_one_device(
    strategies: Strategies, reference: Any, case: tuple[str, str, str, str]
) -> None:
    network, optimizer, layout, strategy = case
    losses, weights, logits = reference(network, optimizer)
    stepper = Stepper(build(network, optimizer, strategies[strategy], embeddings=LAYOUTS[layout]))
    np.testing.assert_allclose([stepper(batch) for batch in batches()], losses, rtol=0, atol=1e-9)
    assert largest_difference(state(stepper.model), weights) < 1e-9
    np.testing.assert_allclose(scores(stepper.model), logits, rtol=0, atol=1e-6)
    assert min(losses[-5:]) < min(losses[:5])  # it learns


@pytest.mark.parametrize(("strategy", "count"), [("mirrored", 2), ("mirrored4", 4)])
def test_a_replica_holds_its_share_of_the_bytes(strategies: Strategies, strategy: str, count: int) -> None:
    whole = build("deepfm", "adam", strategies["one_device"]).tables.bytes_held()[0]
    model = build("deepfm", "adam", strategies[strategy], embeddings={"placement": "sharded"})
    held = model.tables.bytes_held()
    row = (4 + 1) * 3 * 8  # width 4 and 1, Adam's two slots, float64
    assert whole == (13 + 17 + 7 + 1) * row
    assert all(abs(one - (whole - row) / count - row) < row for one in held)
    assert model.tables.plan.bytes_per_replica(itemsize_bytes=8) == max(held)


def test_tables_beyond_one_replicas_budget_train_sharded(strategies: Strategies) -> None:
    budget = 20 * (4 + 1) * 2 * 8
    with pytest.raises(ConfigError, match="budget_bytes"):
        build("deepfm", "adagrad", strategies["one_device"], embeddings={"budget_bytes": budget})
    settings = {"placement": "sharded", "budget_bytes": budget}
    stepper = Stepper(build("deepfm", "adagrad", strategies["mirrored"], embeddings=settings))
    assert np.isfinite(stepper(make_batch(SIZE, seed=0)))
    assert max(stepper.model.tables.bytes_held()) <= budget
    # The model to export is whole, whatever the budget of a replica.
    assert build("deepfm", "adagrad", None, embeddings=settings).tables.bytes_held()[0] > budget


def test_a_narrow_exchange_stays_near(strategies: Strategies, reference: Any) -> None:
    losses, _, _ = reference("deepfm", "adagrad")
    settings = {"placement": "sharded", "exchange_dtype": "bfloat16"}
    stepper = Stepper(build("deepfm", "adagrad", strategies["mirrored"], embeddings=settings))
    found = [stepper(batch) for batch in batches()]
    assert 0 < np.abs(np.array(found) - losses).max() < 0.02


def test_ids_out_of_range_are_counted_and_looked_up_as_unknown(strategies: Strategies) -> None:
    stepper = Stepper(build("deepfm", "adagrad", strategies["mirrored"], embeddings=MIXED))
    wrong, unknown = make_batch(SIZE, seed=0), make_batch(SIZE, seed=0)
    wrong["ids"][:3, 1], unknown["ids"][:3, 1] = [17, 2**40, -5], 1
    wrong["list/tags"][5:7, 0], unknown["list/tags"][5:7, 0] = 7, 1
    other = Stepper(build("deepfm", "adagrad", None))
    assert stepper(wrong) == pytest.approx(other(unknown), abs=1e-12)
    assert (stepper.out_of_range, other.out_of_range) == (5, 0)
    assert largest_difference(state(stepper.model), state(other.model)) < 1e-12


def test_a_row_is_held_once_and_read_from_where_it_is(strategies: Strategies) -> None:
    model = build("deepfm", "sgd", strategies["mirrored4"], embeddings={"placement": "sharded"})
    values = np.arange(17.0 * 4).reshape(17, 4)
    model.tables.write("item", "embedding", array="weights", ids=range(17), values=values)
    np.testing.assert_array_equal(
        model.tables.read("item", "embedding", array="weights", ids=range(2, 17, 3)), values[2::3]
    )
    assert sorted(i for ids in model.tables.held_rows("item") for i in ids) == list(range(17))


def test_scoring_or_training_in_a_process_that_lacks_rows_is_refused(
    strategies: Strategies, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("deepfm", "sgd", strategies["mirrored"], embeddings={"placement": "sharded"})
    monkeypatch.setattr("models.replicas.Replicas.held", range(1))
    with pytest.raises(TrainingError, match=r"holds 1 of 2 shards.*inside strategy.run"):
        scores(model)
    monkeypatch.undo()
    routes = model.tables.routes(tf.zeros((2, 7), tf.int32))
    with pytest.raises(TrainingError, match=r"updated inside strategy.run"):
        routes[0].arriving()


def test_a_placement_that_cannot_be_had_is_refused(strategies: Strategies) -> None:
    spec = ModelSpec.model_validate({"embeddings": {"tables": {"shop": "sharded"}}})
    with pytest.raises(ConfigError, match="'shop'"):
        build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1, strategy=strategies["mirrored"])
