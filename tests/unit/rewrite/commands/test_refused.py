from __future__ import annotations

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from rewrite.commands.refused import REFUSED, refuse_always
from rewrite.plan import PassThrough
from tests.support.scopes import TARGET, request


@pytest.mark.parametrize("name", ["cloneCollectionAsCapped", "convertToCapped"])
def test_h1_what_crashes_the_server_is_refused_on_buckets(name: str) -> None:
    with pytest.raises(CommandError) as refused:
        refuse_always(name, TARGET.buckets)
    assert (refused.value.code, refused.value.message) == (166, "Namespace db.x is a timeseries collection")
    assert REFUSED[name](request({name: "x"})) == PassThrough(), "the backend refuses it on the collection"


def test_other_commands_and_collections_are_not() -> None:
    refuse_always("convertToCapped", Namespace("db", "x"))
    refuse_always("find", TARGET.buckets)
