"""One loaded SavedModel: signatures by name, run in a TF1 session through cached callables.

A callable per (signature, outputs) made from CallableOptions costs a tenth of `tf.saved_model.load(...)` a call with
many named inputs, and accepts shapes that differ from the placeholder's, as TF Serving does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from serving.server.signature import Signature
from serving.server.status import Code, StatusError

__all__ = ["Servable"]

Array = NDArray[Any]


class Servable:
    """A SavedModel ready to run; safe for use by several threads at once."""

    def __init__(self, session: Any, signature_defs: Mapping[str, Any], path: Path) -> None:
        self.path = path
        self.signature_defs: dict[str, meta_graph_pb2.SignatureDef] = dict(signature_defs)
        self.signatures = {name: Signature.from_proto(name, proto) for name, proto in signature_defs.items()}
        self._session = session
        self._callables: dict[tuple[tuple[str, ...], tuple[str, ...]], Callable[..., list[Any]]] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: Path, *, tags: Sequence[str] = ("serve",), session_config: Any | None = None) -> Servable:
        """Returns the SavedModel at `path`, its variables restored and tables initialised.

        Args:
            path: folder that holds `saved_model.pb`.
            tags: of the MetaGraph to load.
            session_config: a ConfigProto; TensorFlow's own choice of threads by default.

        Raises:
            StatusError: if there is no such SavedModel or it does not load.
        """
        graph = tf.Graph()
        session = tf.compat.v1.Session(graph=graph, config=session_config)
        try:
            with graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(session, list(tags), str(path))
            return cls(session, meta_graph.signature_def, path)
        except tf.errors.OpError as error:
            session.close()
            raise _status_error(error) from error
        except Exception as error:
            # A damaged file surfaces as almost any Python exception inside the loader.
            session.close()
            code = Code.NOT_FOUND if not path.is_dir() else Code.INVALID_ARGUMENT
            raise StatusError(code, f"Could not load SavedModel at {path}: {error}") from error

    def run(
        self, signature: str, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Returns the outputs of a signature, by name; strings are object arrays of bytes.

        Args:
            signature: its key, such as "serving_default".
            inputs: one array for each input name; those with a default may be left out.
            outputs: names of the outputs wanted; all by default.

        Raises:
            StatusError: with the code that TF Serving gives for the mistake.
        """
        bound = self.signature(signature)
        feeds = bound.bind(inputs)
        names = bound.check_outputs(outputs)
        return dict(zip(names, self.run_tensors(feeds, [bound.output_tensors[name] for name in names]), strict=True))

    def signature(self, name: str) -> Signature:
        """Returns a signature by its key; FAILED_PRECONDITION if the model has none of that name."""
        try:
            return self.signatures[name]
        except KeyError:
            raise StatusError(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.') from None

    def run_tensors(self, feeds: Mapping[str, Array], fetches: Sequence[str]) -> list[Array]:
        """Returns the values of graph tensors, given values for others, all by tensor name."""
        call = self._callable(tuple(feeds), tuple(fetches))
        try:
            return [np.asarray(value) for value in call(*feeds.values())]
        except tf.errors.OpError as error:
            raise _status_error(error) from error
        except (TypeError, ValueError) as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"an input cannot be fed: {error}") from error

    def _callable(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> Callable[..., list[Any]]:
        found = self._callables.get((feeds, fetches))
        if found is not None:
            return found
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
        with self._lock:
            try:
                made: Callable[..., list[Any]] = self._session._make_callable_from_options(options)
            except tf.errors.OpError as error:
                raise _status_error(error) from error
            self._callables[(feeds, fetches)] = made
        return made

    def close(self) -> None:
        """Frees the model; calls that come later fail."""
        with self._lock:
            self._callables.clear()
            self._session.close()
            # A closed session keeps its variables until it is dropped.
            self._session = None


def _status_error(error: Any) -> StatusError:
    try:
        code = Code(error.error_code)
    except ValueError:
        code = Code.UNKNOWN
    return StatusError(code, str(error.message))
