"""The impressions of one shard to labelled rows: side tables in, labels, weight, split; and what is not ripe apart.

Everything here is a function on Arrow tables; `days_job` calls it for each shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.asof import find_as_of
from preprocessing.columnar import find
from preprocessing.day_rows import event_times
from preprocessing.labels import compare
from preprocessing.log_sources import HASH_COLUMN, MS_PER_S, clock_of, longest_window_ms
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from preprocessing.spec import SPLITS, DataSpec, JoinSpec, LabelSpec, TimeSplit
from preprocessing.splits import assign, day_of
from preprocessing.visibility import is_closed

__all__ = ["ALL", "KNOWN_PREFIX", "OTHERS", "WEIGHT_FOUND", "Found", "Joined", "join_shard"]

ALL = "all"  # the part of rows whose split follows from their day
OTHERS = "others"  # rows that are no examples: their label is not known yet, or never, or no split takes them
KNOWN_PREFIX = "__known_"  # int64 ms: when a row became known to be positive; null where it did not
WEIGHT_FOUND = "__weight_found"

# What actions brought to rows, by column: places in the shard, and values.
Found = Mapping[str, tuple[npt.NDArray[np.int64], pa.Array]]


@dataclasses.dataclass(frozen=True)
class Joined:
    """Labelled rows by part, each in the order of the input, and what happened to the rest.

    Parts are `ALL` where rows are split by day, else the splits; `OTHERS` are no examples.
    """

    parts: dict[str, pa.Table]
    counts: dict[str, int]


def join_shard(
    table: pa.Table, *, spec: DataSpec, sides: Mapping[str, pa.Table], found: Found, as_of_ms: int
) -> Joined:
    """Returns the labelled rows of one shard.

    Args:
        table: what `day_rows.shard_rows` gives.
        spec: the data section of the config.
        sides: of each side table, its rows in the order of reading.
        found: `KNOWN_PREFIX` columns of labels from actions, and `WEIGHT_FOUND`.
        as_of_ms: the time of the run; labels that can still change then are held back.
    """
    counts: dict[str, int] = {}
    event, visible = event_times(table, clock_of(spec, spec.impressions))
    order_hashes = table[HASH_COLUMN]
    table = table.drop_columns([HASH_COLUMN])
    for join in spec.joins:
        table, unmatched = _join_side(table, sides[join.source], join, spec)
        counts[f"unmatched_{join.source}"] = counts.get(f"unmatched_{join.source}", 0) + unmatched
    table, valid = _add_labels(table, spec, found, visible)
    table = _add_weight(table, spec, found)
    closed = _closed(event, spec, as_of_ms)
    splits = _split(table, spec, event)
    counts["held_back"] = int((~closed).sum())
    counts["missing_label"] = int((closed & ~valid).sum())
    counts["outside_splits"] = int((closed & valid & (splits < 0)).sum())
    splits = np.where(closed & valid, splits, -1)
    table = table.append_column(HASH_COLUMN, order_hashes)
    names = [ALL] if _by_day(spec) else list(SPLITS)
    parts = {name: _take(table, splits == number) for number, name in enumerate(names)}
    for name, rows in parts.items():
        counts |= _part_counts(name, rows, spec)
    return Joined({**parts, OTHERS: _take(table, splits < 0)}, counts)


def _take(table: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask))


def _part_counts(name: str, rows: pa.Table, spec: DataSpec) -> dict[str, int]:
    counts = {f"{name}_rows": rows.num_rows}
    for label in spec.labels:
        counts[f"{name}_positive_{label.name}"] = int(pc.sum(rows[LABEL_PREFIX + label.name]).as_py() or 0)
    return counts


def _by_day(spec: DataSpec) -> bool:
    return spec.time_split() is not None and spec.period == "day"


def _split(table: pa.Table, spec: DataSpec, event: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
    if _by_day(spec):
        return np.zeros(table.num_rows, np.int8)
    split = spec.time_split() or spec.split
    days = day_of(event, time_zone=spec.time_zone) if isinstance(split, TimeSplit) else None
    return assign(table, split, days=days)


def _closed(event: npt.NDArray[np.int64], spec: DataSpec, as_of_ms: int) -> npt.NDArray[np.bool_]:
    """Returns whether every window of a row had closed at the time of the run."""
    if spec.roles.event_time is None:
        return np.ones(len(event), np.bool_)
    return is_closed(event, as_of_ms=as_of_ms, window_ms=longest_window_ms(spec))


def _join_side(table: pa.Table, side: pa.Table, join: JoinSpec, spec: DataSpec) -> tuple[pa.Table, int]:
    if join.valid_from is None or spec.roles.event_time is None:
        index = find(table.select(join.key), side, on=join.key)
    else:
        index = find_as_of(
            table,
            side,
            on=join.key,
            left_time=spec.roles.event_time,
            valid_from=join.valid_from,
            arrival=spec.sources[join.source].arrival_time,
        )
    place = pa.array(index, mask=index < 0)
    for name in side.column_names:
        if name not in join.key and name != HASH_COLUMN:
            column = side[name].combine_chunks() if side.num_rows else pa.nulls(0, side.schema.field(name).type)
            table = table.append_column(name, column.take(place))
    return table, int((index < 0).sum())


def _add_labels(
    table: pa.Table, spec: DataSpec, found: Found, visible: npt.NDArray[np.int64]
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Adds each label as 0 or 1 (null where it is not known), and when it became known to be 1.

    That is when both the action and the impression it belongs to had arrived: until then nobody can join them.
    """
    valid = np.ones(table.num_rows, dtype=bool)
    for label in spec.labels:
        if label.action is not None:
            known = _spread(found, KNOWN_PREFIX + label.name, table.num_rows, pa.int64())
            known = pc.max_element_wise(known, pa.array(visible), skip_nulls=False)
            values = pa.array(known.is_valid().to_numpy(zero_copy_only=False).astype(np.float32))
        else:
            values, present, known = _label_of_column(table, label, visible)
            valid &= present
        table = table.append_column(LABEL_PREFIX + label.name, values)
        table = table.append_column(KNOWN_PREFIX + label.name, known)
    return table, valid


def _label_of_column(
    table: pa.Table, label: LabelSpec, visible: npt.NDArray[np.int64]
) -> tuple[pa.Array, npt.NDArray[np.bool_], pa.Array]:
    column, operator, value = label.comparison()
    truth, present = compare(table[column], operator, value)
    delay_ms = round((label.delay_s or 0.0) * MS_PER_S)
    known = np.minimum(visible, np.iinfo(np.int64).max - delay_ms) + delay_ms
    return pa.array(truth, mask=~present), present, pa.array(known, mask=~present | (truth == 0))


def _spread(found: Found, name: str, num_rows: int, kind: pa.DataType) -> pa.Array:
    """Returns a column of the shard from its values at some places; null elsewhere."""
    if name not in found:
        return pa.nulls(num_rows, kind)
    places, values = found[name]
    index = np.full(num_rows, -1, np.int64)
    index[places] = np.arange(len(places))
    return values.take(pa.array(index, mask=index < 0))


def _add_weight(table: pa.Table, spec: DataSpec, found: Found) -> pa.Table:
    """Adds the weight: a column, or what actions brought; a row without any counts as the default."""
    if spec.weight is not None:
        values = _spread(found, WEIGHT_FOUND, table.num_rows, pa.float64())
        default = spec.weight.default
    elif spec.roles.weight is not None:
        values, default = table[spec.roles.weight], 1.0
    else:
        return table.append_column(WEIGHT_COLUMN, pa.array(np.ones(table.num_rows, dtype=np.float32)))
    weights = pc.fill_null(pc.cast(values, pa.float32()), pa.scalar(default, pa.float32()))
    return table.append_column(WEIGHT_COLUMN, weights)
