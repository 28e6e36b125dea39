"""Whether a split's labels can be learned from or judged by: found out before training starts."""

from __future__ import annotations

import numpy as np

from pipeline.record_faults import reading
from pipeline.records import evaluation_batches
from pipeline.train_spec import TrainSpec
from preprocessing.dataset import Dataset
from preprocessing.errors import DataError, LabelError
from preprocessing.schema import LABELS_KEY, WEIGHT_KEY

__all__ = ["check_classes", "check_rows"]

_BATCH_SIZE = 4096


def check_rows(dataset: Dataset) -> None:
    """Passes if the training split has rows.

    Raises:
        DataError: if it has none.
    """
    if dataset.num_rows("train") == 0:
        raise DataError(
            f"{dataset.folder}: split 'train' has no rows; "
            "check the bounds of data.split and the rejects in the dataset's statistics"
        )


def check_classes(dataset: Dataset, train: TrainSpec) -> None:
    """Passes if each label has both classes in the training split, and in the valid split if AUC is watched there.

    Raises:
        LabelError: if a label has one class among the rows of weight above 0, or there are none.
    """
    _check_split(dataset, "train")
    if train.early_stopping.metric == "auc" and dataset.num_rows("valid"):
        _check_split(dataset, "valid")


def _check_split(dataset: Dataset, split: str) -> None:
    """Reads until each label was seen with both classes: the first batch, for most data."""
    positive = np.zeros(len(dataset.schema.labels), bool)
    negative = positive.copy()
    with reading(dataset, split):
        for _, batch in evaluation_batches(dataset, split, batch_size=_BATCH_SIZE):
            counted = batch[WEIGHT_KEY].numpy() > 0
            positive |= ((batch[LABELS_KEY].numpy() > 0.5) & counted).any(axis=0)
            negative |= ((batch[LABELS_KEY].numpy() <= 0.5) & counted).any(axis=0)
            if (positive & negative).all():
                return
    label = int(np.argmin(positive & negative))
    found = {(True, False): "all are 1", (False, True): "all are 0"}.get(
        (bool(positive[label]), bool(negative[label])), "there are no such rows"
    )
    raise LabelError(
        f"split {split!r}: label {dataset.schema.labels[label]!r} must be both 0 and 1 among the rows of weight "
        f"above 0, but {found}; check the label's definition and the bounds of the split"
    )
