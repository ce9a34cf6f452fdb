"""What is asked of the executor, and what it makes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dsh_actors.errors import UsageError
from dsh_actors.shell.environment import SECRETS, scrub

__all__ = ["Command", "Defaults", "ShellRequest", "ShellSpec", "resolve"]

Command: TypeAlias = str | Sequence[str]
"""A line for the shell, or a program with its arguments, which no shell reads."""


@dataclass(frozen=True, slots=True)
class ShellRequest:
    """A command to run, as far as the caller says.

    Parameters:
        command: a line for the shell, or a program with its arguments.
        owner: whose task it is. Any text, the empty one too; None is nobody's. The executor
            keeps it and never interprets it.
        cwd: the folder to run in; None takes the executor's.
        env: variables to add; they are passed on whatever they are called.
        stdin: what it reads; None is an empty input.
        keep_stdin: leave the input open after that, for :meth:`ShellExecutor.write`.
        timeout: seconds after which it is ended; None takes the executor's for a foreground
            command, and no limit for a background one.
        grace: seconds between TERM and KILL; None takes the executor's.
        pty: run it on a terminal of its own.
        shell: the shell that reads a line; None takes the executor's.
    """

    command: Command
    owner: str | None = None
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | str | None = None
    keep_stdin: bool = False
    timeout: float | None = None
    grace: float | None = None
    pty: bool = False
    shell: str | None = None


@dataclass(frozen=True, slots=True)
class ShellSpec:
    """A request with everything filled in. ``owner`` is always there, and may be None."""

    argv: tuple[str, ...]
    owner: str | None
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    keep_stdin: bool
    timeout: float | None
    grace: float
    pty: bool
    command: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """What an executor fills in.

    Parameters:
        cwd: the folder that commands run in; None is the current one of the process, then.
        timeout: seconds that a foreground command may take; None for no limit.
        grace: seconds between TERM and KILL.
        shell: reads a command that is a line.
        secrets: patterns of the names of variables that commands do not get.
        allow: patterns of names that they get all the same.
        keep: bytes of the beginning, and of the end, of an output that are kept in memory.
        spill: bytes of an output that its file takes.
    """

    cwd: str | os.PathLike[str] | None = None
    timeout: float | None = 120.0
    grace: float = 2.0
    shell: str = "/bin/sh"
    secrets: tuple[str, ...] = SECRETS
    allow: tuple[str, ...] = ()
    keep: int = 32 * 1024
    spill: int = 256 * 1024 * 1024


def resolve(request: ShellRequest, defaults: Defaults, *, foreground: bool) -> ShellSpec:
    """Check a request and fill in what it leaves open.

    Raises:
        UsageError: something in it is not possible; nothing was started.
    """
    command = request.command
    if isinstance(command, str):
        if not command.strip():
            raise UsageError("the command is empty; give a line for the shell, or a program")
        argv: tuple[str, ...] = (request.shell or defaults.shell, "-c", command)
        shown = command
    else:
        argv = tuple(command)
        if not argv or not all(isinstance(part, str) for part in argv) or not argv[0]:
            raise UsageError(f"a command is a text, or a list of texts, not {command!r}")
        import shlex

        shown = shlex.join(argv)
    if any("\0" in part for part in argv):
        raise UsageError("a command cannot contain a NUL character")
    for what, value in (("timeout", request.timeout), ("grace", request.grace)):
        if value is not None and not value >= 0:
            raise UsageError(f"the {what} of a command must be at least 0 seconds, not {value}")
    if request.owner is not None and not isinstance(request.owner, str):
        raise UsageError(f"the owner of a command is a text or None, not {request.owner!r}")
    cwd = os.path.abspath(os.fspath(request.cwd or defaults.cwd or os.getcwd()))
    if not os.path.isdir(cwd):
        raise UsageError(f"the folder to run in does not exist: {cwd}")
    stdin = request.stdin
    timeout = request.timeout
    if timeout is None and foreground:
        timeout = defaults.timeout
    return ShellSpec(
        argv=argv,
        owner=request.owner,
        cwd=cwd,
        env={
            **scrub(os.environ, secrets=defaults.secrets, allow=defaults.allow),
            **request.env,
        },
        stdin=stdin.encode() if isinstance(stdin, str) else stdin or b"",
        keep_stdin=request.keep_stdin,
        timeout=timeout,
        grace=defaults.grace if request.grace is None else request.grace,
        pty=request.pty,
        command=shown,
    )
