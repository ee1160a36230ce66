"""Which field names can be used in a dotted path (W122)."""

from __future__ import annotations


def is_path_safe(name: bytes) -> bool:
    """Whether ``data.<name>.0`` addresses the field ``name`` in queries and updates.

    Names with dots would silently address nested documents, empty ones are refused, and a leading ``$`` can be a
    positional operator. Such names need the pipeline form of an update (W123).
    """
    return name != b"" and not name.startswith(b"$") and b"." not in name
