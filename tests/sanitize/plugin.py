"""Puts a kernel that was built with sanitizers in the place of the installed one.

A plugin of pytest (``-p tests.sanitize.plugin``), imported before anything else; ``tests.sanitize.work`` uses it, too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

import catalog

VARIABLE = "TSPROXY_SANITIZED_KERNEL"
"""The path of that kernel."""


def take_sanitized_kernel() -> None:
    """From now on ``catalog._kernel`` is the sanitized one."""
    # Servers and other programs that tests start have sanitizers of their own, or none.
    os.environ.pop("LD_PRELOAD", None)
    path = Path(os.environ[VARIABLE])
    loader = importlib.machinery.ExtensionFileLoader("catalog._kernel", str(path))
    spec = importlib.util.spec_from_loader("catalog._kernel", loader)
    assert spec is not None
    kernel = importlib.util.module_from_spec(spec)
    loader.exec_module(kernel)
    sys.modules["catalog._kernel"] = kernel
    catalog._kernel = kernel  # type: ignore[attr-defined]


if VARIABLE in os.environ:
    take_sanitized_kernel()
