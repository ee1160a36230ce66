"""House rules that no other tool holds: sizes, names, where certain words may stand, every module its test."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("proxy", "rewrite", "catalog")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 400
MAX_ATTRIBUTES = 12

BANNED_WORDS = ("manager", "helper", "util", "utils", "info", "data", "processor")
MAY_SPELL_BUCKETS_PREFIX = ("catalog/namespaces.py",)
MAY_AWAIT_THE_DRIVER = ("proxy/backend/driver_calls.py", "proxy/process/embedded.py")
"""Elsewhere it is imported to be configured only; the embedded server's client is never cancelled but at the end."""
MAY_CONNECT_THE_DRIVER = (
    *MAY_AWAIT_THE_DRIVER,
    "proxy/backend/backend.py",
    "proxy/backend/backend_tls.py",
    "proxy/backend/first_answer.py",
)
DRIVER_REQUESTS = frozenset(
    ("command", "aggregate", "find", "find_one", "list_collections", "list_collection_names", "to_list", "primary")
)
"""What is awaited of the driver, wherever its name stands."""
MAY_START_TASKS = ("proxy/observe/tasks.py", "catalog/commit/commit_tasks.py", "catalog/commit/committer.py")

WITHOUT_UNIT_TEST = {
    "catalog/commit/commit_observer.py": "declares what others implement",
    "catalog/ports.py": "declares what others implement",
    "proxy/clients/handlers.py": "declares what the dispatcher calls",
    "proxy/admin/workers.py": "declares what admin commands know of other workers",
    "proxy/process/app.py": "is the process: tests/clients/test_process.py",
    "proxy/process/one_process.py": "is the process: signals, exit codes and files in tests/clients/test_process.py",
    "proxy/observe/spans.py": "declares what the rooms know of tracing",
    "proxy/process/control.py": "declares what the process and its server know of each other",
    "proxy/process/workers/member.py": "is a process, seen from outside: tests/clients/test_workers.py",
    "proxy/process/workers/program.py": "is a process: tests/clients/test_workers.py",
    "proxy/process/workers/supervisor.py": "is a process: tests/clients/test_workers.py",
    "proxy/process/workers/worker.py": "is a process: tests/clients/test_workers.py",
    "rewrite/plan.py": "declares what rewriters make and proxy.reads.translate carries out",
}
"""Modules that cannot have a test module of their own, and why."""


KERNEL = sorted(path for path in (ROOT / "catalog" / "kernel").glob("_kernel*") if path.suffix in (".c", ".inc"))
SET_AT_IMPORT = frozenset(
    (
        "interpreted_parse",
        "InvariantViolated",
        "python_compare",
        "python_adopt",
        "hash_seed",
        "hash_factor",
        "canonical",
    )
)
"""What the kernel takes over while it is imported, before any thread can be in it."""
INTERPRETERS_OWN = ("PyTypeObject", "PyMethodDef", "PyMemberDef", "PyGetSetDef", "struct PyModuleDef")
"""Tables whose types leave no room for ``const``."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each_of(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make a check of one file a test of all of these, which names every file that fails."""

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    failures.append(f"{relative(path)}: {error}")
            assert paths
            assert not failures, "\n".join(failures)

        test.__doc__ = check.__doc__
        return test

    return decorate


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@each_of(SOURCES)
def test_source_is_of_readable_size(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    long = [f"{node.name} ({length(node)})" for node in functions(tree_of(path)) if length(node) > MAX_FUNCTION_LINES]
    assert long == []


@each_of(SOURCES)
def test_objects_stay_small(path: Path) -> None:
    """An ``__init__`` with more attributes is two things in one."""
    wide = []
    for node in functions(tree_of(path)):
        if node.name == "__init__":
            names = {
                target.attr
                for target in ast.walk(node)
                if isinstance(target, ast.Attribute)
                and isinstance(target.ctx, ast.Store)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
            if len(names) > MAX_ATTRIBUTES:
                wide.append(f"line {node.lineno}: {len(names)} attributes")
    assert wide == []


class Method(NamedTuple):
    """A public method of a public class; ``bases``: the names of the base classes."""

    owner: str
    bases: tuple[str, ...]
    name: str
    parameters: tuple[str, ...]
    docstring: str | None

    @property
    def is_of_port(self) -> bool:
        return "Protocol" in self.bases

    @property
    def is_described(self) -> bool:
        """By itself, by a base class, or by a port with the same name and parameters."""
        inherited = any((base, self.name) in described() for base in self.bases)
        return self.docstring is not None or inherited or (self.name, self.parameters) in ports()


def methods(path: Path) -> Iterator[Method]:
    for owner in ast.walk(tree_of(path)):
        if not isinstance(owner, ast.ClassDef) or owner.name.startswith("_"):
            continue
        bases = tuple(ast.unparse(each).split("[")[0] for each in owner.bases)
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                names = tuple(each.arg for each in (*node.args.args, *node.args.kwonlyargs))
                yield Method(owner.name, bases, node.name, names, ast.get_docstring(node))


@cache
def described() -> set[tuple[str, str]]:
    return {(each.owner, each.name) for path in SOURCES for each in methods(path) if each.docstring}


@cache
def ports() -> set[tuple[str, tuple[str, ...]]]:
    found = (each for path in SOURCES for each in methods(path))
    return {(each.name, each.parameters) for each in found if each.is_of_port and each.docstring}


@each_of(SOURCES)
def test_methods_are_described_once(path: Path) -> None:
    assert [each.name for each in methods(path) if each.is_of_port and not each.docstring] == []
    assert [each.name for each in methods(path) if not each.is_described] == []


@each_of(SOURCES)
def test_docstrings_say_something(path: Path) -> None:
    """A method without a docstring is described by its port; a docstring that only points there adds nothing."""
    empty = re.compile(r"^See ``[\w.]+``\.$")
    texts = {node.name: ast.get_docstring(node) or "" for node in functions(tree_of(path))}
    assert [name for name, text in texts.items() if empty.match(text)] == []


@each_of(SOURCES)
def test_names_say_what_things_are(path: Path) -> None:
    names = [path.stem]
    names += [node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]
    words = {name: re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", name.replace("_", " ")) for name in names}
    assert [name for name, parts in words.items() if any(part.lower() in BANNED_WORDS for part in parts)] == []


SHARED_NAMES = frozenset(
    (
        "Asking", "Backend", "Bounds", "Channel", "Families", "Found", "Kind", "Load", "Member",
        "Order", "Parts", "Pause", "Pending", "Prepared", "Question", "Reader", "Row", "Shape", "Side", "Span",
        "State", "Target", "Turns", "Unknown", "Unreachable", "Worker", "Writer",
    )
)  # fmt: skip
"""Names of several types. The list only shrinks: a word has one meaning."""


def type_names(tree: ast.Module) -> Iterator[str]:
    """What a module defines that is called like a type: classes, aliases and type variables."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assigned = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    assigned += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    names = [target.id for target in assigned if isinstance(target, ast.Name)]
    yield from (name for name in names if re.fullmatch(r"[A-Z][a-z]\w*", name))


def test_a_name_is_that_of_one_type() -> None:
    """Classes that are private to a module may be called like those of others."""
    names = [name for path in SOURCES for name in type_names(tree_of(path))]
    shared = {name for name in names if names.count(name) > 1 and not name.startswith("_")}
    assert shared == SHARED_NAMES


def test_aliases_are_names_of_types() -> None:
    planted = "class A: ...\nBoth: TypeAlias = A | None\nRun = Callable[[], None]\nMOST: Final = 3\n_T = TypeVar('_T')"
    assert list(type_names(ast.parse(planted))) == ["A", "Run", "Both"]


def quoted_errors(tree: ast.AST) -> list[int]:
    """The lines where the message for a client quotes an exception of any kind."""
    caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)} | {"error"}
    return [
        value.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("CommandError", "BackendUnavailable")
        for value in ast.walk(call)
        if (
            isinstance(value, ast.FormattedValue)
            and value.conversion == ord("r")
            and ast.unparse(value.value) in caught
        )
        or (isinstance(value, ast.Call) and ast.unparse(value).startswith("repr("))
    ]


@each_of(SOURCES)
def test_clients_do_not_see_the_text_of_internal_errors(path: Path) -> None:
    """It may quote what other clients have sent (``catalog.internal_errors``)."""
    assert quoted_errors(tree_of(path)) == []


def test_quoted_errors_are_found() -> None:
    assert quoted_errors(ast.parse('CommandError(1, f"internal error: {error!r}")')) == [1]
    assert quoted_errors(ast.parse('CommandError(1, "internal error: " + repr(e))')) == [1]
    assert quoted_errors(ast.parse('CommandError(1, f"not valid: {value!r}")')) == []


@each_of(SOURCES)
def test_prefix_of_bucket_collections_is_spelled_in_one_place(path: Path) -> None:
    """Docstrings may name it."""
    if relative(path) in MAY_SPELL_BUCKETS_PREFIX:
        return
    tree = tree_of(path)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    spelled = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str | bytes)
        and id(node) not in docstrings
        and ("system.buckets." if isinstance(node.value, str) else b"system.buckets.") in node.value
    ]
    assert spelled == []


@each_of(SOURCES)
def test_tasks_have_owners(path: Path) -> None:
    if relative(path) not in MAY_START_TASKS:
        assert re.search(r"\b(create_task|ensure_future)\(", path.read_text()) is None


def driver_requests(tree: ast.AST) -> list[str]:
    """Requests of the driver that could be cancelled: all but those in functions that are handed a ``DriverClient``."""
    handed = {
        id(inner)
        for function in functions(tree)
        if [ast.unparse(each.annotation) for each in function.args.args if each.annotation] == ["DriverClient"]
        for inner in ast.walk(function)
    }
    handed |= {
        id(inner)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "ask"
        for argument in call.args
        if isinstance(argument, ast.Lambda)
        for inner in ast.walk(argument)
    }
    return [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in DRIVER_REQUESTS
        and id(node) not in handed
        and re.search(r"\b(_?client|buckets)\b", ast.unparse(node.value))
    ]


@each_of(SOURCES)
def test_requests_of_the_driver_are_never_cancelled(path: Path) -> None:
    """A cancelled one may break the driver's locks: all go through ``DriverCalls``, which hands out its client."""
    text = path.read_text()
    if relative(path) not in MAY_CONNECT_THE_DRIVER:
        assert "AsyncMongoClient" not in text
    if relative(path) not in MAY_AWAIT_THE_DRIVER and re.search(r"driver_calls|AsyncMongoClient|[Bb]ackend", text):
        assert driver_requests(tree_of(path)) == []


def test_requests_that_could_be_cancelled_are_found() -> None:
    planted = "async def f(self):\n    async with asyncio.timeout(1):\n        await self._client.admin.command('ping')"
    assert driver_requests(ast.parse(planted)) == ["line 3: command"]
    handed = "async def f(client: DriverClient):\n    await client.admin.command('ping')"
    assert driver_requests(ast.parse(handed)) == []


@each_of(SOURCES)
def test_module_has_its_test(path: Path) -> None:
    """``tests/unit`` mirrors the tree; modules without statements of their own need none."""
    if relative(path) in WITHOUT_UNIT_TEST or path.name == "__init__.py":
        return
    mirrored = ROOT / "tests" / "unit" / path.relative_to(ROOT).parent / f"test_{path.name}"
    assert mirrored.exists(), f"{relative(mirrored)} is missing"


@pytest.mark.parametrize("name", WITHOUT_UNIT_TEST)
def test_exceptions_are_still_needed(name: str) -> None:
    assert (ROOT / name).exists(), f"{name} is gone: take it off the list"
    mirrored = ROOT / "tests" / "unit" / Path(name).parent / f"test_{Path(name).name}"
    assert not mirrored.exists(), f"{name} has its test now: take it off the list"


def test_files_of_c_are_named_after_what_they_are() -> None:
    """A header is included by more than one file; what one file is divided into is ``.inc``, and the build names it."""
    c = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.[ch]"))]
    assert [relative(path) for path in c] == ["catalog/kernel/_kernel.c"]
    included = re.findall(r'^#include "(.*)"$', (ROOT / "catalog" / "kernel" / "_kernel.c").read_text(), re.MULTILINE)
    assert sorted(included) == [path.name for path in KERNEL if path.suffix == ".inc"]
    (extension,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    assert extension["depends"] == [f"catalog/kernel/{name}" for name in included]


def test_unit_tests_mirror_the_tree() -> None:
    """A module's test has its name and place; that of what a package itself has is named after the package."""
    strays = []
    for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        room = ROOT / path.relative_to(ROOT / "tests" / "unit").parent
        names = [path.name.removeprefix("test_")] + ["__init__.py"] * (path.stem == f"test_{room.name}")
        if not any((room / name).exists() for name in names):
            strays.append(relative(path))
    assert strays == []


READS_PRIVATE_FIELDS = {
    "tests/fuzz/stranger.py": "shares the costly reads of a module beside it",
    "tests/fuzz/test_mutation.py": "one step of the fuzzer alone, without its loop",
    "tests/property/test_catalog_stateful.py": "invariants of the catalog over all its buckets",
    "tests/simulation/world.py": "orders the committer's tasks by a seed, and sees at the end that nothing is left",
    "tests/support/committer_bench.py": "lanes that nobody needs are gone",
    "tests/support/failover_world.py": "a connection without a server",
    "tests/support/recognising.py": "a connection without a server, who reads, and who is kept out",
    "tests/unit/catalog/commit/test_committer.py": "tasks of the committer, to end them, and buckets, to break them",
    "tests/unit/proxy/backend/test_driver_calls.py": "locks of the driver, which a cancelled request breaks",
    "tests/unit/proxy/inserts/test_held_insert.py": "whose insert was staged",
    "tests/unit/proxy/inserts/test_insert_reply.py": "a second reply to the same insert",
    "tests/unit/proxy/request/test_step_places.py": "places that are given back",
    "tests/unit/proxy/request/test_fair_queue.py": "what the queue keeps is bounded",
}
"""Tests that look inside where there is no public way, and for what. The list only shrinks."""


def private_fields(path: Path) -> list[str]:
    """Private attributes of other objects; named tuples' methods and the compiled kernel are public ones."""
    return [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and re.match(r"_[a-z]", node.attr)
        and node.attr not in ("_replace", "_asdict", "_kernel")
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]


@each_of(TESTS)
def test_private_fields_are_private(path: Path) -> None:
    assert (private_fields(path) != []) == (relative(path) in READS_PRIVATE_FIELDS), private_fields(path)


@each_of(TESTS)
def test_what_tests_share_is_in_support(path: Path) -> None:
    """Nothing comes from a test module or a ``conftest``, or from another directory of tests."""
    tree = tree_of(path)
    named = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    ]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    own = relative(path).split("/")[1]
    strange = [
        name
        for name in named
        if name.startswith("tests.")
        and (name.split(".")[1] not in ("support", own) or re.search(r"\.(test_\w+|conftest)\b", name))
    ]
    assert strange == []


@each_of(TESTS)
def test_tests_are_not_skipped(path: Path) -> None:
    """What differs is a strict expected failure with its reason, never a skip."""
    forbidden = "|".join(("mark" + ".skip", "pytest" + ".skip", "import" + "orskip"))
    assert re.search(forbidden, path.read_text()) is None


def _without_comments(text: str) -> str:
    """C without comments, and without what is inside of strings."""
    return re.sub(r"//.*|/\*.*?\*/|(\"|')(?:\\.|(?!\1).)*\1", lambda found: (found[1] or "") * 2, text, flags=re.DOTALL)


def lasting_variables(text: str) -> list[str]:
    """Declarations in C of what outlives a call and is not constant; functions and types are none."""
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", "", _without_comments(text), flags=re.MULTILINE)
    found = re.findall(r"\b(?:static|_Thread_local|__thread)\b(?:[^;{=(]|\{[^{}]*\})*(?=[;=])", text)
    top, inner = text, ""
    while top != inner:
        inner, top = top, re.sub(r"\{[^{}]*\}", "@", top)
    # At the top level stand functions (with parentheses), types, and variables without "static".
    declared = (each.split("=")[0] for each in re.sub(r"\)\s*@", ");", top).split(";"))
    found += [
        each for each in declared if not re.search(r"\b(typedef|static|enum)\b|\(|^\s*(struct|union) \w+ @\s*$", each)
    ]
    found = [" ".join(each.split()) for each in found]
    return [each for each in found if each and not re.search(r"\bconst\b(?!.*\*(?! ?const))", each)]


@each_of(KERNEL)
def test_the_kernel_keeps_nothing_that_threads_could_share(path: Path) -> None:
    """Some of it runs without the interpreter's lock, in several threads at once."""
    lasting = [
        each
        for each in lasting_variables(path.read_text())
        if not any(f"static {own} " in each for own in INTERPRETERS_OWN)
    ]
    names = [name for each in lasting for name in re.findall(r"(\w+)(?:\[\w*\])?(?:,|$)", each)]
    if path.name == "_kernel.c":
        assert set(names) == SET_AT_IMPORT
        return
    assert lasting == []
    assigned = "|".join(SET_AT_IMPORT)
    assert (
        re.search(rf"\b({assigned})(\[[^\]]*\])?\s*([-+*/|&^]|<<|>>)?=(?!=)|\bmem\w+\(({assigned})\b", path.read_text())
        is None
    )


@pytest.mark.parametrize(
    "planted",
    [
        "static uint16_t name_table[2048]; /* used by one function at a time */",
        "int f(void)\n{\n    static int calls;\n    return ++calls;\n}",
        "static const char *latest = NULL;",
        "static _Thread_local int depth;",
        "u64 seed = 1;",
        "static struct { int a, b; } cache[2];",
    ],
)
def test_what_threads_could_share_is_found(planted: str) -> None:
    assert lasting_variables("static int f(int a) { return a; }\n" + planted)
    innocent = (
        "static const int a[] = {1}; static int f(const char *b, int c);\ntypedef struct {\n int d; } E;\nenum { F };"
    )
    assert not lasting_variables(innocent)
