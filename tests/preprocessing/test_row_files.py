from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.dictionaries import DICTIONARY
from preprocessing.errors import ArtefactError
from preprocessing.row_files import drop_twin, read_rows, write_rows

TEXT = st.one_of(st.none(), st.sampled_from([b"", b"\x00", b"\xff\xfe", b"a\nb", b"x" * 200]), st.binary(max_size=3))
NUMBER = st.one_of(st.none(), st.sampled_from([-(2**63), 2**63 - 1, 0]), st.integers(-5, 5))
FLOAT = st.one_of(st.none(), st.floats(allow_nan=False))
LIST = st.one_of(st.none(), st.lists(TEXT, max_size=3))
ROWS = st.lists(st.tuples(TEXT, NUMBER, FLOAT, LIST, st.integers(0, 2**64 - 1)), max_size=20)
SCHEMA = pa.schema(
    [
        ("text", pa.binary()),
        ("number", pa.int64()),
        ("float", pa.float64()),
        ("list", pa.list_(pa.binary())),
        ("hash", pa.uint64()),
    ]
)


def make_table(rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@settings(deadline=None, max_examples=40)
@given(ROWS, st.randoms())
def test_rows_come_back_and_their_bytes_do_not_tell_of_chunks_or_dictionaries(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], random: Any
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    table = make_table(rows)
    write_rows(table, folder / "plain")
    assert read_rows(folder / "plain").to_pylist() == table.to_pylist()
    by_index = read_rows(folder / "plain", dictionaries=True)
    assert by_index["text"].type == DICTIONARY
    assert by_index["text"].num_chunks <= 1
    assert by_index.to_pylist() == table.to_pylist()

    words = list({row[0] for row in rows if row[0] is not None} | {b"unused"})
    random.shuffle(words)
    places = [None if row[0] is None else words.index(row[0]) for row in rows]
    coded = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(words, pa.binary()))
    cut = random.randint(0, len(rows))
    other = table.set_column(0, "text", coded)
    write_rows(pa.concat_tables([other[:cut], other[cut:]]), folder / "coded")
    assert (folder / "coded").read_bytes() == (folder / "plain").read_bytes()


def test_a_reader_that_does_not_ask_for_dictionaries_gets_plain_columns(tmp_path: Path) -> None:
    write_rows(make_table([(b"a", 1, 1.0, [b"b"], 2**64 - 1)]), tmp_path / "rows")
    assert pq.read_table(tmp_path / "rows").schema == SCHEMA


def test_text_of_many_values_is_stored_by_dictionary_to_the_end(tmp_path: Path) -> None:
    words = [b"%040d" % i for i in range(60_000)]  # 2.4 MB: more than the limit that writers have by default
    write_rows(pa.table({"text": pa.array(words, pa.binary())}), tmp_path / "rows")
    column = pq.ParquetFile(tmp_path / "rows").metadata.row_group(0).column(0)
    assert column.encodings == ("PLAIN", "RLE", "RLE_DICTIONARY")
    assert column.total_uncompressed_size < 60_000 * 50
    assert read_rows(tmp_path / "rows", dictionaries=True)["text"].to_pylist() == words


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    write_rows(make_table([(b"a", 1, 1.0, None, 3)]), tmp_path / "rows")
    for dictionaries in (False, True):
        assert read_rows(tmp_path / "rows", ["hash", "text"], dictionaries=dictionaries).to_pylist() == [
            {"hash": 3, "text": b"a"}
        ]


@pytest.mark.parametrize("dictionaries", [False, True])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, dictionaries: bool) -> None:
    write_rows(make_table([(b"a", 1, 1.0, None, 3)] * 100), tmp_path / "rows")
    (tmp_path / "rows").write_bytes((tmp_path / "rows").read_bytes()[:-30])
    with pytest.raises(ArtefactError, match=r"rows cannot be read: .*remove its artefact"):
        read_rows(tmp_path / "rows", dictionaries=dictionaries)


def test_no_part_of_a_file_is_left_in_sight(tmp_path: Path) -> None:
    write_rows(pa.table({"n": np.arange(10)}), tmp_path / "rows")
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@settings(deadline=None, max_examples=20)
@given(ROWS)
def test_a_twin_holds_what_its_file_holds_and_may_be_broken_or_dropped(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path, twin = tmp_path_factory.mktemp("rows") / "rows.parquet", Path("rows.arrow")
    write_rows(make_table(rows), path)
    alone, stored = read_rows(path, dictionaries=True), path.read_bytes()
    write_rows(make_table(rows), path, twin=True)
    assert path.read_bytes() == stored
    path.with_name(twin.name).rename(path.with_name("kept"))
    assert read_rows(path, dictionaries=True).equals(alone)
    path.with_name("kept").rename(path.with_name(twin.name))
    path.rename(path.with_name("away"))  # so that the twin is what is read
    path.write_bytes(stored[:0])
    found = read_rows(path, ["text", "number"], dictionaries=True)
    assert found.column_names == ["text", "number"]
    for name in found.column_names:
        assert found[name].to_pylist() == alone[name].to_pylist()
        assert found[name].type == alone[name].type
    path.with_name("away").rename(path)
    path.with_name(twin.name).write_bytes(b"ARROW1 cut short")
    assert read_rows(path, dictionaries=True).equals(alone)
    drop_twin(path)
    drop_twin(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
