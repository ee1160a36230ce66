"""Compiles the modules that every measurement passes, where mypyc and a C compiler are at hand.

Without them the modules run as they are; so they do in an editable installation, where they may change, and with
``TSPROXY_COMPILE=0`` in the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

HOT_MODULES = (
    "catalog/catalog.py",
    "catalog/committer.py",
    "catalog/hindrances.py",
    "catalog/memory.py",
    "catalog/namespaces.py",
    "catalog/open_bucket.py",
    "catalog/parts.py",
    "catalog/placing.py",
    "catalog/ports.py",
    "catalog/round.py",
    "catalog/settlement.py",
    "catalog/statements.py",
    "catalog/stats.py",
    "catalog/write_batch.py",
    "proxy/back_pressure.py",
    "proxy/command.py",
    "proxy/connection.py",
    "proxy/cursor_names.py",
    "proxy/cursor_stream.py",
    "proxy/dispatch.py",
    "proxy/exchange.py",
    "proxy/handlers/at_once.py",
    "proxy/handlers/ingest.py",
    "proxy/insert_command.py",
    "proxy/kept_plans.py",
    "proxy/plain_insert.py",
    "proxy/plain_read.py",
    "proxy/plain_relay.py",
    "proxy/repeated_inserts.py",
    "proxy/router.py",
    "proxy/submission.py",
    "proxy/turns.py",
    "proxy/upstream.py",
    "proxy/wire/framing.py",
    "proxy/wire/message.py",
    "proxy/wire/op_msg.py",
    "proxy/wire/reader.py",
)


def compiled_modules() -> list[Extension]:
    """The extensions to build; none where they cannot be."""
    if os.environ.get("TSPROXY_COMPILE") == "0" or not {"bdist_wheel", "build_ext"} & set(sys.argv):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    # Types of dependencies, which need not be installed for a build, make no faster code.
    flags = ["--ignore-missing-imports", f"--cache-dir={os.devnull}"]
    try:
        extensions: list[Extension] = mypycify([*flags, *HOT_MODULES], opt_level="2", multi_file=True)
    except SystemExit as error:
        sys.stderr.write(f"tsproxy is installed without compiled modules: mypyc said {error}\n")
        return []
    return extensions


os.chdir(Path(__file__).parent)
setup(ext_modules=compiled_modules())
