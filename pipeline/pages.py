"""How our pages are made: templates that escape all text, written so that a reader sees no part of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

__all__ = ["page_template", "write_text"]


def write_text(text: str, path: Path) -> None:
    """Writes a file; a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def page_template(name: str, **filters: Callable[[str], str]) -> Template:
    """Returns one of our pages, that escapes all text; `filters` are further ones by name."""
    environment = Environment(
        loader=PackageLoader("pipeline"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": _count, "share": _share, **filters}
    return environment.get_template(name)


def _count(value: int) -> str:
    return f"{value:,}"


def _share(value: float | None) -> str:
    """Returns a share in percent, three digits of small ones; a share that is not 0 never reads 0 %."""
    if value is None:
        return "-"
    if value and abs(value) < 1e-4:
        return f"{value:.1e}" if abs(value) < 1e-6 else f"{value:.4%}"
    return f"{value:.2%}"
