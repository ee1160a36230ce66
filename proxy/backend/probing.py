"""Finds out what the backend can do: from its version, and by asking where the version does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from catalog.errors import BackendUnavailable, CommandError
from proxy.request.ports import RunCommand
from rewrite.profile import Profile

UNKNOWN_STAGE: Final = 40324
"""The error code for a stage that the server does not know; servers check the names of stages first."""

UNPACKING: Final[Mapping[str, Any]] = {
    "aggregate": "tsproxy.probe",
    "pipeline": [{"$_internalUnpackBucket": {"timeField": "t", "bucketMaxSpanSeconds": 3600}}],
    "cursor": {},
}
"""Reads a collection that does not exist, as if it had buckets."""

WITHOUT_TIMESERIES: Final = "the backend has no time-series collections"
CONSEQUENCE: Final = "everything is relayed, and creating a time-series collection is refused"
TIMESERIES_REMEDY: Final = "use MongoDB 5.0 or later as the backend"


def profile_of(hello: Mapping[str, Any], build: Mapping[str, Any]) -> Profile:
    """The facts that rewriting requires, from the backend's ``hello`` and ``buildInfo``."""
    version = [int(part) for part in build.get("versionArray", (0, 0, 0))[:3]]
    if len(version) < 3:
        raise CommandError(1, f"the backend's buildInfo has no usable version: {build.get('version')!r}")
    return Profile(
        version=(version[0], version[1], version[2]),
        is_replica_set="setName" in hello,
        is_mongos=hello.get("msg") == "isdbgrid",
    )


async def unpacks_buckets(run: RunCommand) -> bool:
    """Whether the server knows the stage that unpacks buckets; raises ``BackendUnavailable``.

    Compatible servers without time-series collections may report any version, and some make an ordinary collection
    instead of a time-series collection without an error. Any other error is about the account.
    """
    try:
        await run("admin", dict(UNPACKING))
    except BackendUnavailable:
        raise
    except CommandError as error:
        return error.code != UNKNOWN_STAGE
    return True


def without_timeseries(profile: Profile) -> str:
    """What does not work with this backend, in one sentence; ``""`` if it has time-series collections."""
    if profile.has_native_timeseries:
        return ""
    return f"{WITHOUT_TIMESERIES} (it reports version {profile.shown_version}): {CONSEQUENCE}"
