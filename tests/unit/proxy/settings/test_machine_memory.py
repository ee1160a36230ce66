from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings.config import load_settings
from proxy.settings.machine_memory import CATALOG_SHARE, catalog_memory_bytes, installed_bytes, memory_bytes

GIB = 1 << 30
SETTING = "timeseries_idle_bucket_expiry_memory_usage_threshold"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8 * GIB, id="no control groups"),
        pytest.param({"proc/self/cgroup": "0::/"}, 8 * GIB, id="none with a limit"),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(GIB)}, GIB, id="version 2, in a container"
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/system.slice/tsproxy.service",
                "sys/fs/cgroup/system.slice/tsproxy.service/memory.max": "max",
                "sys/fs/cgroup/system.slice/memory.max": str(2 * GIB),
            },
            2 * GIB,
            id="version 2, the limit of the group above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/other\n4:memory:/docker/abc\n1:name=systemd:/docker/abc",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": str(3 * GIB),
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            },
            3 * GIB,
            id="version 1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n0::/docker/abc",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
            },
            GIB,
            id="version 1, in a container that sees its group as the root",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(64 * GIB)}, 8 * GIB, id="more than there is"
        ),
    ],
)
def test_the_smallest_limit_counts(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert memory_bytes(8 * GIB, machine(tmp_path, files)) == expected


def test_w48_a_fortieth_of_the_memory_by_default() -> None:
    expected = catalog_memory_bytes()
    assert 0 < expected <= installed_bytes() * CATALOG_SHARE
    loaded = load_settings({}, {})
    assert getattr(loaded.settings, SETTING) == expected
    assert loaded.origins[SETTING] == "default"
    assert getattr(load_settings({SETTING: "104857600"}, {}).settings, SETTING) == 104_857_600
