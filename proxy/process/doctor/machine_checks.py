"""Judges the machine on which the proxy would run, as far as the doctor sees it from there."""

from __future__ import annotations

import resource

from proxy.process.doctor.finding import Finding, advice, ok, warning
from proxy.process.doctor.found import Found
from proxy.process.open_files import REMEDY, needed
from proxy.settings.worker_shares import number_of_workers, usable_cores
from proxy.upstream.file_limit import clients_within


def open_files(found: Found) -> Finding:
    """Whether the limit of open files is high enough for ``max_connections``."""
    limit = found.file_limit
    if limit == resource.RLIM_INFINITY:
        return ok("no limit")
    workers = number_of_workers(found.settings, usable_cores)
    wanted = needed(found.settings, workers)
    if limit >= wanted:
        return ok(f"{limit}; {wanted} are enough")
    clients = workers * clients_within(limit)
    return warning(
        f"at most {limit} here, enough for {clients} clients, but max_connections is "
        f"{found.settings.max_connections}, which needs {wanted}",
        advice(REMEDY),
    )
