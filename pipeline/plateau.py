"""When the learning rate falls because the valid split's figure has stopped getting better: told by evaluations."""

from __future__ import annotations

import dataclasses
import math

from pipeline.train_spec import PlateauRate, RateSchedule
from preprocessing.errors import ConfigError

__all__ = ["Plateau", "check_plateau"]


@dataclasses.dataclass(frozen=True)
class Plateau:
    """The state of the rule.

    Attributes:
        scale: by which the learning rate is multiplied now.
        best: the best figure since the run began.
        waited: evaluations since the figure was best, or since the rate fell.
    """

    scale: float = 1.0
    best: float | None = None
    waited: int = 0

    def after(self, figure: float, *, rule: PlateauRate, higher_is_better: bool) -> Plateau:
        """Returns the state after an evaluation; a figure that is not finite is no better than any."""
        gain = math.inf if self.best is None else (figure - self.best) * (1 if higher_is_better else -1)
        if math.isfinite(figure) and gain > rule.min_delta:
            return dataclasses.replace(self, best=figure, waited=0)
        if self.waited + 1 < rule.patience:
            return dataclasses.replace(self, waited=self.waited + 1)
        return dataclasses.replace(self, scale=max(self.scale / rule.divide_by, rule.min_scale), waited=0)


def check_plateau(schedule: RateSchedule, *, num_valid_rows: int) -> None:
    """Passes if there is something to evaluate where the schedule waits for evaluations.

    Raises:
        ConfigError: if there is not.
    """
    if isinstance(schedule, PlateauRate) and not num_valid_rows:
        raise ConfigError(
            "train.learning_rate: kind plateau goes by figures of the valid split, which has no rows; "
            "use another kind, or give data.split a valid part"
        )
