"""Optimizer settings at four times the batch that they are meant for."""

import pytest
from pydantic import ValidationError

from models.config import ModelSpec, OptimizerSpec, OptimizersSpec
from pipeline.batch_scaling import scaled_optimizers
from pipeline.train_spec import TrainSpec

OPTIMIZERS = OptimizersSpec(
    tables=OptimizerSpec(kind="adam", learning_rate=0.01, l2=1e-4),
    dense=OptimizerSpec(kind="adam", learning_rate=0.002, l2=0.5),
)


def rates(rule: str, kind: str = "deepfm") -> dict[str, tuple[float, float]]:
    """Returns learning rate and l2 of each group."""
    train = TrainSpec.model_validate(
        {"batch_size": 4096, "reference_batch_size": 1024, "learning_rate_scaling": rule, "optimizers": OPTIMIZERS}
    )
    found = scaled_optimizers(train, ModelSpec.model_validate({"kind": kind}))
    groups = {"tables": found.tables, "wide": found.wide, "dense": found.dense}
    return {name: (spec.learning_rate, spec.l2) for name, spec in groups.items() if spec is not None}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("none", {"tables": (0.01, 1e-4), "dense": (0.002, 0.5)}),
        ("linear", {"tables": (0.04, 1e-4), "wide": (0.04, 1e-4), "dense": (0.008, 0.5)}),
        ("sqrt", {"tables": (0.02, 1e-4), "wide": (0.02, 1e-4), "dense": (0.004, 0.5)}),
        ("cowclip", {"tables": (0.01, 4e-4), "wide": (0.01, 4e-4), "dense": (0.004, 0.5)}),
    ],
)
def test_rates_and_decay_follow_the_rule(rule: str, expected: dict[str, tuple[float, float]]) -> None:
    found = rates(rule)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values)


def test_the_default_of_the_wide_part_is_scaled_too() -> None:
    assert rates("linear", kind="wide_deep")["wide"] == pytest.approx((0.2, 0.0))  # FTRL at 0.05


def test_a_rule_needs_the_batch_that_rates_are_meant_for() -> None:
    with pytest.raises(ValidationError, match="linear needs reference_batch_size"):
        TrainSpec(learning_rate_scaling="linear")
