"""Config messages that `tensorflow-serving-api` lacks, with the field numbers of TF Serving.

They live in a descriptor pool of their own: a wheel that brings them later does no harm.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["MonitoringConfig", "PrometheusConfig"]

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tensorflow.serving"


def _field(name: str, number: int, kind: int, *, message: str = "") -> Any:
    return _FIELD(
        name=name,
        number=number,
        type=kind,
        label=_FIELD.LABEL_OPTIONAL,
        type_name=f".{_PACKAGE}.{message}" if message else None,
    )


_FILE = descriptor_pb2.FileDescriptorProto(
    name="serving/server/config.proto",
    package=_PACKAGE,
    syntax="proto3",
    message_type=[
        descriptor_pb2.DescriptorProto(
            name="PrometheusConfig",
            field=[_field("enable", 1, _FIELD.TYPE_BOOL), _field("path", 2, _FIELD.TYPE_STRING)],
        ),
        descriptor_pb2.DescriptorProto(
            name="MonitoringConfig",
            field=[_field("prometheus_config", 1, _FIELD.TYPE_MESSAGE, message="PrometheusConfig")],
        ),
    ],
)
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_FILE)


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


PrometheusConfig = _message("PrometheusConfig")
MonitoringConfig = _message("MonitoringConfig")
