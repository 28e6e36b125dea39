"""What a user declares about logs and features: frozen values, unknown keys refused.

The YAML file is read by `pipeline.config`; these are the parts of it that preprocessing works by.
Checks that need one value only stand here, checks across parts stand in `pipeline.config`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = [
    "ActionLabel",
    "CategoricalFeature",
    "ColumnSpec",
    "ColumnSplit",
    "CrossedFeature",
    "DataSpec",
    "DayOfWeekFeature",
    "FeatureSpec",
    "HashSplit",
    "HashedFeature",
    "HourOfDayFeature",
    "IntegerFeature",
    "JoinSpec",
    "LabelSpec",
    "MultivaluedFeature",
    "NumericFeature",
    "Period",
    "Roles",
    "SourceSpec",
    "SplitSpec",
    "TimeSplit",
]

_STRICT = ConfigDict(frozen=True, extra="forbid")

ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "list<string>", "list<int64>", "list<float64>"]
Period = Literal["day", "month", "year"]
SPLITS = ("train", "valid", "test")
# Names become parts of file names, tensor names and keys of records.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$")]
_COMPARISON = re.compile(r"^\s*(?P<column>\S+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<value>[-+0-9.eE]+)\s*$")


class ColumnSpec(BaseModel):
    """One declared column of a source."""

    model_config = _STRICT

    type: ColumnType
    source_name: str | None = Field(None, description="Name in the file, if it differs from the key.")
    missing: tuple[str | int | float, ...] = Field(
        (), description="Values that mean 'missing', compared before conversion (as text for text formats)."
    )
    unit: Literal["s", "ms", "us", "iso"] = Field(
        "ms",
        description="Of a timestamp: the unit of numbers, or ISO 8601 text. Kept as int64 ms since 1970 UTC.",
    )
    delimiter: str | None = Field(None, description="Splits text into the values of a list column.")
    min: float | None = Field(None, description="Smallest valid value.")
    max: float | None = Field(None, description="Largest valid value.")
    required: bool = Field(False, description="A missing value rejects the row.")
    on_invalid: Literal["reject", "missing"] = Field(
        "reject", description="What happens to a value that cannot be converted or is out of range."
    )


class SourceSpec(BaseModel):
    """Files of one kind and the columns read from them."""

    model_config = _STRICT

    paths: tuple[str, ...] = Field(min_length=1, description="Files or globs, relative to data.root.")
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = Field(
        None, description="By default told from the file name."
    )
    columns: dict[str, ColumnSpec] = Field(min_length=1)
    duplicates: Literal["row", "keep"] | tuple[str, ...] = Field(
        "row",
        description="Remove exact duplicate rows, keep all, or keep one row for each value of these columns.",
    )
    event_time: str | None = Field(None, description="Timestamp column of an action log.")

    @field_validator("paths", mode="before")
    @classmethod
    def _one_path(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("columns", mode="before")
    @classmethod
    def _short_columns(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: {"type": spec} if isinstance(spec, str) else spec for name, spec in value.items()}


class JoinSpec(BaseModel):
    """A side table joined to impressions by equal keys; the last row of a key wins."""

    model_config = _STRICT

    source: str
    key: tuple[str, ...] = Field(min_length=1, description="Key columns, named alike on both sides.")

    @field_validator("key", mode="before")
    @classmethod
    def _one_key(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class Roles(BaseModel):
    """Which columns of the joined rows play a known part."""

    model_config = _STRICT

    row_id: str | None = None
    request: str | None = None
    user: str | None = None
    item: str | None = None
    event_time: str | None = Field(None, description="A timestamp column of the impressions.")
    arrival_time: str | None = None
    position: str | None = None
    weight: str | None = Field(None, description="Sample weight, at least 0; missing counts as 1.")


class ActionLabel(BaseModel):
    """A label from an action log: 1 if an action with the same key follows within the window."""

    model_config = _STRICT

    source: str
    key: tuple[str, ...] = Field(min_length=1, description="Columns equal in impression and action.")
    window_s: float = Field(86400.0, gt=0, description="Attribution window in seconds after the impression.")

    @field_validator("key", mode="before")
    @classmethod
    def _one_key(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class LabelSpec(BaseModel):
    """One label, from exactly one of: a 0/1 column, a comparison on a column, an action log."""

    model_config = _STRICT

    name: Name
    column: str | None = None
    when: str | None = Field(None, description="A comparison, such as 'rating >= 4'.")
    action: ActionLabel | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> LabelSpec:
        if sum(origin is not None for origin in (self.column, self.when, self.action)) != 1:
            raise ValueError("give exactly one of column, when, action")
        if self.when is not None and not _COMPARISON.match(self.when):
            raise ValueError(f"{self.when!r} is not a comparison such as 'rating >= 4'")
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

    model_config = _STRICT

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


class HashSplit(BaseModel):
    """By a hash of key columns, so that a key is never in two splits."""

    model_config = _STRICT

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

    model_config = _STRICT

    kind: Literal["column"]
    column: str
    train: tuple[str, ...] = ("train",)
    valid: tuple[str, ...] = ("valid",)
    test: tuple[str, ...] = ("test",)


SplitSpec = Annotated[TimeSplit | HashSplit | ColumnSplit, Field(discriminator="kind")]


class DataSpec(BaseModel):
    """Everything about the logs: where they are, how they join, what is predicted, how they are split."""

    model_config = _STRICT

    root: str = "."
    time_zone: str = "UTC"
    sources: dict[str, SourceSpec] = Field(min_length=1)
    impressions: str = Field(description="The source whose rows are the examples.")
    joins: tuple[JoinSpec, ...] = ()
    roles: Roles = Roles()
    labels: tuple[LabelSpec, ...] = Field(min_length=1)
    split: SplitSpec
    period: Period = Field(
        "day", description="Unit of time in which rows are stored; larger where logs are sparse and long."
    )
    max_reject_share: float = Field(0.01, ge=0, le=1, description="Of the rows read from any one source.")
    future_tolerance_s: float = Field(
        86400.0,
        ge=0,
        description="Event times later than the start of the run by more than this are rejects.",
    )


class CategoricalFeature(BaseModel):
    """Values of a string or integer column by a vocabulary learned from the training split."""

    model_config = _STRICT

    kind: Literal["categorical"]
    name: Name
    column: str = ""
    table: TableName = Field("", description="Embedding table; features of one table share vocabulary and rows.")
    min_count: int = Field(1, ge=1)
    max_size: int | None = Field(None, ge=1)
    oov_buckets: int = Field(1, ge=1)


class HashedFeature(BaseModel):
    """Values of a string or integer column by a hash; nothing to learn, collisions possible."""

    model_config = _STRICT

    kind: Literal["hashed"]
    name: Name
    column: str = ""
    table: TableName = ""
    buckets: int = Field(ge=1)


class IntegerFeature(BaseModel):
    """An integer column whose values 0 to size - 1 are the tokens; others are out of vocabulary."""

    model_config = _STRICT

    kind: Literal["integer"]
    name: Name
    column: str = ""
    table: TableName = ""
    size: int = Field(ge=1)


class NumericFeature(BaseModel):
    """A number: clipped, log1p, standardised as told, then a dense input; or cut into buckets, then an id."""

    model_config = _STRICT

    kind: Literal["numeric"]
    name: Name
    column: str = ""
    clip: tuple[float, float] | None = None
    log1p: bool = Field(False, description="sign(x) * log(1 + |x|), after clipping.")
    standardise: bool = Field(True, description="By mean and deviation of the training split, after log1p.")
    missing: Literal["mean"] | float = Field(
        "mean", description="Takes the place of a missing value, before standardising."
    )
    indicator: bool = Field(True, description="Adds a dense input that is 1 where the value is missing.")
    buckets: int | tuple[float, ...] | None = Field(
        None, description="Number of quantile buckets, or the boundaries themselves (of the raw value)."
    )

    @field_validator("buckets")
    @classmethod
    def _sensible_buckets(cls, value: int | tuple[float, ...] | None) -> int | tuple[float, ...] | None:
        if isinstance(value, int) and value < 2:
            raise ValueError("a number of buckets must be at least 2")
        if isinstance(value, tuple) and (not value or list(value) != sorted(set(value))):
            raise ValueError("boundaries must be strictly rising")
        return value


class CrossedFeature(BaseModel):
    """Two or more columns taken together, hashed; missing where any of them is missing."""

    model_config = _STRICT

    kind: Literal["crossed"]
    name: Name
    columns: tuple[str, ...] = Field(min_length=2)
    table: TableName = ""
    buckets: int = Field(ge=1)


class MultivaluedFeature(BaseModel):
    """A list column by a vocabulary; the rows looked up are pooled."""

    model_config = _STRICT

    kind: Literal["multivalued"]
    name: Name
    column: str = ""
    table: TableName = ""
    min_count: int = Field(1, ge=1)
    max_size: int | None = Field(None, ge=1)
    oov_buckets: int = Field(1, ge=1)
    max_length: int = Field(8, ge=1, description="Values after this many are dropped.")
    pooling: Literal["mean", "sum", "sqrtn"] = "mean"


class HourOfDayFeature(BaseModel):
    """Hour 0 to 23 of a timestamp column in `data.time_zone`."""

    model_config = _STRICT

    kind: Literal["hour_of_day"]
    name: Name
    column: str = ""


class DayOfWeekFeature(BaseModel):
    """Monday (0) to Sunday (6) of a timestamp column in `data.time_zone`."""

    model_config = _STRICT

    kind: Literal["day_of_week"]
    name: Name
    column: str = ""


FeatureSpec = Annotated[
    CategoricalFeature
    | HashedFeature
    | IntegerFeature
    | NumericFeature
    | CrossedFeature
    | MultivaluedFeature
    | HourOfDayFeature
    | DayOfWeekFeature,
    Field(discriminator="kind"),
]


def columns_of(feature: FeatureSpec) -> tuple[str, ...]:
    """Returns the raw columns that a feature reads; a column that is not given is the feature's own name."""
    if isinstance(feature, CrossedFeature):
        return feature.columns
    return (feature.column or feature.name,)


def table_of(feature: FeatureSpec) -> str | None:
    """Returns the embedding table of a feature, or None if it is a dense input."""
    if isinstance(feature, NumericFeature):
        return feature.name if feature.buckets is not None else None
    if isinstance(feature, HourOfDayFeature | DayOfWeekFeature):
        return feature.name
    return feature.table or feature.name
