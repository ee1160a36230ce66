"""``mapReduce`` (C23)."""

from rewrite.commands.map_reduce import rewrite_map_reduce
from rewrite.plan import PassThrough
from tests.support.scopes import request


def test_backend_refuses_it() -> None:
    assert rewrite_map_reduce(request({"mapReduce": "x"})) == PassThrough()
