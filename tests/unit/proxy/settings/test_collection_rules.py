"""How rules for new collections are read, which names they cover, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.namespaces import Namespace
from proxy.settings.collection_rules import parse_rule, parse_rules, rule_for, unsupported


def test_options_become_those_of_create() -> None:
    rule = parse_rule(" db.cpu_* ->  timeField=t metaField=host granularity=minutes expireAfterSeconds=0 ")
    assert rule.pattern == "db.cpu_*"
    assert dict(rule.timeseries) == {"timeField": "t", "metaField": "host", "granularity": "minutes"}
    assert rule.expire_after_seconds == 0
    spans = parse_rule("db.x->timeField=t bucketMaxSpanSeconds=900")
    assert dict(spans.timeseries) == {"timeField": "t", "bucketMaxSpanSeconds": 900, "bucketRoundingSeconds": 900}
    assert spans.expire_after_seconds is None


@pytest.mark.parametrize(
    ("pattern", "name", "covers"),
    [
        ("db.x", "db.x", True),
        ("db.x", "db.xy", False),
        ("db.x*", "db.x", True),
        ("db.*x", "db.yx", True),
        ("db.*x", "db.xy", False),
        ("*.cpu", "any.cpu", True),
        ("m_*.*", "m_1.a.b", True),
        ("m_*.*", "m.a", False),
        ("db.a*a", "db.a", False),
        ("db.a*a", "db.aa", True),
        ("db.a*b*c", "db.a-b-b-c", True),
        ("db.a*b*c", "db.a-c-b", False),
        ("db.a?", "db.ab", False),
        ("db.[ab]", "db.a", False),
        ("*.*", "db.system.buckets.x", False),
        ("*.*", "admin.x", False),
        ("*.*", "config.x", False),
        ("*.*", "local.x", False),
        ("db.x.y", "db.x.y", True),
    ],
)
def test_names_that_a_pattern_covers(pattern: str, name: str, covers: bool) -> None:
    rule = parse_rule(f"{pattern} -> timeField=t")
    database, _, collection = name.partition(".")
    assert (rule_for([rule], Namespace(database, collection)) is rule) == covers


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", min_size=1, max_size=10))
def test_wildcards_are_those_of_a_regular_expression(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern.replace("*", ".*"), name) is not None
    assert parse_rule(f"db.{pattern} -> timeField=t").covers(Namespace("db", name)) == expected


def test_the_first_rule_that_fits_is_used() -> None:
    rules = parse_rules(["db.cpu_* -> timeField=a", "db.* -> timeField=b"])
    assert rule_for(rules, Namespace("db", "cpu_1")) is rules[0]
    assert rule_for(rules, Namespace("db", "disk")) is rules[1]
    assert rule_for(rules, Namespace("other", "disk")) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("db.x timeField=t", "has no '->'"),
        ("x -> timeField=t", "is not DATABASE.COLLECTION"),
        (".x -> timeField=t", "is not DATABASE.COLLECTION"),
        ("db. -> timeField=t", "is not DATABASE.COLLECTION"),
        ("admin.x -> timeField=t", "the server's own database admin"),
        ("d/b.x -> timeField=t", "no database name fits"),
        ("db.a$b -> timeField=t", "collections of the system"),
        ("db.system.x -> timeField=t", "collections of the system"),
        ("db.x ->", "timeField is missing"),
        ("db.x -> metaField=m", "timeField is missing"),
        ("db.x -> timeField", "timeField has no value"),
        ("db.x -> timeField=", "timeField has no value"),
        ("db.x -> timeField=a timeField=b", "timeField occurs twice"),
        ("db.x -> timeField=a.b", "timeField=a.b is not valid: expected the name of a field"),
        ("db.x -> timeField=_id", "other than _id"),
        ("db.x -> timeField=t metaField=t", "metaField must differ from timeField"),
        ("db.x -> timeField=t granularity=days", "expected one of seconds, minutes, hours"),
        ("db.x -> timeField=t granularity=hours bucketMaxSpanSeconds=60", "exclude each other"),
        ("db.x -> timeField=t bucketMaxSpanSeconds=0", "expected a whole number from 1 to 31536000"),
        ("db.x -> timeField=t expireAfterSeconds=-1", "expected a whole number from 0"),
        ("db.x -> timeField=t expireAfterSeconds=1e3", "expected a whole number from 0"),
        ("db.x -> timeField=t expireAfterSeconds=" + "9" * 5000, "expected a whole number from 0"),
        ("db.x -> timeField=t ttl=5", "unknown option 'ttl'; known ones are timeField"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_rule(text)


def test_a_pattern_occurs_once() -> None:
    with pytest.raises(ValueError, match=r"db\.x occurs twice"):
        parse_rules(["db.x -> timeField=a", "db.x -> timeField=b"])


def test_what_an_older_server_lacks() -> None:
    plain, spans = parse_rules(["db.x -> timeField=t", "db.y -> timeField=t bucketMaxSpanSeconds=60"])
    assert unsupported([], (4, 4, 0), has_timeseries=False) == ""
    assert unsupported([plain], (5, 0, 4), has_timeseries=True) == ""
    assert "reports version 4.4.0, has no time-series" in unsupported([plain], (4, 4, 0), has_timeseries=False)
    assert "has no time-series collections" in unsupported([plain], (8, 2, 11), has_timeseries=False)
    wrong = unsupported([plain, spans], (6, 0, 5), has_timeseries=True)
    assert "db.y: bucketMaxSpanSeconds requires MongoDB 6.3" in wrong
    assert unsupported([plain, spans], (7, 0, 0), has_timeseries=True) == ""
