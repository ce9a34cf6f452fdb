"""What the workers of the tests run. Imported in the workers, so it imports little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def report(sock: socket.socket, params: dict[str, Any]) -> None:
    """Tell about this process, then wait for the end of the stream."""
    print("to stdout", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    send(
        sock,
        {
            "params": params,
            "mark": os.environ["DSH_ACTORS_WORKER"],
            "parent": os.getppid(),
            "session": os.getsid(0),
            "stdin": sys.stdin.read(),
            "argv": sys.argv,
            "fds": sorted(map(int, os.listdir("/dev/fd"))),
            "inheritable": [fd for fd in (sock.fileno(),) if os.get_inheritable(fd)],
            "multiprocessing": "multiprocessing" in sys.modules,
            "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        },
    )
    sock.recv(1)


def report_multiprocessing(sock: socket.socket, params: dict[str, Any]) -> None:
    import multiprocessing

    current, parent = multiprocessing.current_process(), multiprocessing.parent_process()
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(7,))
    child.start()
    child.join()
    send(
        sock,
        {
            "name": current.name,
            "authkey": bytes(current.authkey),
            "daemon": current.daemon,
            "parent": parent and (parent.pid, parent.name, parent.is_alive()),
            "child": child.exitcode,
        },
    )
    sock.recv(1)


def wait(sock: socket.socket, params: dict[str, Any]) -> None:
    send(sock, "ready")
    sock.recv(1)


def exit_with(sock: socket.socket, params: dict[str, Any]) -> None:
    sys.exit(params["status"])


def call_main(sock: socket.socket, params: dict[str, Any]) -> None:
    """Call a function of the parent's main script."""
    from dsh_actors.workers.process import import_parent_main

    try:
        send(sock, import_parent_main().answer())
    except Exception as error:
        send(sock, f"{type(error).__name__}: {error}")


def start_family(sock: socket.socket, params: dict[str, Any]) -> None:
    """Start processes that are hard to find or to end, tell their pids, wait for the end.

    ``kinds``: ``plain``, ``session`` (leads its own), ``orphan`` (its parent has ended),
    ``stubborn`` (ignores TERM), ``forked`` (shares the environment of this process).
    """
    pids = [STARTERS[kind]() for kind in params["kinds"]]
    send(sock, pids)
    if params.get("at_end") == "own":
        from dsh_actors.processes.proctree import end_own_descendants

        sock.recv(1)
        end_own_descendants(params["marker"])
        os._exit(0)
    sock.recv(1)


def start_for_ever(sock: socket.socket, params: dict[str, Any]) -> None:
    """Replace each process that ends by a new one, until the end, then end them all."""
    from dsh_actors.processes.proctree import end_own_descendants

    running = threading.Event()

    def replace() -> None:
        while True:
            child = subprocess.Popen(SLEEP)
            running.set()
            child.wait()

    threading.Thread(target=replace, daemon=True).start()
    running.wait()
    send(sock, "ready")
    sock.recv(1)
    end_own_descendants(params["marker"], kill_wait=0.3)
    os._exit(0)


def _plain() -> int:
    return subprocess.Popen(SLEEP).pid


def _session() -> int:
    return subprocess.Popen(SLEEP, start_new_session=True).pid


def _stubborn() -> int:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


def _orphan() -> int:
    code = (
        "import subprocess, sys; "
        f"print(subprocess.Popen({SLEEP!r}, start_new_session=True, "
        "stdout=subprocess.DEVNULL).pid)"
    )
    return int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout)


def _forked() -> int:
    pid = os.fork()
    if not pid:
        while True:
            signal.pause()
    return pid


STARTERS = {
    "plain": _plain,
    "session": _session,
    "stubborn": _stubborn,
    "orphan": _orphan,
    "forked": _forked,
}


def send(sock: socket.socket, value: Any) -> None:
    from dsh_actors import codec

    sock.sendall(codec.encode(value))
    sock.shutdown(1)  # SHUT_WR
