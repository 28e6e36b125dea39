"""The export stage: which options a config's section `export` means for the model that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import Config
from preprocessing.dataset import Dataset
from preprocessing.derived_spec import columns_made
from preprocessing.errors import ConfigError
from preprocessing.spec import DataSpec, columns_of
from serving.export_spec import ExportOptions, RankOptions

__all__ = ["candidate_columns", "export_parts", "export_saved_model", "options_of"]


def export_parts(config: Config) -> Mapping[str, Any]:
    """Returns what of the config an export follows from."""
    rank = _rank_options(config)
    return {
        "tables": config.export.tables,
        "rank": None if rank is None else {"item_columns": sorted(rank.item_columns), "top_k": rank.top_k},
        "warmup": config.export.warmup.model_dump(mode="json"),
    }


def candidate_columns(data: DataSpec) -> frozenset[str]:
    """Returns the columns that belong to candidates by default: the item key, the columns of side tables joined by
    columns of candidates alone, the position shown at, and point-in-time columns that any such column is a key of.
    """
    roles, found = data.roles, set[str]()
    if roles.item is None:
        return frozenset()
    found.update(name for name in (roles.item, roles.position) if name is not None)
    for join in data.joins:
        if set(join.key) <= found:
            found.update(data.sources[join.source].columns)
    # A column of the side table that is the impressions' own as well is theirs.
    found -= set(data.sources[data.impressions].columns) - {roles.item, roles.position}
    for derived in data.derived:
        if found & set(derived.key):
            found.update(columns_made(derived))
    return frozenset(found)


def options_of(config: Config) -> ExportOptions:
    """Returns how the config's model is exported.

    Raises:
        ConfigError: if `export.rank.item_columns` names a column that no feature reads.
    """
    return ExportOptions(tables=config.export.tables, rank=_rank_options(config))


def _rank_options(config: Config) -> RankOptions | None:
    read = {name for feature in config.features for name in columns_of(feature)}
    spec = config.export.rank
    unknown = sorted(set(spec.item_columns or ()) - read)
    if unknown:
        raise ConfigError(
            f"export.rank.item_columns: no feature reads column {unknown[0]!r}; they read: {', '.join(sorted(read))}"
        )
    wanted = candidate_columns(config.data) if spec.item_columns is None else frozenset(spec.item_columns)
    columns = wanted & read
    return RankOptions(config.features, columns, spec.top_k) if columns else None


def export_saved_model(config: Config, dataset: Dataset, checkpoint: Path, *, folder: Path) -> Mapping[str, Any]:
    """Writes and warms up the SavedModel in `folder`; returns what is recorded of it.

    Raises:
        ServingError: if a warm-up record fails.
    """
    from serving.export import export_model
    from serving.warmup import write_warmup

    table_bytes = export_model(dataset, checkpoint, model=config.model, folder=folder, options=options_of(config))
    records = write_warmup(folder, dataset, batch_sizes=config.export.warmup.batch_sizes)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "schema": dataset.schema.fingerprint(),
        "size_bytes": size_bytes,
        "tables": config.export.tables,
        "table_bytes": table_bytes,
        "warmup_records": records,
    }
