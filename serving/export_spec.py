"""What an export holds beside the plain signatures, as `pipeline` resolves it from a config."""

from __future__ import annotations

import dataclasses

from models.config import TABLE_SHARD_BYTES, TableDtype
from preprocessing.feature_spec import FeatureSpec

__all__ = ["ExportOptions", "RankOptions"]


@dataclasses.dataclass(frozen=True)
class RankOptions:
    """The signature `rank`.

    Attributes:
        features: of the dataset, in the order of the config.
        item_columns: raw columns that belong to candidates; all others are the user's.
        top_k: how many of the best candidates are named.
    """

    features: tuple[FeatureSpec, ...]
    item_columns: frozenset[str]
    top_k: int


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """How a model is exported.

    Attributes:
        tables: dtype that embedding tables are stored in; they are looked up as float32.
        rank: None: without that signature.
        shard_bytes: the largest variable that a table is cut into.
    """

    tables: TableDtype = "float32"
    rank: RankOptions | None = None
    shard_bytes: int = TABLE_SHARD_BYTES
