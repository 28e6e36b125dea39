from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.examples import Encoded, encode_records, feature_spec, write_records
from preprocessing.schema import DatasetSchema, IdField, ListField

SCHEMA = DatasetSchema(
    raw_columns=(),
    id_fields=tuple(IdField(name=f"i{i}", table=f"i{i}") for i in range(3)),
    list_fields=(ListField(name="tags", table="tags", length=2, pooling="mean"),),
    dense=("x", "y"),
    labels=("click",),
)


def encoded(ids: npt.NDArray[np.int64], tags: npt.NDArray[np.int64], floats: npt.NDArray[np.float32]) -> Encoded:
    return Encoded(ids=ids, dense=floats[:, :2], lists={"tags": tags}, labels=floats[:, 2:3], weight=floats[:, 3])


def random_rows(num_rows: int, *, largest: int) -> Encoded:
    rng = np.random.default_rng(7)
    return encoded(
        rng.integers(0, largest, (num_rows, 3)),
        rng.integers(0, largest, (num_rows, 2)),
        rng.normal(size=(num_rows, 4)).astype(np.float32),
    )


def read(path: Path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def assert_parsed(records: list[bytes], rows: Encoded) -> None:
    parsed = tf.io.parse_example(records, feature_spec(SCHEMA))
    np.testing.assert_array_equal(parsed["ids"], rows.ids)
    np.testing.assert_array_equal(parsed["list/tags"], rows.lists["tags"])
    for key, values in (("dense", rows.dense), ("labels", rows.labels), ("weight", rows.weight[:, None])):
        # Compared as bits: NaN payloads and signs of zero count.
        np.testing.assert_array_equal(parsed[key].numpy().view(np.uint32), np.ascontiguousarray(values).view(np.uint32))


INT64 = st.one_of(st.integers(0, 300), st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))
FLOAT_BITS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 6))
def test_parse_example_gives_the_arrays_back(tmp_path_factory: object, data: st.DataObject, num_rows: int) -> None:
    ids = data.draw(st.lists(st.lists(INT64, min_size=5, max_size=5), min_size=num_rows, max_size=num_rows))
    bits = data.draw(st.lists(st.lists(FLOAT_BITS, min_size=4, max_size=4), min_size=num_rows, max_size=num_rows))
    both = np.array(ids, np.int64)
    rows = encoded(both[:, :3], both[:, 3:], np.array(bits, np.uint32).view(np.float32))
    path = tmp_path_factory.mktemp("records") / "r"  # type: ignore[attr-defined]
    assert write_records(path, rows) == num_rows
    assert_parsed(read(path), rows)


def test_a_record_is_a_canonical_example_message() -> None:
    rows = random_rows(50, largest=10**6)
    content = encode_records(rows).tobytes()
    start = 0
    for index in range(50):
        size = int.from_bytes(content[start : start + 8], "little")
        message = content[start + 12 : start + 12 + size]
        example = tf.train.Example.FromString(message)
        assert list(example.features.feature["ids"].int64_list.value) == rows.ids[index].tolist()
        assert len(example.SerializeToString()) == size  # no wasted byte
        start += size + 16
    assert start == len(content)


def test_many_blocks_keep_the_order_of_rows(tmp_path: Path) -> None:
    rows = random_rows(20_000, largest=2**40)
    assert write_records(tmp_path / "r", rows) == 20_000
    assert_parsed(read(tmp_path / "r"), rows)


def test_a_block_of_rows_has_the_bytes_of_its_rows_alone() -> None:
    rows = random_rows(40, largest=2**50)
    together = encode_records(rows).tobytes()
    alone = b"".join(encode_records(rows.rows(i, i + 1)).tobytes() for i in range(40))
    assert together == alone


def test_columns_in_another_memory_order_are_the_same_records() -> None:
    rows = random_rows(40, largest=2**20)
    turned = encoded(
        np.asfortranarray(rows.ids),
        np.asfortranarray(rows.lists["tags"]),
        np.asfortranarray(np.column_stack([rows.dense, rows.labels, rows.weight])),
    )
    assert encode_records(turned).tobytes() == encode_records(rows).tobytes()


def test_keys_of_length_zero_are_left_out(tmp_path: Path) -> None:
    rows = Encoded(
        ids=np.zeros((2, 0), np.int64),
        dense=np.zeros((2, 0), np.float32),
        lists={},
        labels=np.array([[0.0], [1.0]], np.float32),
        weight=np.ones(2, np.float32),
    )
    write_records(tmp_path / "r", rows)
    example = tf.train.Example.FromString(read(tmp_path / "r")[1])
    assert sorted(example.features.feature) == ["labels", "weight"]
    assert set(feature_spec(DatasetSchema(raw_columns=(), labels=("a",)))) == {"labels", "weight"}


def test_no_rows_make_an_empty_file(tmp_path: Path) -> None:
    assert write_records(tmp_path / "r", random_rows(0, largest=5)) == 0
    assert (tmp_path / "r").read_bytes() == b""


def test_wide_records_pass_every_size_of_length_prefix(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    # Packed lists of 100 to 30,000 bytes: length prefixes of 1, 2 and 3 bytes.
    ids = rng.integers(0, 2 ** rng.integers(1, 62, (30, 1)), (30, 3000))
    rows = Encoded(
        ids=ids,
        dense=np.zeros((30, 0), np.float32),
        lists={"t": ids[:, :20]},
        labels=np.ones((30, 1), np.float32),
        weight=np.ones(30, np.float32),
    )
    write_records(tmp_path / "r", rows)
    spec = {"ids": tf.io.FixedLenFeature([3000], tf.int64), "list/t": tf.io.FixedLenFeature([20], tf.int64)}
    parsed = tf.io.parse_example(read(tmp_path / "r"), spec)
    np.testing.assert_array_equal(parsed["ids"], ids)
    np.testing.assert_array_equal(parsed["list/t"], ids[:, :20])
