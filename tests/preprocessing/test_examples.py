from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.errors import DataError
from preprocessing.examples import Encoded, encode_records, feature_spec, record_bytes, write_records
from preprocessing.schema import DatasetSchema, IdField, ListField, TableSchema


def schema_of(sizes: list[int], *, tags: int, num_ids: int = 3, length: int = 2) -> DatasetSchema:
    return DatasetSchema(
        raw_columns=(),
        id_fields=tuple(IdField(name=f"i{i}", table=f"t{i % len(sizes)}") for i in range(num_ids)),
        list_fields=(ListField(name="tags", table="tags", length=length, pooling="mean"),),
        dense=("x", "y"),
        tables=(
            *(TableSchema(name=f"t{i}", num_rows=size) for i, size in enumerate(sizes)),
            TableSchema(name="tags", num_rows=tags),
        ),
        labels=("click",),
    )


SCHEMA = schema_of([2**62, 300, 2**20], tags=2**33)


def encoded(
    ids: npt.NDArray[np.int64],
    tags: npt.NDArray[np.int64],
    floats: npt.NDArray[np.float32],
    schema: DatasetSchema = SCHEMA,
) -> Encoded:
    return Encoded(
        schema=schema, ids=ids, dense=floats[:, :2], lists={"tags": tags}, labels=floats[:, 2:3], weight=floats[:, 3]
    )


def random_rows(num_rows: int, *, largest: int) -> Encoded:
    rng = np.random.default_rng(7)
    return encoded(
        rng.integers(0, largest, (num_rows, 3)),
        rng.integers(0, largest, (num_rows, 2)),
        rng.normal(size=(num_rows, 4)).astype(np.float32),
        schema_of([largest], tags=largest),
    )


def read(path: Path) -> list[bytes]:
    batches = tf.data.TFRecordDataset(str(path)).batch(100_000).as_numpy_iterator()
    return [record for batch in batches for record in batch.tolist()]


def assert_parsed(records: list[bytes], rows: Encoded) -> None:
    parsed = tf.io.parse_example(records, feature_spec(SCHEMA))
    np.testing.assert_array_equal(parsed["ids"], rows.ids)
    np.testing.assert_array_equal(parsed["list/tags"], rows.lists["tags"])
    for key, values in (("dense", rows.dense), ("labels", rows.labels), ("weight", rows.weight[:, None])):
        # Compared as bits: NaN payloads and signs of zero count.
        np.testing.assert_array_equal(parsed[key].numpy().view(np.uint32), np.ascontiguousarray(values).view(np.uint32))


FLOAT_BITS = st.integers(0, 2**32 - 1)
SIZES = st.one_of(st.integers(1, 300), st.integers(1, 2**63 - 1), st.integers(0, 8).map(lambda n: 2 ** (7 * n)))


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 6))
def test_parse_example_gives_the_arrays_back(tmp_path_factory: object, data: st.DataObject, num_rows: int) -> None:
    sizes = data.draw(st.lists(SIZES, min_size=4, max_size=4))
    columns = [data.draw(st.lists(st.integers(0, size - 1), min_size=num_rows, max_size=num_rows)) for size in sizes]
    columns.append(data.draw(st.permutations(columns[-1])))
    bits = data.draw(st.lists(st.lists(FLOAT_BITS, min_size=4, max_size=4), min_size=num_rows, max_size=num_rows))
    both = np.array(columns, np.int64).T
    schema = schema_of(sizes[:3], tags=sizes[3])
    rows = encoded(both[:, :3], both[:, 3:], np.array(bits, np.uint32).view(np.float32), schema)
    path = tmp_path_factory.mktemp("records") / "r"  # type: ignore[attr-defined]
    assert write_records(path, rows) == num_rows
    assert_parsed(read(path), rows)


def test_every_parser_reads_the_padded_ids() -> None:
    rows = random_rows(50, largest=10**6)
    content = encode_records(rows).tobytes()
    size = record_bytes(rows.schema)
    assert len(content) == 50 * size
    for index in range(50):
        record = content[index * size : (index + 1) * size]
        assert int.from_bytes(record[:8], "little") == size - 16
        wanted = rows.ids[index].tolist()
        example = tf.train.Example.FromString(record[12:-4])
        assert list(example.features.feature["ids"].int64_list.value) == wanted
        assert (
            list(tf.train.Example.FromString(example.SerializeToString()).features.feature["ids"].int64_list.value)
            == wanted
        )
        single = tf.io.parse_single_example(record[12:-4], feature_spec(rows.schema))
        assert single["ids"].numpy().tolist() == wanted
        ragged = {"ids": tf.io.RaggedFeature(tf.int64), "list/tags": tf.io.VarLenFeature(tf.int64)}
        parsed = tf.io.parse_example([record[12:-4]], ragged)
        assert parsed["ids"].to_list() == [wanted]
        assert parsed["list/tags"].values.numpy().tolist() == rows.lists["tags"][index].tolist()


def test_the_size_of_a_record_follows_from_the_schema() -> None:
    # Ids of 3, 3 and 3 bytes, tags of 3 and 3, floats of 16, and by hand: keys, tags and lengths of five entries.
    heads = sum(2 + 2 + len(key) + 2 + 2 + 2 for key in ("dense", "labels", "weight", "ids", "list/tags"))
    message = 2 + heads + 15 + 16
    assert record_bytes(random_rows(1, largest=10**6).schema) == message + 16
    assert len(encode_records(random_rows(7, largest=2)).tobytes()) == 7 * (message - 10 + 16)


@pytest.mark.parametrize("wrong", [-1, -(2**63), 128, 2**32, 2**40])
def test_an_id_that_does_not_fit_is_an_error(wrong: int) -> None:
    rows = random_rows(5, largest=100)
    rows.ids[3, 1] = wrong
    with pytest.raises(DataError, match=f"'ids', column 1: id {wrong} does not fit"):
        encode_records(rows)


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
        rows.schema,
    )
    assert encode_records(turned).tobytes() == encode_records(rows).tobytes()


def test_keys_of_length_zero_are_left_out(tmp_path: Path) -> None:
    rows = Encoded(
        schema=DatasetSchema(raw_columns=(), labels=("a",)),
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


@pytest.mark.parametrize("num_ids", [10, 100, 20_000])
def test_wide_records_pass_every_size_of_length_prefix(tmp_path: Path, num_ids: int) -> None:
    # Packed lists of 10 to 160,000 bytes: length prefixes of 1, 2 and 3 bytes.
    rng = np.random.default_rng(1)
    sizes = [2 ** int(bits) for bits in rng.integers(1, 62, num_ids)]
    schema = schema_of(sizes, tags=2**50, num_ids=num_ids, length=20)
    ids = np.column_stack([rng.integers(0, size, 3) for size in sizes])
    rows = Encoded(
        schema=schema.model_copy(update={"dense": ()}),
        ids=ids,
        dense=np.zeros((3, 0), np.float32),
        lists={"tags": rng.integers(0, 2**50, (3, 20))},
        labels=np.ones((3, 1), np.float32),
        weight=np.ones(3, np.float32),
    )
    write_records(tmp_path / "r", rows)
    parsed = tf.io.parse_example(read(tmp_path / "r"), feature_spec(rows.schema))
    np.testing.assert_array_equal(parsed["ids"], ids)
    np.testing.assert_array_equal(parsed["list/tags"], rows.lists["tags"])
