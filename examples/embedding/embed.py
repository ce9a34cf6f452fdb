"""An actor system inside other people's processes: one command, `python embed.py [FOLDER]`.

Programs that have worker processes already (a pool, a task queue, a web server) can run a tree
of agents inside one of them. Shown for a worker of a ``ProcessPoolExecutor``, and for a daemonic
``multiprocessing`` process, which may not have children of the ``multiprocessing`` kind; the
system's own worker processes are not of that kind, and end with their system all the same.

Each embedded system fingerprints the files of a folder with two worker processes of its own,
and must come to the same result. The receipt says how each agent and each process ended.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dsh_actors as dsh

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TIMEOUT = 60.0
"""Seconds after which a run has failed."""


@dsh.behaviour
def fingerprint_files(turn: dsh.Turn, paths: list[str]) -> dict[str, Any]:
    """Return the SHA-256 of each file, and the process that computed it."""
    digests = {}
    for path in paths:
        turn.check()
        digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return {"digests": digests, "pid": os.getpid()}


@dsh.behaviour
async def fingerprint(turn: dsh.Turn, folder: str) -> dict[str, Any]:
    """Share the files of a folder out over pooled workers; return one SHA-256 over all."""
    paths = sorted(str(path) for path in Path(folder).rglob("*.py"))
    jobs = [turn.run(fingerprint_files, paths[start::4], isolation="pool") for start in range(4)]
    digests: dict[str, str] = {}
    pids = set()
    async for job in dsh.as_settled(jobs):
        part = job.outcome.unwrap()
        digests |= part["digests"]
        pids.add(part["pid"])
    whole = hashlib.sha256("".join(digests[path] for path in paths).encode()).hexdigest()
    return {"files": len(paths), "sha256": whole, "pids": sorted(pids)}


def run_system(folder: str) -> dict[str, Any]:
    """Run one system to its end in the calling process; return its result and its receipt."""
    with dsh.ActorSystem(workers=2, name="embedded") as system:
        handle = system.create(fingerprint, id="fingerprint")
        result = handle.agent.ask(folder).result(timeout=TIMEOUT)
        receipt = system.shutdown().result(timeout=TIMEOUT)
    return {"host_pid": os.getpid(), "result": result, "receipt": receipt.to_dict()}


def in_executor(folder: str) -> dict[str, Any]:
    """Run a system in a worker of a ``ProcessPoolExecutor``."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as executor:
        return executor.submit(run_system, folder).result(timeout=TIMEOUT)


def in_daemonic_process(folder: str) -> dict[str, Any]:
    """Run a system in a daemonic ``multiprocessing`` process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_report, args=(sender, folder), daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    try:
        report: dict[str, Any] = receiver.recv()
    finally:
        receiver.close()
        process.join(TIMEOUT)
    return report


def _send_report(sender: Connection, folder: str) -> None:
    with sender:
        sender.send(run_system(folder))


def main() -> int:
    """Run both, print both, and return 0 if they agree and left nothing behind."""
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(json.__file__)
    reports = {"executor": in_executor(folder), "daemonic": in_daemonic_process(folder)}
    print(json.dumps(reports, indent=2))
    same = reports["executor"]["result"]["sha256"] == reports["daemonic"]["result"]["sha256"]
    clean = not any(report["receipt"]["survivors"] for report in reports.values())
    return 0 if same and clean else 1


if __name__ == "__main__":
    sys.exit(main())
