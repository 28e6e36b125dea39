"""LightGBM on the columns that a line's model read, as a peer of its accuracy.

Trees take no lists of ids: of a list they get its length and whether the item of the row is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Config
from preprocessing.dataset import Dataset
from preprocessing.dictionaries import as_one_array, decoded
from preprocessing.schema import LABEL_PREFIX
from preprocessing.spec import columns_of

__all__ = ["lightgbm_scores"]

_ROUNDS, _PATIENCE = 2000, 50
_SETTINGS = {
    "objective": "binary",
    "metric": "auc",
    "learning_rate": 0.03,
    "num_leaves": 63,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "cat_smooth": 20.0,
    "min_data_per_group": 100,
    "verbose": -1,
}


def lightgbm_scores(config: Config, dataset: Dataset, *, seed: int) -> dict[str, np.ndarray]:
    """Returns the probabilities of the first label on the rows of valid and test, in their order.

    Trained on the training split, stopped by AUC on valid.
    """
    import lightgbm

    columns = sorted({name for feature in config.features for name in columns_of(feature)})
    item = config.data.roles.item
    splits = {split: _rows(dataset, split) for split in ("train", "valid", "test")}
    tables, categorical = {}, []
    codes: dict[str, dict[Any, int]] = {}
    for split, rows in splits.items():
        made = {}
        for name in columns:
            values = decoded(as_one_array(rows[name]))
            if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
                made[f"{name}: length"] = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
                made[f"{name}: has the item"] = _contains(values, decoded(as_one_array(rows[item])))
            elif pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
                made[name] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            else:
                known = codes.setdefault(name, _codes(values))
                made[name] = np.array([known.get(value, -1) for value in values.to_pylist()])
                categorical.append(name)
        tables[split] = made
    names = list(tables["train"])
    arrays = {split: np.stack([made[name] for name in names], axis=1) for split, made in tables.items()}
    label = LABEL_PREFIX + dataset.schema.labels[0]
    places = [names.index(name) for name in dict.fromkeys(categorical)]
    train = lightgbm.Dataset(
        arrays["train"], splits["train"][label].to_numpy(), feature_name="auto", categorical_feature=places
    )
    valid = lightgbm.Dataset(arrays["valid"], splits["valid"][label].to_numpy(), reference=train)
    model = lightgbm.train(
        {**_SETTINGS, "seed": seed},
        train,
        _ROUNDS,
        valid_sets=[valid],
        callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
    )
    return {split: np.asarray(model.predict(arrays[split])) for split in ("valid", "test")}


def _rows(dataset: Dataset, split: str) -> pa.Table:
    from pipeline.scoring import read_rows

    return pa.concat_tables(read_rows(dataset, split)).combine_chunks()


def _codes(values: pa.Array, *, min_count: int = 5) -> dict[Any, int]:
    """Returns a number for each value that is frequent enough; the frequent ones first."""
    counted = sorted((-one["counts"], one["values"]) for one in pc.value_counts(values).to_pylist() if one["values"])
    return {value: code for code, (count, value) in enumerate(counted) if -count >= min_count}


def _contains(lists: pa.Array, items: pa.Array) -> np.ndarray:
    return np.array([item in (values or ()) for values, item in zip(lists.to_pylist(), items.to_pylist(), strict=True)])
