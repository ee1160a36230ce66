"""The documents that the workloads send."""

from __future__ import annotations

from bench.messages import ID, TIME, Digits, DocumentShape, Value

BASE_MS = 1_704_067_200_000
"""When the measurements begin: 2024-01-01 00:00 UTC."""

IOT = DocumentShape(
    "iot",
    {"_id": ID, "time": TIME, "device": Digits("dev-"), "temperature": Value("tenth"), "humidity": Value("tenth")},
    time_field="time",
    meta_field="device",
)
"""A small device: four fields and the id that drivers add."""

CPU_METRICS = ("user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")

CPU = DocumentShape(
    "cpu",
    {
        "_id": ID,
        "time": TIME,
        "tags": {
            "hostname": Digits("host_"),
            "region": "eu-central-1",
            "datacenter": "eu-central-1a",
            "rack": "6",
            "os": "Ubuntu15.10",
            "arch": "x86",
            "team": "SF",
            "service": "19",
            "service_version": "1",
            "service_environment": "test",
        },
        **{f"usage_{metric}": Value("whole") for metric in CPU_METRICS},
    },
    time_field="time",
    meta_field="tags",
)
"""The cpu-only use case of the Time Series Benchmark Suite: ten metrics, the tags as meta."""

ORDINARY = DocumentShape("ordinary", {"_id": ID, "name": "x" * 40, "count": 1, "value": Value("tenth"), "at": TIME})
"""For collections that have nothing to do with time series."""
