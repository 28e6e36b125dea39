"""What a user declares about features: how columns of the joined rows become model inputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator

from preprocessing.source_spec import STRICT, Name, TableName

__all__ = [
    "BucketedListFeature",
    "CategoricalFeature",
    "CrossedFeature",
    "DayOfWeekFeature",
    "FeatureSpec",
    "HashedFeature",
    "HourOfDayFeature",
    "IntegerFeature",
    "MultivaluedFeature",
    "NumericFeature",
    "columns_of",
    "table_of",
]


class CategoricalFeature(BaseModel):
    """Values of a string or integer column by a vocabulary learned from the training split."""

    model_config = STRICT

    kind: Literal["categorical"]
    name: Name
    column: str = ""
    table: TableName = Field("", description="Embedding table; features of one table share vocabulary and rows.")
    min_count: int = Field(1, ge=1)
    max_size: int | None = Field(None, ge=1)
    oov_buckets: int = Field(1, ge=1)


class HashedFeature(BaseModel):
    """Values of a string or integer column by a hash; nothing to learn, collisions possible."""

    model_config = STRICT

    kind: Literal["hashed"]
    name: Name
    column: str = ""
    table: TableName = ""
    buckets: int = Field(ge=1)


class IntegerFeature(BaseModel):
    """An integer column whose values 0 to size - 1 are the tokens; others are out of vocabulary."""

    model_config = STRICT

    kind: Literal["integer"]
    name: Name
    column: str = ""
    table: TableName = ""
    size: int = Field(ge=1)


class NumericFeature(BaseModel):
    """A number: clipped, log1p, standardised as told, then a dense input; or cut into buckets, then an id."""

    model_config = STRICT

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

    model_config = STRICT

    kind: Literal["crossed"]
    name: Name
    columns: tuple[str, ...] = Field(min_length=2)
    table: TableName = ""
    buckets: int = Field(ge=1)


class MultivaluedFeature(BaseModel):
    """A list column by a vocabulary; the rows looked up are pooled."""

    model_config = STRICT

    kind: Literal["multivalued"]
    name: Name
    column: str = ""
    table: TableName = ""
    min_count: int = Field(1, ge=1)
    max_size: int | None = Field(None, ge=1)
    oov_buckets: int = Field(1, ge=1)
    max_length: int = Field(8, ge=1, description="Values after this many are dropped.")
    pooling: Literal["mean", "sum", "sqrtn"] = "mean"


class BucketedListFeature(BaseModel):
    """A list column of numbers, such as the ages of a history: each is cut into buckets, the rows are pooled."""

    model_config = STRICT

    kind: Literal["bucketed_list"]
    name: Name
    column: str = ""
    boundaries: tuple[float, ...] = Field(min_length=1, description="Strictly rising.")
    max_length: int = Field(8, ge=1, description="Values after this many are dropped.")
    pooling: Literal["mean", "sum", "sqrtn"] = "mean"

    @field_validator("boundaries")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError("boundaries must be strictly rising")
        return value


class HourOfDayFeature(BaseModel):
    """Hour 0 to 23 of a timestamp column in `data.time_zone`."""

    model_config = STRICT

    kind: Literal["hour_of_day"]
    name: Name
    column: str = ""


class DayOfWeekFeature(BaseModel):
    """Monday (0) to Sunday (6) of a timestamp column in `data.time_zone`."""

    model_config = STRICT

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
    | BucketedListFeature
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
    if isinstance(feature, HourOfDayFeature | DayOfWeekFeature | BucketedListFeature):
        return feature.name
    return feature.table or feature.name
