"""TensorProto to numpy and back."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework import tensor_pb2, types_pb2

from serving.server.status import Code, StatusError
from serving.server.tensors import from_proto, to_proto

_DTYPES = [
    np.float32,
    np.float64,
    np.int64,
    np.int32,
    np.int16,
    np.int8,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.bool_,
]


@pytest.mark.parametrize("as_content", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_arrays_survive_the_way_there_and_back_and_agree_with_tensorflow(as_content: Any, data: Any) -> None:
    dtype = data.draw(st.sampled_from(_DTYPES))
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    proto = to_proto(array, as_content=as_content)
    np.testing.assert_array_equal(from_proto(proto), array)
    np.testing.assert_array_equal(tf.make_ndarray(proto), array)
    np.testing.assert_array_equal(from_proto(tf.make_tensor_proto(array)), array)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=8), max_size=6))
def test_strings_hold_any_bytes(values: Any) -> None:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    proto = to_proto(array, as_content=True)
    assert list(proto.string_val) == values
    assert from_proto(proto).tolist() == values


def test_answers_use_the_typed_field_unless_told_otherwise() -> None:
    assert list(to_proto(np.array([1.5, 2.0], np.float32)).float_val) == [1.5, 2.0]
    assert to_proto(np.array([1.5], np.float32), as_content=True).tensor_content == np.float32(1.5).tobytes()


def _proto(**fields: Any) -> Any:
    shape = fields.pop("shape")
    proto = tensor_pb2.TensorProto(**fields)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def test_a_short_list_repeats_its_last_value_and_a_long_one_is_cut() -> None:
    short = _proto(dtype=types_pb2.DT_INT64, shape=[2, 2], int64_val=[7, 8])
    assert from_proto(short).tolist() == [[7, 8], [8, 8]]
    long = _proto(dtype=types_pb2.DT_FLOAT, shape=[1], float_val=[1, 2, 3])
    assert from_proto(long).tolist() == [1.0]
    text = _proto(dtype=types_pb2.DT_STRING, shape=[2], string_val=[b"a"])
    assert from_proto(text).tolist() == [b"a", b"a"]
    assert from_proto(_proto(dtype=types_pb2.DT_STRING, shape=[2])).tolist() == [b"", b""]
    assert from_proto(_proto(dtype=types_pb2.DT_INT8, shape=[2])).tolist() == [0, 0]


@pytest.mark.parametrize(
    "proto",
    [
        _proto(dtype=types_pb2.DT_FLOAT, shape=[2], tensor_content=b"123"),
        _proto(dtype=types_pb2.DT_FLOAT, shape=[3], tensor_content=b"12345678"),
        _proto(dtype=types_pb2.DT_FLOAT, shape=[-1], float_val=[1]),
        _proto(dtype=types_pb2.DT_FLOAT, shape=[2**40, 2**40], float_val=[1]),
        _proto(dtype=types_pb2.DT_HALF, shape=[2**40], half_val=[1]),
        _proto(dtype=types_pb2.DT_INVALID, shape=[1]),
        _proto(dtype=types_pb2.DT_RESOURCE, shape=[1]),
        _proto(dtype=99, shape=[1]),
    ],
)
def test_what_does_not_decode_is_an_invalid_argument_that_names_the_input(proto: Any) -> None:
    with pytest.raises(StatusError, match="tensor parsing error: price") as caught:
        from_proto(proto, name="price")
    assert caught.value.code is Code.INVALID_ARGUMENT


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_decode_or_are_refused(body: Any) -> None:
    proto = tensor_pb2.TensorProto()
    try:
        proto.ParseFromString(body)
    except Exception:
        return
    try:
        from_proto(proto)
    except StatusError as error:
        assert error.code is Code.INVALID_ARGUMENT


def test_vectors_given_value_by_value_are_read_like_all_others() -> None:
    vector = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[1, 2])
    vector.tensor_shape.dim.add(size=2)
    assert from_proto(vector).tolist() == [1, 2]
    assert from_proto(vector).dtype == np.dtype(np.int64)
    vector.tensor_shape.dim[0].size = 3
    assert from_proto(vector).tolist() == [1, 2, 2]
    vector.tensor_shape.dim[0].size = 1
    assert from_proto(vector).tolist() == [1]
    # The bytes count, not the values beside them.
    vector.tensor_content = np.array([7], np.int64).tobytes()
    assert from_proto(vector).tolist() == [7]
    vector.ClearField("tensor_content")
    vector.tensor_shape.unknown_rank = True
    with pytest.raises(StatusError):
        from_proto(vector)
