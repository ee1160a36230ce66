"""``python -m tests.fuzz SECONDS [SEED]``: the mutation fuzzer against a proxy of its own."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.mutation import Broken, Fuzzer
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

ROUND_SECONDS = 300.0


def main() -> None:
    """Rounds of five minutes, each with a seed of its own, against one proxy, so that what grows is seen."""
    left_seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    with tempfile.TemporaryDirectory() as folder:
        mongod = MongodProcess(Path(folder) / "mongod")
        proxy = ProxyProcess(Path(folder) / "proxy", mongod.start().uri).start()
        try:
            while left_seconds > 0:
                outcomes = Fuzzer(proxy, seed).run(min(left_seconds, ROUND_SECONDS))
                print(f"seed {seed}: {outcomes}", flush=True)
                left_seconds -= ROUND_SECONDS
                seed += 1
        except Broken:
            # Answers of our own errors name a reference, which the log explains.
            print("\n".join(line for line in proxy.log.splitlines() if "broke the protocol" not in line)[-6000:])
            raise
        finally:
            proxy.stop()
            mongod.remove()


if __name__ == "__main__":
    main()
