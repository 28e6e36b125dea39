"""What a user declares about files: sources, their columns, and what is read of them."""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["STRICT", "ColumnSpec", "ColumnType", "KeyColumns", "Name", "SourceSpec", "TableName", "one_or_more"]

STRICT = ConfigDict(frozen=True, extra="forbid")

ColumnType = Literal["string", "int64", "float64", "bool", "timestamp", "list<string>", "list<int64>", "list<float64>"]
# Names become parts of file names, tensor names and keys of records.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$")]
KeyColumns = Annotated[tuple[str, ...], Field(min_length=1)]


def one_or_more(value: object) -> object:
    """Returns a tuple of a lone text, so that `key: user_id` is `key: [user_id]`."""
    return (value,) if isinstance(value, str) else value


class ColumnSpec(BaseModel):
    """One declared column of a source."""

    model_config = STRICT

    type: ColumnType
    source_name: str | None = Field(
        None, description="Name in the file, if it differs from the key; a.b.c reaches into nested values."
    )
    partition: bool = Field(False, description="Taken from the folder of the file (NAME=VALUE/), not from its rows.")
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

    model_config = STRICT

    paths: tuple[str, ...] = Field(min_length=1, description="Files or globs, relative to data.root.")
    format: Literal["csv", "tsv", "jsonl", "parquet"] | None = Field(
        None, description="By default told from the file name."
    )
    compression: Literal["none", "gzip", "zstd", "bz2"] | None = Field(
        None, description="Of text files; by default told from the file name (.gz, .zst, .bz2)."
    )
    encoding: str = Field("utf-8", description="Of text files: a name that Python knows, such as latin-1.")
    newlines_in_values: bool = Field(
        True, description="Whether a quoted value may hold a newline; where not, large files are read in splits."
    )
    columns: dict[str, ColumnSpec] = Field(min_length=1)
    explode: tuple[str, ...] = Field(
        (), description="Parallel list columns: a row becomes one row for each place in these lists."
    )
    explode_position: str | None = Field(None, description="Name of the int64 column of places, from 0, that it adds.")
    duplicates: Literal["row", "keep"] | tuple[str, ...] = Field(
        "row",
        description="Remove exact duplicate rows, keep all, or keep one row for each value of these columns.",
    )
    event_time: str | None = Field(None, description="Timestamp column of an action log.")
    arrival_time: str | None = Field(
        None, description="Timestamp column: when the row reached the log. Without it, a row arrives as it happens."
    )
    day_partition: str | None = Field(
        None,
        description="Partition folder (dt of dt=2026-11-01/) that holds the day; others than data.days are not opened.",
    )

    _paths = field_validator("paths", mode="before")(one_or_more)

    @field_validator("columns", mode="before")
    @classmethod
    def _short_columns(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: {"type": spec} if isinstance(spec, str) else spec for name, spec in value.items()}

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            "a".encode(value)  # refuses codecs that are not of text, such as base64
            return codecs.lookup(value).name
        except (LookupError, UnicodeError) as error:
            raise ValueError(f"no such encoding {value!r}; utf-8, latin-1, cp1252, utf-16 are some") from error

    @model_validator(mode="after")
    def _explodes_lists(self) -> SourceSpec:
        for name in self.explode:
            column = self.columns.get(name)
            if column is None or not re.match("list<", column.type):
                raise ValueError(f"explode: {name!r} is not a declared list column")
        if self.explode_position is not None and (not self.explode or self.explode_position in self.columns):
            raise ValueError("explode_position names a new column, and needs explode")
        return self
