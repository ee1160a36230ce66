"""Tunes the interpreter for a process that serves clients."""

from __future__ import annotations

import gc
import sys


def begin() -> None:
    """Collect no reference cycles until ``tune``: nearly all that the imports create stays."""
    gc.disable()


def tune() -> None:
    """Collect reference cycles rarely, and let threads give way soon.

    Each insert creates a few dozen objects that live until its commit, so the default thresholds start a collection
    every few inserts. These find nothing, because nearly everything is freed by its reference count. A collection
    blocks the event loop while it checks the objects created since the previous ones: at most twice 10,000, which takes
    about five milliseconds. All objects are checked very rarely.

    Large merges run in a thread; the event loop must not wait five milliseconds, the default, for the interpreter.
    """
    # The cycles among what was imported have a third of a megabyte, and looking for them takes 0.03 s.
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 0, 50_000)
    sys.setswitchinterval(0.0005)
