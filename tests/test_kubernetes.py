"""The Kubernetes manifests: they fit together, and to the settings, the image and the way the process stops."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.process.last_resort import CLOSE_SECONDS
from proxy.settings.config import load_settings
from proxy.settings.table import ROWS, Settings
from tests.support.dockerfile import instructions

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VARIABLES = {row.variable: row.name for row in ROWS.values()}
PATHS = {"/livez", "/readyz"}


def documents(path: Path) -> dict[str, dict[str, Any]]:
    """The objects of a file by kind; each kind occurs once."""
    found = list(yaml.safe_load_all(path.read_text()))
    by_kind = {each["kind"]: each for each in found}
    assert len(by_kind) == len(found)
    return by_kind


def pod(path: Path) -> dict[str, Any]:
    spec: dict[str, Any] = documents(path)["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(path: Path) -> dict[str, Any]:
    """The container of the proxy."""
    spec = pod(path)
    (found,) = [each for each in [*spec.get("initContainers", []), *spec["containers"]] if each["name"] == "tsproxy"]
    assert isinstance(found, dict)
    return found


def settings(path: Path, tmp_path: Path) -> Settings:
    """The settings that the proxy has in the pod, with the secret and the config map in their places."""
    backend = tmp_path / "uri"
    backend.write_text(documents(path)["Secret"]["stringData"]["uri"])
    variables = {each["name"]: each["value"] for each in container(path).get("env", [])}
    image = dict(pair.split("=", 1) for name, text in instructions() if name == "ENV" for pair in text.split())
    variables = {name: value for name, value in {**image, **variables}.items() if name in VARIABLES}
    config = None
    if "ConfigMap" in documents(path):
        text = documents(path)["ConfigMap"]["data"]["tsproxy.toml"]
        assert set(tomllib.loads(text)) <= set(ROWS)
        config = tmp_path / "tsproxy.toml"
        config.write_text(text.replace("/etc/tsproxy/backend/uri", str(backend)))
    if "TSPROXY_BACKEND_FILE" in variables:
        variables["TSPROXY_BACKEND_FILE"] = str(backend)
    return load_settings({}, variables, config).settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_settings_are_valid_and_name_the_secret(path: Path, tmp_path: Path) -> None:
    loaded = settings(path, tmp_path)
    assert loaded.backend == documents(path)["Secret"]["stringData"]["uri"]
    assert all(each["name"] in VARIABLES for each in container(path).get("env", []))
    assert str(loaded.status_listen) == "0.0.0.0:9216"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_pod_waits_until_the_process_has_stopped(path: Path, tmp_path: Path) -> None:
    grace_seconds = settings(path, tmp_path).shutdown_grace_seconds
    before = container(path).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    assert before[0] == "sleep"
    least = int(before[1]) + grace_seconds + CLOSE_SECONDS
    assert pod(path)["terminationGracePeriodSeconds"] > least


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_probes_ask_what_the_proxy_serves(path: Path) -> None:
    found = container(path)
    ports = {each["name"]: each["containerPort"] for each in found["ports"]}
    probes = {name: each["httpGet"] for name, each in found.items() if name.endswith("Probe")}
    assert {"readinessProbe", "livenessProbe"} <= set(probes)
    assert {each["path"] for each in probes.values()} <= PATHS
    assert probes["livenessProbe"]["path"] == "/livez"
    assert {ports[each["port"]] for each in probes.values()} == {9216}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_objects_refer_to_one_another(path: Path) -> None:
    found = documents(path)
    deployment = found["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    if "Service" in found:
        assert found["Service"]["spec"]["selector"] == labels
        ports = {each["name"] for each in container(path)["ports"]}
        assert {each["targetPort"] for each in found["Service"]["spec"]["ports"]} <= ports
    volumes = {each["name"] for each in pod(path)["volumes"]}
    assert {each["name"] for each in container(path)["volumeMounts"]} == volumes
    named = {each["secret"]["secretName"] for each in pod(path)["volumes"] if "secret" in each}
    assert named == {found["Secret"]["metadata"]["name"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_container_has_no_more_rights_than_it_needs(path: Path) -> None:
    assert pod(path)["automountServiceAccountToken"] is pod(path)["enableServiceLinks"] is False
    security = container(path)["securityContext"]
    assert security["runAsNonRoot"] is security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    # The group of the image's user may read the secret, others may not.
    (user,) = {text for name, text in instructions() if name == "USER"}
    assert pod(path)["securityContext"]["fsGroup"] == int(user.partition(":")[2])
