"""What the program prints at a terminal when it is ready."""

from __future__ import annotations

from importlib import metadata

from proxy.settings.config import Address, Settings, redact_uri


def welcome(settings: Settings, address: Address, *, has_timeseries: bool = True) -> list[str]:
    """The lines printed at the terminal when the proxy is ready; ``has_timeseries``: whether the backend has them."""
    is_embedded = settings.backend is None
    behind = redact_uri(settings.backend or f"an embedded mongod with its data in {settings.embedded_data_directory}")
    database = "weather" if is_embedded else ""
    lines = [
        "",
        f"tsproxy {metadata.version('tsproxy')} listens on {address}; backend: {behind}.",
        f'  connect:  mongosh "mongodb://{address.from_here}/{database}"',
    ]
    # Nobody needs a sample in a database of their own.
    if is_embedded and has_timeseries:
        lines += [
            '  then:     db.createCollection("observations", {timeseries: {timeField: "t", metaField: "station"}})',
            '            db.observations.insertOne({t: new Date(), station: "north", celsius: 12.5})',
        ]
    if settings.status_listen is not None:
        path = "metrics" if settings.status_page == "off" else ""
        lines.append(f"  watch:    http://{settings.status_listen.from_here}/{path}")
    return [*lines, "  stop:     Ctrl-C", ""]
