"""Everything known of the keys of one partition, ordered so that any moment can be asked for: counters and histories.

It is made from impressions and, where there is one, the state of an earlier time. `N` rows, `K` keys, `E` events.

What the rows carry beside their key and value columns:

    __time         int64, ms: of the event
    __visible      int64, ms: when the impression counts, the later of event and arrival; null: never
    __known_LABEL  int64, ms: when the impression became known to be positive; null: never
    __cutoff       int64, ms: the row sees what lies strictly before; null: nothing
    __query        bool: whether it wants columns, or is there for others to see
    __order        uint64: decides between events of one time; a hash of the row
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.counters import Counter, counter_of
from preprocessing.derived_spec import DerivedColumn, HistoryColumn
from preprocessing.entity_keys import distinct_keys
from preprocessing.history import Entries, History, history_of
from preprocessing.keyed_times import TimeScale, time_scale
from preprocessing.raw_values import column_of

__all__ = [
    "CUTOFF_COLUMN",
    "IMPRESSIONS_COLUMN",
    "KNOWN_PREFIX",
    "ORDER_COLUMN",
    "POSITIVES_PREFIX",
    "QUERY_COLUMN",
    "TIME_COLUMN",
    "VISIBLE_COLUMN",
    "EntityLog",
    "entity_log",
    "labels_used",
]

TIME_COLUMN = "__time"
VISIBLE_COLUMN = "__visible"
KNOWN_PREFIX = "__known_"  # of a label in rows, of a history in a state
CUTOFF_COLUMN = "__cutoff"
QUERY_COLUMN = "__query"
ORDER_COLUMN = "__order"

# Columns of a state.
IMPRESSIONS_COLUMN = "__impressions"
POSITIVES_PREFIX = "__positives_"

_Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class EntityLog:
    """What happened, by key.

    Attributes:
        keys: the key columns [K], in the order of a state.
        codes: int64 [N], the place of each row's key, -1 where a part of it is null.
        scale: on which all times lie.
        counters: by label; None for impressions.
        histories: by name of the column.
    """

    keys: pa.Table
    codes: _Ints
    scale: TimeScale
    counters: dict[str | None, Counter]
    histories: dict[str, History]


@dataclasses.dataclass(frozen=True)
class _Events:
    """Events of one kind: the row, key and time [E] of each."""

    rows: _Ints
    codes: _Ints
    times: _Ints


def labels_used(specs: Sequence[DerivedColumn]) -> tuple[str, ...]:
    """Returns the labels whose known times are needed, each once."""
    return tuple(dict.fromkeys(spec.label for spec in specs if spec.label is not None))


def entity_log(rows: pa.Table, specs: Sequence[DerivedColumn], *, base: pa.Table, base_ms: int) -> EntityLog:
    """Returns the log of rows that go on from a state.

    Args:
        rows: impressions in any order, with the columns above.
        specs: at least one, all with one key.
        base: a state, maybe of no keys.
        base_ms: its time: events before it are in `base`, those of `rows` are seen by finite windows alone.

    Raises:
        DataError: if a column is absent.
    """
    keys, (codes, base_codes) = distinct_keys([rows, base], specs[0].key)
    kinds: dict[str | None, _Events] = {None: _events(rows, VISIBLE_COLUMN, codes)}
    kinds |= {label: _events(rows, KNOWN_PREFIX + label, codes) for label in labels_used(specs)}
    entries = {
        spec.name: _entries(rows, base, spec, kinds[spec.label], base_codes=base_codes, base_ms=base_ms)
        for spec in specs
        if isinstance(spec, HistoryColumn)
    }
    times = [events.times for events in kinds.values()] + [one.known for one in entries.values()]
    scale = time_scale(times, num_codes=keys.num_rows)
    counters: dict[str | None, Counter] = {}
    for label, events in kinds.items():
        before = np.zeros(keys.num_rows, np.int64)
        before[base_codes] = column_of(base, total_column(label)).to_numpy()
        counters[label] = counter_of(events.codes, events.times, scale=scale, base_ms=base_ms, before=before)
    histories = {name: history_of(one, scale=scale, num_keys=keys.num_rows) for name, one in entries.items()}
    return EntityLog(keys=keys, codes=codes, scale=scale, counters=counters, histories=histories)


def total_column(label: str | None) -> str:
    """Returns the column of a state that counts all events of a kind: positives of a label, or impressions."""
    return IMPRESSIONS_COLUMN if label is None else POSITIVES_PREFIX + label


def _events(rows: pa.Table, column: str, codes: _Ints) -> _Events:
    times = column_of(rows, column)
    present = codes >= 0
    if times.null_count:
        present &= times.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(present)
    return _Events(rows=places, codes=codes[places], times=pc.fill_null(times, 0).to_numpy()[places])


def _entries(
    rows: pa.Table, base: pa.Table, spec: HistoryColumn, events: _Events, *, base_codes: _Ints, base_ms: int
) -> Entries:
    """Returns what the state holds of a history, and what the rows add."""
    values = column_of(rows, spec.value)
    if pa.types.is_dictionary(values.type) and values.dictionary.null_count:
        values = values.dictionary_decode()
    new = events.times >= base_ms
    new &= values.is_valid().to_numpy(zero_copy_only=False)[events.rows] if values.null_count else True
    at = events.rows[new]
    held = column_of(base, spec.name)
    sizes = pc.list_value_length(held).to_numpy().astype(np.int64)
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its list: 0 is the newest
    held_known = column_of(base, KNOWN_PREFIX + spec.name).flatten().to_numpy()
    return Entries(
        codes=np.concatenate([np.repeat(base_codes, sizes), events.codes[new]]),
        known=np.concatenate([held_known, events.times[new]]),
        times=np.concatenate([np.zeros(len(place), np.int64), column_of(rows, TIME_COLUMN).to_numpy()[at]]),
        order=np.concatenate([place.astype(np.uint64), column_of(rows, ORDER_COLUMN).to_numpy()[at]]),
        values=_joined(held.flatten(), values.take(pa.array(at))),
    )


def _joined(held: pa.Array, new: pa.Array) -> pa.Array:
    """Returns both as one array of the type of `new`; held values are plain, new ones may be dictionary-encoded."""
    if not pa.types.is_dictionary(new.type):
        return pa.concat_arrays([held, new])
    encoded = held.dictionary_encode()
    encoded = pa.DictionaryArray.from_arrays(encoded.indices.cast(new.type.index_type), encoded.dictionary)
    return pa.concat_arrays([encoded, new])
