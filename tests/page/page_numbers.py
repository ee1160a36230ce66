"""What the page shows under load is what the proxy says, and it moves."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser

from tests.page.browser import HOSTILE, Visit, visiting
from tests.support.access import GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.ports import accepts
from tests.support.proxy import ProxyProcess
from tests.support.versions import server
from tests.support.wanted import MONGOD_VERSION


def figure(visit: Visit, selector: str) -> float:
    """A count on the page as a number."""
    text = visit.text(selector).replace(",", "")
    assert re.fullmatch(r"[\d.]+", text), text
    return float(text)


def test_numbers_move_and_are_those_of_the_proxy(browser: Browser, loaded: ProxyProcess) -> None:
    with visiting(browser, loaded) as visit:
        visit.wait("document.getElementById('measurements').textContent !== '–'")
        before = {each: visit.text(each) for each in ("#measurements", "#requests", "#clients")}
        drawn = visit.page.inner_html("#measurements-chart")
        for each, text in before.items():
            visit.wait("([selector, text]) => document.querySelector(selector).innerText !== text", [each, text])
        visit.wait("(drawn) => document.getElementById('measurements-chart').innerHTML !== drawn", drawn)
        now = json.loads(loaded.status("/status.json")[1])["now"]
        rate = now["counts"]["measurements"] / now["seconds"]
        assert 0.3 * rate < figure(visit, "#measurements") < 3 * rate
        assert visit.state() == "ready"
        assert visit.text("#latency").endswith("ms")
        assert figure(visit, "#per-commit") >= 1
        assert set(visit.page.locator("#ways th").all_inner_texts()) >= {"ingest\ninserts of measurements"}
        assert "6." in visit.text("#backend") or "5." in visit.text("#backend")
        assert figure(visit, "#open") > 0


def test_names_of_clients_are_text(browser: Browser, mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--slow-command-ms", "50"])
    mongod.shared_client.drop_database("named")
    try:
        proxy.start()
        with proxy.client(appname=HOSTILE) as client:
            client.named.create_collection(HOSTILE, timeseries={"timeField": "t"})
            client.named[HOSTILE].insert_one({"t": datetime.now(UTC)})
            client.named.plain.insert_one({})
            client.named.plain.find_one({"$where": "sleep(80) || true"}, comment=HOSTILE)
        with visiting(browser, proxy) as visit:
            entry = visit.page.locator("#slow li", has_text="plain").first
            entry.locator("summary").click()
            assert entry.inner_text().count(HOSTILE) == 2, "application and comment"
            visit.wait("(name) => document.getElementById('collections').innerText.includes(name)", HOSTILE)
            assert visit.page.locator("img").count() == 0
            assert visit.page.title().endswith("tsproxy")
    finally:
        proxy.stop()
        mongod.shared_client.drop_database("named")


def test_busiest_collections_and_errors(browser: Browser, loaded: ProxyProcess) -> None:
    with visiting(browser, loaded) as visit:
        visit.wait("document.getElementById('collections').innerText.includes('page.ts')")
        assert "invalid command" in visit.text("#errors")
        assert "3" in visit.text("#errors")
        assert "3 errors in five minutes" in visit.text("#ways")


def test_what_is_open_stays_open_and_nothing_is_announced_for_no_reason(
    browser: Browser, mongod: MongodProcess, tmp_path: Path
) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--slow-command-ms", "50"])
    try:
        proxy.start()
        with proxy.client() as client:
            client.quiet.plain.update_one({"_id": -1}, {"$set": {"a": 1}}, upsert=True)
            client.quiet.plain.find_one({"$where": "sleep(80) || true"})
            with visiting(browser, proxy) as visit:
                visit.page.locator("#slow summary").first.focus()
                visit.page.keyboard.press("Enter")
                visit.page.evaluate(
                    """() => {
                      window.announced = 0;
                      window.focused = document.activeElement;
                      new MutationObserver(() => announced++).observe(
                        document.querySelector("[role=status]"), {subtree: true, childList: true, characterData: true});
                    }"""
                )
                # Another kind that takes more time comes before the one that is open.
                client.quiet.command("count", "plain", query={"$where": "sleep(190) || true"})
                for _ in range(3):
                    drawn = visit.page.inner_html("#requests-chart")
                    visit.wait("(drawn) => document.getElementById('requests-chart').innerHTML !== drawn", drawn)
                assert visit.page.locator("#slow li").count() > 1
                assert visit.page.locator("details[open]").count() == 1
                assert visit.page.evaluate("document.activeElement === focused && focused.parentElement.open")
                assert visit.page.evaluate("announced") == 0
    finally:
        proxy.stop()


def test_updates_can_be_paused(browser: Browser, loaded: ProxyProcess) -> None:
    with visiting(browser, loaded) as visit:
        visit.wait("document.getElementById('measurements').textContent !== '–'")
        visit.page.get_by_role("button", name="Pause updates").click()
        visit.wait("document.getElementById('updated').textContent.startsWith('paused')")
        requests: list[str] = []
        visit.page.on("request", lambda request: requests.append(request.url))
        clients = visit.text("#clients")
        visit.wait("document.getElementById('updated').textContent === 'paused 5 s ago'")
        assert (visit.text("#clients"), requests) == (clients, [])
        visit.page.get_by_role("button", name="Pause updates").click()
        visit.wait("(clients) => document.getElementById('clients').innerText !== clients", clients)


def test_a_restart_of_the_proxy(browser: Browser, mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri)
    try:
        proxy.start()
        with visiting(browser, proxy) as visit:
            visit.wait_for_state("ready")
            visit.wait("document.querySelectorAll('#requests-chart .line').length > 0")
            visit.may_be_away = True
            proxy.stop()
            visit.wait_for_state("unreachable")
            assert visit.text("#headline") == "tsproxy is not reachable"
            assert visit.page.title() == "tsproxy is not reachable · tsproxy"
            assert "Since" in visit.text("#reason")
            assert visit.text("#requests") != "–", "the last numbers stay"
            assert visit.page.locator("#requests-chart .line").count() > 0
            proxy.start()
            visit.wait_for_state("ready")
            visit.wait("!document.getElementById('requests').textContent.includes('–')")
            visit.wait("document.getElementById('about').textContent.includes('up')")
    finally:
        proxy.stop()


def test_a_proxy_that_is_not_ready_says_why(browser: Browser, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, "mongodb://127.0.0.1:9/")
    try:
        proxy.start(wait=False)
        proxy.wait_until(lambda: accepts(proxy.status_port))
        with visiting(browser, proxy) as visit:
            visit.wait_for_state("problem")
            assert visit.text("#headline") == "Not ready"
            visit.wait("document.getElementById('reason').textContent.includes('127.0.0.1:9')")
            assert visit.text("#backend") == "MongoDB\ndoes not answer"
    finally:
        proxy.kill()


def test_a_backend_that_goes_away_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    chosen = server(MONGOD_VERSION)
    backend = MongodProcess(tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment)
    proxy = ProxyProcess(tmp_path / "proxy", backend.start().uri)
    try:
        proxy.start()
        with visiting(browser, proxy) as visit:
            visit.wait_for_state("ready")
            backend.stop()
            visit.wait_for_state("problem")
            assert "The backend does not answer." in visit.text("#reason")
            visit.wait("document.querySelectorAll('#requests-chart .bad').length > 0")
            backend.start()
            visit.wait_for_state("ready")
    finally:
        proxy.stop()
        backend.remove()


def test_what_administrators_do_is_shown(browser: Browser, mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri)
    try:
        proxy.start()
        with visiting(browser, proxy) as visit, proxy.client() as client:
            visit.wait_for_state("ready")
            client.admin.command({"tsproxy": "pause"})
            visit.wait_for_state("attention")
            assert "paused the clients" in visit.text("#notes")
            client.admin.command({"tsproxy": "resume"})
            visit.wait_for_state("ready")
            assert "paused" not in visit.text("#notes")
    finally:
        proxy.stop()


def test_with_access_control_there_are_no_names(browser: Browser, tmp_path: Path) -> None:
    chosen = server(MONGOD_VERSION)
    guarded = GuardedMongod(
        tmp_path / "mongod", binary=chosen.binary, environment=chosen.environment, arguments=["--auth"]
    )
    try:
        guarded.start()
        guarded.create_accounts()
        proxy = ProxyProcess(tmp_path / "proxy", guarded.account_uri)
        try:
            proxy.start()
            with visiting(browser, proxy) as visit:
                visit.wait_for_state("ready")
                assert "status_page" in visit.text("#collections-empty")
                assert "status_page" in visit.text("#slow-empty")
                assert "enabled" in visit.text("#backend")
        finally:
            proxy.stop()
    finally:
        guarded.remove()


def test_many_collections_with_long_names(browser: Browser, mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri)
    mongod.shared_client.drop_database("many")
    try:
        proxy.start()
        with proxy.client() as client:
            for number in range(60):
                name = f"{number}_" + "x" * 180
                client.many.create_collection(name, timeseries={"timeField": "t"})
                client.many[name].insert_one({"t": client.admin.command("hello")["localTime"]})
        with visiting(browser, proxy, size=(360, 740)) as visit:
            visit.wait("document.getElementById('collections').children.length === 10")
            assert visit.overflow() == []
        assert len(proxy.status("/status.json")[1]) < 200_000
    finally:
        proxy.stop()
        mongod.shared_client.drop_database("many")
