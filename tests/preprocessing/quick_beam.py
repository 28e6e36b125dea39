"""Beam asks the same of each transform again and again; remembering the answers halves what a small pipeline costs.

Building a graph of a hundred transforms reads the signatures of every method of every `DoFn` several times and parses
an empty command line for every look at an option: two thirds of the time of a job over a few rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import userstate

__all__ = ["quick_beam"]


@contextlib.contextmanager
def quick_beam() -> Iterator[None]:
    """While it is open, a class of `DoFn` is examined once, and so is a view of the options of a pipeline."""
    examine, look = userstate.get_dofn_specs, PipelineOptions.view_as
    specs: dict[type, Any] = {}
    views: dict[tuple[int, type], tuple[PipelineOptions, Any]] = {}  # the options are kept, so that an id stays one's

    def get_dofn_specs(dofn: Any) -> Any:
        if type(dofn) not in specs:
            specs[type(dofn)] = examine(dofn)
        return specs[type(dofn)]

    def view_as(options: PipelineOptions, kind: type) -> Any:
        place = (id(options), kind)
        if place not in views:
            views[place] = (options, look(options, kind))
        return views[place][1]

    with (
        mock.patch.object(userstate, "get_dofn_specs", get_dofn_specs),
        mock.patch.object(PipelineOptions, "view_as", view_as),
    ):
        yield
