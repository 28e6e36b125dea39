"""A network of the user's own: found, held to the contract, and retrained when it is edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from models.build import build_model
from models.config import ModelSpec, OptimizersSpec
from models.own_network import source_digest
from models.placement import weight_groups
from preprocessing.errors import ConfigError
from tests.models.samples import SCHEMA, make_batch, make_spec

OWN = "tests.models.own_networks"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no_such_module:Tower", "no_such_module cannot be imported: ModuleNotFoundError"),
        (f"{OWN}:Towre", f"{OWN} has no class 'Towre'"),
        (f"{OWN}:NOT_A_CLASS", "has no class"),
        (f"{OWN}:Few", r"is called with \(make, spec, \*, num_fields, num_dense, num_labels\)"),
        (f"{OWN}:Flat", r"must return float64 \[B, 1\], not float64 \(None,\)"),
        (f"{OWN}:Hoarder", "a variable hoarded:0 of its own, which would be neither trained nor saved"),
    ],
)
@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_a_network_that_breaks_the_contract_is_refused(
    strategies: dict[str, tf.distribute.Strategy | None], kind: str, message: str, strategy: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(SCHEMA, make_spec(kind), optimizers=OptimizersSpec(), seed=1, strategy=strategies[strategy])


def test_it_reads_its_params_and_says_which_weights_it_wants() -> None:
    def logits(scale: float) -> np.ndarray:
        spec = make_spec(f"{OWN}:Tower", params={"scale": scale})
        model = build_model(SCHEMA, spec, optimizers=OptimizersSpec(), seed=1)
        rows = {key: tf.constant(value) for key, value in make_batch(9, seed=1).items()}
        return np.asarray(model.logits(rows))

    assert np.abs(logits(1.0)).max() > 0  # first-order weights begin at 0
    np.testing.assert_allclose(logits(3.0), 3 * logits(1.0), rtol=1e-6)
    assert weight_groups(f"{OWN}:Tower") == ("embedding", "first_order")
    assert weight_groups(f"{OWN}:Flat") == ("embedding",)


def test_params_without_a_reader_are_refused() -> None:
    with pytest.raises(ValueError, match="params are for a network of your own"):
        ModelSpec(kind="deepfm", params={"scale": 1.0})


def test_an_edited_file_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "edited_network.py"
    source.write_text("class Net: ...\n", encoding="utf-8")
    first = source_digest("edited_network:Net")
    source.write_text("class Net: ...  # wider\n", encoding="utf-8")
    assert source_digest("edited_network:Net") != first
