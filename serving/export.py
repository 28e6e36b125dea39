"""A trained model as a SavedModel for TF Serving: raw columns in, probabilities out, the transform inside.

    saved_model.pb, variables/, assets/            see `signatures` for what can be called
    assets.extra/rankmill_packed.json              the order of columns in the signature `packed`
    assets.extra/tf_serving_warmup_requests        real requests that a server runs first (see `warmup`)

Everything is computed in float32 by stock TensorFlow, whatever training used. Tables are made in parts of limited
size straight from the checkpoint, without optimizer state.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from models.build import build_inference_model
from models.checkpoint import load_checkpoint
from models.config import ModelSpec
from models.ranking_model import RankingModel
from preprocessing.dataset import TRANSFORM_FOLDER, Dataset
from preprocessing.manifest import write_json
from preprocessing.transform import load_transform
from serving.export_spec import ExportOptions
from serving.packed import PACKED_FILE
from serving.signatures import DEFAULT_SIGNATURE, EXAMPLES_SIGNATURE, RANK_SIGNATURE, Servable, packed_layout

__all__ = [
    "ASSETS_EXTRA",
    "DEFAULT_SIGNATURE",
    "EXAMPLES_SIGNATURE",
    "RANK_SIGNATURE",
    "export_model",
    "inference_model",
]

ASSETS_EXTRA = "assets.extra"
_DEFAULTS = ExportOptions()


def inference_model(
    dataset: Dataset, checkpoint: Path, *, model: ModelSpec, options: ExportOptions = _DEFAULTS
) -> RankingModel:
    """Returns the model that an export holds.

    Args:
        dataset: what the model was trained on.
        checkpoint: weights, as `models.checkpoint` writes them.
        model: the network, as it was trained.
        options: say how tables are stored.
    """
    made = build_inference_model(dataset.schema, model, tables=options.tables, shard_bytes=options.shard_bytes)
    load_checkpoint(checkpoint, made, slots=False)
    return made


def export_model(
    dataset: Dataset, checkpoint: Path, *, model: ModelSpec, folder: Path, options: ExportOptions = _DEFAULTS
) -> int:
    """Writes the SavedModel of a checkpoint into `folder`, which must not exist; returns the bytes of its tables.

    Args:
        dataset: what the model was trained on; gives the schema and the transform.
        checkpoint: weights, as `models.checkpoint` writes them.
        model: the network, as it was trained.
        folder: where the SavedModel goes.
        options: what it holds beside the plain signatures, and how tables are stored.

    Raises:
        ConfigError: if `options` do not fit the dataset.
        ArtefactError: if the checkpoint does not fit, or a weight does not fit into the tables' dtype.
    """
    trained = inference_model(dataset, checkpoint, model=model, options=options)
    servable = Servable(dataset.schema, transform=load_transform(dataset.folder / TRANSFORM_FOLDER), model=trained)
    tf.saved_model.save(
        servable,
        str(folder),
        signatures=servable.signatures(options.rank),
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )
    extra = folder / ASSETS_EXTRA
    extra.mkdir()
    write_json(extra / PACKED_FILE, packed_layout(dataset.schema.raw_columns).described())
    return sum(trained.tables.bytes_held())
