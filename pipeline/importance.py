"""How much a model rests on each raw column: its AUC when the column's values are dealt out anew among the rows.

Breiman 2001, Random Forests, section 10, on the exported model and held-out rows. Columns that say the same stand in
for each other, so each of them may look worthless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.metrics import auc
from pipeline.scoring import input_tensors, loaded_model, read_rows
from preprocessing.dataset import Dataset
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from serving.export import DEFAULT_SIGNATURE

__all__ = ["permutation_importance"]


def permutation_importance(
    saved_model: Path,
    dataset: Dataset,
    split: str,
    *,
    num_rows: int,
    batch_size: int,
    seed: int,
    observe: Callable[[int], None] = lambda columns: None,
) -> dict[str, float]:
    """Returns the AUC of the first label that is lost without each raw column, the largest loss first.

    Args:
        saved_model: the exported model.
        dataset: whose rows are scored.
        split: "valid" or "test".
        num_rows: at most so many rows, spread over the split.
        batch_size: rows a call.
        seed: of the deals.
        observe: told the number of columns done.
    """
    whole = pa.concat_tables(read_rows(dataset, split))
    rows = whole.take(np.unique(np.linspace(0, whole.num_rows - 1, min(num_rows, whole.num_rows)).astype(np.int64)))
    label = dataset.schema.labels[0]
    labels, weights = rows[LABEL_PREFIX + label].to_numpy(), rows[WEIGHT_COLUMN].to_numpy()
    generator = np.random.default_rng(seed)
    with loaded_model(saved_model) as servable:
        tensors = input_tensors(servable, rows)

        def scored() -> float:
            scores = [
                servable.run(DEFAULT_SIGNATURE, {name: part[place] for name, part in tensors.items()}, [label])[label]
                for place in _batches(rows.num_rows, batch_size)
            ]
            return auc(labels, np.concatenate(scores), weights)

        base, lost = scored(), {}
        for done, name in enumerate(sorted(tensors), start=1):
            kept = tensors[name]
            tensors[name] = kept[generator.permutation(len(kept))]
            lost[name] = base - scored()
            tensors[name] = kept
            observe(done)
    return dict(sorted(lost.items(), key=lambda entry: -entry[1]))


def _batches(num_rows: int, batch_size: int) -> Sequence[slice]:
    return [slice(start, start + batch_size) for start in range(0, num_rows, batch_size)]
