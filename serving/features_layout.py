"""What a feature snapshot says of itself: whose state it is, as of when, and how a request is completed from it.

Written beside the state and read with it, so that a client needs no config: the columns that the model takes, the
keys by which they are looked up, and the rule for the moment as of which a request is answered.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from preprocessing.derived_spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn, columns_made
from preprocessing.periods import period_start_ms
from preprocessing.spec import Period
from preprocessing.time_zones import zone_offsets

__all__ = ["FORMAT", "Clock", "KeySet", "KeyType", "Layout", "known_column"]

FORMAT = 1
_DAY_MS = 86_400_000
_UNITS: dict[Period, Literal["D", "M", "Y"]] = {"day": "D", "month": "M", "year": "Y"}
_KNOWN = "__known_"
_STRICT = ConfigDict(frozen=True, extra="forbid")

KeyType = Literal["string", "int64", "float64"]


class Clock(BaseModel):
    """The moment as of which a request is answered.

    `freshness` day: the start of the period that the request lies in, as preprocessing does it; event: the request
    itself. Never before the state, which knows nothing of earlier moments.
    """

    model_config = _STRICT

    freshness: Literal["event", "day"]
    period: Period
    time_zone: str
    state_ms: int

    def cutoff_ms(self, now_ms: int) -> int:
        """Returns the moment, in ms since 1970 UTC; what is known at it or later is not seen."""
        if self.freshness == "event":
            return max(now_ms, self.state_ms)
        return max(_period_start(self._day(now_ms), self.period, self.time_zone), self.state_ms)

    def _day(self, now_ms: int) -> int:
        zone = zone_offsets(self.time_zone)
        return (now_ms + zone.offsets_ms[bisect.bisect_right(zone.transitions_ms, now_ms)]) // _DAY_MS


@functools.lru_cache(maxsize=64)
def _period_start(day: int, period: Period, time_zone: str) -> int:
    number = int(np.datetime64(day, "D").astype(f"datetime64[{_UNITS[period]}]").astype(np.int64))
    return period_start_ms(number, period, time_zone=time_zone)


class KeySet(BaseModel):
    """The columns that are looked up by one key.

    Attributes:
        key: names of the key columns.
        types: of each of them.
        columns: the point-in-time columns with this key that the model takes, or a part of.
        value_types: of each history among them, by name.
        rows: number of keys with a state.
        file: name of the file with the state.
    """

    model_config = _STRICT

    key: tuple[str, ...]
    types: tuple[KeyType, ...]
    columns: tuple[DerivedColumn, ...]
    value_types: dict[str, KeyType]
    rows: int
    file: str

    @property
    def scalars(self) -> tuple[CountColumn | RateColumn, ...]:
        """The columns of one number a row."""
        return tuple(one for one in self.columns if not isinstance(one, HistoryColumn))

    @property
    def histories(self) -> tuple[HistoryColumn, ...]:
        """The columns of lists."""
        return tuple(one for one in self.columns if isinstance(one, HistoryColumn))

    def lists(self) -> dict[str, KeyType]:
        """Returns the stored lists and the type of their elements: values, and where needed when each became known."""
        found: dict[str, KeyType] = {}
        for one in self.histories:
            found[one.name] = self.value_types[one.name]
            if one.ages is not None or one.horizon_s is not None:
                found[known_column(one.name)] = "int64"
        return found


def known_column(history: str) -> str:
    """Returns the stored column that says when each value of a history became known, in ms."""
    return _KNOWN + history


class Layout(BaseModel):
    """A whole snapshot.

    Attributes:
        format: of the files; another one is refused.
        model_name: the model that it was published with.
        version: of that model.
        clock: as of when it answers.
        key_sets: in the order of the config.
        inputs: all columns that the model takes: what else is a key serves the look-up only, and is not sent.
    """

    model_config = _STRICT

    format: int = FORMAT
    model_name: str
    version: int
    clock: Clock
    key_sets: tuple[KeySet, ...]
    inputs: frozenset[str]

    def made(self, key_set: KeySet) -> tuple[str, ...]:
        """Returns the columns of a key set that the model takes."""
        return tuple(name for one in key_set.columns for name in columns_made(one) if name in self.inputs)

    def only_keys(self) -> frozenset[str]:
        """Returns the columns that a request may carry for the look-up and the model does not take."""
        return frozenset(name for one in self.key_sets for name in one.key) - self.inputs

    def num_keys(self) -> Sequence[int]:
        """Returns the number of keys of each key set."""
        return [one.rows for one in self.key_sets]
