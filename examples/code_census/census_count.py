"""What a census counts in one Python file, and how counts are added up.

Pure but for reading the file: no agents here, so that it can be tested and reused alone.

The complexity of a function is what flake8 (its ``mccabe`` package) reports: the number of
independent paths through its control-flow graph. It starts at 1 and grows by

- 1 for each ``if`` and ``elif``, ``for``, ``async for`` and ``while``;
- 1 for each ``except`` clause, and 1 for each ``try``: its ``else``, or the way past it;
- 1 for each function defined inside, plus the decisions of that function.

``with``, ``else`` of a loop, ``and``/``or``, conditional expressions, comprehensions, lambdas
and ``assert`` add nothing. It differs from ``mccabe`` where that package leaves code out:

- each ``case`` of a ``match`` adds 1, except a last one that matches anything;
- the body of ``finally``, of a ``match`` and of a ``try`` with ``except*`` is counted too;
- nested functions, and functions defined under an ``if`` or ``try`` of the module, have an
  entry of their own.
"""

from __future__ import annotations

import ast
import io
import os
import re
import stat
import tokenize
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

TOP: Final = 10
"""How many of the most complex functions a census names."""

UNPARSABLE: Final = (
    OSError,
    SyntaxError,
    ValueError,  # an undecodable byte; before Python 3.12 also a null byte
    LookupError,  # an encoding that is not one of text
    RecursionError,
    MemoryError,  # what the parser raises for expressions nested too deeply
)
"""What reading and parsing a file may raise: a failure of that file, not of the census."""

_SOURCE_NAME: Final = "<code_census>"
_MODULE: Final = re.compile(re.escape(_SOURCE_NAME))

_BRANCHES: Final = (ast.If, ast.For, ast.AsyncFor, ast.While)
_TRIES: Final = (ast.Try, ast.TryStar)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHS: Final = (ast.With, ast.AsyncWith)


class FunctionData(TypedDict):
    """One function of a result: plain data."""

    path: str
    function: str
    line: int
    complexity: int


class FailureData(TypedDict):
    """One failed file of a result: plain data."""

    path: str
    error: str


class CensusData(TypedDict):
    """The result of a census, of one chunk or of a whole folder: plain data."""

    files: int
    failed_files: int
    lines: int
    functions: int
    async_functions: int
    classes: int
    bare_excepts: int
    top: list[FunctionData]
    failures: list[FailureData]


@dataclass(slots=True)
class Census:
    """Counts over some files; an empty one is the neutral element of `add`.

    ``files`` counts all files, ``failed_files`` those of them that could not be counted.
    """

    files: int = 0
    failed_files: int = 0
    lines: int = 0
    functions: int = 0
    async_functions: int = 0
    classes: int = 0
    bare_excepts: int = 0
    top: list[FunctionData] = field(default_factory=list)
    failures: list[FailureData] = field(default_factory=list)

    def add(self, other: Census | CensusData) -> None:
        """Add the counts of other files; the order of additions makes no difference."""
        data = other.data() if isinstance(other, Census) else other
        self.files += data["files"]
        self.failed_files += data["failed_files"]
        self.lines += data["lines"]
        self.functions += data["functions"]
        self.async_functions += data["async_functions"]
        self.classes += data["classes"]
        self.bare_excepts += data["bare_excepts"]
        self.top = most_complex([*self.top, *data["top"]])
        self.failures = sorted([*self.failures, *data["failures"]], key=lambda f: f["path"])

    def add_failure(self, path: str, error: str) -> None:
        """Count a file that could not be read or parsed, and say why."""
        self.add(Census(files=1, failed_files=1, failures=[{"path": path, "error": error}]))

    def data(self) -> CensusData:
        """Return the counts as plain data, ready to be sent or printed."""
        return {
            "files": self.files,
            "failed_files": self.failed_files,
            "lines": self.lines,
            "functions": self.functions,
            "async_functions": self.async_functions,
            "classes": self.classes,
            "bare_excepts": self.bare_excepts,
            "top": self.top,
            "failures": self.failures,
        }


def most_complex(functions: Iterable[FunctionData]) -> list[FunctionData]:
    """Return the `TOP` most complex functions; ties go by path, then line."""
    return sorted(functions, key=lambda f: (-f["complexity"], f["path"], f["line"]))[:TOP]


def count_file(root: str | bytes, path: str | bytes) -> Census:
    """Count one file; a file that cannot be read or parsed is a census with one failure.

    Parameters:
        root: the folder that paths are relative to.
        path: the file. Bytes stand for a name that need not be UTF-8.
    """
    name = display(path)
    try:
        text = read_source(os.path.join(os.fsencode(root), os.fsencode(path)))
        return count_source(text, name)
    except UNPARSABLE as error:
        census = Census()
        census.add_failure(name, describe(error))
        return census


def display(path: str | bytes) -> str:
    r"""Return a path as text that can be printed and sent; odd bytes become ``\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def describe(error: BaseException) -> str:
    """Return what is wrong in one line, without the path, which stands beside it."""
    if isinstance(error, SyntaxError):
        text = f"{error.msg} (line {error.lineno})" if error.lineno else error.msg
    elif isinstance(error, OSError):
        text = error.strerror or ""
    else:
        text = str(error)
    one_line = " ".join(text.split())
    return f"{type(error).__name__}: {one_line}" if one_line else type(error).__name__


def read_source(path: bytes) -> str:
    """Read a Python file in the encoding that it declares (PEP 263), newlines as ``\\n``.

    Raises:
        OSError: it cannot be read, or is a pipe or a device, which might never end.
        SyntaxError: it declares an unknown encoding.
        UnicodeDecodeError: it is not in the encoding that it declares.
        LookupError: it declares an encoding that is not one of text.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(0, "not a regular file")
    with open(path, "rb") as file:
        data = file.read()
    # From memory and not by `tokenize.open`, whose errors name the path a second time.
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def count_source(text: str, path: str) -> Census:
    """Count one file from its text.

    Parameters:
        text: the source, with newlines as ``\\n``.
        path: the name to give to its functions.

    Raises:
        SyntaxError: it is not Python (of the running version).
        RecursionError, MemoryError, ValueError: the parser gave up on it.
    """
    _silence_parser()
    tree = ast.parse(text, _SOURCE_NAME)
    census = Census(files=1, lines=count_lines(text))
    counter = _Counter(census, path)
    counter.block(tree.body, "")
    census.top = most_complex(counter.found)
    return census


def count_lines(text: str) -> int:
    """Return the number of physical lines; a last line without a newline is one too."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _silence_parser() -> None:
    """Keep warnings about the counted source (such as of odd escapes) off the terminal.

    ``warnings.catch_warnings`` is not safe where turns share a process, and a filter set to
    "error" would turn the warning into a failure; so a filter for just our name of source.
    """
    for category in (SyntaxWarning, DeprecationWarning):
        rule = ("ignore", None, category, _MODULE, 0)
        if rule not in warnings.filters:
            warnings.filterwarnings("ignore", category=category, module=_MODULE.pattern)


class _Counter:
    """Walks the statements of one file.

    Definitions are statements, so expressions, most of a tree, need no visit. Blocks wait in a
    list instead of a recursion, since a chain of ``elif`` nests as deep as it is long; only
    definitions recurse, and the parser allows 100 levels of indentation.
    """

    def __init__(self, census: Census, path: str) -> None:
        self.census = census
        self.path = path
        self.found: list[FunctionData] = []

    def block(self, body: list[ast.stmt], prefix: str) -> int:
        """Count a block; return the number of decisions in it."""
        decisions = 0
        pending = [body]
        while pending:
            for node in pending.pop():
                if isinstance(node, _FUNCTIONS):
                    decisions += self.function(node, prefix)
                elif isinstance(node, ast.ClassDef):
                    self.census.classes += 1
                    decisions += self.block(node.body, f"{prefix}{node.name}.")
                elif isinstance(node, _BRANCHES):
                    decisions += 1
                    pending += node.body, node.orelse
                elif isinstance(node, _TRIES):
                    decisions += 1 + len(node.handlers)
                    pending += node.body, node.orelse, node.finalbody
                    for handler in node.handlers:
                        self.census.bare_excepts += handler.type is None
                        pending.append(handler.body)
                elif isinstance(node, _WITHS):
                    pending.append(node.body)
                elif isinstance(node, ast.Match):
                    decisions += len(node.cases) - _matches_anything(node.cases[-1])
                    pending += [case.body for case in node.cases]
        return decisions

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> int:
        """Count a function with all inside; return its complexity."""
        if isinstance(node, ast.AsyncFunctionDef):
            self.census.async_functions += 1
        else:
            self.census.functions += 1
        name = f"{prefix}{node.name}"
        complexity = 1 + self.block(node.body, f"{name}.")
        self.found.append(
            {"path": self.path, "function": name, "line": node.lineno, "complexity": complexity}
        )
        return complexity


def _matches_anything(case: ast.match_case) -> bool:
    """Say whether a case is ``case _`` or ``case name``, without a guard."""
    pattern = case.pattern
    return case.guard is None and isinstance(pattern, ast.MatchAs) and pattern.pattern is None
