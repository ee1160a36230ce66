"""The admin commands about the process: ``status``, ``peers``, ``config``, ``slow`` and ``reload``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from catalog.errors import UNAUTHORIZED, CommandError
from proxy.admin.arguments import Call
from proxy.admin.handler import Action
from proxy.admin.table import USUAL_ENTRIES
from proxy.backend.current_op import Proxy
from proxy.observe.metrics import Metrics
from proxy.process.access_mode import about
from proxy.process.assembly import Assembly
from proxy.process.control import Control
from proxy.process.starting import shown
from proxy.settings.config import Address, redact_uri
from proxy.settings.table import ROWS


class ProcessActions:
    """The actions, with what they show."""

    def __init__(
        self,
        control: Control,
        metrics: Metrics,
        assembly: Assembly,
        address: Address,
        traffic: Callable[[], Mapping[str, Any]],
        peers: Callable[[], Mapping[str, Mapping[str, Any]]],
    ) -> None:
        """``address``: of the listener; ``traffic``: whether commands start (``proxy.admin.traffic``).

        ``peers``: what is known of links to other proxies, by name.
        """
        self._control = control
        self._metrics = metrics
        self._assembly = assembly
        self._address = address
        self._traffic = traffic
        self._linked = peers

    @property
    def actions(self) -> Mapping[str, Action]:
        """The actions by name."""
        return {
            "status": self._status,
            "peers": self._peers,
            "config": self._config,
            "slow": self._slow,
            "reload": self._reload,
        }

    async def _status(self, call: Call) -> Mapping[str, Any]:
        why_not_ready = self._control.why_not_ready()
        return {
            **about(self._assembly.catalog, self._assembly.backend.profile),
            "pid": os.getpid(),
            "uptimeSeconds": round(time.monotonic() - self._control.started_seconds, 3),
            "listen": str(self._address),
            "ready": not why_not_ready,
            **({"whyNotReady": why_not_ready} if why_not_ready else {}),
            **self._traffic(),
            "backend": self._backend(),
            "connections": self._connections(),
            **self._measurements(),
            "internalErrors": self._metrics.invariant_violations,
        }

    def _backend(self) -> dict[str, Any]:
        backend, settings = self._assembly.backend, self._control.reloading.settings
        hello = backend.hello
        shown: dict[str, Any] = {
            "uri": redact_uri(settings.backend or "embedded"),
            "answers": self._metrics.backend_up,
            "version": backend.profile.shown_version,
            "timeseries": backend.profile.has_native_timeseries,
            "accessControl": backend.access.enforced,
        }
        return shown | ({"setName": hello["setName"]} if "setName" in hello else {})

    def _connections(self) -> dict[str, Any]:
        numbers = self._metrics.connections
        return {
            "open": numbers.open,
            "total": numbers.opened,
            "rejected": sum(numbers.rejected.values()),
            "bytesReceived": numbers.bytes_received,
            "bytesSent": numbers.bytes_sent,
        }

    def _measurements(self) -> dict[str, Any]:
        catalog, committer = self._assembly.catalog, self._assembly.committer
        measurements, size_bytes = self._assembly.ingest.uncommitted()
        gauges, totals = catalog.gauges(), catalog.totals
        joins = None if self._assembly.in_parts is None else self._assembly.in_parts.joining.metrics
        return {
            "uncommitted": {"measurements": measurements, "bytes": size_bytes},
            "buckets": {
                "open": gauges["numOpenBuckets"],
                "idle": gauges["numIdleBuckets"],
                "memoryBytes": gauges["memoryUsage"],
            },
            "parts": {"waiting": catalog.growth.unjoined, "joined": 0 if joins is None else joins.documents_joined},
            "totals": {
                "measurementsCommitted": totals.numMeasurementsCommitted,
                "batchesCommitted": totals.numCommits,
                "commitCommands": committer.metrics.commands,
                "unknownOutcomes": committer.metrics.unknown_outcomes,
            },
        }

    async def _peers(self, call: Call) -> Mapping[str, Any]:
        others = self._assembly.backend.others
        own = {"name": others.own_name, "mode": about(self._assembly.catalog, self._assembly.backend.profile)["mode"]}
        try:
            links = self._linked()
            found = [{**_shown(each), **links.get(each.name, {})} for each in await others.proxies()]
        except CommandError as error:
            # What the backend says of a step of the proxy's own is not for clients.
            return {**own, "peers": [], "whyUnknown": _why_unknown(error)}
        return {**own, "peers": found}

    async def _config(self, call: Call) -> Mapping[str, Any]:
        loaded = self._control.reloading.loaded
        return {
            "settings": shown(loaded.settings),
            "sources": {name: origin for name, origin in loaded.origins.items() if origin != "default"},
            "reloadable": [name for name, row in ROWS.items() if row.is_reloadable],
        }

    async def _slow(self, call: Call) -> Mapping[str, Any]:
        slow = self._assembly.slow
        threshold_ms = slow.threshold.seconds * 1000
        prefix = f"{call.fields['database']}." if "database" in call.fields else ""
        least_ms = call.number("minMs", 0)
        # An insert that has created an ordinary collection is listed, too; it has no duration.
        found = [
            entry.as_document()
            for entry in slow.ring.latest(len(slow.ring))
            if entry.values.get("duration_ms", 0) >= least_ms and entry.values.get("namespace", "").startswith(prefix)
        ]
        return {
            "thresholdMs": None if math.isinf(threshold_ms) else threshold_ms,
            "commands": found[: int(call.number("limit", USUAL_ENTRIES))],
            "matching": len(found),
            "total": len(slow.ring),
        }

    async def _reload(self, call: Call) -> Mapping[str, Any]:
        return self._control.reloading.reload_for_administrator()


def _shown(proxy: Proxy) -> dict[str, Any]:
    return {
        "name": proxy.name,
        "address": proxy.address,
        "version": proxy.version,
        "connections": proxy.connections,
        "linked": False,
    }


def _why_unknown(error: CommandError) -> str:
    if error.code == UNAUTHORIZED:
        return "the proxy's account lacks the privilege inprog on the cluster"
    return f"the backend answers $currentOp with error {error.code}"
