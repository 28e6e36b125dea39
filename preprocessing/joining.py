"""One partition of impressions to labelled rows: duplicates out, side tables in, labels, weight, split, order.

Everything here is a function on Arrow tables; `examples_job` calls it for each partition of the shuffle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.columnar import duplicate_free, find, hash_rows
from preprocessing.labels import compare, join_actions
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from preprocessing.spec import SPLITS, DataSpec, LabelSpec
from preprocessing.splits import assign, day_of

__all__ = ["Joined", "join_partition"]

MS_PER_S = 1000


@dataclasses.dataclass(frozen=True)
class Joined:
    """Labelled rows of each split, in their final order, and what happened to the rest."""

    rows: dict[str, pa.Table]
    counts: dict[str, int]


def join_partition(
    impressions: pa.Table,
    *,
    spec: DataSpec,
    actions: Mapping[str, pa.Table],
    sides: Sequence[pa.Table],
) -> Joined:
    """Returns the labelled rows of one partition.

    Args:
        impressions: declared columns, in any order of rows.
        spec: the data section of the config.
        actions: of each action source, the rows that can belong to these impressions.
        sides: one table for each of `spec.joins`, in their order, rows in order of reading.

    The order of the output follows from the content of the rows alone.
    """
    counts = {"rows": impressions.num_rows}
    hashes = hash_rows(impressions, impressions.column_names)
    order = np.argsort(hashes, kind="stable")
    table = impressions.take(pa.array(order)).combine_chunks()
    if spec.sources[spec.impressions].duplicates == "row":
        kept = duplicate_free(table, key=None, order=(), hashes=hashes[order])
        counts["duplicates"] = table.num_rows - len(kept)
        table = table.take(pa.array(kept))
    for join, side in zip(spec.joins, sides, strict=True):
        table, unmatched = _join_side(table, side, join.key)
        counts[f"unmatched_{join.source}"] = unmatched
    table, valid = _add_labels(table, spec, actions)
    counts["missing_label"] = int((~valid).sum())
    table = _add_weight(table, spec.roles.weight)
    splits = np.where(valid, assign(table, spec.split, days=_days(table, spec)), np.int8(-1))
    counts["outside_splits"] = int((splits == -1).sum()) - counts["missing_label"]
    rows = {}
    for number, name in enumerate(SPLITS):
        rows[name] = table.take(pa.array(np.flatnonzero(splits == number)))
        counts[f"{name}_rows"] = rows[name].num_rows
        for label in spec.labels:
            total = pc.sum(rows[name][LABEL_PREFIX + label.name]).as_py()
            counts[f"{name}_positive_{label.name}"] = int(total or 0)
    return Joined(rows, counts)


def _join_side(table: pa.Table, side: pa.Table, key: Sequence[str]) -> tuple[pa.Table, int]:
    index = find(table.select(key), side, on=key)
    place = pa.array(index, mask=index < 0)
    for name in side.column_names:
        if name not in key:
            column = side[name].combine_chunks() if side.num_rows else pa.nulls(0, side.schema.field(name).type)
            table = table.append_column(name, column.take(place))
    return table, int((index < 0).sum())


def _add_labels(table: pa.Table, spec: DataSpec, actions: Mapping[str, pa.Table]) -> tuple[pa.Table, np.ndarray]:
    valid = np.ones(table.num_rows, dtype=bool)
    for label in spec.labels:
        values, known = _label(table, label, spec, actions)
        valid &= known
        table = table.append_column(LABEL_PREFIX + label.name, pa.array(values.astype(np.float32)))
    return table, valid


def _label(
    table: pa.Table, label: LabelSpec, spec: DataSpec, actions: Mapping[str, pa.Table]
) -> tuple[np.ndarray, np.ndarray]:
    if label.action is None:
        column, operator, value = label.comparison()
        return compare(table[column], operator, value)
    values = join_actions(
        table,
        actions[label.action.source],
        key=label.action.key,
        impression_time=spec.roles.event_time,
        action_time=spec.sources[label.action.source].event_time,
        window_ms=round(label.action.window_s * MS_PER_S),
    )
    return values, np.ones(len(values), dtype=bool)


def _add_weight(table: pa.Table, column: str | None) -> pa.Table:
    if column is None:
        weights = pa.array(np.ones(table.num_rows, dtype=np.float32))
    else:
        weights = pc.fill_null(pc.cast(table[column], pa.float32()), pa.scalar(1.0, pa.float32()))
    return table.append_column(WEIGHT_COLUMN, weights)


def _days(table: pa.Table, spec: DataSpec) -> np.ndarray | None:
    if spec.roles.event_time is None:
        return None
    times = table[spec.roles.event_time].to_numpy()
    return day_of(times.astype(np.int64), time_zone=spec.time_zone)
