"""Reads of random measurements equal the same reads of the same documents in a plain collection (Q10–Q18).

The plain collection is the judge of what a query means: native itself loses rows in the cases of H2–H4.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from rewrite.profile import Profile
from tests.property.read_cases import ReadCommand, commands, datasets
from tests.support.mongod import MongodProcess
from tests.support.read_plans import carry_out, profile_of, request_for, send, virtual_collection
from tests.support.wanted import SCALE

COMMANDS_PER_DATASET = 25


def is_left_to_native(command: ReadCommand, profile: Profile) -> bool:
    """Before 6.0 a distinct on a view takes a number in a path for a field's name only."""
    parts = str(command.body.get("key", "")).split(".")
    return profile.version < (6, 0, 0) and any(part.isdigit() for part in parts)


@pytest.mark.timeout(120 + 90 * SCALE)
@settings(
    max_examples=max(1, int(15 * SCALE)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(dataset=datasets(), data=st.data())
def test_reads_equal_those_of_a_plain_collection(dataset: Any, data: st.DataObject, mongod: MongodProcess) -> None:
    """Rows, counts and values are the same, or both sides refuse with the same code."""
    database = "property_reads"
    client = mongod.shared_client
    dataset.store(client, database)
    target = dataset.known(virtual_collection(client, database, "x"))
    profile = profile_of(client)
    for _ in range(COMMANDS_PER_DATASET):
        command = data.draw(commands(dataset))
        ours = carry_out(client, request_for(command.on("x"), target, profile))
        judge = send(client, database, command.on("x" if is_left_to_native(command, profile) else "plain"))
        if judge.get("code") == 167:
            continue  # V1: where the judge is a view, 5.0 lets no command bring a collation; the proxy does
        assert command.answer(ours) == command.answer(judge), command
