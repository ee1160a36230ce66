from __future__ import annotations

import pytest

from proxy.settings.config import load_settings
from proxy.settings.service_variables import is_injected
from proxy.settings.table import ROWS

INJECTED = {
    "SERVICE_HOST": "10.0.171.239",
    "SERVICE_PORT": "27018",
    "SERVICE_PORT_MONGODB": "27018",
    "SERVICE_PORT_HTTP_ALT2": "8080",
    "PORT": "tcp://10.0.171.239:27018",
    "PORT_27018_TCP": "tcp://10.0.171.239:27018",
    "PORT_27018_TCP_PROTO": "tcp",
    "PORT_27018_TCP_PORT": "27018",
    "PORT_27018_TCP_ADDR": "10.0.171.239",
    "PORT_53_UDP": "udp://[fd00:10:96::a]:53",
    "PORT_53_UDP_ADDR": "fd00:10:96::a",
    "PORT_5000_SCTP_PROTO": "sctp",
}
"""What a Service sets, without its own name."""


@pytest.mark.parametrize("service", ["TSPROXY", "TSPROXY_METRICS", "TSPROXY_2"])
@pytest.mark.parametrize("name", INJECTED)
def test_what_a_service_sets_is_recognised(service: str, name: str) -> None:
    assert is_injected(f"{service}_{name}", INJECTED[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TSPROXY_LISTEN_PORT", "27018"),
        ("TSPROXY_PORT", "27018"),
        ("TSPROXY_PORT", "tcp://host:27018"),
        ("TSPROXY_PORT", "http://10.0.0.1:80"),
        ("TSPROXY_PORT", "tcp://10.0.0.1:70000"),
        ("TSPROXY_SERVICE_HOST", "db.example"),
        ("TSPROXY_SERVICE_PORT", "zstd"),
        ("TSPROXY_SERVICE_PORT", "0"),
        ("TSPROXY_SERVICE_PORT", "²"),
        ("TSPROXY_SERVICE_HOSTS", "10.0.0.1"),
        ("TSPROXY_PORT_0_TCP", "tcp://10.0.0.1:1"),
        ("TSPROXY_PORT_27017_TCP_PROTO", "http"),
        ("TSPROXY_PORT_27017_TCP_OTHER", "tcp"),
        ("TSPROXY_LISTEN", "10.0.0.1"),
        ("SERVICE_HOST", "10.0.0.1"),
    ],
)
def test_what_only_resembles_it_is_not(name: str, value: str) -> None:
    assert not is_injected(name, value)


ALIKE = {"reuse_port": ("true", "false", "1", "0", "yes", "no", "on", "off")}
"""Settings whose name could be that of a Service's variable, and their values, which could not."""


@pytest.mark.parametrize("name", sorted(ROWS))
def test_no_setting_is_taken_for_one(name: str) -> None:
    clashes = [value for value in INJECTED.values() if is_injected(ROWS[name].variable, value)]
    assert bool(clashes) == (name in ALIKE)
    assert not any(is_injected(ROWS[name].variable, value) for value in ALIKE.get(name, ()))


def test_a_service_whose_variable_is_named_like_a_setting_sets_nothing() -> None:
    assert not load_settings({}, {"TSPROXY_REUSE_PORT": INJECTED["PORT"]}).settings.reuse_port
    assert load_settings({}, {"TSPROXY_REUSE_PORT": "true"}).settings.reuse_port
