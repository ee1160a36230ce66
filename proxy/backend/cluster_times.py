"""The latest cluster times that the backend has told, for replies that no command of the backend has made.

A client reads what it has written, or what it was told, from any member that has reached the time of the reply. So a
reply from the record of retryable writes, or about an error, must not be older than what it tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson import Timestamp

from catalog.bson.codec import decode, encode
from catalog.bson.raw import document, element, fields_of
from proxy.request.session_fields import GOSSIP

_CLUSTER, _OPERATION = GOSSIP
_RAW_NAMES = tuple(name.encode() for name in GOSSIP)


class ClusterTimes:
    """Keeps the latest of each; replies of several connections may be heard in any order."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        """By the name of the field in a reply."""
        self._elements: bytes | None = b""
        """The encoded times; ``None`` while they are not encoded."""

    def hear(self, reply: Mapping[str, Any]) -> None:
        """A reply of the backend, or those of its fields that name the times."""
        told = reply.get(_OPERATION)
        if isinstance(told, Timestamp) and self._is_later(told, self.told.get(_OPERATION)):
            self.told[_OPERATION] = told
            self._elements = None
        told = reply.get(_CLUSTER)
        if isinstance(told, Mapping) and self._is_later(_time_in(told), _time_in(self.told.get(_CLUSTER))):
            self.told[_CLUSTER] = told
            self._elements = None

    def hear_raw(self, reply: bytes) -> None:
        """As ``hear``, with a raw reply document, which may be long."""
        fields = fields_of(reply)
        self.hear(decode(document(element(name, fields[name]) for name in _RAW_NAMES if name in fields)))

    def elements(self) -> bytes:
        """The times as raw elements; empty if the server is alone."""
        if self._elements is None:
            self._elements = encode({name: self.told[name] for name in GOSSIP if name in self.told})[4:-1]
        return self._elements

    @staticmethod
    def _is_later(told: Timestamp | None, known: Timestamp | None) -> bool:
        return told is not None and (known is None or told > known)


def _time_in(cluster_time: Mapping[str, Any] | None) -> Timestamp | None:
    time = None if cluster_time is None else cluster_time.get("clusterTime")
    return time if isinstance(time, Timestamp) else None
