"""Selects Keras 2 before any test of this package imports TensorFlow."""

import preprocessing  # noqa: F401
