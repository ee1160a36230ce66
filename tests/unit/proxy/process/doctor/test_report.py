"""How an examination is printed."""

from __future__ import annotations

import json

from proxy.process.doctor.checks import Examination
from proxy.process.doctor.finding import advice, mongosh, note, ok, setting, warning, wrong_backend
from proxy.process.doctor.report import as_json, as_text
from proxy.process.exit_codes import ExitCode

URI = "mongodb://u:***@db/"
SOME = Examination(
    {
        "reachable": ok("db:27017"),
        "rights": wrong_backend("lacks find", mongosh("rs.status()"), setting("backend: x")),
        "clocks": warning("1.5 s apart", advice("synchronise")),
        "growth": note("in place"),
    },
    ("indexes",),
)


def test_text_is_aligned_with_remedies_indented() -> None:
    assert as_text(URI, SOME, ExitCode.FIX_BACKEND).splitlines()[1:] == [
        "",
        "ok       reachable  db:27017",
        "problem  rights     lacks find",
        "         mongosh> rs.status()",
        "         setting: backend: x",
        "warning  clocks     1.5 s apart",
        "         -> synchronise",
        "note     growth     in place",
        "",
        "1 problem, 1 warning, 1 note; not examined: indexes; exit code 3",
    ]


def test_json_has_a_stable_form() -> None:
    report = json.loads(as_json(URI, SOME, ExitCode.FIX_BACKEND))
    assert sorted(report) == ["backend", "checks", "exit_code", "not_made", "schema", "tsproxy"]
    assert (report["schema"], report["exit_code"], report["not_made"]) == (1, 3, ["indexes"])
    assert report["checks"][2] == {
        "check": "clocks",
        "severity": "warning",
        "text": "1.5 s apart",
        "remedies": [{"kind": "advice", "text": "synchronise"}],
    }


def test_all_is_well() -> None:
    fine = Examination({"reachable": ok("db:27017")}, ())
    assert as_text(URI, fine, ExitCode.STOPPED).endswith("\nall is well; exit code 0\n")


def test_neither_secrets_nor_control_characters_are_printed() -> None:
    strange = Examination({"rights": ok("mongodb://u:secret@db/ \x1b[31m\r\n")}, ())
    for text in (
        as_text("mongodb://u:secret@db/", strange, ExitCode.STOPPED),
        as_json("mongodb://u:secret@db/", strange, ExitCode.STOPPED),
    ):
        assert "secret" not in text
        assert "\x1b" not in text
        assert "\r" not in text
