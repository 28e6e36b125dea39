"""Rules of a config about sources, their clocks, and the side tables joined to the impressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.config_columns import named, timestamp, unknown
from preprocessing.explode import columns_after
from preprocessing.source_spec import ColumnSpec, SourceSpec
from preprocessing.spec import DataSpec, JoinSpec

__all__ = ["check_sources"]


def check_sources(data: DataSpec) -> Iterator[str]:
    """Yields a line for each broken rule about sources and joins."""
    for name, source in data.sources.items():
        yield from _check_source(f"data.sources.{name}", source)
        if source.explode and name != data.impressions:
            yield f"data.sources.{name}.explode: only the impressions explode; write the lists out as rows"
    if data.impressions not in data.sources:
        yield unknown("data.impressions", data.impressions, "source", data.sources)
        return
    yield from _check_clocks(data)
    actions = {label.action.source for label in data.labels if label.action is not None}
    if data.impressions in actions:
        yield f"data.labels: {data.impressions!r} holds the impressions, so it cannot be their action log as well"
    actions |= {data.weight.source} if data.weight is not None else set()
    columns = columns_after(data.sources[data.impressions])
    owners = dict.fromkeys(columns, data.impressions)
    for i, join in enumerate(data.joins):
        path = f"data.joins[{i}]"
        if join.source not in data.sources:
            yield unknown(f"{path}.source", join.source, "source", data.sources)
        elif join.source in (data.impressions, *actions):
            yield (
                f"{path}.source: {join.source!r} is a log of events, not a side table; "
                "declare the files a second time to join them"
            )
        else:
            yield from _check_join(path, join, data.sources[join.source], columns=columns, owners=owners)


def _check_source(path: str, source: SourceSpec) -> Iterator[str]:
    if isinstance(source.duplicates, tuple):
        for column in source.duplicates:
            if column not in source.columns:
                yield unknown(f"{path}.duplicates", column, "column", source.columns)
    yield from timestamp(f"{path}.event_time", source.event_time, source)
    yield from timestamp(f"{path}.arrival_time", source.arrival_time, source)
    if source.day_partition is not None and (not source.day_partition or set(source.day_partition) & set("=/")):
        yield (
            f"{path}.day_partition: {source.day_partition!r} is not the name of a partition folder; "
            "give dt for folders such as dt=2026-11-01/"
        )


def _check_clocks(data: DataSpec) -> Iterator[str]:
    source = data.sources[data.impressions]
    for clock in ("event_time", "arrival_time"):
        role, declared = getattr(data.roles, clock), getattr(source, clock)
        if role is not None and declared is not None and role != declared:
            yield (
                f"data.roles.{clock}: is {role!r}, but data.sources.{data.impressions}.{clock} is {declared!r}; "
                "leave one of them out"
            )
    arrivals = [data.roles.arrival_time, *(source.arrival_time for source in data.sources.values())]
    if data.allowed_lateness_s is not None and not any(arrivals):
        yield (
            "data.allowed_lateness_s: without an arrival_time no row is late; "
            "name the arrival_time of a source, or leave this out"
        )


def _check_join(
    path: str, join: JoinSpec, source: SourceSpec, *, columns: dict[str, ColumnSpec], owners: dict[str, str]
) -> Iterator[str]:
    for column in join.key:
        lines = [
            *named(f"{path}.key", column, source.columns, of=f" of source {join.source!r}"),
            *named(f"{path}.key", column, columns, of=" to join from"),
        ]
        yield from lines or same_type(f"{path}.key", column, columns, source.columns)
    if join.valid_from is not None:
        yield from timestamp(f"{path}.valid_from", join.valid_from, source)
    for column, spec in source.columns.items():
        if column not in join.key and column in owners:
            yield (
                f"{path}: column {column!r} is in {owners[column]!r} and in {join.source!r}; "
                "give one of them another name, with source_name for the name in the file"
            )
        owners.setdefault(column, join.source)
        columns.setdefault(column, spec)


def same_type(path: str, column: str, left: Mapping[str, ColumnSpec], right: Mapping[str, ColumnSpec]) -> Iterator[str]:
    """Yields a line if a column that must be equal on two sides has two types."""
    if left[column].type != right[column].type:
        yield (
            f"{path}: column {column!r} is {left[column].type} on one side and {right[column].type} on the other; "
            "declare one type for both"
        )
