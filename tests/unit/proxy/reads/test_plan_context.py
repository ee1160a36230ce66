"""Plans see the backend as it is now, and collections as this process has written them."""

from __future__ import annotations

from dataclasses import replace

from catalog.namespaces import Namespace
from proxy.reads.cursor_names import CursorNames
from proxy.reads.plan_context import PlanContext
from rewrite.profile import Profile
from tests.support.scopes import TARGET


def test_the_profile_is_that_of_now() -> None:
    profiles = [Profile(version=(6, 0, 5)), Profile(version=(7, 0, 1))]
    context = PlanContext(lambda: profiles[0], CursorNames(), lambda _: False)
    assert context.profile is profiles[0]
    first = profiles.pop(0)
    assert context.profile is not first


def test_q12_what_this_process_has_written_counts() -> None:
    written: set[Namespace] = set()
    context = PlanContext(Profile, CursorNames(), written.__contains__)
    assert context.as_written(TARGET) is TARGET
    written.add(TARGET.namespace)
    assert context.as_written(TARGET) == replace(TARGET, extended_range=True)
    known = replace(TARGET, extended_range=True)
    assert context.as_written(known) is known
