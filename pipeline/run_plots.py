"""Plots of a run as SVG to stand inside a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.svg import COLOUR, draw_svg

__all__ = ["plot_curves", "plot_intervals", "plot_reliability", "plot_scores"]

_GREY = "#8a94a3"
_NUM_BINS = 40


def plot_curves(evaluations: Sequence[Mapping[str, float]], name: str, *, best_step: int) -> str:
    """Returns a figure of the validation split over the steps, the kept step marked."""

    def draw(axes: Any) -> None:
        steps = [point["step"] for point in evaluations]
        axes.plot(steps, [point[name] for point in evaluations], color=COLOUR, marker="o", markersize=3.5)
        axes.axvline(best_step, color=_GREY, linewidth=1, linestyle="--")
        axes.set_xlabel("step; dashed: the one that was kept")

    return draw_svg(draw)


def plot_reliability(curve: Mapping[str, Sequence[float]]) -> str:
    """Returns the mean label of each bin against its mean score, with the line on which both are equal."""

    def draw(axes: Any) -> None:
        most = 1.05 * max([*curve["scores"], *curve["labels"], 1e-9])
        axes.plot([0, most], [0, most], color=_GREY, linewidth=1, linestyle="--")
        axes.plot(curve["scores"], curve["labels"], color=COLOUR, marker="o", markersize=3.5)
        axes.set_xlabel("mean score of a twentieth of the rows")
        axes.set_ylabel("mean label")

    return draw_svg(draw)


def plot_scores(scores: npt.NDArray[np.float32]) -> str:
    """Returns the distribution of scores, [N]."""

    def draw(axes: Any) -> None:
        high = float(np.quantile(scores, 0.999)) if scores.size else 1.0
        axes.hist(np.minimum(scores, high), bins=_NUM_BINS, color=COLOUR)
        axes.set_xlabel("score; the highest thousandth is in the last bar")
        axes.set_ylabel("rows")

    return draw_svg(draw)


def plot_intervals(
    names: Sequence[str], values: Sequence[float | None], intervals: Sequence[tuple[float, float] | None]
) -> str:
    """Returns a figure of each run as a dot within its interval, the first run at the top."""

    def draw(axes: Any) -> None:
        for place, (value, between) in enumerate(zip(values, intervals, strict=True)):
            if between is not None:
                axes.plot(between, [place, place], color=_GREY, linewidth=2)
            if value is not None:
                axes.plot([value], [place], color=COLOUR, marker="o")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")

    return draw_svg(draw)
