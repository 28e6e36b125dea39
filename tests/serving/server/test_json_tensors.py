"""REST values, both ways."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2 as types

from serving.server.json_tensors import array_to_json, value_to_array
from serving.server.status import Code, StatusError


def _read(value: Any, dtype: Any) -> Any:
    return value_to_array(value, dtype, name="x")


def _whole(array: Any, **options: Any) -> Any:
    texts = array_to_json(array, **options)
    return texts if isinstance(texts, str) else "[" + ",".join(texts) + "]"


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, types.DT_FLOAT, np.float32(1)),
        ([1, 2.5], types.DT_FLOAT, np.array([1, 2.5], np.float32)),
        ([1e300, -1e300, 1e-300], types.DT_FLOAT, np.array([np.inf, -np.inf, 0], np.float32)),
        ([2**70], types.DT_DOUBLE, np.array([2.0**70])),
        ([[1], [2]], types.DT_INT64, np.array([[1], [2]], np.int64)),
        ([2**64 - 1], types.DT_UINT64, np.array([2**64 - 1], np.uint64)),
        ([-(2**63)], types.DT_INT64, np.array([-(2**63)], np.int64)),
        ([300, -1], types.DT_UINT8, np.array([44, 255], np.uint8)),
        ([True, False], types.DT_BOOL, np.array([True, False])),
        (["a", {"b64": "AP8="}, "é"], types.DT_STRING, np.array([b"a", b"\x00\xff", "é".encode()], object)),
        ([[], []], types.DT_FLOAT, np.zeros([2, 0], np.float32)),
        ([[[1]], [[2]]], types.DT_INT32, np.array([[[1]], [[2]]], np.int32)),
    ],
)
def test_accepts_what_the_rules_accept(value: Any, dtype: Any, expected: Any) -> None:
    result = _read(value, dtype)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.0], types.DT_INT64),
        ([True], types.DT_INT64),
        ([True], types.DT_FLOAT),
        (["1"], types.DT_FLOAT),
        ([None], types.DT_FLOAT),
        ([1], types.DT_BOOL),
        ([1], types.DT_STRING),
        ([{"b64": "AA==", "more": 1}], types.DT_STRING),
        ([{"b64": 1}], types.DT_STRING),
        ([{"b64": "?"}], types.DT_STRING),
        ([{}], types.DT_STRING),
        (["\ud800"], types.DT_STRING),
        ([2**31], types.DT_INT8),
        ([2**63], types.DT_INT64),
        ([-1], types.DT_UINT32),
        ([10**400], types.DT_DOUBLE),
        ([[1], [1, 2]], types.DT_FLOAT),
        ([[1], 2], types.DT_FLOAT),
        ([[[]], [1]], types.DT_FLOAT),
    ],
)
def test_refuses_what_the_rules_refuse(value: Any, dtype: Any) -> None:
    with pytest.raises(StatusError) as caught:
        _read(value, dtype)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_messages_name_the_expected_type_and_the_tensor() -> None:
    with pytest.raises(StatusError, match='JSON Value: "a" of tensor x is not of expected type: float'):
        _read([1, "a"], types.DT_FLOAT)


def test_half_and_complex_are_unimplemented() -> None:
    for dtype in (types.DT_HALF, types.DT_COMPLEX64, types.DT_UINT16):
        with pytest.raises(StatusError) as caught:
            _read([1], dtype)
        assert caught.value.code is Code.UNIMPLEMENTED


def test_deep_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(900):
        value = [value]
    with pytest.raises(StatusError, match="Encountered list at unexpected depth"):
        _read(value, types.DT_FLOAT)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(1), "1.0"),
        (np.array([0.1, 1 / 3, 1e20, 1e6, 123456], np.float32), "[0.1,0.333333343,1e+20,1e+06,123456.0]"),
        (np.array([0.1, 1 / 3]), "[0.1,0.33333333333333331]"),
        (np.array([np.nan, np.inf, -np.inf], np.float32), "[NaN,Infinity,-Infinity]"),
        (np.array([2**63 - 1], np.int64), "[9223372036854775807]"),
        (np.array([True, False]), "[true,false]"),
        (np.array([[b'a"', "é".encode()]], object), '[["a\\"", "é"]]'),
        (np.zeros([2, 0, 3], np.float32), "[[],[]]"),
        (np.zeros([0, 2], np.float32), "[]"),
        (np.ones([1, 2, 1], np.int32), "[[[1], [1]]]"),
    ],
)
def test_writes_values_as_tf_serving_does(array: Any, text: Any) -> None:
    assert _whole(array) == text


def test_writes_base64_where_asked() -> None:
    assert _whole(np.array([b"\x00\xff"], object), as_base64=True) == '[{"b64": "AP8="}]'


def test_refuses_to_write_half() -> None:
    with pytest.raises(StatusError):
        array_to_json(np.zeros(1, np.float16))


@given(st.lists(st.floats(width=32), max_size=20))
def test_every_float_reads_back_as_it_was(values: Any) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(np.array(json.loads(_whole(array)), np.float32), array)
    np.testing.assert_array_equal(_read(json.loads(_whole(array)), types.DT_FLOAT), array)


@given(st.lists(st.floats(), max_size=20))
def test_every_double_reads_back_as_it_was(values: Any) -> None:
    back = json.loads(_whole(np.array(values, np.float64)))
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(back, values, strict=True))


@given(st.lists(st.binary(max_size=10), max_size=5))
def test_every_byte_string_reads_back_as_it_was(values: Any) -> None:
    array = np.empty(len(values), object)
    array[:] = values
    for as_base64 in (False, True):
        text = _whole(array, as_base64=as_base64).encode("utf-8", "surrogateescape")
        back = json.loads(text.decode("utf-8", "surrogateescape"))
        assert _read(back, types.DT_STRING).tolist() == values


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["b64", "x"]), inner, max_size=2),
    max_leaves=12,
)


@given(_JSON, st.sampled_from([types.DT_FLOAT, types.DT_INT64, types.DT_UINT8, types.DT_BOOL, types.DT_STRING]))
def test_any_json_value_becomes_an_array_or_a_clear_refusal(value: Any, dtype: Any) -> None:
    try:
        _read(value, dtype)
    except StatusError as error:
        assert error.code is Code.INVALID_ARGUMENT
