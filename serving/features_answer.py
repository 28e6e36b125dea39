"""From what is known of a key to the point-in-time columns of a request: the arithmetic of preprocessing, for one key.

Counts, and rates with their priors, are those of the state, whose windows end where it was taken. Histories keep the
times at which their values became known, so their ages and horizons follow the moment of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from preprocessing.derived_spec import HistoryColumn, RateColumn
from preprocessing.entity_state import whole_ms
from serving.features_embedded import Record
from serving.features_layout import KeySet, known_column

__all__ = ["Answers", "answers_of"]

_MS_PER_S = 1000
Values: TypeAlias = dict[str, Any]
Answers: TypeAlias = Callable[[Record | None, int], Values]


def answers_of(key_set: KeySet, inputs: frozenset[str]) -> Answers:
    """Returns a function from a record (None: nothing is known) and a cutoff in ms to the columns by name.

    Args:
        key_set: whose records these are.
        inputs: the columns that are wanted.
    """
    scalars = [(place, one.name) for place, one in enumerate(key_set.scalars) if one.name in inputs]
    nothing: Values = {one.name: _of_nothing(one) for one in key_set.scalars if one.name in inputs}
    place_of = {name: len(key_set.scalars) + place for place, name in enumerate(key_set.lists())}
    histories = [_history(one, place_of, inputs) for one in key_set.histories]

    def answer(record: Record | None, cutoff_ms: int) -> Values:
        values = dict(nothing) if record is None else {name: record[place] for place, name in scalars}
        for history in histories:
            values.update(history(record, cutoff_ms))
        return values

    return answer


def _of_nothing(one: Any) -> int | float:
    return one.prior if isinstance(one, RateColumn) else 0


def _history(one: HistoryColumn, place_of: Mapping[str, int], inputs: frozenset[str]) -> Answers:
    values_at, known_at = place_of[one.name], place_of.get(known_column(one.name))
    horizon_ms = whole_ms(one.horizon_s)

    def answer(record: Record | None, cutoff_ms: int) -> Values:
        values = [] if record is None else record[values_at]
        known = [] if record is None or known_at is None else record[known_at]
        if horizon_ms is not None:
            kept = sum(time >= cutoff_ms - horizon_ms for time in known)  # the newest come first
            values, known = values[:kept], known[:kept]
        found = {one.name: values} if one.name in inputs else {}
        if one.ages is not None and one.ages in inputs:
            found[one.ages] = [(cutoff_ms - time) // _MS_PER_S for time in known]
        return found

    return answer
