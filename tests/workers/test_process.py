"""Worker processes: what they inherit, where they can be started, and how their end is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dsh_actors import codec
from dsh_actors.errors import MessageError, WorkerStartError
from dsh_actors.processes.identity import ProcessId, is_running
from dsh_actors.workers.process import (
    STATUS_UNKNOWN,
    WorkerProcess,
    import_parent_main,
    importing_main,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 20.0  # seconds; a bound for failing tests, not a delay
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@contextmanager
def worker(target: str, marker: str = "tests:1", **params: Any) -> Iterator[WorkerProcess]:
    process = start_worker(f"worker_targets:{target}", params, name="tester", marker=marker)
    process.sock.settimeout(WAIT)
    try:
        yield process
    finally:
        process.sock.close()
        if process.wait(WAIT) is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def told(process: WorkerProcess) -> Any:
    """What the worker sends before it closes its side."""
    data = b""
    while received := process.sock.recv(1 << 16):
        data += received
    return codec.decode(data)


def run_script(tmp_path: Path, text: str) -> list[str]:
    """Run a main script that can import the library and the targets; return what it prints."""
    script = tmp_path / "script.py"
    script.write_text(text)
    path = os.pathsep.join([str(ROOT), str(HERE)])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=WAIT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_target_gets_its_parameters_and_a_clean_place() -> None:
    leaking = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leaking, True)  # as a pre-fork server does with its listening socket
    try:
        with worker("report", number=3) as process:
            facts = told(process)
    finally:
        os.close(leaking)

    assert facts["params"] == {"number": 3, "marker": "tests:1"}
    assert facts["mark"] == "tests:1"
    assert facts["parent"] == os.getpid()
    assert facts["session"] == process.pid
    assert facts["stdin"] == ""
    assert facts["argv"] == sys.argv
    assert facts["blocked"] == []
    assert len(facts["fds"]) == 3 + 3  # beside stdio: link, multiprocessing's pipe, the listing
    assert facts["inheritable"] == []
    assert not facts["multiprocessing"]
    assert process.describe_exit() == "exited with status 0"


def test_stdout_of_a_worker_is_not_the_stdout_of_its_parent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with worker("report") as process:
        told(process)

    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["to stdout", "to stderr"]


def test_it_is_a_process_of_multiprocessing_on_both_sides() -> None:
    with worker("report_multiprocessing") as process:
        children = multiprocessing.active_children()
        assert [(child.name, child.pid) for child in children] == [("tester", process.pid)]
        assert children[0].sentinel == process.sentinel
        facts = told(process)
        assert process.poll() is None
        process.sock.close()
        assert process.wait(WAIT) == 0

    assert facts == {
        "name": "tester",
        "authkey": bytes(multiprocessing.current_process().authkey),
        "daemon": False,
        "parent": [os.getpid(), "MainProcess", True],
        "child": 7,
    }
    assert multiprocessing.active_children() == []


def test_its_identity_is_its_pid_and_start_time() -> None:
    with worker("wait") as process:
        assert process.identity == ProcessId.of(process.pid)
        assert is_running(process.identity)
        assert not is_running(ProcessId(process.pid, process.start_time + 1))
    assert not is_running(process.identity)


def test_each_worker_sees_the_end_of_its_own_stream_only() -> None:
    with worker("wait") as first, worker("wait") as second, worker("wait") as third:
        for process in (first, second, third):
            told(process)
        second.sock.close()

        assert second.wait(WAIT) == 0
        assert first.poll() is None
        assert third.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_terminal_cannot_end_a_worker(number: signal.Signals) -> None:
    with worker("wait") as process:
        os.kill(process.pid, number)  # also while it starts
        assert told(process) == "ready"
        os.kill(process.pid, number)
    assert process.describe_exit() == "exited with status 0"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_signal_that_ended_a_worker_is_told(number: signal.Signals) -> None:
    with worker("wait") as process:
        told(process)
        assert process.describe_exit() == "still running"
        os.kill(process.pid, number)
        assert process.wait(WAIT) == -number
    assert process.describe_exit() == f"killed by {number.name}"


def test_the_status_that_a_worker_exits_with_is_told() -> None:
    with worker("exit_with", status=3) as process:
        assert process.wait() == 3
    assert process.describe_exit() == "exited with status 3"
    assert "exited with status 3" in repr(process)


def test_many_threads_may_wait_for_the_same_end() -> None:
    with worker("wait") as process:
        told(process)
        codes: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: codes.append(process.wait(WAIT))) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        process.sock.close()
        for thread in threads:
            thread.join()
    assert codes == [0] * 5


def test_a_status_taken_by_others_is_an_end_too() -> None:
    with worker("wait") as process:
        process.sock.close()
        os.waitpid(process.pid, 0)
        assert process.wait(WAIT) == STATUS_UNKNOWN
    assert "another part of this program" in process.describe_exit()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("worker_targets:gone", "has no attribute 'gone'"),
        ("no_such_module:run", "No module named 'no_such_module'"),
    ],
)
def test_a_worker_that_does_not_start_says_why(
    target: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    process = start_worker(target, {}, name="tester", marker="tests:1")
    assert process.sock.recv(1) == b""
    process.sock.close()

    assert process.wait(WAIT) == 1
    error = process.start_error()

    assert isinstance(error, WorkerStartError)
    assert "the worker tester did not start: exited with status 1" in str(error)
    assert text in str(error)
    assert capfd.readouterr().err == ""


def test_an_interpreter_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing.spawn

    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", b"/no/such/python")

    with pytest.raises(WorkerStartError, match=r"tester cannot be started: .*/no/such/python"):
        start_worker("worker_targets:wait", {}, name="tester", marker="tests:1")


def test_parameters_must_be_plain_data() -> None:
    with pytest.raises(MessageError, match=r"\$\.callback"):
        start_worker("worker_targets:wait", {"callback": print}, name="tester", marker="tests:1")


def test_the_signal_mask_of_the_starting_thread_is_restored() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with worker("wait"):
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    started: list[WorkerProcess] = []
    thread = threading.Thread(
        target=lambda: started.append(
            start_worker("worker_targets:wait", {}, name="tester", marker="tests:1")
        )
    )
    thread.start()
    thread.join()
    (process,) = started

    assert told(process) == "ready"
    assert process.poll() is None
    process.sock.close()
    assert process.wait(WAIT) == 0


def test_in_a_process_that_is_no_worker_the_main_script_is_there_already() -> None:
    assert import_parent_main() is sys.modules["__main__"]
    assert not importing_main()


EMBEDDED = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from dsh_actors import codec
from dsh_actors.workers.process import start_worker

def use_a_worker(connection=None):
    worker = start_worker("worker_targets:wait", {}, name="tester", marker="tests:1")
    said = codec.decode(worker.sock.recv(100))
    worker.sock.close()
    facts = (said, worker.wait(), multiprocessing.current_process().daemon)
    if connection is not None:
        connection.send(facts)
    return facts

if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        daemon = context.Process(target=use_a_worker, args=(theirs,), daemon=True)
        daemon.start()
        print(method, "daemon", ours.recv())
        daemon.join()
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            print(method, "pool", pool.submit(use_a_worker).result())
"""


def test_workers_start_in_daemonic_processes_and_in_process_pools(tmp_path: Path) -> None:
    assert run_script(tmp_path, EMBEDDED) == [
        f"{method} {where} ('ready', 0, {where == 'daemon'})"
        for method in ("spawn", "fork", "forkserver")
        for where in ("daemon", "pool")
    ]


SIDE_EFFECTS = """
import multiprocessing, os, signal
from multiprocessing import resource_tracker
from dsh_actors.workers.process import start_worker

if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    worker = start_worker("worker_targets:wait", {}, name="tester", marker="tests:1")
    worker.sock.recv(100)
    worker.sock.close()
    print(worker.wait(), worker.wait(), resource_tracker._resource_tracker._pid)
    multiprocessing.set_start_method("spawn")
"""


def test_a_start_has_no_side_effect_on_multiprocessing_and_bears_ignored_children(
    tmp_path: Path,
) -> None:
    """No resource tracker is started, and the start method can still be chosen afterwards."""
    assert run_script(tmp_path, SIDE_EFFECTS) == [f"{STATUS_UNKNOWN} {STATUS_UNKNOWN} None"]


MAIN = """
import sys
from dsh_actors import codec
from dsh_actors.workers.process import importing_main, start_worker

WHO = __name__
IMPORTING = importing_main()

def answer():
    return [WHO, IMPORTING, importing_main(), sys.modules["__main__"].WHO]

def run():
    worker = start_worker("worker_targets:call_main", {}, name="tester", marker="tests:1")
    data = b""
    while received := worker.sock.recv(10000):
        data += received
    worker.sock.close()
    worker.wait()
    print(codec.decode(data))
"""


def test_the_main_script_can_be_imported_in_a_worker(tmp_path: Path) -> None:
    guarded = MAIN + '\nif __name__ == "__main__":\n    run()\n'

    assert run_script(tmp_path, guarded) == ["['__mp_main__', True, False, '__mp_main__']"]


def test_a_main_script_without_its_guard_is_one_clear_error(tmp_path: Path) -> None:
    (line,) = run_script(tmp_path, f"{MAIN}\nrun()\n")

    assert line.startswith("BehaviourError: the main script (")
    assert "UsageError: the main script starts workers while it is imported" in line
    assert "if __name__ == '__main__':" in line


def test_a_main_script_that_exits_is_an_error_and_not_the_end_of_the_worker(tmp_path: Path) -> None:
    leaving = f'{MAIN}\nif __name__ == "__main__":\n    run()\nelse:\n    sys.exit("no")\n'

    (line,) = run_script(tmp_path, leaving)

    assert "cannot be imported in a worker: SystemExit: no" in line


FORGETFUL = """
from dsh_actors import codec
from dsh_actors.workers.process import start_worker

if __name__ == "__main__":
    workers = [
        start_worker(f"worker_targets:{target}", params, name=target, marker=f"forgetful:{target}")
        for target, params in (
            ("start_family", {"kinds": ["plain", "stubborn"], "at_end": "own"}), ("wait", {})
        )
    ]
    pids = [worker.pid for worker in workers] + codec.decode(workers[0].sock.recv(1000))
    print(*pids)
"""


def test_a_program_that_forgets_its_workers_can_exit_and_leaves_none(tmp_path: Path) -> None:
    (line,) = run_script(tmp_path, FORGETFUL)

    pids = list(map(int, line.split()))
    assert len(pids) == 4
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
