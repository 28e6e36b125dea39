"""What it costs to store embedding tables in fewer bits: the change of AUC and of size, against float32.

Shapes: N rows, K labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from models.config import ModelSpec
from pipeline.metrics import auc
from pipeline.scoring import ScoredRows
from pipeline.split_scores import score_records
from preprocessing.dataset import Dataset
from preprocessing.schema import LABELS_KEY, WEIGHT_KEY
from serving.export import inference_model
from serving.export_spec import ExportOptions

__all__ = ["offline_scores", "stored_figures"]

Floats = npt.NDArray[np.float32]


def offline_scores(
    dataset: Dataset, split: str, *, checkpoint: Path, model: ModelSpec, options: ExportOptions, batch_size: int
) -> Floats:
    """Returns [N, K] of the records of a split, by the checkpoint with its tables as `options` store them."""
    made = inference_model(dataset, checkpoint, model=model, options=options)

    @tf.function
    def score(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.concat([tf.sigmoid(made.logits(batch)), batch[LABELS_KEY], batch[WEIGHT_KEY]], axis=1)

    return score_records(score, dataset, split, batch_size=batch_size).scores


def stored_figures(scored: ScoredRows, trained: Floats, *, export: Mapping[str, Any]) -> dict[str, float]:
    """Returns `auc_change`, mean over the labels of the AUC as served minus that in float32, and both sizes in MB.

    Args:
        scored: by the exported model.
        trained: [N, K], the trainer's scores, by float32 tables.
        export: what the export stage recorded.
    """
    changes = [
        auc(scored.labels[:, k], scored.scores[:, k], scored.weights)
        - auc(scored.labels[:, k], trained[:, k], scored.weights)
        for k in range(scored.labels.shape[1])
    ]
    size_bytes = export["size_bytes"]
    return {
        "auc_change": float(np.mean(changes)),
        "size_mb": size_bytes / 1e6,
        "float32_size_mb": (size_bytes + export["table_bytes"]) / 1e6,  # a float16 table is half of its float32
    }
