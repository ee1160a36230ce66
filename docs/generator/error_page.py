"""The page of errors that the proxy itself returns to clients, from where they are made in the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from catalog.errors import code_name
from docs.generator.markdown import code, page, table
from docs.generator.sources import PLACEHOLDER, Source, sources
from proxy.observe.error_classes import class_of

_INTRODUCTION = f"""
Errors that the proxy makes itself; `{PLACEHOLDER}` stands for the variable parts. All other errors come from the
backend and are passed on with their code. Programs should look at the code, not at the text. *Class* is the label of
[`tsproxy_request_errors_total`](metrics.md); [Classes of errors](../operating.md#classes-of-errors) says who should
act. What to do about frequent ones: [Troubleshooting](../guides/troubleshooting.md).
"""
_STEPS = """
## Steps of the proxy's account

If a step that the proxy's own account carries out fails, the client gets the backend's code, and one of these texts in
place of a text that may quote data:
"""
_UNAVAILABLE = (6,)
_CLIENTS_NEVER_SEE = ("proxy.process", "proxy.tools", "proxy.backend.parts", "catalog.errors")
"""Where errors end in a log, on standard error or in another attempt."""
_OF_STEPS = "client_message"


def _numbers(source: Source, node: ast.expr) -> tuple[int, ...]:
    """The codes; none if the code is that of another error. ``LookupError`` for a constant that was not found."""
    numbers = source.numbers(node)
    if not numbers and (isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())):
        raise LookupError(f"{source.module}, line {node.lineno}: the error code {ast.unparse(node)}")
    return numbers


def _made_by(source: Source, call: ast.Call) -> tuple[tuple[int, ...], ast.expr] | None:
    """The codes and the text of an error that a call makes."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "CommandError" and len(call.args) > 1:
        return _numbers(source, call.args[0]), call.args[1]
    if name == "BackendUnavailable" and call.args:
        given = next((each.value for each in call.keywords if each.arg == "code"), None)
        return _UNAVAILABLE if given is None else _numbers(source, given), call.args[0]
    if name and call.args and (found := source.function(name)) is not None:
        owner, function = found
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                made = node.value
                passed = [each.arg for each in function.args.args[:1]]
                if ast.unparse(made.func) == "CommandError" and [ast.unparse(made.args[1])] == passed:
                    return _numbers(owner, made.args[0]), call.args[0]
    return None


def _texts(source: Source, node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == _OF_STEPS:
        return
    for text in source.texts(node):
        if text.strip(f"{PLACEHOLDER} :()"):
            yield text


@cache
def errors() -> dict[tuple[int, str], str]:
    """The module that makes an error, by code and text."""
    found: dict[tuple[int, str], str] = {}
    for source in sources().values():
        if source.module.startswith(_CLIENTS_NEVER_SEE):
            continue
        for call in source.calls():
            numbers, node = _made_by(source, call) or ((), None)
            for number in numbers:
                for text in _texts(source, node) if node is not None else ():
                    found.setdefault((number, text), source.module)
    return found


def texts_of_steps() -> tuple[str, ...]:
    """The texts in place of the backend's for steps of the proxy's account."""
    call = ast.Call(ast.Name(_OF_STEPS), [], [])
    return tuple(text for text in sources()["proxy.request.own_steps"].texts(call) if text != PLACEHOLDER)


def _shown(text: str) -> str:
    return text.replace("<", "&lt;").replace("$", "\\$")


def error_page() -> str:
    """The whole page."""
    rows = [
        [f"{number} {code(code_name(number))}", class_of(number).value, _shown(text), code(module)]
        for (number, text), module in sorted(errors().items())
    ]
    return "\n".join(
        [
            page("Error codes", "where errors are made in the sources", _INTRODUCTION),
            table(["code", "class", "text", "made by"], rows),
            _STEPS.strip() + "\n",
            "\n".join(f"- {_shown(text)}" for text in texts_of_steps()) + "\n",
        ]
    )
