"""Plots by period as SVG to stand inside a page: text stays text, and equal figures give equal bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.data_report import PeriodFigures

__all__ = ["COLOUR", "draw_svg", "plot_label_rate", "plot_rows"]

_SIZE_INCHES = (5.2, 2.3)  # narrow, so that its text can be read on a phone
COLOUR = "#2458c5"
_MAX_TICKS = 8
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_MANY = 40  # points, beyond which marks would run together
# Text is drawn by the browser in its own font, and never read as mathematics.
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rankmill",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a3",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e7ed",
    "xtick.color": "#4a5463",
    "ytick.color": "#4a5463",
}


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


def draw_svg(draw: Callable[[Any], None]) -> str:
    """Returns the SVG of what `draw` puts on a pair of axes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        draw(figure.add_subplot())
        sink = io.StringIO()
        figure.savefig(sink, format="svg", metadata=_NO_METADATA, transparent=True)
    text = sink.getvalue()
    return text[text.index("<svg") :]


def _short(period: str) -> str:
    """Returns 05-08 of 2022-05-08."""
    return period[5:] if len(period) == len("2022-05-08") else period
