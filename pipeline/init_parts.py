"""The parts that sources and columns can play: roles, action log, side table, label."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from pipeline.init_sources import Table

__all__ = ["ActionLog", "LabelGuess", "RoleGuess", "SideTable"]


@dataclasses.dataclass(frozen=True)
class RoleGuess:
    """Columns of the impressions that play a part, by their names in the file; None where none was found."""

    row_id: str | None
    request: str | None
    user: str | None
    item: str | None
    event_time: str | None
    arrival_time: str | None
    position: str | None


@dataclasses.dataclass(frozen=True)
class ActionLog:
    """A log of what users did: the columns it shares with the impressions, and its clocks."""

    table: Table
    key: tuple[str, ...]
    event_time: str
    arrival_time: str | None


@dataclasses.dataclass(frozen=True)
class SideTable:
    """A table with one row for each value of a key: its own name of the key, and the impressions'."""

    table: Table
    own_key: str
    key: str


@dataclasses.dataclass(frozen=True)
class LabelGuess:
    """What is to be predicted.

    Attributes:
        name: of the label.
        column: a 0/1 column, or None.
        when: a comparison, or None.
        action: an action log, or None.
        values: float64 [N] 0 or 1 for each sampled impression; None if the samples cannot tell.
        others: other candidates, as text.
    """

    name: str
    column: str | None = None
    when: str | None = None
    action: ActionLog | None = None
    values: npt.NDArray[np.float64] | None = None
    others: tuple[str, ...] = ()

    @property
    def source_column(self) -> str | None:
        """The column of the impressions that it is read from."""
        return self.column or (self.when.split()[0] if self.when else None)
