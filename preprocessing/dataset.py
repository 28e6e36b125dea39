"""A finished dataset on disk: which record shards each split has, how many rows, and where their raw rows are.

<dataset>/schema.json                        the `DatasetSchema`
<dataset>/<split>/<period>-<shard>.tfrecord     records
<dataset>/transform/                         the transform, one TensorFlow graph
<dataset>/vocabularies/<table>.parquet       token, count, in the order of ids
<dataset>/statistics.json                    what the analysis of the training split found
<dataset>/manifest.json                      shards and row counts of each split, inputs, versions
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from preprocessing.errors import ArtefactError
from preprocessing.manifest import read_manifest
from preprocessing.schema import ID_LAYOUT_VERSION, DatasetSchema

__all__ = ["SCHEMA_FILE", "TRANSFORM_FOLDER", "Dataset", "Shard", "open_dataset"]

SCHEMA_FILE = "schema.json"
TRANSFORM_FOLDER = "transform"


class Shard(BaseModel):
    """One file of records and the Parquet file of the same rows, raw and joined, in the same order.

    `period` names the day, month or year of the rows, or is "all" without an event time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    period: str
    records: str
    rows: str
    num_rows: int


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset opened for reading; the paths in its shards are relative to `folder`."""

    folder: Path
    schema: DatasetSchema
    splits: dict[str, tuple[Shard, ...]]

    def num_rows(self, split: str) -> int:
        """Returns the number of rows of a split; 0 if the dataset has no such split."""
        return sum(shard.num_rows for shard in self.splits.get(split, ()))


def open_dataset(folder: Path) -> Dataset:
    """Returns the dataset in `folder`.

    Raises:
        ArtefactError: if it is not finished, or its ids follow another layout than this version's.
    """
    manifest = read_manifest(folder)
    try:
        schema = DatasetSchema.model_validate_json((folder / SCHEMA_FILE).read_bytes())
        splits = {
            name: tuple(Shard.model_validate(shard) for shard in shards)
            for name, shards in manifest["content"]["splits"].items()
        }
    except (OSError, KeyError, ValidationError) as error:
        raise ArtefactError(f"{folder} is not a dataset of this version: {error}; run preprocess again") from error
    if schema.id_layout_version != ID_LAYOUT_VERSION:
        raise ArtefactError(
            f"{folder}: ids follow layout {schema.id_layout_version}, this version reads layout {ID_LAYOUT_VERSION}; "
            "run preprocess again"
        )
    return Dataset(folder=folder, schema=schema, splits=splits)
