"""A second way to count, to check the first: tokens instead of a tree, a drawn graph instead
of a sum of decisions, one process instead of several. It shares no code with the example."""

from __future__ import annotations

import ast
import io
import os
import tokenize
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def count_folder(root: str, *, skip: Sequence[str] = ()) -> dict[str, Any]:
    """Count every Python file under a folder, in this process, but for those in some folders."""
    paths = sorted(
        path
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".py")
        if (path := os.path.relpath(os.path.join(folder, name), root)).split(os.sep)[0] not in skip
    )
    result: dict[str, Any] = dict.fromkeys(
        ("lines", "functions", "async_functions", "classes", "bare_excepts"), 0
    )
    top: list[tuple[int, str, int]] = []
    failed: list[str] = []
    for path in paths:
        with open(os.path.join(root, path), "rb") as file:
            data = file.read()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except (SyntaxError, ValueError):
            failed.append(path)
            continue
        newlines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        result["lines"] += len(newlines.removesuffix(b"\n").split(b"\n")) if newlines else 0
        _count_tokens(data, result)
        top += [
            (-Graph().complexity(node), path, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    result |= {"files": len(paths), "failed_files": len(failed), "failed": failed}
    result["top"] = [(path, line, -negative) for negative, path, line in sorted(top)[:10]]
    return result


def _count_tokens(data: bytes, result: dict[str, Any]) -> None:
    before = ""
    for token in tokenize.tokenize(io.BytesIO(data).readline):
        if before == "except" and token.string == ":":
            result["bare_excepts"] += 1
        elif before == "async" and token.string == "def":
            result["async_functions"] += 1
        elif token.string == "def" and token.type == tokenize.NAME:
            result["functions"] += 1
        elif token.string == "class" and token.type == tokenize.NAME:
            result["classes"] += 1
        before = token.string


class Graph:
    """The control-flow graph of one function, drawn node by node and edge by edge."""

    def __init__(self) -> None:
        self.nodes = 0
        self.edges: list[tuple[int, int]] = []

    def complexity(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """Return edges - nodes + 2."""
        self.block(node.body, self.node())
        return len(self.edges) - self.nodes + 2

    def node(self, *sources: int) -> int:
        self.nodes += 1
        self.edges += [(source, self.nodes) for source in sources]
        return self.nodes

    def block(self, body: list[ast.stmt], tail: int) -> int:
        for statement in body:
            tail = self.statement(statement, self.node(tail))
        return tail

    def statement(self, statement: ast.stmt, here: int) -> int:
        match statement:
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
                ends = self.block(statement.body, here), self.block(statement.orelse, here)
                return self.node(*ends)
            case ast.Try() | ast.TryStar():
                bodies = [statement.body, statement.orelse]
                bodies += [handler.body for handler in statement.handlers]
                join = self.node(*(self.block(body, here) for body in bodies))
                return self.block(statement.finalbody, join)
            case ast.Match(cases=cases):
                ends_of_cases = [self.block(case.body, here) for case in cases]
                match cases[-1]:
                    case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
                        pass
                    case _:
                        ends_of_cases.append(here)
                return self.node(*ends_of_cases)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self.node(here, self.block(statement.body, here))
            case ast.ClassDef() | ast.With() | ast.AsyncWith():
                return self.block(statement.body, here)
        return here
