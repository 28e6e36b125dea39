"""Two virtual CPU devices, for tests on two replicas."""

import preprocessing  # noqa: F401  (selects Keras 2, before TensorFlow imports Keras)

# isort: split
import contextlib

import tensorflow as tf

with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
