"""What names of columns and files say, by the words in them: user, item, time, position, feedback."""

from __future__ import annotations

import re

__all__ = [
    "ACTION",
    "ARRIVAL",
    "CALENDAR",
    "FEEDBACK",
    "ITEM",
    "POSITION",
    "QUANTITY",
    "REQUEST",
    "USER",
    "entity_score",
    "is_identifier",
    "same_name",
    "words",
]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


USER = _set("user uid customer member visitor client account person reader viewer player shopper")
ITEM = _set(
    "item video movie product article news ad book song track sku asin listing goods doc document content post "
    "photo offer creative game restaurant business iid"
)
REQUEST = _set("request session search query impression slate pageview")
POSITION = _set("position pos rank slot")
ARRIVAL = _set("received receive arrival arrived ingested ingest ingestion logged")
CALENDAR = _set("date day dt hour hourmin minute month weekday year week dow hod")
ACTION = _set(
    "click clicks clicked action actions purchase purchases order orders conversion conversions like likes buys "
    "events feedback"
)
# What users did with what they were shown: known after the impression only.
FEEDBACK = _set(
    "click clicked clicks like liked likes follow followed comment commented forward forwarded share shared hate "
    "dislike view viewed watch watched play played dwell stay buy bought purchase purchased convert converted "
    "conversion rating order ordered cart favorite favourite skip finish finished complete completed enter download "
    "collect report label target"
)
QUANTITY = _set(
    "num count counts cnt price amount age size length len width height duration days seconds score rate ratio share "
    "distance weight total avg mean ms propensity affinity"
)
_IDENTIFIER = _set("id uid key hash sku asin iid code uuid guid")


def words(name: str) -> list[str]:
    """Returns the words of a name, in lower case: userId, user_id and USER-ID are user, id."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return [word for word in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if word]


def is_identifier(name: str) -> bool:
    """Returns whether a name ends like that of an identifier."""
    parts = words(name)
    return bool(parts) and (parts[-1] in _IDENTIFIER or (parts[-1].endswith("id") and len(parts[-1]) <= 8))


def entity_score(name: str, entity: frozenset[str]) -> int:
    """Returns how much a name looks like the identifier of an entity: 0 (not), 1, 2, 3 (nothing else)."""
    parts = words(name)
    glued = [part.removesuffix("id") for part in parts]
    if not any(part in entity for part in [*parts, *glued]):
        return 0
    rest = [part for part, plain in zip(parts, glued, strict=True) if part not in entity and plain not in entity]
    if all(part in _IDENTIFIER for part in rest):
        return 3 if is_identifier(name) else 2
    return 1 if is_identifier(name) else 0


def same_name(one: str, other: str) -> bool:
    """Returns whether two names have the same words."""
    return "".join(words(one)) == "".join(words(other))
