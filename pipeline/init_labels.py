"""What is likely to be predicted: a 0/1 column that names feedback, an action log, a rating."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pipeline import init_names as names
from pipeline.init_parts import ActionLog, LabelGuess, RoleGuess
from pipeline.init_sources import Table
from preprocessing.errors import SourceError
from preprocessing.guess import ColumnGuess

__all__ = ["binary_columns", "guess_label"]

_LABEL_ORDER = ("label", "target", "click", "clicked", "purchase", "purchased", "converted", "conversion", "buy")


def binary_columns(columns: Mapping[str, ColumnGuess]) -> list[str]:
    """Returns the columns that hold 0 and 1 in every row."""
    return [name for name, column in columns.items() if column.is_binary and column.missing_share == 0]


def guess_label(table: Table, roles: RoleGuess, actions: Sequence[ActionLog]) -> LabelGuess:
    """Returns the likeliest label: a 0/1 column that names feedback, an action log, a rating, any 0/1 column."""
    columns = table.columns
    binary = binary_columns(columns)
    named = sorted((n for n in binary if set(names.words(n)) & names.FEEDBACK), key=_label_rank)
    ratings = [n for n, c in columns.items() if _is_rating(n, c)]
    by_row = [action for action in actions if action.key == (roles.row_id,)]
    others = [f"column: {name}" for name in (named or binary)]
    others += [f"when: {_comparison(name, columns[name])}" for name in ratings]
    others += [f"action log {action.table.name}" for action in actions]
    guess: LabelGuess | None = None
    if named:
        guess = LabelGuess(_label_name(named[0]), column=named[0], values=columns[named[0]].numbers)
    elif by_row or (actions and not ratings and not binary):
        action = (by_row or actions)[0]
        guess = LabelGuess(action.table.name.rstrip("s") or "label", action=action, values=_acted(table, action))
    elif ratings:
        when = _comparison(ratings[0], columns[ratings[0]])
        numbers = columns[ratings[0]].numbers
        threshold = float(when.split()[-1])
        values = None if numbers is None else (numbers >= threshold).astype(np.float64)
        guess = LabelGuess("liked", when=when, values=values)
    elif binary:
        guess = LabelGuess(_label_name(binary[0]), column=binary[0], values=columns[binary[0]].numbers)
    if guess is None:
        raise SourceError(
            f"{table.name} seems to hold the impressions, but nothing in it says what came of them: there is no 0/1 "
            f"column, no rating, and no action log that shares a key with it; its columns are {', '.join(columns)}"
        )
    chosen = {f"column: {guess.column}", f"when: {guess.when}"}
    chosen |= {f"action log {guess.action.table.name}"} if guess.action else set()
    return dataclasses.replace(guess, others=tuple(dict.fromkeys(o for o in others if o not in chosen)))


def _label_rank(name: str) -> int:
    parts = names.words(name)
    return next((i for i, word in enumerate(_LABEL_ORDER) if word in parts), len(_LABEL_ORDER))


def _label_name(column: str) -> str:
    parts = [word for word in names.words(column) if word not in ("is", "has")]
    return "_".join(parts) or "label"


def _is_rating(name: str, column: ColumnGuess) -> bool:
    rated = {"rating", "stars", "score", "grade"} & set(names.words(name))
    return bool(rated) and column.numbers is not None and 3 <= column.distinct <= 20


def _comparison(name: str, column: ColumnGuess) -> str:
    """Returns the threshold that comes nearest to half of the rows."""
    numbers = column.numbers if column.numbers is not None else np.zeros(0)
    known = numbers[~np.isnan(numbers)]
    best = min(np.unique(known)[1:], key=lambda value: abs(float(np.mean(known >= value)) - 0.5))
    return f"{name} >= {best:g}"


def _acted(table: Table, action: ActionLog) -> npt.NDArray[np.float64] | None:
    """Returns which sampled impressions are named by the action log; None if it is not known whole."""
    if not action.table.sample.whole or len(action.key) != 1:
        return None
    (key,) = action.key
    named = pc.is_in(table.columns[key].values, value_set=action.table.columns[key].values.drop_null())
    return named.to_numpy(zero_copy_only=False).astype(np.float64)
