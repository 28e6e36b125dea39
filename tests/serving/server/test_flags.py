"""Command lines of the model server, by TensorFlow's parser."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.server.flags import FlagError, Flags, parse, unused_flags, usage


def test_knows_the_48_flags_of_tf_serving_and_two_of_its_own() -> None:
    assert len(dataclasses.fields(Flags)) == 48 + len({"bind_address", "reuse_port"})
    assert all(f"--{field.name}=" in usage() for field in dataclasses.fields(Flags))


def test_defaults_are_those_of_tf_serving() -> None:
    flags, unknown = parse([])
    assert unknown == ()
    assert (flags.port, flags.rest_api_port, flags.model_name, flags.saved_model_tags) == (8500, 0, "default", "serve")
    assert (flags.max_num_load_retries, flags.load_retry_interval_micros) == (5, 60_000_000)
    assert flags.enable_model_warmup
    assert flags.bind_address == "127.0.0.1"


def test_reads_values_of_every_kind() -> None:
    flags, unknown = parse(
        ["--port=-3", "--model_name=a=b", "--enable_batching", "--enable_profiler=false", "--model_base_path=",
         "--per_process_gpu_memory_fraction=0.5", "--load_retry_interval_micros=99999999999"]
    )  # fmt: skip
    assert unknown == ()
    assert (flags.port, flags.model_name, flags.enable_batching, flags.enable_profiler) == (-3, "a=b", True, False)
    assert (flags.per_process_gpu_memory_fraction, flags.load_retry_interval_micros) == (0.5, 99_999_999_999)


def test_a_value_after_a_space_is_two_unknown_arguments() -> None:
    flags, unknown = parse(["--port", "9000", "-rest_api_port=1", "rest", "--nonsense=1", "--model_name"])
    assert unknown == ("--port", "9000", "-rest_api_port=1", "rest", "--nonsense=1", "--model_name")
    assert flags.port == 8500


@pytest.mark.parametrize(
    "argument",
    ["--port=x", "--port=", "--port=1.0", "--port=2147483648", "--enable_batching=1", "--enable_batching=True",
     "--load_retry_interval_micros=9223372036854775808", "--per_process_gpu_memory_fraction=half"],
)  # fmt: skip
def test_a_value_that_does_not_parse_is_an_error_that_names_the_flag(argument: Any) -> None:
    with pytest.raises(FlagError, match=argument.partition("=")[0]):
        parse([argument])


def test_names_flags_without_effect_only_when_they_are_set() -> None:
    assert unused_flags(parse(["--port=1"])[0]) == ()
    assert unused_flags(parse(["--mixed_precision=bfloat16", "--num_unload_threads=7"])[0]) == (
        "num_unload_threads",
        "mixed_precision",
    )


@given(st.lists(st.text(max_size=20), max_size=5))
def test_arbitrary_arguments_are_unknown_and_never_fatal(arguments: Any) -> None:
    arguments = [argument for argument in arguments if not argument.startswith("--")]
    flags, unknown = parse(arguments)
    assert unknown == tuple(arguments)
    assert flags == Flags()
