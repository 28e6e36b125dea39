"""A small schema, batches for it, and steps over them, for the tests of models."""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from models.ranking_model import RankingModel
from preprocessing.schema import DatasetSchema, IdField, ListField, TableSchema

NUM_USERS, NUM_ITEMS, NUM_TAGS = 13, 17, 7
SCHEMA = DatasetSchema(
    raw_columns=(),
    id_fields=(IdField(name="user", table="user"), IdField(name="item", table="item")),
    list_fields=(
        ListField(name="history", table="item", length=3, pooling="mean"),
        ListField(name="tags", table="tag", length=2, pooling="sqrtn"),
    ),
    dense=("age", "price"),
    tables=(
        TableSchema(name="user", num_rows=NUM_USERS),
        TableSchema(name="item", num_rows=NUM_ITEMS),
        TableSchema(name="tag", num_rows=NUM_TAGS),
    ),
    labels=("click",),
)
KINDS = ("sgd", "adagrad", "adam", "ftrl")

Batch = dict[str, NDArray[np.generic]]


def make_spec(kind: str, **settings: object) -> ModelSpec:
    """Returns a small network of float64 weights."""
    values = {
        "kind": kind,
        "embedding_dim": 4,
        "hidden_units": (8, 6),
        "cross_layers": 2,
        "precision": "float64",
        **settings,
    }
    return ModelSpec.model_validate(values)


def make_optimizers(kind: str, *, learning_rate: float = 0.05, l1: float = 0.0, l2: float = 0.0) -> OptimizersSpec:
    """Returns one optimizer for all groups."""
    one = OptimizerSpec.model_validate({"kind": kind, "learning_rate": learning_rate, "l1": l1, "l2": l2})
    return OptimizersSpec(tables=one, wide=one, dense=one)


def planted_rule(ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns the label [B, 1] of ids [B, 2]: odd items, and every third one with an odd user."""
    user, item = ids[:, :1], ids[:, 1:]
    return (item % 2 == 1) | ((user % 2 == 1) & (item % 3 == 0))


def make_batch(size: int, *, seed: int, padded: int = 0) -> Batch:
    """Returns a global batch whose label follows from user and item; the last `padded` rows weigh 0."""
    random = np.random.default_rng(seed)
    ids = np.stack([random.integers(0, NUM_USERS, size), random.integers(0, NUM_ITEMS, size)], 1)
    weight = random.uniform(0.5, 2.0, (size, 1))
    batch: Batch = {
        "ids": ids,
        "list/history": random.integers(0, NUM_ITEMS, (size, 3)),
        "list/tags": random.integers(0, NUM_TAGS, (size, 2)),
        "dense": random.normal(size=(size, 2)).astype(np.float32),
        "labels": planted_rule(ids).astype(np.float32),
        "weight": weight.astype(np.float32),
    }
    return pad(batch, padded)


def pad(batch: Batch, count: int) -> Batch:
    """Returns the batch with `count` rows of zeros below, as a trainer fills up a short batch."""
    return {key: np.concatenate([v, np.zeros((count, *v.shape[1:]), v.dtype)]) for key, v in batch.items()}


class Stepper:
    """Runs training steps of a model on global batches under its strategy; compiled once."""

    def __init__(self, model: RankingModel) -> None:
        self.model = model
        self._strategy = model.replicas.strategy
        self._count = model.replicas.count
        self.step = 0
        self.out_of_range = 0

        def one(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor) -> dict[str, tf.Tensor]:
            return model.train_step(batch, step=step, learning_rate_scale=scale)

        def on_all(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor) -> dict[str, tf.Tensor]:
            if self._strategy is None:
                return one(batch, step, scale)
            outputs = self._strategy.run(one, args=(batch, step, scale))
            reduce = tf.distribute.ReduceOp.SUM
            return {key: self._strategy.reduce(reduce, value, axis=None) for key, value in outputs.items()}

        # Any batch size in one graph, where that can be said; on several replicas keep to one size.
        shapes = {key: value.shape[1:] for key, value in make_batch(1, seed=0).items()}
        dtypes = {key: value.dtype for key, value in make_batch(1, seed=0).items()}
        specs = {key: tf.TensorSpec((None, *shapes[key]), dtypes[key]) for key in shapes}
        scalars = (tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.float32))
        signature = (specs, *scalars) if self._strategy is None else None
        self._run = tf.function(on_all, autograph=False, input_signature=signature)

    def __call__(self, batch: Batch, *, scale: float = 1.0) -> float:
        """Returns the loss of the global batch after one more step."""
        outputs = self._run(self._slices(batch), tf.constant(self.step, tf.int64), tf.constant(scale))
        self.step += 1
        self.out_of_range += int(outputs["out_of_range"])
        return float(outputs["loss"])

    def score(self, batch: Batch) -> NDArray[np.float32]:
        """Returns the logits [B, 1] of a global batch, of which each replica scores its slice."""

        def one(share: dict[str, tf.Tensor]) -> tf.Tensor:
            return self.model.replicas.all_rows(self.model.logits(share))

        if self._strategy is None:
            return np.asarray(self.model.logits(batch))
        found = tf.function(lambda slices: self._strategy.run(one, args=(slices,)), autograph=False)(
            self._slices(batch)
        )
        return np.asarray(self._strategy.experimental_local_results(found)[0])

    def _slices(self, batch: Batch) -> object:
        tensors = {key: tf.constant(value) for key, value in batch.items()}
        if self._strategy is None:
            return tensors
        size = len(batch["weight"]) // self._count

        def slice_of(context: tf.distribute.ReplicaContext) -> dict[str, tf.Tensor]:
            first = size * int(context.replica_id_in_sync_group)
            return {key: value[first : first + size] for key, value in tensors.items()}

        return self._strategy.experimental_distribute_values_from_function(lambda context: slice_of(context))


def state(model: RankingModel) -> dict[str, NDArray[np.floating]]:
    """Returns every weight, statistic and slot of a model by name."""
    arrays = {}
    for table in model.tables.plan.tables:
        for group in model.tables.groups:
            for array in model.tables.arrays(group):
                rows = model.tables.read(table.name, group, array=array, ids=range(table.num_rows))
                arrays[f"{table.name}/{group}/{array}"] = rows
    arrays |= {name: variable.numpy() for name, variable in model.dense_variables.items()}
    for slot, variables in model.dense_slots.items():
        arrays |= {f"{slot}/{name}": variable.numpy() for name, variable in variables.items()}
    return arrays


def set_state(model: RankingModel, arrays: dict[str, NDArray[np.floating]]) -> None:
    """Sets what `state` returns."""
    for table in model.tables.plan.tables:
        for group in model.tables.groups:
            for array in model.tables.arrays(group):
                values = arrays[f"{table.name}/{group}/{array}"]
                model.tables.write(table.name, group, array=array, ids=range(table.num_rows), values=values)
    for name, variable in model.dense_variables.items():
        variable.assign(arrays[name])
    for slot, variables in model.dense_slots.items():
        for name, variable in variables.items():
            variable.assign(arrays[f"{slot}/{name}"])


def largest_difference(one: dict[str, NDArray[np.floating]], other: dict[str, NDArray[np.floating]]) -> float:
    """Returns the largest difference between equally named arrays."""
    if one.keys() != other.keys():
        raise KeyError(sorted(one.keys() ^ other.keys()))
    return max((float(np.abs(one[key] - other[key]).max()) for key in one), default=0.0)
