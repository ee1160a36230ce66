from __future__ import annotations

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from rewrite.commands.refused import REFUSED, refuse_always
from rewrite.plan import PassThrough
from rewrite.profile import Profile
from tests.support.scopes import TARGET, request


@pytest.mark.parametrize("name", ["cloneCollectionAsCapped", "convertToCapped"])
def test_h1_what_crashes_the_server_is_refused_on_buckets(name: str) -> None:
    with pytest.raises(CommandError) as refused:
        refuse_always(name, TARGET.buckets, Profile())
    assert (refused.value.code, refused.value.message) == (166, "Namespace db.x is a timeseries collection")
    assert REFUSED[name](request({name: "x"})) == PassThrough(), "the backend refuses it on the collection"


def test_other_commands_and_collections_are_not() -> None:
    refuse_always("convertToCapped", Namespace("db", "x"), Profile())
    refuse_always("find", TARGET.buckets, Profile((4, 4, 2)))
    refuse_always("convertToCapped", TARGET.buckets, Profile((4, 4, 2)))
    refuse_always("convertToCapped", TARGET.buckets, Profile((8, 2, 11), unpacks_buckets=False))
    refuse_always("create", Namespace("db", "x"), Profile())


def test_what_would_become_an_ordinary_collection_is_refused() -> None:
    with pytest.raises(CommandError) as refused:
        refuse_always("create", Namespace("db", "x"), Profile((4, 4, 2)))
    assert refused.value.code == 115
