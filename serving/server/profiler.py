"""TensorFlow's ProfilerService: records what this process does for a while, on a client's request.

TensorFlow's own service would listen on every address, on a further port; its recorder is used without it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_profiler

from serving.server.config_protos import ProfileRequest, ProfileResponse

__all__ = ["profiler_service"]

_MAX_DURATION_MS = 600_000


def profiler_service() -> grpc.GenericRpcHandler:
    """Returns the handler of tensorflow.ProfilerService, of which Profile is there."""
    busy = threading.Lock()

    def profile(request: Any, context: grpc.ServicerContext) -> Any:
        _check(request, context)
        if not busy.acquire(blocking=False):
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Another profiler session is active.")
        try:
            return _answer(request, _record(request, context))
        except tf.errors.OpError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error.message))
        except OSError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the recording cannot be written: {error}")
        finally:
            busy.release()

    method = grpc.unary_unary_rpc_method_handler(profile, ProfileRequest.FromString, ProfileResponse.SerializeToString)
    return grpc.method_handlers_generic_handler("tensorflow.ProfilerService", {"Profile": method})


def _check(request: Any, context: grpc.ServicerContext) -> None:
    if not 0 < request.duration_ms <= _MAX_DURATION_MS:
        text = f"duration_ms must be between 1 and {_MAX_DURATION_MS}, got {request.duration_ms}"
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
    if not request.emit_xspace and not request.repository_root:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "repository_root is empty")
    for name in (request.session_id, request.host_name):
        if Path(name).name != name or name == "..":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{name!r} must be the name of a file, not a path")


def _record(request: Any, context: grpc.ServicerContext) -> bytes:
    """Returns the XSpace of the time asked for, or until the client goes away."""
    ended = threading.Event()
    context.add_callback(ended.set)
    options = {
        "host_tracer_level": request.opts.host_tracer_level or 2,
        "device_tracer_level": request.opts.device_tracer_level,
        "python_tracer_level": request.opts.python_tracer_level,
    }
    session = _pywrap_profiler.ProfilerSession()
    session.start("", options)
    ended.wait(request.duration_ms / 1000)
    recorded: bytes = session.stop()
    return recorded


def _answer(request: Any, recorded: bytes) -> Any:
    response = ProfileResponse(empty_trace=not recorded)
    if request.emit_xspace:
        response.xspace = recorded
    elif recorded:
        folder = Path(request.repository_root) / request.session_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{request.host_name}.xplane.pb").write_bytes(recorded)
    return response
