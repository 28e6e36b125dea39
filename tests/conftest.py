"""Selects Keras 2 for the whole test process before anything imports TensorFlow."""

import preprocessing  # noqa: F401
