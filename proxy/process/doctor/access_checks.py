"""Judges how the proxy would read and write time-series collections."""

from __future__ import annotations

from proxy.backend.access_probe import AccessFacts, access_of
from proxy.backend.probing import profile_of
from proxy.process.doctor.finding import Finding, note, ok, setting, warning
from proxy.process.doctor.found import Account, Found, Unknown
from rewrite.profile import Access, Why


def access_in(found: Found) -> tuple[Access, Why, str] | None:
    """The access that the proxy would choose, why, and the same as a text; ``None`` if too little is known."""
    build, account, server = found.build, found.account, found.server
    if build is None or isinstance(build, Unknown) or not isinstance(account, Account) or server is None:
        return None
    profile = profile_of(server.hello or {}, build)
    privileges = account.privileges if account.is_checked else None
    facts = AccessFacts(profile.version, profile.is_mongos, privileges, found.is_closed is True)
    return access_of(found.settings.timeseries_access, facts)


def is_native(found: Found) -> bool:
    """Whether the proxy would use public commands only."""
    chosen = access_in(found)
    return chosen is not None and chosen[0] is Access.NATIVE


def access(found: Found) -> Finding | None:
    """How time-series collections are read and written."""
    chosen = access_in(found)
    if chosen is None:
        return None
    mode, why, reason = chosen
    text = f"{mode.value}: {reason}"
    if mode is Access.BUCKETS and found.is_closed is True:
        closed = f"{text}, but the server has closed the namespaces of bucket collections"
        return warning(closed, setting("timeseries_access: auto"))
    return note(text) if why is Why.RIGHTS else ok(text)
