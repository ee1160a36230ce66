"""The form of the kernel that is in use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.kernels import COMPILED

SHOW = "from catalog import kernel; print(kernel.COMPILED, kernel.BucketState.__module__)"


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ("python", "False catalog.kernel.bucket"),
        ("", "False catalog.kernel.bucket" if COMPILED is None else "True catalog.kernel._kernel"),
    ],
)
def test_the_environment_chooses_the_form(choice: str, shown: str) -> None:
    environment = {**os.environ, "TSPROXY_KERNEL": choice}
    ran = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == shown


def test_forms_and_limits_come_from_one_place() -> None:
    from catalog import kernel
    from catalog.kernel import rollover

    assert kernel.Limits is rollover.Limits
    assert set(kernel.__all__) <= set(vars(kernel))
