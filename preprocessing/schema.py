"""What a dataset says of itself: raw columns, model inputs, tables, labels. Stored as `schema.json`.

A record is one `tf.Example` with packed inputs, so that reading costs the same for 4 or 400 features:

    ids            int64   [F]   one id for each of `id_fields`, in order
    list/NAME      int64   [L]   padded with 0, one key for each of `list_fields`
    dense          float32 [D]   one number for each of `dense`, in order
    labels         float32 [K]   one for each of `labels`
    weight         float32 [1]

Ids are local to a table (see `vocabulary` for their layout): where a table's rows live is the model's affair.
A key whose length would be 0 is left out.
"""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "DENSE_KEY",
    "IDS_KEY",
    "ID_LAYOUT_VERSION",
    "LABELS_KEY",
    "LABEL_PREFIX",
    "LIST_PREFIX",
    "WEIGHT_COLUMN",
    "WEIGHT_KEY",
    "DatasetSchema",
    "IdField",
    "ListField",
    "RawColumn",
    "TableSchema",
]

ID_LAYOUT_VERSION = 1
IDS_KEY = "ids"
DENSE_KEY = "dense"
LABELS_KEY = "labels"
WEIGHT_KEY = "weight"
LIST_PREFIX = "list/"

# Columns that preprocessing adds to the joined rows kept in Parquet.
LABEL_PREFIX = "__label_"
WEIGHT_COLUMN = "__weight"

# What stands for "missing" in a served request: REST knows no null, and "" may be a valid token.
MISSING_STRING = b"\x00"
MISSING_INT64 = -(2**63)
MISSING_FLOAT32 = float("nan")

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class RawColumn(BaseModel):
    """A raw column that the transform reads: one input of the serving signature.

    `length` None: a value a row, tensor shape [B]. Otherwise a list, padded with the missing marker to shape
    [B, length]; longer lists are cut.
    """

    model_config = _FROZEN

    name: str
    dtype: Literal["string", "int64", "float32"]
    length: int | None = None

    def missing_marker(self) -> bytes | int | float:
        """Returns the value that stands for a missing one in a request."""
        if self.dtype == "string":
            return MISSING_STRING
        return MISSING_INT64 if self.dtype == "int64" else MISSING_FLOAT32


class TableSchema(BaseModel):
    """An embedding table: its name and number of rows (missing, out-of-vocabulary and token rows)."""

    model_config = _FROZEN

    name: str
    num_rows: int


class IdField(BaseModel):
    """A feature with one id a row, at its place in `ids`."""

    model_config = _FROZEN

    name: str
    table: str


class ListField(BaseModel):
    """A feature with up to `length` ids a row, under the key `list/NAME`."""

    model_config = _FROZEN

    name: str
    table: str
    length: int
    pooling: Literal["mean", "sum", "sqrtn"]


class DatasetSchema(BaseModel):
    """The contract between records, model and serving signature.

    `negative_keep` is the share of negative rows kept in the training split; the model's loss corrects for it.
    """

    model_config = _FROZEN

    id_layout_version: int = ID_LAYOUT_VERSION
    raw_columns: tuple[RawColumn, ...]
    id_fields: tuple[IdField, ...] = ()
    list_fields: tuple[ListField, ...] = ()
    dense: tuple[str, ...] = ()
    tables: tuple[TableSchema, ...] = ()
    labels: tuple[str, ...]
    negative_keep: float = Field(1.0, gt=0, le=1)

    def fingerprint(self) -> str:
        """Returns a digest that is equal for equal schemas and nothing else."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]
