"""Which versions are kept: those in use, the newest, the young. A plain function of what is there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping

from serving.config import RetentionSpec

__all__ = ["versions_to_remove"]


def versions_to_remove(
    published: Mapping[int, dt.datetime], policy: RetentionSpec, *, in_use: Collection[int], now: dt.datetime
) -> list[int]:
    """Returns the versions that may go, rising.

    Args:
        published: when each version that is there was published.
        policy: a version goes when it is not among the newest, and old as well.
        in_use: versions that stay whatever the policy says.
        now: the present.
    """
    newest = set(sorted(published)[-policy.keep_last :])
    oldest = now - dt.timedelta(days=policy.keep_days)
    return sorted(
        version
        for version, when in published.items()
        if version not in newest and version not in in_use and when < oldest
    )
