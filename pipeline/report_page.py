"""The data report as one HTML file that needs no network: its plots are SVG inside it, and all text is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipeline.column_figures import shown_name
from pipeline.data_report import DataReport
from pipeline.pages import page_template, write_text
from pipeline.report_plots import plot_label_rate, plot_rows
from preprocessing.drift import OTHERS
from preprocessing.spec import SPLITS

__all__ = ["page", "write_page"]

_TEMPLATE = "data_report.html"
_COUNT_TITLES = {
    "rows": "impressions that reached the join",
    "duplicates": "duplicates removed",
    "missing_label": "without a label",
    "outside_splits": "outside all splits",
    "held_back": "held back: their label is not known yet",
}


def write_page(report: DataReport, path: Path) -> None:
    """Writes the page; a reader sees the old file or the new one, never a part."""
    write_text(page(report), path)


def page(report: DataReport) -> str:
    """Returns the HTML text of the page."""
    dated = len(report.periods) > 1
    # The text in plots has been escaped by the library that drew them.
    return page_template(_TEMPLATE, shown=shown_name).render(
        report=report,
        others=OTHERS,
        counts=_other_counts(report.counts),
        splits=_splits(report.counts, report.labels),
        rows_plot=Markup(plot_rows(report.periods)) if dated else None,
        rate_plots={label: Markup(plot_label_rate(report.periods, label)) for label in report.labels} if dated else {},
    )


def _splits(counts: Mapping[str, int], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns rows and positives of each split that the counts tell of."""
    found = []
    for split in SPLITS:
        if f"{split}_rows" in counts:
            positives = {label: counts.get(f"{split}_positive_{label}", 0) for label in labels}
            found.append({"split": split, "rows": counts[f"{split}_rows"], "positives": positives})
    return found


def _other_counts(counts: Mapping[str, int]) -> dict[str, int]:
    of_splits = tuple(f"{split}_{what}" for split in SPLITS for what in ("rows", "positive_"))
    shown = [name for name in counts if not name.startswith(of_splits)]
    return {_count_title(name): counts[name] for name in sorted(shown, key=_count_order)}


def _count_order(name: str) -> tuple[int, str]:
    """Known counts come first, in the order in which rows meet them."""
    return (list(_COUNT_TITLES).index(name) if name in _COUNT_TITLES else len(_COUNT_TITLES), name)


def _count_title(name: str) -> str:
    if name.startswith("unmatched_"):
        return f"without a row in {name.removeprefix('unmatched_')}"
    if name.startswith("orphan_"):
        return f"{name.removeprefix('orphan_')} without an impression"
    return _COUNT_TITLES.get(name, name.replace("_", " "))
