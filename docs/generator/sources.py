"""Reads texts and constants out of the sources, without executing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("proxy", "rewrite", "catalog")
PLACEHOLDER = "…"
"""Stands for a part of a text that is known only when the program runs."""
_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Source:
    """One module: its name with dots, and its syntax tree."""

    module: str
    tree: ast.Module

    def calls(self) -> Iterator[ast.Call]:
        """Every call in the module, in its order."""
        return iter(_names(self.tree).calls)

    def texts(self, node: ast.expr, depth: int = _DEPTH) -> tuple[str, ...]:
        """The texts that an expression can have, with ``PLACEHOLDER`` for what is not constant."""
        values = tuple(value for value in self.values_of(node, depth) if isinstance(value, str))
        return values or (PLACEHOLDER,)

    def numbers(self, node: ast.expr) -> tuple[int, ...]:
        """The whole numbers that an expression can have; none if it is not constant."""
        return tuple(value for value in self.values_of(node, _DEPTH) if isinstance(value, int))

    def values_of(self, node: ast.expr, depth: int) -> tuple[Any, ...]:
        """The constants that an expression can be; ``depth``: how many steps of evaluation are left."""
        if depth == 0:
            return ()
        match node:
            case ast.Constant(value=value):
                return (value,)
            case ast.JoinedStr(values=parts):
                return _products([self._of_part(part, depth - 1) for part in parts])
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return _products([self.texts(left, depth - 1), self.texts(right, depth - 1)])
            case ast.IfExp(body=body, orelse=other):
                return self.values_of(body, depth - 1) + self.values_of(other, depth - 1)
            case ast.BoolOp(values=values):
                return tuple(each for value in values for each in self.values_of(value, depth - 1))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))):
                return self.of_item(name, index, depth - 1)
            case ast.Name(id=name):
                return self.of_name(name, depth - 1)
            case ast.Call(func=ast.Name(id=name)):
                return self._of_function(name, depth - 1)
        return ()

    def _of_part(self, part: ast.expr, depth: int) -> tuple[str, ...]:
        if isinstance(part, ast.Constant):
            return (str(part.value),)
        if isinstance(part, ast.FormattedValue):
            # Only named constants are inserted: what else a name may hold is for the reader to see in the result.
            value = part.value
            if isinstance(value, ast.Name) and value.id.isupper():
                return tuple(str(each) for each in self.of_name(value.id, depth)) or (PLACEHOLDER,)
        return (PLACEHOLDER,)

    def of_name(self, name: str, depth: int) -> tuple[Any, ...]:
        """What a name can stand for; ``depth``: how many steps of evaluation are left."""
        found: dict[Any, None] = {}
        for value in self.assigned(name):
            found.update(dict.fromkeys(self.values_of(value, depth)))
        if found:
            return tuple(found)
        elsewhere = self.imported(name)
        return elsewhere[0].of_name(elsewhere[1], depth) if elsewhere else ()

    def of_item(self, name: str, index: int, depth: int) -> tuple[Any, ...]:
        """What an item of a named tuple can be."""
        for value in self.assigned(name):
            if isinstance(value, ast.Tuple):
                return self.values_of(value.elts[index], depth)
        elsewhere = self.imported(name)
        return elsewhere[0].of_item(elsewhere[1], index, depth) if elsewhere else ()

    def _of_function(self, name: str, depth: int) -> tuple[Any, ...]:
        found = self.function(name)
        if found is None:
            return ()
        source, function = found
        returned = [each.value for each in ast.walk(function) if isinstance(each, ast.Return) and each.value]
        return tuple(value for each in returned for value in source.values_of(each, depth))

    def assigned(self, name: str) -> tuple[ast.expr, ...]:
        """The expressions that are assigned to a name, anywhere in the module."""
        return tuple(_names(self.tree).assigned.get(name, ()))

    def function(self, name: str) -> tuple[Source, ast.FunctionDef] | None:
        """A function of the project by the name that it has in this module."""
        function = _names(self.tree).functions.get(name)
        if function is not None:
            return self, function
        elsewhere = self.imported(name)
        return elsewhere[0].function(elsewhere[1]) if elsewhere else None

    def imported(self, name: str) -> tuple[Source, str] | None:
        """The module of the project, and the name there, from which a name is imported."""
        module, its_name = _names(self.tree).imported.get(name, ("", ""))
        source = sources().get(module) if module.partition(".")[0] in PACKAGES else None
        return None if source is None else (source, its_name)


@dataclass(frozen=True, slots=True)
class _Names:
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)


@cache
def _names(tree: ast.Module) -> _Names:
    names = _Names()
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                names.calls.append(node)
            case ast.Assign(targets=targets, value=value):
                for name, its_value in (pair for target in targets for pair in _pairs(target, value)):
                    names.assigned.setdefault(name, []).append(its_value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names.assigned.setdefault(name, []).append(value)
            case ast.FunctionDef(name=name):
                names.functions.setdefault(name, node)
            case ast.ImportFrom(module=str(module)):
                names.imported.update({each.asname or each.name: (module, each.name) for each in node.names})
    names.calls.sort(key=lambda call: (call.lineno, call.col_offset))
    return names


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, its in zip(target.elts, value.elts, strict=True):
            yield from _pairs(each, its)


def _products(choices: list[tuple[str, ...]]) -> tuple[str, ...]:
    texts: tuple[str, ...] = ("",)
    for choice in choices:
        texts = tuple(text + str(each) for text in texts for each in choice)
    return texts


@cache
def sources() -> dict[str, Source]:
    """All modules of the packages by their name."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return {name: Source(name, ast.parse(path.read_text())) for path, name in names.items()}
