"""Messages that `tensorflow-serving-api` lacks, with the field numbers of TF Serving, TensorFlow
and gRPC's health service.

They live in a descriptor pool of their own: a wheel that brings them later does no harm.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.config import platform_config_pb2

__all__ = [
    "BatchingParameters",
    "HealthCheckRequest",
    "HealthCheckResponse",
    "MonitoringConfig",
    "PlatformConfigMap",
    "ProfileRequest",
    "ProfileResponse",
    "SSLConfig",
    "SavedModelBundleSourceAdapterConfig",
]

_SERVING = "tensorflow.serving"
_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "bool": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
}


def _message(name: str, *fields: str) -> Any:
    """Returns a message from lines like "repeated int64 sizes 6", as a .proto file has them."""
    return descriptor_pb2.DescriptorProto(name=name, field=[_field(*line.split()) for line in fields])


def _field(label: str, kind: str, name: str, number: str) -> Any:
    repeated = _FIELD.LABEL_REPEATED if label == "repeated" else _FIELD.LABEL_OPTIONAL
    if kind in _KINDS:
        return _FIELD(name=name, number=int(number), label=repeated, type=_KINDS[kind])
    return _FIELD(name=name, number=int(number), label=repeated, type=_FIELD.TYPE_MESSAGE, type_name=f".{kind}")


_CONFIG_FILE = descriptor_pb2.FileDescriptorProto(
    name="serving/server/config.proto",
    package=_SERVING,
    syntax="proto3",
    dependency=[wrappers_pb2.DESCRIPTOR.name, config_pb2.DESCRIPTOR.name],
    message_type=[
        _message("PrometheusConfig", "optional bool enable 1", "optional string path 2"),
        _message("MonitoringConfig", f"optional {_SERVING}.PrometheusConfig prometheus_config 1"),
        _message(
            "SSLConfig",
            "optional string server_key 1",
            "optional string server_cert 2",
            "optional string custom_ca 3",
            "optional bool client_verify 4",
        ),
        _message(
            "BatchingParameters",
            "optional google.protobuf.Int64Value max_batch_size 1",
            "optional google.protobuf.Int64Value batch_timeout_micros 2",
            "optional google.protobuf.Int64Value max_enqueued_batches 3",
            "optional google.protobuf.Int64Value num_batch_threads 4",
            "optional google.protobuf.StringValue thread_pool_name 5",
            "repeated int64 allowed_batch_sizes 6",
            "optional bool pad_variable_length_inputs 7",
            "optional google.protobuf.BoolValue enable_large_batch_splitting 8",
            "optional google.protobuf.Int64Value max_execution_batch_size 9",
        ),
        _message(
            "ModelWarmupOptions",
            "optional google.protobuf.Int32Value num_request_iterations 1",
            "optional google.protobuf.Int32Value num_model_warmup_threads 2",
        ),
        # A platform file names fields, it holds no numbers: those past 3 are not TF Serving's.
        _message(
            "SessionBundleConfig",
            "optional string session_target 1",
            "optional tensorflow.ConfigProto session_config 2",
            f"optional {_SERVING}.BatchingParameters batching_parameters 3",
            "repeated string saved_model_tags 6",
            "optional bool enable_model_warmup 7",
            f"optional {_SERVING}.ModelWarmupOptions model_warmup_options 8",
        ),
        _message("SavedModelBundleSourceAdapterConfig", f"optional {_SERVING}.SessionBundleConfig legacy_config 1000"),
    ],
)
_HEALTH_FILE = descriptor_pb2.FileDescriptorProto(
    name="serving/server/health.proto",
    package="grpc.health.v1",
    syntax="proto3",
    message_type=[
        _message("HealthCheckRequest", "optional string service 1"),
        # An enum on the wire is an int32.
        _message("HealthCheckResponse", "optional int32 status 1"),
    ],
)
_PROFILER_FILE = descriptor_pb2.FileDescriptorProto(
    name="serving/server/profiler.proto",
    package="tensorflow",
    syntax="proto3",
    message_type=[
        _message(
            "ProfileOptions",
            "optional int32 host_tracer_level 2",
            "optional int32 device_tracer_level 3",
            "optional int32 python_tracer_level 4",
        ),
        _message(
            "ProfileRequest",
            "optional int64 duration_ms 1",
            "optional tensorflow.ProfileOptions opts 4",
            "optional string repository_root 5",
            "optional string session_id 6",
            "optional string host_name 7",
            "optional bool emit_xspace 9",
        ),
        # A message on the wire is its bytes: what was recorded goes out as it is.
        _message("ProfileResponse", "optional bool empty_trace 7", "optional bytes xspace 8"),
    ],
)
_POOL = descriptor_pool.DescriptorPool()


def _add(file: Any, known: set[str]) -> None:
    """Adds a file that a wheel brings, after those that it needs."""
    if file.name in known:
        return
    known.add(file.name)
    for needed in file.dependencies:
        _add(needed, known)
    _POOL.AddSerializedFile(file.serialized_pb)


_known: set[str] = set()
for _file in (wrappers_pb2.DESCRIPTOR, config_pb2.DESCRIPTOR, platform_config_pb2.DESCRIPTOR):
    _add(_file, _known)
_POOL.Add(_CONFIG_FILE)
_POOL.Add(_HEALTH_FILE)
_POOL.Add(_PROFILER_FILE)


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


MonitoringConfig = _class(f"{_SERVING}.MonitoringConfig")
SSLConfig = _class(f"{_SERVING}.SSLConfig")
BatchingParameters = _class(f"{_SERVING}.BatchingParameters")
PlatformConfigMap = _class(f"{_SERVING}.PlatformConfigMap")
SavedModelBundleSourceAdapterConfig = _class(f"{_SERVING}.SavedModelBundleSourceAdapterConfig")
HealthCheckRequest = _class("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _class("grpc.health.v1.HealthCheckResponse")
ProfileRequest = _class("tensorflow.ProfileRequest")
ProfileResponse = _class("tensorflow.ProfileResponse")
