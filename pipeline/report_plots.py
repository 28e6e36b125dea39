"""Plots by period."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pipeline.data_report import PeriodFigures
from pipeline.svg import COLOUR, draw_svg

__all__ = ["plot_label_rate", "plot_rows"]

_MAX_TICKS = 8
_MANY = 40  # points, beyond which marks would run together


def plot_rows(periods: Sequence[PeriodFigures]) -> str:
    """Returns a bar for the rows of each period."""
    return _plot(periods, [float(period.num_rows) for period in periods], as_bars=True)


def plot_label_rate(periods: Sequence[PeriodFigures], label: str) -> str:
    """Returns the rate of a label in each period as a line, with gaps where there are no rows."""
    rates = [period.label_rates[label] for period in periods]
    return _plot(periods, [float("nan") if rate is None else rate for rate in rates], as_bars=False)


def _plot(periods: Sequence[PeriodFigures], values: Sequence[float], *, as_bars: bool) -> str:
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    def draw(axes: Any) -> None:
        places = range(len(values))
        if as_bars:
            axes.bar(places, values, color=COLOUR, width=0.8)
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        else:
            axes.plot(places, values, color=COLOUR, marker="o" if len(values) <= _MANY else "", markersize=3.5)
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        axes.set_ylim(0, 1.1 * max((value for value in values if math.isfinite(value)), default=0.0) or 1.0)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        step = -(-len(values) // _MAX_TICKS)
        axes.set_xticks(list(places)[::step], [_short(period.period) for period in periods][::step])

    return draw_svg(draw)


def _short(period: str) -> str:
    """Returns 05-08 of 2022-05-08."""
    return period[5:] if len(period) == len("2022-05-08") else period
