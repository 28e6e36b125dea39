from pathlib import Path

import pyarrow as pa
import pytest

from preprocessing.data_checks import Finding, check_findings, raise_failures
from preprocessing.drift import drift
from preprocessing.errors import DataError
from preprocessing.profile import Profile, profile
from preprocessing.spec import DataCheck


def of(items: list[bytes | None], clicks: list[float]) -> Profile:
    label = pa.array(clicks, pa.float32())
    return profile(pa.table({"item": items, "user": [b"u"] * len(items), "__label_click": label}), ["click"])


BEFORE = of([b"a", b"a", b"b", None], [1, 1, 0, 0])
NOW = of([b"a", b"c", None, None], [1, 0, 0, 0])
DRIFT = drift(BEFORE, NOW)


def found(*checks: DataCheck) -> list[Finding]:
    return check_findings(checks, NOW, DRIFT)


def test_a_star_stands_for_every_raw_column() -> None:
    one = found(DataCheck(measure="missing_share", max=0.4))
    assert one == [
        Finding("missing_share", "item", 0.5, 0.4, "warn", "missing_share of item is 0.5, above the limit of 0.4")
    ]
    low = found(DataCheck(measure="distinct_count", min=3))
    assert [(one.column, one.value, one.bound) for one in low] == [("item", 2.0, 3.0), ("user", 1.0, 3.0)]


def test_a_value_on_its_bound_passes() -> None:
    assert found(DataCheck(measure="missing_share", max=0.5), DataCheck(measure="label_rate", min=0.25, max=0.25)) == []


def test_label_rates_go_by_the_name_of_the_label() -> None:
    assert [one.column for one in found(DataCheck(measure="label_rate", min=0.3))] == ["click"]
    assert found(DataCheck(measure="label_rate", column="click", max=0.2))[0].value == 0.25


@pytest.mark.parametrize(("measure", "value"), [("new_token_share", 1 / 2), ("vanished_token_share", 1 / 3)])
def test_tokens_that_come_and_go_are_judged(measure: str, value: float) -> None:
    one = found(DataCheck.model_validate({"measure": measure, "column": "item", "max": 0.1}))
    assert one[0].value == pytest.approx(value)


@pytest.mark.parametrize("measure", ["psi", "jensen_shannon"])
def test_drift_is_judged_against_the_run_before_if_there_was_one(measure: str) -> None:
    check = DataCheck.model_validate({"measure": measure, "max": 0.01})
    assert [one.column for one in check_findings([check], NOW, DRIFT)] == ["item", "__label_click"]
    assert check_findings([check], NOW, None) == []


def test_failures_come_first() -> None:
    checks = DataCheck(measure="missing_share", max=0.4), DataCheck(measure="label_rate", min=0.3, then="fail")
    assert [one.verdict for one in found(*checks)] == ["fail", "warn"]


def test_a_column_that_is_not_there_breaks_the_check_that_names_it() -> None:
    one = found(DataCheck(measure="missing_share", column="itme", max=0.4))[0]
    assert (one.value, one.bound) == (None, 0.4)
    assert "not among the rows" in one.message
    assert "no such figure" in found(DataCheck(measure="label_rate", column="item", min=0.1))[0].message


def test_failures_raise_with_all_messages_and_the_report() -> None:
    findings = found(
        DataCheck(measure="missing_share", max=0.4, then="fail"),
        DataCheck(measure="label_rate", min=0.3, then="fail"),
        DataCheck(measure="distinct_count", min=3),
    )
    with pytest.raises(DataError) as caught:
        raise_failures(findings, report=Path("work/report.html"))
    text = str(caught.value)
    assert "2 failed" in text
    assert "missing_share of item" in text
    assert "label_rate of click" in text
    assert "work/report.html" in text
    assert "distinct_count" not in text


def test_warnings_raise_nothing() -> None:
    raise_failures(found(DataCheck(measure="missing_share", max=0.4)), report=Path("report.html"))
