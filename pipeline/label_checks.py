"""Rules of a config about labels, the actions that they and weights come from, and negative sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.config_columns import NUMBERS, named, unknown
from pipeline.source_checks import same_type
from preprocessing.explode import columns_after
from preprocessing.source_spec import ColumnSpec
from preprocessing.spec import ActionLabel, DataSpec, LabelSpec

__all__ = ["check_labels"]


def check_labels(data: DataSpec, columns: Mapping[str, ColumnSpec]) -> Iterator[str]:
    """Yields a line for each broken rule; `columns` are the declared ones of the joined rows."""
    names = [label.name for label in data.labels]
    for i, label in enumerate(data.labels):
        path = f"data.labels[{i}]"
        if names.index(label.name) != i:
            yield f"{path}.name: {label.name!r} is taken by an earlier label"
        if label.action is not None:
            yield from _check_action(f"{path}.action", label.action, data)
        else:
            yield from _check_comparison(path, label, data, columns=columns)
    yield from _check_weight(data)
    if data.negative_sampling is not None and len(data.labels) != 1:
        yield (
            f"data.negative_sampling: needs exactly one label, there are {len(data.labels)}: the kept share of a "
            "label's negatives would depend on the other labels; use one label, or leave it out"
        )


def _check_comparison(
    path: str, label: LabelSpec, data: DataSpec, *, columns: Mapping[str, ColumnSpec]
) -> Iterator[str]:
    yield from named(f"{path}.{'column' if label.column else 'when'}", label.comparison()[0], columns, types=NUMBERS)
    if label.delay_s is not None and data.roles.event_time is None:
        yield f"{path}.delay_s: counts from the time of the impression; name data.roles.event_time"


def _check_action(path: str, action: ActionLabel, data: DataSpec) -> Iterator[str]:
    source = data.sources.get(action.source)
    if source is None:
        yield unknown(f"{path}.source", action.source, "source", data.sources)
        return
    if source.event_time is None and data.roles.event_time is not None:
        yield f"data.sources.{action.source}.event_time: is required for an action log"
    if action.touch == "first" and data.roles.event_time is None:
        yield f"{path}.touch: without data.roles.event_time there is no first impression; name it, or leave this out"
    impressions = columns_after(data.sources[data.impressions])
    for column in action.key:
        lines = [
            *named(f"{path}.key", column, source.columns, of=" of the action log"),
            *named(f"{path}.key", column, impressions, of=" of the impressions"),
        ]
        yield from lines or same_type(f"{path}.key", column, impressions, source.columns)


def _check_weight(data: DataSpec) -> Iterator[str]:
    weight = data.weight
    if weight is None:
        return
    if data.roles.weight is not None:
        yield "data.weight: rows have a weight already, data.roles.weight; leave one of them out"
    if weight.source == data.impressions:
        yield (
            f"data.weight.source: {weight.source!r} holds the impressions, so it cannot be their action log as well; "
            "a weight that is one of their columns is data.roles.weight"
        )
        return
    yield from _check_action("data.weight", weight, data)
    if weight.source in data.sources:
        columns = data.sources[weight.source].columns
        yield from named("data.weight.value", weight.value, columns, of=" of the action log", types=NUMBERS)
