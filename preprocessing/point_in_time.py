"""Point-in-time columns: for each impression what was known of its key before, and nothing from later.

A function on the rows of one partition, in which all rows of a key are together. With the impressions whose event
lies in a period it makes the columns of that period and the state at its end; with that state as `base` it goes on,
to the same result as one run over all periods. A server answers requests from the state: it holds the value of each
column, by key, as of its time (see `entity_state`).

Formulas, for a row with key g and cutoff c (its event time, or the start of its period):

    impressions, window w   number of impressions of g visible in [c - w, c)
    positives, window w     number of impressions of g that became known to be positive in [c - w, c)
    rate, window w          (positives + prior * strength) / (impressions + strength)
    history                 values of the impressions of g that became known to be positive in [c - horizon, c),
                            newest first, at most `length`; nulls are left out

An event that is visible, or known, exactly at c is not seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from preprocessing.counters import queries_of
from preprocessing.derived_spec import DerivedColumn, HistoryColumn
from preprocessing.entity_log import (
    CUTOFF_COLUMN,
    KNOWN_PREFIX,
    ORDER_COLUMN,
    QUERY_COLUMN,
    TIME_COLUMN,
    VISIBLE_COLUMN,
    EntityLog,
    entity_log,
    labels_used,
)
from preprocessing.entity_state import state_at, state_schema, values_at, whole_ms
from preprocessing.errors import ArtefactError, ConfigError, DataError
from preprocessing.keyed_times import FIRST_TIME
from preprocessing.raw_values import column_of

__all__ = [
    "CUTOFF_COLUMN",
    "KNOWN_PREFIX",
    "ORDER_COLUMN",
    "QUERY_COLUMN",
    "TIME_COLUMN",
    "VISIBLE_COLUMN",
    "Derived",
    "columns_needed",
    "context_ms",
    "derive",
]


@dataclasses.dataclass(frozen=True)
class Derived:
    """The point-in-time columns of one partition.

    Attributes:
        columns: one row for each row that asked, in their order; the columns of `columns_made` of each spec.
        states: what is known of each key at each of the ends asked for; see `entity_state`.
    """

    columns: pa.Table
    states: tuple[pa.Table, ...]


def derive(
    rows: pa.Table, specs: Sequence[DerivedColumn], *, base: pa.Table | None, base_ms: int, ends_ms: Sequence[int]
) -> Derived:
    """Returns the columns of the rows that ask, and the states at `ends_ms`.

    Args:
        rows: impressions in any order, with `columns_needed`; see `entity_log` for their meaning. With a base, every
            impression visible or known from the longest finite window before base_ms on is among them.
        specs: columns with one key.
        base: the state at base_ms that an earlier call returned; None where nothing was before, and base_ms is not
            looked at then.
        base_ms: in ms; no cutoff and no end may be before it.
        ends_ms: in ms, in any order.

    Raises:
        ConfigError: if the specs have different keys, or there are none.
        DataError: if a column of the rows is absent, or a cutoff or an end lies before the base.
        ArtefactError: if the base was made for other columns.
    """
    _check_specs(specs)
    for name in columns_needed(specs):
        column_of(rows, name)
    wanted = pc.fill_null(column_of(rows, QUERY_COLUMN), False)
    asking = pc.indices_nonzero(wanted).to_numpy().astype(np.int64)
    cutoffs = column_of(rows, CUTOFF_COLUMN).take(pa.array(asking))
    if base is not None:
        base = _check_base(base, rows, specs)
        _check_not_before(base_ms, cutoffs, ends_ms)
    log = _log(rows, specs, base=base, base_ms=base_ms)
    codes = log.codes[asking]
    if cutoffs.null_count:
        codes = np.where(cutoffs.is_valid().to_numpy(zero_copy_only=False), codes, -1)
    queries = queries_of(codes, pc.fill_null(cutoffs, 0).to_numpy(), scale=log.scale)
    columns = pa.table(values_at(log, specs, queries))
    return Derived(columns=columns, states=tuple(state_at(log, specs, end) for end in ends_ms))


def _log(rows: pa.Table, specs: Sequence[DerivedColumn], *, base: pa.Table | None, base_ms: int) -> EntityLog:
    if base is None:
        return entity_log(rows, specs, base=state_schema(rows.schema, specs).empty_table(), base_ms=FIRST_TIME)
    return entity_log(rows, specs, base=base, base_ms=base_ms)


def columns_needed(specs: Sequence[DerivedColumn]) -> tuple[str, ...]:
    """Returns the names of the columns that `derive` reads, each once."""
    names = [*specs[0].key, VISIBLE_COLUMN, CUTOFF_COLUMN, QUERY_COLUMN]
    names += [KNOWN_PREFIX + label for label in labels_used(specs)]
    for spec in specs:
        if isinstance(spec, HistoryColumn):
            names += [spec.value, TIME_COLUMN, ORDER_COLUMN]
    return tuple(dict.fromkeys(names))


def context_ms(specs: Sequence[DerivedColumn]) -> int:
    """Returns how far back before its base a call of `derive` needs impressions: the longest finite window, in ms."""
    windows = [spec.window_s for spec in specs if not isinstance(spec, HistoryColumn)]
    return max((ms for window in windows if (ms := whole_ms(window)) is not None), default=0)


def _check_specs(specs: Sequence[DerivedColumn]) -> None:
    keys = {spec.key for spec in specs}
    if len(keys) != 1:
        found = ", ".join(str(list(key)) for key in sorted(keys)) or "none"
        raise ConfigError(f"point-in-time columns are made for one key at a time, and the keys are: {found}")


def _check_base(base: pa.Table, rows: pa.Table, specs: Sequence[DerivedColumn]) -> pa.Table:
    """Returns the base with the types that its columns must have."""
    expected = state_schema(rows.schema, specs)
    if base.column_names != expected.names:
        raise ArtefactError(
            f"a state has the columns {', '.join(base.column_names)}, and these point-in-time columns need "
            f"{', '.join(expected.names)}; make the periods before anew"
        )
    try:
        return base.cast(expected)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ArtefactError(
            f"a state has other types than its columns: {error}; make the periods before anew"
        ) from error


def _check_not_before(base_ms: int, cutoffs: pa.Array, ends_ms: Sequence[int]) -> None:
    earliest = min([time for time in (pc.min(cutoffs).as_py(), *ends_ms) if time is not None], default=base_ms)
    if earliest < base_ms:
        raise DataError(
            f"a state at {base_ms} ms cannot tell what was known at {earliest} ms; go on from an earlier state"
        )
