from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing import vocabulary
from preprocessing.errors import ArtefactError
from preprocessing.token_counts import TokenCounts


def counts(tokens: dict[bytes, int]) -> TokenCounts:
    return TokenCounts(
        tokens=pa.array(list(tokens), pa.large_binary()), counts=np.array(list(tokens.values()), np.int64)
    )


def test_tokens_come_by_falling_count_and_ties_by_unsigned_bytes() -> None:
    found = vocabulary.build(
        counts({b"\xff": 2, b"a": 2, b"": 2, b"a\x00": 2, b"often": 9, b"rare": 1}),
        min_count=2,
        max_size=None,
        num_oov=1,
    )
    assert found.tokens.to_pylist() == [b"often", b"", b"a", b"a\x00", b"\xff"]
    assert found.counts.tolist() == [9, 2, 2, 2, 2]


def test_max_size_keeps_the_most_frequent() -> None:
    found = vocabulary.build(counts({b"a": 1, b"b": 3, b"c": 2}), min_count=1, max_size=2, num_oov=1)
    assert found.tokens.to_pylist() == [b"b", b"c"]


def test_rows_are_missing_then_oov_buckets_then_tokens() -> None:
    found = vocabulary.build(counts({b"a": 1, b"b": 3}), min_count=1, max_size=None, num_oov=4)
    assert found.first_token_id == 1 + 4
    assert found.num_rows == 1 + 4 + 2


def test_no_token_leaves_missing_and_oov() -> None:
    found = vocabulary.build(counts({b"a": 1}), min_count=2, max_size=None, num_oov=1)
    assert found.tokens.to_pylist() == []
    assert found.num_rows == 2


def test_other_layouts_count_their_rows() -> None:
    assert vocabulary.hashed_rows(10) == 11  # missing
    assert vocabulary.integer_rows(10) == 12  # missing, out of range
    assert vocabulary.bucket_rows(3) == 5  # missing, 4 buckets between 3 boundaries
    assert vocabulary.period_rows(24) == 25


@given(st.dictionaries(st.binary(max_size=20), st.integers(1, 5), max_size=20), st.randoms())
def test_order_does_not_depend_on_the_order_of_counting(tokens: dict[bytes, int], random: object) -> None:
    shuffled = list(tokens.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = vocabulary.build(counts(tokens), min_count=1, max_size=None, num_oov=1)
    second = vocabulary.build(counts(dict(shuffled)), min_count=1, max_size=None, num_oov=1)
    assert first.tokens.equals(second.tokens)
    assert first.tokens.to_pylist() == sorted(tokens, key=lambda token: (-tokens[token], token))


def test_a_saved_vocabulary_is_the_same_after_loading(tmp_path: Path) -> None:
    hostile = {b"": 3, b"\n": 2, b"\x00\x01": 2, b"\xff\xfe": 1, "naïve 🙂".encode(): 1}
    saved = vocabulary.build(counts(hostile), min_count=1, max_size=None, num_oov=3)
    saved.save(tmp_path / "v.parquet")
    loaded = vocabulary.load(tmp_path / "v.parquet")
    assert loaded.tokens.equals(saved.tokens)
    assert loaded.counts.tolist() == saved.counts.tolist()
    assert loaded.num_oov == 3


def test_another_layout_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    vocabulary.build(counts({b"a": 1}), min_count=1, max_size=None, num_oov=1).save(path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"rankmill.id_layout": b"99"}), path)
    with pytest.raises(ArtefactError, match="layout 99"):
        vocabulary.load(path)


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="not a readable vocabulary"):
        vocabulary.load(tmp_path / "absent.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ArtefactError, match="not a readable vocabulary"):
        vocabulary.load(tmp_path / "other.parquet")
