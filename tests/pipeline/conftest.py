import preprocessing  # noqa: F401  (selects Keras 2 before a test imports TensorFlow)
