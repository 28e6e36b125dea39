"""Plots as SVG to stand inside a page: text stays text, and equal figures give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

__all__ = ["COLOUR", "draw_svg"]

COLOUR = "#2458c5"
_SIZE_INCHES = (5.2, 2.3)  # narrow, so that its text can be read on a phone
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
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
