"""What a client knows of a signature, and rows in the form that it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from serving.client_calls import SignatureInfo
from serving.packed import PACKED_SIGNATURE, rows_to_packed
from serving.rows import rows_to_arrays

__all__ = ["DEFAULT_SIGNATURE", "Signatures"]

DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Signatures:
    """A signature and, for those that take another form, the one that has the same columns by name.

    Attributes:
        name: of the signature that is asked.
        asked: that signature.
        named: `serving_default` for `packed` and `rank`, else the same.
    """

    name: str
    asked: SignatureInfo
    named: SignatureInfo

    def arrays(self, rows: Sequence[Mapping[str, Any]], *, ignore_unknown: bool) -> dict[str, NDArray[Any]]:
        """Returns rows as the inputs of the signature; ServingError if they do not fit."""
        if self.name == PACKED_SIGNATURE:
            return rows_to_packed(rows, self.named.inputs, ignore_unknown=ignore_unknown)
        return rows_to_arrays(rows, self.named.inputs, ignore_unknown=ignore_unknown)
