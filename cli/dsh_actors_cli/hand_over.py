"""The hand-over in place: this process becomes one that resumes a session."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

from dsh_actors.errors import UsageError
from dsh_actors_cli import exits, signals
from dsh_actors_cli.arguments import recorded_options, resume_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dsh_actors.sessions import SessionHeader
    from dsh_actors_cli.arguments import Options

__all__ = ["HandOver", "replace_process", "resumption"]


def resumption(header: SessionHeader, store: Path | None) -> tuple[list[str], str]:
    """Return the command that resumes a session, and the folder to run it in.

    Parameters:
        header: of the session.
        store: the store that it is in, if it is not the default one.

    Raises:
        UsageError: nobody but its program can resume it; the message says what to do.
    """
    if header.parent is not None:
        raise UsageError(
            f"session {header.id} is that of a child, {header.agent_id!r}; it comes back with "
            f"its root: dsh-actors resume {header.root}"
        )
    record: Any = header.options.get("launch")
    try:
        if not isinstance(record, dict):
            raise ValueError("it was not started by 'dsh-actors run'")
        options, folder = recorded_options(record, store), record.get("cwd")
        if not isinstance(folder, str) or not os.path.isabs(folder):
            raise ValueError(f"its 'cwd' is {folder!r}")
        if not os.path.isdir(folder):
            raise ValueError(f"the folder {folder} is not there any more")
    except ValueError as error:
        raise UsageError(
            f"nothing says how session {header.id} was run: {error}; "
            f"name the tree file: dsh-actors run TREE --resume {header.id}"
        ) from None
    return resume_arguments(options, header.id), folder


def replace_process(words: Sequence[str], folder: str | None = None) -> NoReturn:
    """Become the command `words`, run by the same program as this one.

    Parameters:
        words: as `resume_arguments` gives them.
        folder: the folder to change to before that.

    Raises:
        OSError: the folder is not there, or the program cannot be started.
    """
    # The interpreter with its options, and the script or -m with its module, as they were given.
    prefix = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    # What of this is relative counts from the folder that the program was started in.
    script = "-m" not in prefix and len(prefix) > 1 and os.path.exists(prefix[-1])
    if script:
        prefix[-1] = os.path.abspath(prefix[-1])
    if folder is not None:
        os.chdir(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [*prefix, *words[1:]])


class HandOver:
    """The slot of a run: called with the id of a session, it does not return.

    The run is stopped in order and its terminal and its store are given back, as at a Ctrl-C;
    only then is the process replaced.

    Parameters:
        options: of the run.
        watch: what stops it.
    """

    def __init__(self, options: Options, watch: signals.Watch) -> None:
        self._options, self._watch = options, watch
        self._next: tuple[list[str], str] | None = None

    def __call__(self, session_id: str) -> NoReturn:
        """Replace the process by one that resumes a session; may be called on any thread.

        Raises:
            SessionNotFound: there is no such session. The run goes on.
            UsageError: it cannot be resumed by the command. The run goes on.
        """
        from dsh_actors.sessions import SqliteReader, default_store_path

        with SqliteReader(self._options.store or default_store_path()) as reader:
            header = reader.load(session_id).header
        self._next = resumption(header, self._options.store)
        text = f"going on with session {session_id}"
        self._watch.stop(signals.StopCause("hand-over", exits.DONE, text))
        threading.Event().wait()  # until this thread ends with the process
        raise AssertionError  # not reached

    @property
    def wanted(self) -> bool:
        """Whether the process is to be replaced once the run has ended."""
        return (
            self._next is not None
            and self._watch.cause is not None
            and (self._watch.cause.kind == "hand-over")
        )

    def perform(self) -> None:
        """Replace the process, if that is wanted.

        Raises:
            OSError: it is not possible.
        """
        if self._next is not None and self.wanted:
            replace_process(*self._next)
