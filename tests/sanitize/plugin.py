"""Puts a kernel that was built with sanitizers in the place of the installed one.

A plugin of pytest (``-p tests.sanitize.plugin``), imported before anything else; ``tests.sanitize.work`` uses it, too.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

NAME = "catalog.kernel._kernel"
VARIABLE = "TSPROXY_SANITIZED_KERNEL"
"""The path of that kernel."""


class SanitizedKernel(importlib.abc.MetaPathFinder):
    """Finds the sanitized kernel before the import system finds the other one."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != NAME:
            return None
        return importlib.util.spec_from_loader(NAME, importlib.machinery.ExtensionFileLoader(NAME, self._path))


if VARIABLE in os.environ:
    # Servers and other programs that tests start have sanitizers of their own, or none.
    os.environ.pop("LD_PRELOAD", None)
    sys.meta_path.insert(0, SanitizedKernel(os.environ[VARIABLE]))
