"""What a user declares about data and features: frozen values, unknown keys refused.

The YAML file is read by `pipeline.config`; these are the parts of it that preprocessing works by. Checks that need
one value only stand beside the value, checks across parts stand in `pipeline.config_checks`. Sources, features and
point-in-time columns have files of their own; all of them are imported from here.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from preprocessing.derived_spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn, columns_made
from preprocessing.feature_spec import (
    BucketedListFeature,
    CategoricalFeature,
    CrossedFeature,
    DayOfWeekFeature,
    FeatureSpec,
    HashedFeature,
    HourOfDayFeature,
    IntegerFeature,
    MultivaluedFeature,
    NumericFeature,
    columns_of,
    table_of,
)
from preprocessing.source_spec import STRICT, ColumnSpec, KeyColumns, Name, SourceSpec, one_or_more

__all__ = [
    "SPLITS",
    "ActionLabel",
    "ActionWeight",
    "BucketedListFeature",
    "CategoricalFeature",
    "ColumnSpec",
    "ColumnSplit",
    "CountColumn",
    "CrossedFeature",
    "DataCheck",
    "DataSpec",
    "DayOfWeekFeature",
    "DayRange",
    "DerivedColumn",
    "FeatureSpec",
    "HashSplit",
    "HashedFeature",
    "HistoryColumn",
    "HourOfDayFeature",
    "IntegerFeature",
    "JoinSpec",
    "LabelSpec",
    "MultivaluedFeature",
    "NegativeSampling",
    "NumericFeature",
    "Period",
    "RateColumn",
    "Roles",
    "RollingSplit",
    "SourceSpec",
    "SplitSpec",
    "TimeSplit",
    "Touch",
    "columns_made",
    "columns_of",
    "table_of",
]

Period = Literal["day", "month", "year"]
Touch = Literal["last", "first"]
SPLITS = ("train", "valid", "test")
_COMPARISON = re.compile(r"^\s*(?P<column>\S+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<value>[-+0-9.eE]+)\s*$")


class JoinSpec(BaseModel):
    """A side table joined to impressions by equal keys; the last row of a key wins, or the last valid one."""

    model_config = STRICT

    source: str
    key: KeyColumns = Field(description="Key columns, named alike on both sides.")
    valid_from: str | None = Field(
        None,
        description="Timestamp column of the side table: an impression gets the newest row that was valid, and had "
        "arrived, before it.",
    )

    _key = field_validator("key", mode="before")(one_or_more)


class Roles(BaseModel):
    """Which columns of the joined rows play a known part."""

    model_config = STRICT

    row_id: str | None = None
    request: str | None = None
    user: str | None = None
    item: str | None = None
    event_time: str | None = Field(None, description="A timestamp column of the impressions.")
    arrival_time: str | None = Field(
        None, description="Timestamp column of the impressions: when the row reached the log."
    )
    position: str | None = None
    weight: str | None = Field(None, description="Sample weight, at least 0; missing counts as 1.")


class ActionLabel(BaseModel):
    """Actions that belong to an impression: equal key, within the window after it.

    Where several impressions could have led to an action it belongs to one of them, so no action counts twice.
    """

    model_config = STRICT

    source: str
    key: KeyColumns = Field(description="Columns equal in impression and action.")
    window_s: float = Field(86400.0, gt=0, description="Attribution window in seconds after the impression.")
    touch: Touch = Field("last", description="Which of several impressions an action belongs to.")

    _key = field_validator("key", mode="before")(one_or_more)


class ActionWeight(ActionLabel):
    """Sample weight from actions: the sum of a column (dwell time, price) over the actions of an impression."""

    value: str = Field(description="Number column of the action log, at least 0.")
    default: float = Field(1.0, ge=0, description="Weight of an impression without actions or values.")


class LabelSpec(BaseModel):
    """One label, from exactly one of: a 0/1 column, a comparison on a column, an action log."""

    model_config = STRICT

    name: Name
    column: str | None = None
    when: str | None = Field(None, description="A comparison, such as 'rating >= 4'.")
    action: ActionLabel | None = None
    delay_s: float | None = Field(
        None, ge=0, description="Of column and when: seconds after the impression from which the label is known."
    )

    @model_validator(mode="after")
    def _one_origin(self) -> LabelSpec:
        if sum(origin is not None for origin in (self.column, self.when, self.action)) != 1:
            raise ValueError("give exactly one of column, when, action")
        if self.when is not None and not _COMPARISON.match(self.when):
            raise ValueError(f"{self.when!r} is not a comparison such as 'rating >= 4'")
        if self.action is not None and self.delay_s is not None:
            raise ValueError("delay_s belongs to a column or a comparison; an action has a time of its own")
        return self

    def comparison(self) -> tuple[str, str, float]:
        """Returns (column, operator, value) of `when`; a plain column is `column == 1`."""
        if self.column is not None:
            return self.column, "==", 1.0
        match = _COMPARISON.match(self.when or "")
        if match is None:
            raise ValueError(f"label {self.name!r} has no comparison")
        return match["column"], match["operator"], float(match["value"])


class TimeSplit(BaseModel):
    """Whole days of `data.time_zone`, last days inclusive; rows before or after are left out and counted."""

    model_config = STRICT

    kind: Literal["time"]
    train_from: dt.date | None = None
    train_until: dt.date
    valid_until: dt.date
    test_until: dt.date | None = None

    @model_validator(mode="after")
    def _in_order(self) -> TimeSplit:
        days = [self.train_from, self.train_until, self.valid_until, self.test_until]
        given = [day for day in days if day is not None]
        if any(later < earlier for earlier, later in itertools.pairwise(given)):
            raise ValueError("days must be in order: train_from, train_until, valid_until, test_until")
        return self


class RollingSplit(BaseModel):
    """Days that move: a daily run sets `last_day` only. The newest days are test, before them valid, then train."""

    model_config = STRICT

    kind: Literal["rolling"]
    last_day: dt.date
    train_days: int = Field(ge=1)
    valid_days: int = Field(1, ge=1)
    test_days: int = Field(1, ge=1)

    def days(self) -> TimeSplit:
        """Returns the same as fixed days."""
        valid_until = self.last_day - dt.timedelta(days=self.test_days)
        train_until = valid_until - dt.timedelta(days=self.valid_days)
        return TimeSplit(
            kind="time",
            train_from=train_until - dt.timedelta(days=self.train_days - 1),
            train_until=train_until,
            valid_until=valid_until,
            test_until=self.last_day,
        )


class HashSplit(BaseModel):
    """By a hash of key columns, so that a key is never in two splits."""

    model_config = STRICT

    kind: Literal["hash"]
    key: tuple[str, ...] = Field((), description="Key columns; by default all declared columns of the row.")
    train: float = Field(0.8, gt=0, lt=1)
    valid: float = Field(0.1, gt=0, lt=1)

    @model_validator(mode="after")
    def _leaves_test(self) -> HashSplit:
        if self.train + self.valid >= 1.0:
            raise ValueError("train + valid must be below 1; test is the rest")
        return self


class ColumnSplit(BaseModel):
    """By the text of a column; rows with other values are left out and counted."""

    model_config = STRICT

    kind: Literal["column"]
    column: str
    train: tuple[str, ...] = ("train",)
    valid: tuple[str, ...] = ("valid",)
    test: tuple[str, ...] = ("test",)


SplitSpec = Annotated[TimeSplit | RollingSplit | HashSplit | ColumnSplit, Field(discriminator="kind")]


class DayRange(BaseModel):
    """Days of `data.time_zone`, both inclusive; null leaves a side open."""

    model_config = STRICT

    first: dt.date | None = None
    last: dt.date | None = None


class NegativeSampling(BaseModel):
    """Keeps a share of the negative rows of the training split; the model corrects its logits for it.

    He et al., 2014, "Practical Lessons from Predicting Clicks on Ads at Facebook", section 6.3.
    """

    model_config = STRICT

    keep: float = Field(gt=0, le=1, description="Share of the rows with no positive label that is kept.")


class DataCheck(BaseModel):
    """A limit on what the data report finds; `column` may be * for all."""

    model_config = STRICT

    measure: Literal[
        "missing_share",
        "distinct_count",
        "psi",
        "jensen_shannon",
        "new_token_share",
        "vanished_token_share",
        "label_rate",
    ]
    column: str = "*"
    min: float | None = None
    max: float | None = None
    then: Literal["warn", "fail"] = "warn"

    @model_validator(mode="after")
    def _has_bound(self) -> DataCheck:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        return self


class DataSpec(BaseModel):
    """Everything about the logs: where they are, how they join, what is predicted, how they are split."""

    model_config = STRICT

    root: str = "."
    time_zone: str = "UTC"
    sources: dict[Name, SourceSpec] = Field(min_length=1)
    impressions: str = Field(description="The source whose rows are the examples.")
    joins: tuple[JoinSpec, ...] = ()
    roles: Roles = Roles()
    labels: tuple[LabelSpec, ...] = Field(min_length=1)
    weight: ActionWeight | None = Field(None, description="Sample weights from an action log, instead of roles.weight.")
    derived: tuple[DerivedColumn, ...] = Field((), description="Point-in-time columns: histories, counts, rates.")
    freshness: Literal["event", "day"] = Field(
        "event",
        description="Up to when derived columns look: the last event before the impression, or the end of the period "
        "before, which is what a server has.",
    )
    split: SplitSpec
    negative_sampling: NegativeSampling | None = None
    period: Period = Field(
        "day", description="Unit of time in which rows are stored; larger where logs are sparse and long."
    )
    days: DayRange = Field(DayRange(), description="Events of other days are left out and counted.")
    as_of: dt.datetime | None = Field(
        None, description="What arrives later is not seen, and labels not closed by then are held back; null: now."
    )
    allowed_lateness_s: float | None = Field(
        None, ge=0, description="Rows that arrive later than this after their event are dropped and counted."
    )
    duplicate_lookback_days: int = Field(
        1, ge=0, description="How many days back a duplicate by key is looked for; exact duplicates share a day."
    )
    max_reject_share: float = Field(0.01, ge=0, le=1, description="Of the rows read from any one source.")
    future_tolerance_s: float = Field(
        86400.0,
        ge=0,
        description="Event times later than their arrival (without one: than the run) by more than this are rejects.",
    )
    checks: tuple[DataCheck, ...] = Field((), description="Limits on the data report.")

    @field_validator("as_of")
    @classmethod
    def _has_zone(cls, value: dt.datetime | None) -> dt.datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("give a time with its offset, such as 2026-11-30T04:00:00+00:00")
        return value

    def time_split(self) -> TimeSplit | None:
        """Returns the split by days, or None where rows are split by content."""
        if isinstance(self.split, RollingSplit):
            return self.split.days()
        return self.split if isinstance(self.split, TimeSplit) else None
