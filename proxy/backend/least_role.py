"""Checks whether the proxy's own account has the privileges that the proxy requires.

docs/security.md shows the role. It may be limited to some databases, so one resource of each kind is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from catalog.namespaces import BUCKETS_PREFIX

LIST: Final = "listCollections"
ON_BUCKETS: Final = ("find", "insert", "update", "remove", "bypassDocumentValidation")
ANY_ACTION: Final = "anyAction"


def missing_rights(privileges: Iterable[Mapping[str, Any]]) -> list[str]:
    """Descriptions of the missing privileges of the least role; ``privileges`` are from ``connectionStatus``."""
    everywhere: set[str] = set()
    on_buckets: set[str] = set()
    for privilege in privileges:
        resource, actions = privilege.get("resource", {}), privilege.get("actions", ())
        everywhere.update(actions)
        if (
            resource.get("anyResource")
            or "system_buckets" in resource
            or str(resource.get("collection", "")).startswith(BUCKETS_PREFIX)
        ):
            on_buckets.update(actions)
    lists = [] if {LIST, ANY_ACTION} & everywhere else [LIST]
    writes = [] if ANY_ACTION in on_buckets else [action for action in ON_BUCKETS if action not in on_buckets]
    return [*lists, *([f"{', '.join(writes)} on system_buckets"] if writes else [])]
