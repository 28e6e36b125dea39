"""The result of `rankmill monitor` as one HTML file that needs no network."""

from __future__ import annotations

from pathlib import Path

from pipeline.pages import page_template, write_text
from serving.monitor import Monitored

__all__ = ["write_monitor_page"]


def write_monitor_page(found: Monitored, path: Path, *, name: str) -> None:
    """Writes the page; a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(page_template("monitor.html").render(found=found, name=name), path)
