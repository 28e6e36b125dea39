"""Limits on the data: which figures of a profile, and of its drift, break a bound of `data.checks`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from preprocessing.drift import ColumnDrift
from preprocessing.errors import DataError
from preprocessing.profile import Profile, label_rate
from preprocessing.schema import LABEL_PREFIX, WEIGHT_COLUMN
from preprocessing.spec import DataCheck

__all__ = ["Finding", "Verdict", "check_findings", "raise_failures"]

Verdict = Literal["warn", "fail"]
_OF_DRIFT = ("psi", "jensen_shannon", "new_token_share", "vanished_token_share")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure outside its bounds.

    Attributes:
        measure: which figure.
        column: of which column, or label.
        value: the figure; None where there is none to hold against the bound.
        bound: the limit that it broke.
        verdict: what the config makes of it.
        message: the same as a sentence.
    """

    measure: str
    column: str
    value: float | None
    bound: float | None
    verdict: Verdict
    message: str


def check_findings(
    checks: Sequence[DataCheck], current: Profile, drift: Mapping[str, ColumnDrift] | None
) -> list[Finding]:
    """Returns what breaks a check, failures first, else in the order of checks and columns.

    Checks of drift pass where there is no previous run (`drift` None). `*` stands for every column that has the
    figure; a column named in a check must be there.
    """
    found = [finding for check in checks for finding in _broken(check, current, drift)]
    return sorted(found, key=lambda finding: finding.verdict != "fail")


def _broken(check: DataCheck, current: Profile, drift: Mapping[str, ColumnDrift] | None) -> Iterator[Finding]:
    if check.measure in _OF_DRIFT and drift is None:
        return
    figures = _figures(check.measure, current, drift or {})
    for column in figures if check.column == "*" else [check.column]:
        value = figures.get(column)
        if value is None:
            if check.column != "*":
                yield _absent(check, column in current.columns or column in current.labels)
        elif check.min is not None and value < check.min:
            yield _finding(check, column, value, check.min, "below")
        elif check.max is not None and value > check.max:
            yield _finding(check, column, value, check.max, "above")


def _figures(measure: str, current: Profile, drift: Mapping[str, ColumnDrift]) -> dict[str, float | None]:
    if measure == "label_rate":
        return {label: label_rate(current, label) for label in current.labels}
    if measure in _OF_DRIFT:
        return {name: getattr(one, measure) for name, one in drift.items()}
    raw = {
        name: column
        for name, column in current.columns.items()
        if not name.startswith(LABEL_PREFIX) and name != WEIGHT_COLUMN
    }
    if measure == "missing_share":
        return {name: column.missing_share() for name, column in raw.items()}
    return {name: float(column.tokens.distinct()) for name, column in raw.items()}


def _finding(check: DataCheck, column: str, value: float, bound: float, rule: str) -> Finding:
    message = f"{check.measure} of {column} is {value:.6g}, {rule} the limit of {bound:.6g}"
    return Finding(check.measure, column, value, bound, check.then, message)


def _absent(check: DataCheck, is_there: bool) -> Finding:
    bound = check.max if check.min is None else check.min
    what = "has no such figure" if is_there else "is not among the rows"
    message = f"{check.measure} of {check.column} cannot be judged: the column {what}"
    return Finding(check.measure, check.column, None, bound, check.then, message)


def raise_failures(findings: Sequence[Finding], *, report: Path) -> None:
    """Passes if no finding is a failure.

    Raises:
        DataError: with all failures and the place of the report.
    """
    failures = [finding.message for finding in findings if finding.verdict == "fail"]
    if failures:
        raise DataError(
            f"data.checks: {len(failures)} failed: {'; '.join(failures)}. See {report}; mend the data, or the limits"
        )
