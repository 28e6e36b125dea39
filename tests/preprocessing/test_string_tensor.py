import pyarrow as pa
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.string_tensor import serialise_strings, varint


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=10))
def test_tensorflow_reads_the_same_strings_back(values: list[bytes]) -> None:
    parsed = tf.io.parse_tensor(serialise_strings(pa.array(values, pa.binary())), tf.string)
    assert parsed.shape == [len(values)]
    assert parsed.numpy().tolist() == values


def test_a_slice_holds_its_own_values_only() -> None:
    values = pa.array([b"a", b"bb", b"ccc", b"dddd"], pa.binary())[1:3]
    assert tf.io.parse_tensor(serialise_strings(values), tf.string).numpy().tolist() == [b"bb", b"ccc"]


def test_varints_of_known_numbers() -> None:
    assert varint(0) == b"\x00"
    assert varint(127) == b"\x7f"
    assert varint(300) == b"\xac\x02"
