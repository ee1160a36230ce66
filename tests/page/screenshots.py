"""Takes the pictures of the status page for the documents: ``python -m tests.page.screenshots DIRECTORY [SECONDS]``.

Real writers and readers work for five minutes before, so that the charts are full.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pymongo
from PIL import Image

from tests.page.browser import DESK, PHONE, Scheme, chromium, visiting
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

COLLECTIONS: Final = ("observations", "wind", "rainfall")
WRITERS: Final = 12
PICTURES: Final[tuple[tuple[str, Scheme, tuple[int, int]], ...]] = (
    ("status-light", "light", DESK),
    ("status-dark", "dark", DESK),
    ("status-phone", "light", PHONE),
)


def write(proxy: ProxyProcess, number: int, stop: threading.Event) -> None:
    """One station: it inserts a measurement at a time, more of them every other minute."""
    chance = random.Random(number)
    with proxy.client(appname="stations") as client:
        database: Any = client.weather
        collection = database[COLLECTIONS[number % len(COLLECTIONS)]]
        at, count = datetime.now(UTC), 0
        while not stop.is_set():
            count += 1
            at += timedelta(seconds=10)
            with suppress(pymongo.errors.PyMongoError):
                collection.insert_one({"t": at, "station": f"s{number}", "celsius": chance.gauss(12, 5)})
                if count % 40 == 0:
                    collection.find_one({"station": f"s{number}"}, sort=[("t", -1)])
                if count % 800 == 0:
                    database.notes.insert_one({"_id": count})
            time.sleep(0.03 + 0.015 * math.sin(time.monotonic() / 20) + chance.random() / 100)


def take(proxy: ProxyProcess, directory: Path) -> None:
    """All pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, scheme, size in PICTURES:
            with visiting(browser, proxy, scheme=scheme, size=size) as visit:
                visit.wait("document.querySelectorAll('#collections tr').length > 0")
                path = directory / f"{name}.png"
                visit.page.screenshot(path=path, full_page=size == DESK)
                Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
                sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")


def main(directory: Path, seconds: float) -> None:
    """Start servers and load, wait, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        mongod = MongodProcess(Path(folder) / "mongod")
        proxy = ProxyProcess(Path(folder) / "proxy", mongod.start().uri)
        stop = threading.Event()
        writers = [threading.Thread(target=write, args=(proxy, number, stop)) for number in range(WRITERS)]
        try:
            proxy.start()
            with proxy.client() as client:
                for each in COLLECTIONS:
                    client.weather.create_collection(each, timeseries={"timeField": "t", "metaField": "station"})
                client.weather.create_collection("notes")
            for writer in writers:
                writer.start()
            time.sleep(seconds)
            take(proxy, directory)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
            proxy.stop()
            mongod.remove()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 310.0)
