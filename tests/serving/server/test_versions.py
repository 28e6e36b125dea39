"""Which versions there are, which are wanted, and what happens next."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.server.discovery import (
    ModelConfig,
    Policy,
    aspired_versions,
    list_versions,
    parse_version,
    wanted_versions,
)
from serving.server.labels import check_configs, check_labels
from serving.server.status import Code, StatusError
from serving.server.versions import State, VersionRecord, aspire, is_settled, to_load, to_unload

_BASE = Path("/models/m")


@pytest.mark.parametrize(
    ("name", "version"),
    [("1", 1), ("0001", 1), ("+7", 7), ("-3", -3), ("0", 0), ("9223372036854775807", 2**63 - 1),
     ("9223372036854775808", None), ("v1", None), ("1.0", None), (".tmp-3", None), ("", None), ("1 ", None),
     ("1_000", None), ("٣", None), ("9" * 5000, None)],
)  # fmt: skip
def test_a_version_is_a_signed_64_bit_decimal_and_nothing_else(name: Any, version: Any) -> None:
    assert parse_version(name) == version


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_number_is_a_version(number: Any) -> None:
    assert parse_version(str(number)) == number


def test_lists_versions_by_number_and_skips_other_names(tmp_path: Any) -> None:
    for name in ("1", "0001", "10", "v2", ".tmp-11", "rankmill.json"):
        (tmp_path / name).mkdir()
    assert list_versions(tmp_path) == {1: tmp_path / "0001", 10: tmp_path / "10"}


def test_policies_choose_by_number_not_by_text() -> None:
    assert wanted_versions([2, 10, 9], Policy()) == [10]
    assert wanted_versions([2, 10, 9], Policy("latest", num_versions=2)) == [10, 9]
    assert wanted_versions([2, 10, 9], Policy("latest", num_versions=0)) == [10]
    assert wanted_versions([2, 10, 9], Policy("all")) == [10, 9, 2]
    assert wanted_versions([2, 10, 9], Policy("specific", versions=(2, 3))) == [2]


def test_a_specific_version_that_is_absent_does_not_hide_the_others(tmp_path: Any) -> None:
    (tmp_path / "4").mkdir()
    config = ModelConfig("m", tmp_path, policy=Policy("specific", versions=(4, 5)))
    assert aspired_versions(config) == {4: tmp_path / "4"}
    with pytest.raises(OSError):
        aspired_versions(ModelConfig("m", tmp_path / "none"))


def _wanted(*numbers: Any) -> Any:
    return {number: _BASE / str(number) for number in numbers}


def _records(**states: Any) -> Any:
    return {int(key[1:]): VersionRecord(int(key[1:]), _BASE, state) for key, state in states.items()}


def test_the_old_version_stays_until_the_new_one_is_available() -> None:
    records = _records(v6=State.AVAILABLE)
    aspire(records, _wanted(7))
    assert to_unload(records.values()) == []
    assert [record.number for record in to_load(records.values(), now_s=0)] == [7]
    records[7].state = State.AVAILABLE
    assert [record.number for record in to_unload(records.values())] == [6]


def test_the_old_version_stays_when_the_new_one_has_failed() -> None:
    records = _records(v6=State.AVAILABLE)
    aspire(records, _wanted(7))
    records[7].state = State.END
    assert to_unload(records.values()) == []
    assert to_load(records.values(), now_s=0) == []


def test_a_failed_version_is_tried_again_only_after_it_was_gone_for_a_poll() -> None:
    records = _records(v7=State.END)
    aspire(records, _wanted(7))
    assert to_load(records.values(), now_s=0) == []
    aspire(records, _wanted())
    aspire(records, _wanted(7))
    assert [record.number for record in to_load(records.values(), now_s=0)] == [7]


def test_everything_is_unloaded_when_nothing_is_wanted() -> None:
    records = _records(v6=State.AVAILABLE)
    aspire(records, _wanted())
    assert [record.number for record in to_unload(records.values())] == [6]


def test_a_version_that_comes_back_while_unloading_waits_for_the_end() -> None:
    records = _records(v6=State.UNLOADING)
    records[6].aspired = False
    aspire(records, _wanted(6))
    assert (records[6].state, records[6].aspired) == (State.UNLOADING, False)
    records[6].state = State.END
    aspire(records, _wanted(6))
    assert records[6].state is State.START


def test_a_version_waiting_for_its_retry_ends_when_a_higher_one_replaces_it() -> None:
    records = _records(v7=State.LOADING)
    aspire(records, _wanted(8))
    assert records[7].state is State.END


def test_loads_are_due_by_the_clock_newest_first_and_once() -> None:
    records = _records(v1=State.START, v2=State.START, v3=State.START)
    records[3].not_before_s = 10.0
    records[1].in_flight = True
    assert [record.number for record in to_load(records.values(), now_s=9.9)] == [2]
    assert [record.number for record in to_load(records.values(), now_s=10.0)] == [3, 2]


def test_a_model_is_settled_when_a_version_serves_or_all_have_failed() -> None:
    assert not is_settled([])
    assert not is_settled(_records(v1=State.LOADING, v2=State.END).values())
    assert is_settled(_records(v1=State.END, v2=State.END).values())
    assert is_settled(_records(v1=State.LOADING, v2=State.AVAILABLE).values())


@pytest.mark.parametrize(
    "configs",
    [
        [ModelConfig("m", _BASE), ModelConfig("m", _BASE)],
        [ModelConfig("m", Path("relative"))],
        [ModelConfig("m", _BASE, platform="")],
        [ModelConfig("m", _BASE, platform="torch")],
    ],
)
def test_wrong_configs_are_invalid_arguments(configs: Any) -> None:
    with pytest.raises(StatusError, match="m") as caught:
        check_configs(configs, {})
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("in_use", "available", "allow", "accepted"),
    [
        ({}, {5}, False, True),
        ({}, set(), False, False),
        ({}, set(), True, True),
        ({"stable": 4}, {4}, True, False),
        ({"stable": 4}, {4, 5}, False, True),
    ],
)
def test_a_label_needs_an_available_version_unless_it_is_new_and_that_is_allowed(
    in_use: Any, available: Any, allow: Any, accepted: Any
) -> None:
    configs = [ModelConfig("m", _BASE, labels={"stable": 5})]
    if accepted:
        check_labels(configs, {"m": in_use}, {"m": available}, allow_unavailable=allow)
        return
    with pytest.raises(StatusError, match="label stable to version 5") as caught:
        check_labels(configs, {"m": in_use}, {"m": available}, allow_unavailable=allow)
    assert caught.value.code is Code.FAILED_PRECONDITION
