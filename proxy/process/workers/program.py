"""The program of a worker process; ``proxy.process.workers.worker`` is imported without collecting reference cycles."""

from __future__ import annotations

import sys

from proxy.process import interpreter


def run() -> None:
    """Run the worker whose channel has the given file descriptor."""
    interpreter.begin()
    from proxy.process.workers.worker import main

    main(int(sys.argv[1]))


if __name__ == "__main__":
    run()
