"""What a user declares about point-in-time columns: what was known of a user or an item before each impression."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator

from preprocessing.source_spec import STRICT, KeyColumns, Name, one_or_more

__all__ = ["CountColumn", "DerivedColumn", "HistoryColumn", "RateColumn", "columns_made"]


class HistoryColumn(BaseModel):
    """The values of the last positive impressions of a key, newest first: a list column."""

    model_config = STRICT

    kind: Literal["history"]
    name: Name
    key: KeyColumns = Field(description="Whose history, such as user_id.")
    value: str = Field(description="Column whose values are kept, such as item_id or category.")
    label: Name = Field(description="An impression enters when this label becomes known to be 1.")
    length: int = Field(20, ge=1, le=1000)
    horizon_s: float | None = Field(None, gt=0, description="Older ones are left out; null: none is too old.")
    ages: Name | None = Field(
        None, description="Name of a second list column: seconds since each became known (int64, rounded down)."
    )

    _key = field_validator("key", mode="before")(one_or_more)


class CountColumn(BaseModel):
    """Impressions of a key, or those known to be positive, within a sliding window: an int64 column."""

    model_config = STRICT

    kind: Literal["count"]
    name: Name
    key: KeyColumns
    label: Name | None = Field(None, description="Count positives of this label; null: count impressions.")
    window_s: float | None = Field(None, gt=0, description="Null: since the beginning.")

    _key = field_validator("key", mode="before")(one_or_more)


class RateColumn(BaseModel):
    """(positives + prior * strength) / (impressions + strength) within a sliding window: a float64 column."""

    model_config = STRICT

    kind: Literal["rate"]
    name: Name
    key: KeyColumns
    label: Name
    window_s: float | None = Field(None, gt=0, description="Null: since the beginning.")
    prior: float = Field(ge=0, description="The rate where nothing is known.")
    strength: float = Field(gt=0, description="How many impressions the prior weighs as.")

    _key = field_validator("key", mode="before")(one_or_more)


DerivedColumn = Annotated[HistoryColumn | CountColumn | RateColumn, Field(discriminator="kind")]


def columns_made(derived: DerivedColumn) -> tuple[str, ...]:
    """Returns the names of the columns that it adds."""
    return (derived.name, derived.ages) if isinstance(derived, HistoryColumn) and derived.ages else (derived.name,)
