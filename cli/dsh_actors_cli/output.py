"""What goes to stdout and stderr, and what happens when nobody reads it.

During a run, stdout belongs to the result alone. `claim_stdout` keeps a private descriptor
for it and points descriptor 1 at stderr, so that a ``print`` in an inline behaviour, or in a
program that it starts, cannot mix with the result.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

__all__ = [
    "OutputClosedError",
    "ResultStream",
    "claim_stdout",
    "discard_stderr",
    "discard_stdout",
    "is_user_error",
    "open_standard_descriptors",
    "print_error",
    "print_notice",
    "print_warning",
    "to_json",
]


class OutputClosedError(Exception):
    """The reader of stdout has gone away."""


class ResultStream:
    """The descriptor that carries the result.

    Parameters:
        descriptor: an open descriptor; the stream owns it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def isatty(self) -> bool:
        """Return whether a terminal shows the result."""
        return os.isatty(self._descriptor)

    def columns(self) -> int:
        """Return the width of the terminal that shows the result."""
        return os.get_terminal_size(self._descriptor).columns or 80

    def write_line(self, text: str) -> None:
        """Write `text` and a line feed, all of it.

        Raises:
            OutputClosedError: the reader has gone away.
            OSError: the text cannot be written for another reason, such as a full disk.
        """
        left = memoryview((text + "\n").encode("utf-8", "backslashreplace"))
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            raise OutputClosedError from None

    def give_back(self) -> None:
        """Let descriptor 1 be what carries the result again."""
        os.dup2(self._descriptor, 1)

    def close(self) -> None:
        """Close the descriptor; a network file system reports lost data only here."""
        os.close(self._descriptor)


def claim_stdout() -> ResultStream:
    """Keep stdout for the result: whatever else is printed from here on goes to stderr."""
    sys.stdout.flush()
    stream = ResultStream(os.dup(1))
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return stream


def open_standard_descriptors() -> None:
    """Open /dev/null for each of stdin, stdout and stderr that the caller has closed.

    Otherwise the next file or socket would get number 1 or 2, and prints would land in it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # open() takes the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            stream: IO[str] = os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False)
            setattr(sys, name, stream)


def discard_stdout() -> None:
    """Drop what stdout still buffers, so that its flush at exit does not fail once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def discard_stderr() -> None:
    """Drop what is yet to be written to stderr: there is nobody left to read it."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def print_error(message: str, code: int) -> int:
    """Print one line on stderr that says what is wrong, and return `code`."""
    _print_line("error", message)
    return code


def print_notice(message: str) -> None:
    """Print one line on stderr about what works, but perhaps not as the user thinks."""
    _print_line("notice", message)


def print_warning(message: str) -> None:
    """Print one line on stderr about what works less well than it should."""
    _print_line("warning", message)


def _print_line(kind: str, message: str) -> None:
    from dsh_actors.observe.display import display_text

    try:
        sys.stderr.write(f"dsh-actors: {kind}: {display_text(message)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # nobody reads; the code still tells


def is_user_error(error: BaseException) -> bool:
    """Return whether `error` is one of usage or configuration, and not one of the run."""
    from dsh_actors import errors

    if isinstance(error, errors.SessionHeld):
        return False  # the same command is right once the holder has ended
    return isinstance(
        error,
        errors.UsageError
        | errors.ConfigError
        | errors.BehaviourError
        | errors.MessageError
        | errors.DuplicateId
        | errors.StoreError,
    )


def to_json(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """Return plain data as JSON; what JSON lacks (bytes, times, NaN) becomes text.

    Parameters:
        value: plain data.
        indent: spaces for each level; None puts all on one line.
        ascii_only: escape every other character, which makes the text safe for a terminal.
    """
    import json

    try:
        return json.dumps(
            value, ensure_ascii=ascii_only, allow_nan=False, default=_plain, indent=indent
        )
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=ascii_only, default=_plain, indent=indent)


def _finite(value: Any) -> Any:
    """Return `value` with the numbers that JSON cannot write (NaN, infinities) as text."""
    if isinstance(value, float):
        return value if value - value == 0.0 else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        import base64

        return base64.b64encode(value).decode("ascii")
    isoformat = getattr(value, "isoformat", None)
    if isoformat is not None:
        return isoformat()
    import dataclasses

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
