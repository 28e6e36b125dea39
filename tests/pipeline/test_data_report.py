import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from pipeline.column_figures import column_figures, shown_number
from pipeline.data_report import DataReport, build_report, to_json
from pipeline.data_summary import data_summary
from pipeline.report_page import page, write_page
from preprocessing.profile import ColumnProfile, Profile, profile
from preprocessing.schema import WEIGHT_COLUMN
from preprocessing.spec import DataCheck

SOURCES = {
    "log": {"files": 2, "rows": 1500, "rejected": 30, "reasons": {"invalid_int64": 20, "malformed_row": 10}},
    "items": {"files": 1, "rows": 70, "rejected": 0, "reasons": {}},
}
COUNTS = {
    "duplicates": 12,
    "held_back": 5,
    "orphan_clicks": 3,
    "rows": 1470,
    "something_new": 9,
    "train_positive_click": 300,
    "train_rows": 1200,
    "unmatched_items": 44,
}


def rows(items: Sequence[bytes | None], clicks: Sequence[float], **more: pa.Array) -> Profile:
    columns = {
        "item": pa.array(items, pa.binary()),
        **more,
        "__label_click": pa.array(clicks, pa.float32()),
        WEIGHT_COLUMN: pa.array([1.0] * len(items), pa.float32()),
    }
    return profile(pa.table(columns), ["click"])


def report(periods: Sequence[tuple[str, Profile]], previous: Profile | None = None, **more: Any) -> DataReport:
    given = {"name": "shop", "counts": COUNTS, "sources": SOURCES, "checks": ()} | more
    return build_report(periods=periods, previous=previous, **given)


DAYS = [
    ("2026-01-02", rows([b"a", b"b", None, b"a"], [0, 0, 1, 0])),
    ("2026-01-01", rows([b"a", b"a"], [1, 0])),
    ("2026-01-02", rows([b"c"], [1])),
]


def column(values: pa.Array) -> ColumnProfile:
    return profile(pa.table({"x": values}), []).columns["x"]


def shown(found: DataReport) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(data_summary(found))
    return console.export_text()


def test_periods_are_put_in_order_and_their_parts_added_up() -> None:
    found = report(DAYS)
    assert [(one.period, one.num_rows, one.label_rates) for one in found.periods] == [
        ("2026-01-01", 2, {"click": 0.5}),
        ("2026-01-02", 5, {"click": 0.4}),
    ]
    assert found.num_rows == 7
    assert found.columns[0].missing_share == pytest.approx(1 / 7)
    assert [(one.text, one.count) for one in found.columns[0].top] == [("a", 4), ("b", 1), ("c", 1)] or [
        (one.text, one.count) for one in found.columns[0].top
    ] == [("a", 4), ("c", 1), ("b", 1)]


def test_without_a_run_before_there_is_no_drift_and_no_finding_of_it() -> None:
    found = report(DAYS, checks=[DataCheck(measure="psi", max=0.0)])
    assert (found.previous_rows, found.drift, found.columns_added, found.findings) == (None, {}, (), ())
    assert "no run before this one" in page(found)
    assert "no run before this one" in shown(found)


def test_drift_is_sorted_and_leaves_out_what_differs_by_nature() -> None:
    now = rows(
        [b"a", b"c", b"c"], [1, 1, 1], time=pa.array([7, 8, 9]), added=pa.array([1, 1, 1]), kind=pa.array([1] * 3)
    )
    before = rows(
        [b"a", b"a", b"b"], [1, 0, 0], time=pa.array([1, 2, 3]), gone=pa.array([1, 1, 1]), kind=pa.array(["x"] * 3)
    )
    found = report([("all", now)], before, clocks=["time"])
    assert list(found.drift) == sorted(found.drift, key=lambda name: -found.drift[name].psi)
    assert set(found.drift) == {"item", "__label_click", WEIGHT_COLUMN}
    assert (found.columns_added, found.columns_removed, found.columns_retyped) == (("added",), ("gone",), ("kind",))
    assert set(report([("all", now)], before, not_compared=["item"]).drift) == {"time", "__label_click", WEIGHT_COLUMN}
    text = page(found)
    assert "New columns: added." in text
    assert "Columns that are gone: gone." in text


def test_numbers_have_quantiles_and_the_bars_of_their_range() -> None:
    found = column_figures("x", column(pa.array(np.arange(1000.0))))
    assert found.quantiles == {
        "1%": "10",
        "5%": "50",
        "25%": "250",
        "50%": "500",
        "75%": "750",
        "95%": "950",
        "99%": "990",
    }
    assert (found.smallest, found.largest, found.distinct) == ("0", "999", 1000)
    assert len(found.bars) == 24
    assert sum(bar.share for bar in found.bars) == pytest.approx(1.0)
    assert max(bar.share for bar in found.bars) < 0.06


def test_skewed_numbers_have_bars_of_their_logarithm() -> None:
    found = column_figures("x", column(pa.array(np.expm1(np.linspace(0.0, 20.0, 3000)))))
    assert max(bar.share for bar in found.bars) < 0.06


def test_few_numbers_have_a_bar_each() -> None:
    found = column_figures("x", column(pa.array([3, 1, 3, 20260101, None])))
    assert [(bar.label, bar.share) for bar in found.bars] == [("1", 0.25), ("3", 0.5), ("20,260,101", 0.25)]


def test_frequent_numbers_among_many_come_from_the_histogram() -> None:
    numbers = np.concatenate([np.random.default_rng(5).normal(size=20_000), np.full(3000, -124.0)])
    found = column_figures("x", column(pa.array(numbers)))
    assert not found.is_exact
    assert (found.top[0].text, found.top[0].count) == ("-124", 3000)


def test_a_clock_is_shown_as_times() -> None:
    found = column_figures("x", column(pa.array([1_767_225_600_000, 1_767_312_000_000])), is_clock=True)
    assert (found.kind, found.smallest, found.largest) == ("time", "2026-01-01 00:00 UTC", "2026-01-02 00:00 UTC")
    absurd = column_figures("x", column(pa.array([2**62])), is_clock=True)
    assert absurd.smallest == "4.61169e+18"


def test_a_column_without_values_has_figures() -> None:
    for values in (pa.array([None, math.nan], pa.float64()), pa.array([None], pa.binary()), pa.nulls(2)):
        found = column_figures("x", column(values))
        assert (found.missing_share, found.top, found.bars, found.distinct) == (1.0, (), (), 0)


@pytest.mark.parametrize(("value", "text"), [(12345.0, "12,345"), (0.1, "0.1"), (-2.0, "-2"), (1e15, "1e+15")])
def test_numbers_are_shown_in_few_digits(value: float, text: str) -> None:
    assert shown_number(value) == text


HOSTILE = [
    b"<script>alert(1)</script>",
    b"\x00NUL",
    b"\xff\xfe not UTF-8",
    "\U0001f469\u200d\U0001f52c \u202e reversed".encode(),
    b"'\"><img src=x onerror=alert(1)>",
    b"</svg></style></title>",
    b"{{ 7 * 7 }}",
    b"[bold]no markup[/nothing]",
    b"",
    b"x" * 1_000_000,
]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def hostile_report() -> DataReport:
    name = "<b>&\"'"
    values = [value for number, value in enumerate(HOSTILE) for _ in range(1 + number % 3)]
    clicks = [1.0, 0.0] * (len(values) // 2) + [1.0] * (len(values) % 2)
    odd = {f"col {name}": pa.array(values, pa.binary())}
    one = rows(values, clicks, **odd)
    return report(
        [(f"2026 {name} $x^2$", one), ("2027", one)],
        rows(values, clicks, **odd, gone=pa.array([1] * len(values))),
        name=name,
        sources={name: {"files": 1, "rows": 3, "rejected": 1, "reasons": {name: 1}}},
        counts={f"unmatched_{name}": 1},
        checks=[DataCheck(measure="distinct_count", max=1, then="fail"), DataCheck(measure="psi", column=name, max=0)],
    )


def test_hostile_values_are_text_and_nothing_else() -> None:
    text = page(hostile_report())
    tags = _Tags()
    tags.feed(text)
    assert not tags.names & {"script", "img", "b "}
    assert not any(attribute.startswith("on") for attribute in tags.attributes)
    assert "\x00" not in text
    assert "\u202e" not in text
    assert len(text) < 400_000
    words = "".join(tags.text)
    for value in (
        "<script>alert(1)</script>",
        "\\x00NUL",
        "\\xff\\xfe not UTF-8",
        "{{ 7 * 7 }}",
        "empty text",
        "<b>&\"'",
    ):
        assert value in words
    json.dumps(to_json(hostile_report()))


def test_hostile_values_are_text_in_the_terminal_too() -> None:
    assert "<b>&\"'" in shown(hostile_report())


def test_the_page_asks_the_network_for_nothing_and_is_the_same_each_time(tmp_path: Path) -> None:
    found = report(DAYS, DAYS[0][1])
    write_page(found, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"'\s<>]*", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not places
    assert not re.search(r"@import|url\((?!#)|<link|\ssrc=", text)
    assert text == page(found)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_page_tells_what_became_of_the_rows() -> None:
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page(report(DAYS, DAYS[0][1]))))
    for part in (
        "7 labelled rows, 2 periods from 2026-01-01 to 2026-01-02; compared with the run before, of 4 rows",
        "log invalid_int64: 20 malformed_row: 10 2 1,500 30 2.00%",
        "impressions that reached the join 1,470 duplicates removed 12",
        "held back: their label is not known yet 5",
        "without a row in items 44",
        "clicks without an impression 3",
        "something new 9",
        "train 1,200 25.00%",
        "No limit was broken",
    ):
        assert part in words, part


def test_findings_stand_on_top_with_failures_first() -> None:
    checks = [DataCheck(measure="missing_share", max=0.1), DataCheck(measure="label_rate", min=0.9, then="fail")]
    text = page(report(DAYS, checks=checks))
    assert text.index("label_rate of click is 0.428571") < text.index("missing_share of item is 0.142857")
    assert text.index("missing_share of item is 0.142857") < text.index('id="rows"')


def test_sixty_columns_make_a_page_under_two_megabytes_and_a_summary_of_few_lines() -> None:
    rng = np.random.default_rng(9)
    items = [str(number).encode() for number in rng.zipf(1.4, 5000)]
    more = {f"number {name}": pa.array(rng.normal(size=5000)) for name in range(30)}
    more |= {f"text {name}": pa.array(items, pa.binary()) for name in range(30)}
    one = rows(items, rng.integers(0, 2, 5000).tolist(), **more)
    checks = [DataCheck(measure="distinct_count", max=1)]
    many_sources = {f"source {number}": SOURCES["log"] for number in range(9)}
    found = report([(f"2026-{n // 28 + 1:02}-{n % 28 + 1:02}", one) for n in range(30)], one, checks=checks)
    assert len(page(found).encode()) < 2_000_000
    assert len(shown(report(DAYS, DAYS[0][1], sources=many_sources, checks=checks)).splitlines()) <= 24


def test_the_report_is_json(tmp_path: Path) -> None:
    value = json.loads(json.dumps(to_json(report(DAYS, DAYS[0][1])), allow_nan=False))
    assert value["periods"][0] == {"period": "2026-01-01", "num_rows": 2, "label_rates": {"click": 0.5}}
    assert value["drift"]["item"]["bins"][0]["label"] == "a"


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_without_scrolling_sideways(tmp_path: Path, width: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on PATH")
    write_page(hostile_report(), tmp_path / "report.html")
    # A headless window is at least 500 pixels wide, so the page stands in a frame, which tells what sticks out.
    (tmp_path / "frame.html").write_text(
        f"<iframe id=f src=report.html style='width:{width}px;height:900px;border:0'></iframe><script>onload = () => {{"
        "const page = f.contentDocument.documentElement, plots = page.querySelectorAll('svg').length;"
        "document.title = `${page.scrollWidth - page.clientWidth} ${plots}`}</script>",
        encoding="utf-8",
    )
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    command = [browser, *flags, f"--user-data-dir={tmp_path / 'browser'}", (tmp_path / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    title = re.search(r"<title>(\d+) (\d+)</title>", done.stdout)
    assert title is not None, done.stdout[-2000:]
    assert int(title[1]) == 0
    assert int(title[2]) > 5
