"""The first code of a worker process: from a bare interpreter to the call of its target.

A worker is a process of multiprocessing's spawn kind, but it starts without importing
multiprocessing, which would double the time until it is ready: the state that multiprocessing
passes to a spawned child is applied when, and if, something here imports it. Nor is the parent's
main script imported, until a behaviour that lives there is needed; see `import_parent_main`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["PROGRAM", "become_subreaper", "import_parent_main", "importing_main", "main"]

PROGRAM = (
    # What is needed anyway is imported before the data is there, while the parent prepares it.
    "import ctypes, importlib, marshal, signal, socket, sys, threading; "
    "data = marshal.load(open({pipe}, 'rb', closefd=False)); "
    "sys.path[:] = data['sys_path']; from dsh_actors.workers.boot import main; main(data)"
)
"""What the interpreter of a worker runs; ``pipe`` is the descriptor that has its data."""

FATAL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are blocked in a worker until it has decided what they mean there."""

_data: dict[str, Any] = {}
_main_lock = threading.RLock()
_main_module: ModuleType | None = None
_importing_main = False


def main(data: dict[str, Any]) -> None:
    """Become a worker, call the target, exit.

    Parameters:
        data: see `dsh_actors.workers.process`, which sends it.
    """
    _data.update(data)
    _lead_a_session()
    _keep_only(set(data["fds"]))
    become_subreaper()
    sys.argv[:] = data["sys_argv"]
    sys.meta_path.insert(0, _MultiprocessingFinder())
    function = _resolve(data["target"])
    params = _decode(data["params"])
    _, sock, stderr, capture = data["fds"][:4]
    connection = _open_socket(sock)
    _show_stderr(stderr, capture)
    function(connection, params)
    sys.exit(0)


def _lead_a_session() -> None:
    # A session of its own: the terminal's Ctrl-C and hang-up do not reach it. They arrive blocked
    # from the parent, so that there was no moment at which they would have ended this process.
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_only(kept: set[int]) -> None:
    """Close what the parent's other libraries let leak, and pass nothing on to our children."""
    for fd in map(int, os.listdir("/dev/fd")):
        if fd in kept:
            os.set_inheritable(fd, False)
        elif fd > 2:
            try:
                os.close(fd)
            except OSError as error:  # the descriptor of the listing itself is gone already
                if error.errno != 9:
                    raise


def _show_stderr(stderr: int, capture: int) -> None:
    """From here on stderr, and stdout too, are the parent's stderr; until here it was kept."""
    sys.stderr.flush()
    written = os.lseek(capture, 0, os.SEEK_END)
    early = os.pread(capture, written, 0)
    os.dup2(stderr, 1)
    os.dup2(stderr, 2)
    os.close(stderr)
    os.close(capture)
    if early:
        os.write(2, early)


def _resolve(target: str) -> Callable[[socket.socket, dict[str, Any]], None]:
    module, _, name = target.partition(":")
    function: Callable[[socket.socket, dict[str, Any]], None] = getattr(
        importlib.import_module(module), name
    )
    return function


def _decode(params: bytes) -> dict[str, Any]:
    from dsh_actors import codec

    decoded: dict[str, Any] = codec.decode(params)
    return decoded


def _open_socket(fd: int) -> socket.socket:
    import socket

    return socket.socket(fileno=fd)


# -- What multiprocessing passes to a spawned child ---------------------------------------------


class _MultiprocessingFinder:
    """Applies the parent's state to multiprocessing at the moment that it is imported here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "multiprocessing":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_prepare(module: ModuleType) -> None:
                execute(module)
                _prepare_multiprocessing()

            spec.loader.exec_module = execute_and_prepare  # type: ignore[method-assign]
        return spec


def _prepare_multiprocessing() -> None:
    from multiprocessing import process, spawn

    keys = ("name", "authkey", "log_to_stderr", "log_level", "orig_dir", "start_method")
    spawn.prepare({key: _data[key] for key in keys if _data.get(key) is not None})
    parent: Any = process
    parent._parent_process = parent._ParentProcess(
        _data["parent_name"], os.getppid(), _data["fds"][0]
    )


# -- The parent's main script -------------------------------------------------------------------


def import_parent_main() -> ModuleType:
    """Import the script that the parent process runs, as multiprocessing's spawn would have.

    It is run once, under the name ``__mp_main__``, and is ``__main__`` from then on. Call it from
    any thread; in a process that is no worker it only returns ``__main__``.

    Returns:
        The module.

    Raises:
        BehaviourError: the script cannot be imported: it raised an exception, or it exited.
    """
    global _importing_main, _main_module
    with _main_lock:
        if _main_module is None:
            _importing_main = True
            try:
                _main_module = _fix_up_main()
            finally:
                _importing_main = False
        return _main_module


def _fix_up_main() -> ModuleType:
    name, path = _data.get("main_name"), _data.get("main_path")
    if name is not None or path is not None:
        from multiprocessing import process, spawn

        fixes: Any = spawn
        current: Any = process.current_process()
        current._inheriting = True  # multiprocessing, too, then refuses to start processes
        try:
            if name is not None:
                fixes._fixup_main_from_name(name)
            else:
                fixes._fixup_main_from_path(path)
        except (Exception, SystemExit) as error:
            from dsh_actors.errors import BehaviourError

            raise BehaviourError(
                f"the main script ({name or path}) cannot be imported in a worker: "
                f"{type(error).__name__}: {error}; put what it does when it is run under "
                "if __name__ == '__main__':"
            ) from error
        finally:
            del current._inheriting
    return sys.modules["__main__"]


def importing_main() -> bool:
    """Whether this process is importing its parent's main script right now.

    If an actor system is made meanwhile, the script lacks its ``if __name__ == "__main__":``.
    True in the children of multiprocessing's own spawn method, too.
    """
    if _importing_main:
        return True
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and getattr(process.current_process(), "_inheriting", False)


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process, so that none gets lost. Linux only.

    Returns:
        Whether the system could do it.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    set_child_subreaper = 36
    libc = ctypes.CDLL(None)
    return bool(libc.prctl(set_child_subreaper, 1, 0, 0, 0) == 0)
