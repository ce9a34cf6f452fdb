"""``dsh-actors run --detach``: starts a run in a process of its own, and leaves when it is up.

The run itself is in `dsh_actors_cli.detached`. This side waits for its word over a socket pair.
If the run ends before it is up, what it has printed is printed here, its code is the exit code,
and nothing of it is left behind.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output, signals

if TYPE_CHECKING:
    from pathlib import Path

    from dsh_actors_cli.launch import Options

__all__ = ["start_detached"]

# The new process gets the import paths of this one, as a worker does.
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from dsh_actors_cli.detached import main; main({link})"
)
# How long a run that is stopped before it is up may take to end beyond its grace, in seconds.
_PATIENCE = 15.0


def start_detached(options: Options) -> int:
    """Start a run that outlives this command; print how to reach it; return the exit code.

    Raises:
        StoreError: its log cannot be made.
        OSError: its process cannot be started.
    """
    from dsh_actors.errors import StoreError
    from dsh_actors_cli.runs import new_log, prune

    watch, waker = signals.install(), signals.Waker()
    try:
        prune()
        log, path = new_log()
    except OSError as error:
        raise StoreError(
            f"{error.filename}: the log of the run cannot be made ({error.strerror}); check the "
            "rights on its folder, or choose another with DSH_ACTORS_HOME"
        ) from error
    ours, theirs = socket.socketpair()
    with log, ours:
        with theirs:
            process = _start(options, theirs, log)
        watch.attend(waker.wake, process.kill)
        told = _await_word(process, ours, pickle.dumps(options), waker, watch)
        if told is None:
            return _end_of(process, path, watch)
        # It lives on: that nobody waits for it here is no oversight.
        process.returncode = exits.DONE
    _print_up(told, as_json=options.form != "text")
    return exits.DONE


def _start(options: Options, link: socket.socket, log: IO[bytes]) -> subprocess.Popen[bytes]:
    here = os.getcwd()
    path = [here if entry == "" else entry for entry in sys.path]
    program = _PROGRAM.format(path=path, link=link.fileno())
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, *flags, "-c", program, "run", options.tree],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[link.fileno()],
        start_new_session=True,
    )


def _await_word(
    process: subprocess.Popen[bytes],
    link: socket.socket,
    options: bytes,
    waker: signals.Waker,
    watch: signals.Watch,
) -> dict[str, Any] | None:
    """Hand over the options, and return what the run says when it is up; None if it ended."""
    link.setblocking(False)
    unsent = memoryview(options)
    said = b""
    watched: list[socket.socket | signals.Waker] = [link, waker]
    while True:
        readable, writable, _ = select.select(watched, [link] if unsent else [], [])
        if watch.cause is not None:
            process.terminate()
            return None
        try:
            if writable:
                unsent = unsent[link.send(unsent) :]
                if not unsent:
                    link.shutdown(socket.SHUT_WR)
            if link in readable:
                chunk = link.recv(65536)
                said += chunk
                if said.endswith(b"\n"):
                    told: dict[str, Any] = json.loads(said)
                    return told
                if not chunk:
                    return None
        except (BrokenPipeError, ConnectionResetError):
            return None


def _end_of(process: subprocess.Popen[bytes], log: Path, watch: signals.Watch) -> int:
    """Return the exit code of a run that is not up; print what it has said, leave nothing."""
    from dsh_actors.observe.display import display_text

    try:
        code = process.wait(_PATIENCE if watch.cause is not None else None)
    except subprocess.TimeoutExpired:
        process.kill()  # its workers end when it is gone
        code = process.wait()
    text = log.read_bytes().decode("utf-8", "replace")
    log.unlink(missing_ok=True)
    if not text and code > 0 and watch.cause is None:
        what = "the run ended before it was up, and its log could not be written; is the disk full?"
        return output.print_error(f"{log}: {what}", code)
    click.echo(display_text(text, multiline=True), nl=False, err=True)
    if watch.cause is not None:
        return watch.cause.code
    if code < 0:
        return output.print_error(f"the run was ended by signal {-code}", exits.for_signal(-code))
    return code or exits.FAILED


def _print_up(told: dict[str, Any], *, as_json: bool) -> None:
    from shlex import quote

    from dsh_actors.observe.display import display_text

    warning = told.pop("warning", "")
    if warning:
        output.print_warning(warning)
    if as_json:
        click.echo(output.to_json({"type": "detached", **told}, ascii_only=sys.stdout.isatty()))
        return
    system = quote(told["system_id"])
    lines = {
        "system": told["system_id"],
        "session": told["session_id"] or "-",
        "pid": told["pid"],
        "log": told["log"],
        "attach": f"dsh-actors attach {system}",
        "stop": f"dsh-actors shutdown {system}",
    }
    for name, value in lines.items():
        click.echo(f"{name:<7}  {display_text(value)}")
