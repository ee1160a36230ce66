"""``python -m tests.soak SECONDS [SEED]``: chapters on a standalone, a replica set, and it with two proxies, in turn.

``SOAK_EQUAL_IDS=no`` gives each row an ``_id`` of its own, ``SOAK_FAULTS=no`` kills and cuts nothing, ``SOAK_FINDINGS``
is where rows that are not as they were acknowledged are written to. A chapter can be run again by its seed (that of the
first one is that of the run; threads and processes run as they like, so not every finding comes again).
"""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.chapter import Account, Chapter
from tests.soak.writers import Tally
from tests.support.mongod import MongodProcess

CHAPTER_SECONDS = 60.0


def add(total: Account, one: Account) -> None:
    """Sum up, field by field."""
    for each in dataclasses.fields(total):
        new = getattr(one, each.name)
        if isinstance(new, Tally):
            for inner in dataclasses.fields(Tally):
                setattr(total.tally, inner.name, getattr(total.tally, inner.name) + getattr(new, inner.name))
        else:
            setattr(total, each.name, getattr(total, each.name) + new)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = sys.argv[2] if len(sys.argv) > 2 else str(random.randrange(1 << 31))
    findings = Path(os.environ.get("SOAK_FINDINGS", "build/soak"))
    equal_ids, faults = os.environ.get("SOAK_EQUAL_IDS") != "no", os.environ.get("SOAK_FAULTS") != "no"
    total = Account()
    end = time.monotonic() + seconds
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        backends = [
            MongodProcess(Path(folder) / "standalone"),
            MongodProcess(Path(folder) / "set", replica_set="rs0"),
        ]
        turns = [(backends[0], 1), (backends[1], 1), (backends[1], 2)]
        try:
            while (left := end - time.monotonic()) > 0:
                backend, proxies = turns[number % len(turns)]
                if not backend.running:
                    backend.start()
                name = seed if number == 0 else f"{seed}.{number}"
                chapter = Chapter(
                    Path(folder), backend, name, findings, equal_ids=equal_ids, faults=faults, proxies=proxies
                )
                account = chapter.run(min(left, CHAPTER_SECONDS))
                kind = "replica set" if backend.replica_set else "standalone"
                print(f"chapter {name} ({kind}, proxies: {proxies}): {account}", flush=True)
                for violation in account.violations:
                    print(f"  VIOLATION: {violation[:5000]}", flush=True)
                add(total, account)
                number += 1
        finally:
            for backend in backends:
                backend.remove()
    print(f"{number} chapters: {total}")
    sys.exit(1 if total.violations else 0)


if __name__ == "__main__":
    main()
