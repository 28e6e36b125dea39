from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.coercion import DICTIONARY, coerce
from preprocessing.spec import ColumnSpec

CELLS = st.lists(
    st.one_of(st.none(), st.sampled_from([b"", b"1", b"x", b"-124", b"2.5", b"1|x", b"\xff"])), max_size=12
)


def outcome(values: pa.Array, column: ColumnSpec, **options: Any) -> tuple[list[Any], dict[str, list[bool]]]:
    coerced = coerce(values, column, empty_is_missing=False, **options)
    return coerced.values.to_pylist(), {reason: mask.tolist() for reason, mask in coerced.faults}


@pytest.mark.parametrize("kind", ["string", "int64", "float64", "bool", "timestamp", "list<string>", "list<int64>"])
@given(CELLS, st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_dictionary_means_what_its_values_mean(kind: str, cells: list[bytes | None], sliced: bool) -> None:
    column = ColumnSpec(type=kind, missing=("-124",), delimiter="|" if "list" in kind else None, max=2)
    plain = pa.array(cells, pa.binary())
    # A dictionary may hold values that no row has, values twice, and nulls.
    spare = pa.array([b"x", None, b"1"], pa.binary())
    codes = plain.dictionary_encode()
    indices = pa.array([None if code is None else code + 3 for code in codes.indices.to_pylist()], pa.int8())
    encoded = pa.DictionaryArray.from_arrays(indices, pa.concat_arrays([spare, codes.dictionary]))
    if sliced and cells:
        plain, encoded = plain.slice(1), encoded.slice(1)
    assert outcome(encoded, column) == outcome(plain, column)
    assert outcome(encoded, column, dictionaries=True) == outcome(plain, column)


@pytest.mark.parametrize(
    "values", [pa.array([b"a", b"", None, b"b"]), pa.array(["a", "", None, "b"]).dictionary_encode()]
)
def test_strings_come_out_as_dictionaries_of_one_type_without_nulls_among_the_values(values: pa.Array) -> None:
    coerced = coerce(values, ColumnSpec(type="string"), empty_is_missing=True, dictionaries=True)
    assert coerced.values.type == DICTIONARY
    assert coerced.values.to_pylist() == [b"a", None, None, b"b"]
    assert coerced.values.dictionary.to_pylist() == [b"a", b"b"]
    assert coerced.values.indices.null_count == 2


def test_other_columns_are_converted_once_for_each_distinct_value() -> None:
    encoded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["12.0"]))
    coerced = coerce(encoded, ColumnSpec(type="int64"), empty_is_missing=True, dictionaries=True)
    assert coerced.values.equals(pa.array([12] * 1000, pa.int64()))
