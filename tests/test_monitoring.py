"""Prometheus and Grafana as the compose file starts them: each name in them is one that a real proxy shows."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pymongo.errors import OperationFailure

from tests.support.headings import anchors
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.promql import Matcher, Selector, grouping_labels, selectors
from tests.support.proxy import ProxyProcess

ROOT = Path(__file__).parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
OPERATING = ROOT / "docs" / "operating.md"

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
MONITORING = {name: each for name, each in COMPOSE["services"].items() if each.get("profiles") == ["monitoring"]}
CONFIGURATION: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
RULE_TESTS: dict[str, Any] = yaml.safe_load((PROMETHEUS / "tsproxy.rules.test.yml").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "tsproxy.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "tsproxy.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

OF_PROMETHEUS = {"up", "ALERTS"}
"""Metrics that Prometheus makes itself."""
TARGET_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to each sample of a target."""


def on_dashboard() -> Iterator[str]:
    """Every expression of the dashboard."""
    for panel in GRAPHS:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in DASHBOARD["annotations"]["list"] if "expr" in each)
    for variable in VARIABLES.values():
        if variable["type"] == "query":
            yield re.sub(r"label_values\((.*), \w+\)", r"\1", variable["query"]["query"])


EXPRESSIONS = [*(rule["expr"] for rule in RULES), *on_dashboard()]


LIMITED = '{"monitored": {"max_commands": 8}}'
USERS = '{"*": {"max_connections": 8}}'
FLAGS = ["--max-connections", "8", "--slow-command-ms", "0", "--database-limits", LIMITED, "--user-limits", USERS]
"""So that a client can be rejected, every command is slow, and there are limits."""


@dataclass(frozen=True)
class Shown:
    """What a scrape shows: the names of samples with the values of their labels, and the families."""

    labels: dict[str, dict[str, set[str]]]
    families: set[str]


@pytest.fixture(scope="module")
def shown(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A scrape of a proxy that has served a few commands of each way, and has rejected a client."""
    proxy = ProxyProcess(tmp_path_factory.mktemp("monitored"), mongod.uri, flags=FLAGS).start()
    name = "monitored"
    try:
        with proxy.client(appname=name) as client:
            database = client[name]
            database.create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
            start = datetime(2024, 5, 18, tzinfo=UTC)
            for minute in range(3):
                database.rows.insert_one({"t": start + timedelta(minutes=minute), "m": 1, "v": minute})
            assert len(list(database.rows.find(comment=name))) == 3
            with pytest.raises(OperationFailure):
                database.command("noSuchCommand")
            with ExitStack() as stack:
                for _ in range(9):
                    stack.enter_context(socket.create_connection((LOOPBACK, proxy.port)))
                proxy.wait_until(lambda: rejected(proxy) > 0)
            yield scraped(proxy.status("/metrics")[1])
            client.drop_database(name)
    finally:
        proxy.stop()


def rejected(proxy: ProxyProcess) -> float:
    return proxy.metrics()['tsproxy_connections_rejected_total{reason="too_many"}']


def scraped(text: str) -> Shown:
    labels: dict[str, dict[str, set[str]]] = {}
    families = set()
    for family in text_string_to_metric_families(text):
        families.add(family.name)
        for sample in family.samples:
            of_name = labels.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                of_name.setdefault(label, set()).add(value)
    return Shown(labels, families)


def unknown(selector: Selector, shown: Shown) -> list[str]:
    """What this selector names and the proxy does not show."""
    if selector.metric in OF_PROMETHEUS:
        return []
    if selector.metric in RECORDED:
        (source, *_) = (each for each in selectors(RECORDED[selector.metric]) if each.metric not in RECORDED)
        known = shown.labels.get(source.metric, {})
    elif selector.metric in shown.labels:
        known = shown.labels[selector.metric]
    else:
        return [selector.metric]
    return [
        f"{selector.metric}: {each.label}{each.operator}{each.value}"
        for each in selector.matchers
        if each.label not in TARGET_LABELS
        and (each.label not in known or (each.operator == "=" and each.value not in known[each.label]))
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_reads_what_a_proxy_shows(expression: str, shown: Shown) -> None:
    found = selectors(expression)
    assert found
    assert [name for selector in found for name in unknown(selector, shown)] == []
    labels = set().union(*(shown.labels[name] for name in shown.labels)) | TARGET_LABELS
    assert grouping_labels(expression) <= labels


def test_everything_that_a_proxy_shows_is_on_the_dashboard(shown: Shown) -> None:
    read = {selector.metric for expression in on_dashboard() for selector in selectors(expression)}
    assert {name for name in shown.families if not any(each.startswith(name) for each in read)} == set()


def test_names_that_a_proxy_does_not_show_are_found(shown: Shown) -> None:
    planted = 'sum by (way) (rate(tsproxy_request_total{way="gone"}[5m])) / tsproxy_limit{setting="gone"}'
    assert [name for selector in selectors(planted) for name in unknown(selector, shown)] == [
        "tsproxy_request_total",
        "tsproxy_limit: setting=gone",
    ]


def test_names_in_expressions() -> None:
    assert selectors('topk(10, sum without (le) (a:b{x=~"$y", z!="1"}[$__rate_interval]) > 1e3) and on (j) c') == [
        Selector("a:b", (Matcher("x", "=~", "$y"), Matcher("z", "!=", "1"))),
        Selector("c", ()),
    ]
    assert grouping_labels("sum without (a, b) (c) / ignoring (d) e") == {"a", "b", "d"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_to_do_and_where_more_is_written(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "section"}
    assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
    document, _, anchor = rule["annotations"]["section"].partition("#")
    assert anchor in anchors(ROOT / document)
    panels = re.findall(r'panel "([^"]+)"', rule["annotations"]["description"])
    assert set(panels) <= {panel["title"] for panel in GRAPHS}
    assert set(re.findall(r"Tsproxy\w+", rule["annotations"]["description"])) <= ALERTS.keys()


def test_every_alert_is_in_the_documents() -> None:
    section = OPERATING.read_text().split("## Monitoring\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(Tsproxy\w+)` \| (\w+) \|", section, re.MULTILINE)
    assert dict(rows) == {alert: rule["labels"]["severity"] for alert, rule in ALERTS.items()}


def test_every_alert_is_made_to_fire_by_a_test() -> None:
    assert RULE_TESTS["rule_files"] == ["tsproxy.rules.yml"]
    fired = {
        name
        for each in RULE_TESTS["tests"]
        for query in each["promql_expr_test"]
        for sample in query["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert fired == ALERTS.keys()


def test_prometheus_scrapes_the_proxy_of_the_compose_file() -> None:
    assert [(PROMETHEUS / name).is_file() for name in CONFIGURATION["rule_files"]] == [True]
    ((job,),) = (CONFIGURATION["scrape_configs"],)
    assert {f'job="{job["job_name"]}"'} == set(re.findall(r'job="\w+"', ALERTS["TsproxyDown"]["expr"]))
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in COMPOSE["services"]
    assert f"TSPROXY_STATUS_LISTEN=0.0.0.0:{port}" in (ROOT / "Dockerfile").read_text()


def mounts(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Source, target and mode of each."""
    parts = ([*volume.split(":"), "rw"] for volume in service["volumes"])
    return [(source, target, mode) for source, target, mode, *_ in parts]


@pytest.mark.parametrize("name", MONITORING)
def test_a_service_of_the_profile_is_pinned_local_and_closed(name: str) -> None:
    service = MONITORING[name]
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for source, _, mode in mounts(service):
        if source.startswith("."):
            assert (ROOT / source).is_dir()
            assert mode == "ro"
        else:
            assert source in COMPOSE["volumes"]
            assert mode == "rw"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
    assert not [variable for variable in service.get("environment", {}) if "PASSWORD" in variable]


def inside(service: dict[str, Any], path: str) -> Path:
    """The file of this project that a container sees under ``path``."""
    (found,) = (
        ROOT / source / Path(path).relative_to(target)
        for source, target, _ in mounts(service)
        if source.startswith(".") and Path(path).is_relative_to(target)
    )
    return found


def test_containers_find_their_files() -> None:
    assert inside(MONITORING["prometheus"], "/etc/prometheus/prometheus.yml").is_file()
    grafana = MONITORING["grafana"]
    assert inside(grafana, grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()
    provider = yaml.safe_load(inside(grafana, "/etc/grafana/provisioning/dashboards/tsproxy.yml").read_text())
    assert inside(grafana, provider["providers"][0]["options"]["path"]) == GRAFANA / "dashboards"
    source = yaml.safe_load(inside(grafana, "/etc/grafana/provisioning/datasources/prometheus.yml").read_text())
    assert source["datasources"][0]["type"] == VARIABLES["datasource"]["query"] == "prometheus"
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "127.0.0.1:9090:9090" in MONITORING["prometheus"]["ports"]


def test_nobody_logs_in_to_grafana() -> None:
    environment = MONITORING["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


@pytest.mark.parametrize("panel", GRAPHS, ids=lambda panel: panel["title"])
def test_a_panel_explains_itself_and_needs_no_plugin(panel: dict[str, Any]) -> None:
    assert panel["type"] in {"timeseries", "stat", "heatmap"}
    assert panel["description"].endswith(".")
    assert "unit" in panel["fieldConfig"]["defaults"] or "unit" in panel["options"]["yAxis"]
    for target in (panel, *panel["targets"]):
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert all(
            {each.label for each in selector.matchers} >= TARGET_LABELS for selector in selectors(target["expr"])
        )


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (column, line)
            for column in range(place["x"], place["x"] + place["w"])
            for line in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert set(VARIABLES) == {"datasource", "job", "instance"}
