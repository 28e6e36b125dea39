import numpy as np
import pyarrow as pa
import pytest

from preprocessing.hashing import mix
from preprocessing.negative_sampling import kept_rows
from preprocessing.spec import HashSplit
from preprocessing.splits import assign

ROWS = 20_000


def make_rows(count: int = ROWS, *, label_rate: float = 0.1) -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(count),
            "user": pa.array([b"u%d" % user for user in random.integers(0, 99, count)]),
            "__weight": random.random(count).astype(np.float32),
            "__label_click": (random.random(count) < label_rate).astype(np.float32),
            "__label_buy": np.zeros(count, np.float32),
        }
    )


@pytest.mark.parametrize("keep", [0.05, 0.5, 0.9])
def test_all_positives_and_the_stated_share_of_negatives_stay(keep: float) -> None:
    rows = make_rows()
    positive = rows["__label_click"].to_numpy() == 1
    kept = kept_rows(rows, keep=keep, labels=["click", "buy"])
    assert kept[positive].all()
    negatives = int((~positive).sum())
    deviation = (keep * (1 - keep) / negatives) ** 0.5
    assert abs(kept[~positive].mean() - keep) < 5 * deviation


def test_a_row_with_any_positive_label_stays() -> None:
    rows = pa.table({"id": range(200), "__label_a": [0.0, 1.0] * 100, "__label_b": [0.0, 0.0, 0.0, 1.0] * 50})
    kept = kept_rows(rows, keep=1e-9, labels=["a", "b"])
    assert kept.tolist() == [False, True, False, True] * 50
    assert kept_rows(rows, keep=1e-9, labels=["b"]).tolist() == [False, False, False, True] * 50


def test_what_stays_follows_from_the_content_of_a_row_alone() -> None:
    rows = make_rows(2_000)
    kept = kept_rows(rows, keep=0.3, labels=["click"])
    place = np.random.default_rng(1).permutation(2_000)
    shuffled = rows.take(pa.array(place)).select(list(reversed(rows.column_names)))
    np.testing.assert_array_equal(kept_rows(shuffled, keep=0.3, labels=["click"]), kept[place])
    part = kept_rows(rows.slice(700, 50), keep=0.3, labels=["click"])
    np.testing.assert_array_equal(part, kept[700:750])
    weightless = rows.set_column(2, "__weight", pa.array(np.zeros(2_000, np.float32)))
    np.testing.assert_array_equal(kept_rows(weightless, keep=0.3, labels=["click"]), kept)


def test_more_is_kept_of_the_same_rows_as_the_share_grows() -> None:
    rows = make_rows()
    few, many, every = (kept_rows(rows, keep=keep, labels=["click"]) for keep in (0.1, 0.4, 1.0))
    assert not (few & ~many).any()
    assert every.all()


def test_the_sample_is_independent_of_the_split_by_hash() -> None:
    rows = make_rows(label_rate=0.0)
    split = assign(rows, HashSplit(kind="hash"), days=None)
    kept = kept_rows(rows, keep=0.3, labels=["click"])
    for number in (0, 1, 2):
        assert kept[split == number].mean() == pytest.approx(0.3, abs=0.05)


def test_missing_labels_and_empty_tables_are_no_positives() -> None:
    rows = pa.table({"id": [1], "__label_a": pa.array([None], pa.float32())})
    assert kept_rows(rows, keep=1e-9, labels=["a"]).tolist() == [False]
    assert kept_rows(rows.slice(0, 0), keep=0.5, labels=["a"]).tolist() == []


def test_a_known_row_keeps_its_fate() -> None:
    # From the definition: the salted hash of the content, as a number in [0, 1).
    from preprocessing.columnar import hash_rows

    rows = pa.table({"b": [7, 8, 9], "a": pa.array([b"x", b"y", None]), "__label_z": [0.0, 0.0, 0.0]})
    salted = mix(hash_rows(rows, ["a", "b"]) ^ np.uint64(int.from_bytes(b"negative", "big")))
    for keep in (0.2, 0.5, 0.8):
        expected = [int(value) >> 11 < keep * 2**53 for value in salted]
        assert kept_rows(rows, keep=keep, labels=["z"]).tolist() == expected
