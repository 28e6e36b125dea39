"""Point-in-time columns against their definition, and the four properties that make them trustworthy."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing import entity_keys
from preprocessing.columnar import hash_rows
from preprocessing.errors import ArtefactError, ConfigError, DataError
from preprocessing.point_in_time import Derived, columns_needed, context_ms, derive
from preprocessing.spec import CountColumn, DerivedColumn, HistoryColumn, RateColumn, columns_made
from tests.preprocessing.point_in_time_reference import (
    Row,
    columns_by_definition,
    state_by_definition,
    table_of_rows,
)

END = 60_000
PERIOD = 12_000


def specs_of(key: tuple[str, ...]) -> list[DerivedColumn]:
    return [
        CountColumn(kind="count", name="shown", key=key),
        CountColumn(kind="count", name="shown_7s", key=key, window_s=7.0),
        CountColumn(kind="count", name="clicks", key=key, label="click"),
        CountColumn(kind="count", name="buys_20s", key=key, label="buy", window_s=20.0),
        RateColumn(kind="rate", name="ctr", key=key, label="click", prior=0.1, strength=3.0),
        RateColumn(kind="rate", name="ctr_3s", key=key, label="click", window_s=3.0, prior=0.7, strength=0.3),
        HistoryColumn(kind="history", name="seen", key=key, value="item", label="click", length=3, ages="seen_age"),
        HistoryColumn(kind="history", name="bought", key=key, value="category", label="buy", length=2, horizon_s=9.5),
    ]


KEYS = (("user",), ("user", "category"))
DELAYS = st.one_of(st.none(), st.sampled_from([0, 1, 500, 1000, 3000]), st.integers(0, 30_000))
TIMES = st.one_of(st.integers(0, 40).map(lambda tick: tick * 1000), st.integers(0, END - 1))


@st.composite
def impressions(draw: st.DrawFn, *, by_day: bool) -> Row:
    time = draw(TIMES)
    delays = [draw(DELAYS) for _ in range(3)]
    return Row(
        user=draw(st.sampled_from([b"a", b"b", b"", None])),
        category=draw(st.sampled_from([0, 1, 2, None])),
        item=draw(st.one_of(st.none(), st.integers(0, 9))),
        time=time,
        visible=time + (delays[0] or 0),
        known=tuple(None if delay is None else time + delay for delay in delays[1:]),  # type: ignore[arg-type]
        cutoff=time // PERIOD * PERIOD if by_day else time,
        query=draw(st.booleans()),
        order=0,
    )


@st.composite
def logs(draw: st.DrawFn, max_size: int = 25) -> list[Row]:
    by_day = draw(st.booleans())
    rows = draw(st.lists(impressions(by_day=by_day), max_size=max_size))
    orders = draw(st.permutations(range(len(rows))))
    return [dataclasses.replace(row, order=2**64 - 1 - order) for row, order in zip(rows, orders, strict=True)]


def run(rows: Sequence[Row], specs: Sequence[DerivedColumn], *ends: int) -> Derived:
    return derive(table_of_rows(rows), specs, base=None, base_ms=0, ends_ms=ends)


def content(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def by_key(state: pa.Table, key: Sequence[str]) -> dict[Any, dict[str, Any]]:
    rows = state.to_pylist()
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("key", KEYS)
@settings(deadline=None, max_examples=30)
@given(rows=logs(), end=TIMES)
def test_columns_and_state_equal_the_definition(key: tuple[str, ...], rows: list[Row], end: int) -> None:
    specs = specs_of(key)
    found = run(rows, specs, end, 2 * END)
    assert found.columns.column_names == [name for spec in specs for name in columns_made(spec)]
    assert found.columns.to_pylist() == columns_by_definition(rows, specs)
    for state, time in zip(found.states, (end, 2 * END), strict=True):
        assert by_key(state, key) == state_by_definition(rows, specs, time)
        hashes = hash_rows(state, key)
        assert np.all(hashes[1:] > hashes[:-1])


@settings(deadline=None, max_examples=30)
@given(rows=logs(), shuffled=st.randoms(use_true_random=False), key=st.sampled_from(KEYS))
def test_the_order_of_rows_changes_nothing(rows: list[Row], shuffled: random.Random, key: tuple[str, ...]) -> None:
    places = list(range(len(rows)))
    shuffled.shuffle(places)
    before, after = run(rows, specs_of(key), END), run([rows[i] for i in places], specs_of(key), END)
    asking = [i for i in range(len(rows)) if rows[i].query]
    moved = [asking.index(i) for i in places if rows[i].query]
    assert after.columns.to_pylist() == [before.columns.to_pylist()[i] for i in moved]
    assert content(after.states[0]) == content(before.states[0])


def altered(rows: Sequence[Row], time: int, chance: random.Random) -> list[Row]:
    """Returns the log with another future: what is visible or known at `time` or later is changed, gone or new."""

    def later() -> int:
        return time + chance.randrange(30_000)

    result = []
    for row in rows:
        click, buy = (one if one is not None and one < time else chance.choice([None, later()]) for one in row.known)
        changed = dataclasses.replace(row, known=(click, buy))
        if row.visible >= time:
            changed = dataclasses.replace(changed, visible=later(), item=chance.randrange(9), order=row.order)
            if row.cutoff > time:
                changed = dataclasses.replace(changed, user=b"b", category=chance.choice([1, None]))
        past = [one for one in row.known if one is not None and one < time]
        if past:  # the value of a history that is already known stays
            changed = dataclasses.replace(changed, item=row.item, user=row.user, category=row.category)
        gone = row.visible >= time and not past and row.cutoff > time
        result += [] if gone and chance.random() < 0.5 else [changed]
    new = [
        Row(b"a", 1, 3, time, later(), (later(), None), time + 1, True, 10**6 + i) for i in range(chance.randrange(3))
    ]
    return [*new, *result]


@settings(deadline=None, max_examples=50)
@given(rows=logs(), time=TIMES, chance=st.randoms(use_true_random=False), key=st.sampled_from(KEYS))
def test_the_future_of_a_row_changes_nothing_in_it(
    rows: list[Row], time: int, chance: random.Random, key: tuple[str, ...]
) -> None:
    other = altered(rows, time, chance)
    before, after = run(rows, specs_of(key), time), run(other, specs_of(key), time)
    assert content(after.states[0]) == content(before.states[0])
    past = [
        [values for row, values in zip(asking, found.columns.to_pylist(), strict=True) if row.cutoff <= time]
        for asking, found in (
            ([row for row in rows if row.query], before),
            ([row for row in other if row.query], after),
        )
    ]
    assert past[0] == past[1]


def chained(rows: Sequence[Row], specs: Sequence[DerivedColumn]) -> tuple[dict[int, Any], list[pa.Table]]:
    """Returns values by `order` of the row, and states, made period by period from the rows that must be given."""
    base: pa.Table | None = None
    found: dict[int, Any] = {}
    states: list[pa.Table] = []
    for start in range(0, END, PERIOD):
        own = [row for row in rows if start <= row.time < start + PERIOD]
        since = start - context_ms(specs)
        context = [
            dataclasses.replace(row, query=False)
            for row in rows
            if row.time < start and (row.visible >= since or any(one is not None and one >= since for one in row.known))
        ]
        made = derive(table_of_rows([*own, *context]), specs, base=base, base_ms=start, ends_ms=[start + PERIOD])
        found |= dict(zip([row.order for row in own if row.query], made.columns.to_pylist(), strict=True))
        states += made.states
        base = made.states[0]
    return found, states


@settings(deadline=None, max_examples=30)
@given(rows=logs(max_size=40), key=st.sampled_from(KEYS))
def test_going_on_from_a_state_equals_one_long_run(rows: list[Row], key: tuple[str, ...]) -> None:
    specs = specs_of(key)
    found, states = chained(rows, specs)
    long = run(rows, specs, *range(PERIOD, END + 1, PERIOD))
    assert [found[row.order] for row in rows if row.query] == long.columns.to_pylist()
    assert [content(state) for state in states] == [content(state) for state in long.states]


EXTREMES = st.one_of(
    st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 0, -1, 1]), st.integers(-(2**63), 2**63 - 1)
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(EXTREMES, EXTREMES, st.one_of(st.none(), EXTREMES)), max_size=8), EXTREMES)
def test_extreme_times_do_not_overflow(times: list[tuple[int, int, int | None]], end: int) -> None:
    rows = [
        Row(b"a", i % 2, i, time, visible, (known, visible), time, True, i)
        for i, (time, visible, known) in enumerate(times)
    ]
    specs = specs_of(("user",))
    found = run(rows, specs, end)
    assert found.columns.to_pylist() == columns_by_definition(rows, specs)
    assert by_key(found.states[0], ("user",)) == state_by_definition(rows, specs, end)


def test_a_window_holds_its_first_moment_and_not_its_last() -> None:
    specs = [CountColumn(kind="count", name="n", key=("user",), window_s=2.0)]
    rows = [Row(b"a", 0, 0, time, time, (None, None), time, True, time) for time in (0, 1, 2000, 2001, 2002)]
    # Before 2000: 0 and 1. Before 2001: 1 and 2000. Before 2002: 2000 and 2001, and 2 is not there.
    assert run(rows, specs).columns["n"].to_pylist() == [0, 1, 2, 2, 2]


def test_a_history_has_the_newest_known_first_then_the_later_event_then_the_smaller_hash() -> None:
    specs = [HistoryColumn(kind="history", name="h", key=("user",), value="item", label="click", length=5, ages="age")]
    rows = [
        Row(b"a", 0, 3, 200, 200, (9_000, None), 0, False, 8),
        Row(b"a", 0, 2, 200, 200, (9_000, None), 0, False, 9),
        Row(b"a", 0, 1, 100, 100, (9_000, None), 0, False, 7),
        Row(b"a", 0, 4, 100, 100, (9_500, None), 0, False, 6),
        Row(b"a", 0, None, 100, 100, (9_600, None), 0, False, 5),
        Row(b"a", 0, 6, 100, 100, (10_999, None), 0, False, 4),
        Row(b"a", 0, 7, 10_999, 10_999, (None, None), 10_999, True, 3),
    ]
    found = run(rows, specs).columns
    assert found["h"].to_pylist() == [[4, 3, 2, 1]]
    assert found["age"].to_pylist() == [[1, 1, 1, 1]]  # 1,499 and 1,999 ms
    assert found["age"].type == pa.list_(pa.int64())


def test_a_state_keeps_the_order_of_what_became_known_at_once() -> None:
    specs = [HistoryColumn(kind="history", name="h", key=("user",), value="item", label="click", length=3)]
    past = [Row(b"a", 0, item, 100, 100, (5_000, None), 0, False, item) for item in (3, 1, 4, 2)]
    state = run(past, specs, 6_000).states[0]
    assert state["h"].to_pylist() == [[1, 2, 3]]
    now = table_of_rows([Row(b"a", 0, 9, 7_000, 7_000, (None, None), 7_000, True, 9)])
    again = derive(now, specs, base=state, base_ms=6_000, ends_ms=[8_000])
    assert again.columns["h"].to_pylist() == again.states[0]["h"].to_pylist() == [[1, 2, 3]]


def test_a_row_without_a_key_knows_nothing() -> None:
    rows = [Row(None, 0, 1, time, time, (time, time), time, True, time) for time in (0, 5000)]
    found = run(rows, specs_of(("user",)), END)
    assert found.columns.to_pylist()[1] == {
        "shown": 0,
        "shown_7s": 0,
        "clicks": 0,
        "buys_20s": 0,
        "ctr": 0.1,
        "ctr_3s": 0.7,
        "seen": [],
        "seen_age": [],
        "bought": [],
    }
    assert found.states[0].num_rows == 0
    assert found.states[0].schema.field("seen").type == pa.list_(pa.int64())


def test_a_missing_time_is_never() -> None:
    table = table_of_rows([Row(b"a", 0, 1, time, time, (time, None), time, True, time) for time in (0, 1000, 2000)])
    specs = specs_of(("user",))[:1]
    place = table.schema.get_field_index("__visible")
    unseen = table.set_column(place, "__visible", pa.array([None, 1000, 2000], pa.int64()))
    assert derive(unseen, specs, base=None, base_ms=0, ends_ms=[]).columns["shown"].to_pylist() == [0, 0, 1]
    place = table.schema.get_field_index("__cutoff")
    blind = table.set_column(place, "__cutoff", pa.array([0, 1000, None], pa.int64()))
    assert derive(blind, specs, base=None, base_ms=0, ends_ms=[]).columns["shown"].to_pylist() == [0, 1, 0]


@settings(deadline=None, max_examples=20)
@given(rows=logs(), cut=st.integers(0, 25))
def test_dictionaries_and_chunks_give_the_same(rows: list[Row], cut: int) -> None:
    specs = specs_of(("user", "category"))
    table = table_of_rows(rows)
    coded = table
    for name in ("user", "category", "item"):
        place = coded.schema.get_field_index(name)
        coded = coded.set_column(place, name, coded[name].combine_chunks().dictionary_encode(null_encoding="encode"))
    coded = pa.concat_tables([coded[:cut], coded[cut:]])
    plain = derive(table, specs, base=None, base_ms=0, ends_ms=[PERIOD, END])
    found = derive(coded, specs, base=None, base_ms=0, ends_ms=[PERIOD, END])
    assert content(found.columns) == content(plain.columns)
    assert [content(state) for state in found.states] == [content(state) for state in plain.states]
    late = [dataclasses.replace(row, query=False) for row in rows]
    again = [
        derive(part, specs, base=plain.states[0], base_ms=PERIOD, ends_ms=[END]).states[0]
        for part in (table_of_rows(late), _coded(table_of_rows(late)))
    ]
    assert content(again[0]) == content(again[1]) == content(plain.states[1])


def _coded(table: pa.Table) -> pa.Table:
    for name in ("user", "category", "item"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].combine_chunks().dictionary_encode())
    return table


@settings(deadline=None, max_examples=15)
@given(rows=logs(), shuffled=st.randoms(use_true_random=False))
def test_keys_whose_hashes_collide_are_sorted_by_value(rows: list[Row], shuffled: random.Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entity_keys, "hash_rows", lambda table, _: np.zeros(table.num_rows, np.uint64))
        before = run(rows, specs_of(("user", "category")), END).states[0]
        shuffled.shuffle(rows)
        after = run(rows, specs_of(("user", "category")), END).states[0]
    assert before.equals(after)
    keys = list(zip(before["user"].to_pylist(), before["category"].to_pylist(), strict=True))
    assert keys == sorted(keys)


def test_lists_of_many_rows_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(b"a", 0, i, i, i, (i, None), i, True, i) for i in range(50)]
    whole = run(rows, specs_of(("user",)))
    monkeypatch.setattr("preprocessing.history._BLOCK_ROWS", 7)
    parts = run(rows, specs_of(("user",)))
    assert parts.columns["seen"].num_chunks == 8
    assert parts.columns.equals(whole.columns)


def test_keys_of_any_type_are_told_apart() -> None:
    table = table_of_rows([Row(b"a", 0, 0, i, i, (None, None), i, True, i) for i in range(5)])
    specs = [CountColumn(kind="count", name="n", key=("k",))]
    columns = {
        "float": pa.array([0.0, -0.0, 1.5, float("nan"), float("nan")]),
        "bool": pa.array([True, True, False, None, None]),
        "text": pa.array(["x", "x", "", "é", "é"], pa.large_string()),
        "extreme": pa.array([-(2**63), -(2**63), 2**63 - 1, 0, 0], pa.int64()),
    }
    for name, column in columns.items():
        found = derive(table.append_column("k", column), specs, base=None, base_ms=0, ends_ms=[9])
        expected = [0, 1, 0, 0, 0] if name == "bool" else [0, 1, 0, 0, 1]
        assert found.columns["n"].to_pylist() == expected, name


def test_the_context_reaches_as_far_as_the_longest_finite_window() -> None:
    assert context_ms(specs_of(("user",))) == 20_000
    assert context_ms(specs_of(("user",))[:1]) == 0


def test_no_other_column_is_needed() -> None:
    table = table_of_rows([Row(b"a", 0, 1, 5, 5, (5, 5), 5, True, 1)])
    specs = specs_of(("user",))
    assert run([], specs).columns.num_rows == 0
    for name in columns_needed(specs):
        with pytest.raises(DataError, match=name):
            derive(table.drop_columns([name]), specs, base=None, base_ms=0, ends_ms=[])
    derive(table.select(list(columns_needed(specs))), specs, base=None, base_ms=0, ends_ms=[9])


def test_a_call_that_cannot_be_answered_is_refused() -> None:
    rows = [Row(b"a", 0, 1, 5, 5, (5, 5), 5, True, 1)]
    specs = specs_of(("user",))
    state = run(rows, specs, 6).states[0]
    with pytest.raises(ConfigError, match="one key at a time"):
        run(rows, [*specs, *specs_of(("category",))])
    with pytest.raises(ConfigError, match="none"):
        run(rows, [])
    with pytest.raises(DataError, match="at 5 ms"):
        derive(table_of_rows(rows), specs, base=state, base_ms=6, ends_ms=[9])
    with pytest.raises(DataError, match="at 3 ms"):
        derive(table_of_rows(rows)[:0], specs, base=state, base_ms=6, ends_ms=[3])
    with pytest.raises(ArtefactError, match="make the periods before anew"):
        derive(table_of_rows(rows), specs[1:], base=state, base_ms=0, ends_ms=[])
    text = state.set_column(0, "user", pa.array([5], pa.int64()))
    with pytest.raises(ArtefactError, match="other types"):
        derive(table_of_rows(rows), specs, base=text, base_ms=0, ends_ms=[])
