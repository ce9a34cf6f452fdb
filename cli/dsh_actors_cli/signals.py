"""Signals, deadlines and the closed terminal of one run.

CPython's own handler, in C, does one thing when a signal comes: it writes the number to a
wake-up descriptor. It needs no lock and no interpreter for that. A thread of ours, the
*watch*, reads the other end, and is also the clock of the run. So the main thread may be
anywhere, in a lock, in a write to a stalled terminal, in a long import: the first signal
still starts the ordered stop, and the second one still ends the process.

One case is left: native code that holds the interpreter, where no thread of ours can run.
For that the kernel is told to reset a signal to its default action once it has come. The
Python handler, which runs as soon as the interpreter is free, takes the signal back; while it
cannot run, a second signal ends the process in the kernel, and the workers end by EOF.

Nothing blocks signals, on purpose: threads and programs started meanwhile would inherit the
mask, and could then not be terminated.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Literal, NoReturn

from dsh_actors_cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["StopCause", "Waker", "Watch", "install"]

# Ctrl-C and kill: a second one of these, in any mix, means "at once".
_URGENT = (signal.SIGINT, signal.SIGTERM)
# The program's name for "look again", on the same pipe; no signal has the number 0.
_LOOK = b"\0"
_HANG_UP = select.POLLHUP | select.POLLERR | select.POLLNVAL
# When the kernel's part is set up: not while the launch needs the processor.
_ARM_AFTER = 0.3
# How long ending the workers may take before the process is ended without waiting for it.
_KILL_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class StopCause:
    """Why a run stops before it is done.

    Attributes:
        kind: a signal, the time-out of the run, a terminal that was closed, a request over
            the control socket, or the wish to go on in another session.
        code: the exit code that this gives.
        text: the cause in a few words.
    """

    kind: Literal["signal", "timeout", "hangup", "request", "hand-over"]
    code: int
    text: str


class Waker:
    """A pipe on which one thread waits, outside any lock, until another one wakes it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor that is readable once the waiting thread is to wake."""
        return self._read

    def wake(self, *_ignored: object) -> None:
        """Wake the waiting thread; may be called from any thread, any number of times."""
        try:
            os.write(self._write, _LOOK)
        except BlockingIOError:
            return  # the pipe is full of earlier calls: the other side will wake

    def wait(self, timeout: float | None = None) -> None:
        """Return when woken, or after `timeout` seconds."""
        if self._poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
            os.read(self._read, 65536)


class Watch:
    """The thread that hears signals and keeps the deadlines.

    Attributes:
        cause: why the run stops, as soon as it does; the first cause stays.
    """

    def __init__(self) -> None:
        self.cause: StopCause | None = None
        self._lock = threading.Lock()
        self._urged = False
        self._on_stop: Callable[[StopCause], None] | None = None
        self._on_kill: Callable[[], object] | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._terminal: int | None = None
        self._timeout: tuple[float, float] | None = None
        self._force: tuple[float, int] | None = None
        self._arm_at: float | None = monotonic() + _ARM_AFTER
        self._thread = threading.Thread(target=self._run, name="dsh-watch", daemon=True)

    def start(self) -> None:
        """Install the handlers and start the thread. Only in the main thread."""
        self._handled = [*_URGENT]
        # Under nohup the user has said that a closed terminal does not matter. An ignored
        # SIGINT is no such word: each background job of a script has it, and whoever sends
        # it to one of them by its pid means it.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handled.append(signal.SIGHUP)
            self._terminal = os.dup(2)
            self._poll.register(self._terminal, 0)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._handled:
            signal.signal(number, _reinstall)
        self._thread.start()

    def attend(self, on_stop: Callable[[StopCause], None], on_kill: Callable[[], object]) -> None:
        """Say what to do; a cause that came before is acted on now.

        Parameters:
            on_stop: starts the ordered stop. Called at most once, on a thread of its own.
            on_kill: ends the worker processes without ceremony.
        """
        with self._lock:
            self._on_stop, self._on_kill = on_stop, on_kill
            cause = self.cause
        if cause is not None:
            self._begin_stop(on_stop, cause)

    def stop(self, cause: StopCause) -> None:
        """Start the ordered stop, unless it has begun."""
        with self._lock:
            if self.cause is not None:
                return
            self.cause = cause
            self._timeout = None
            on_stop = self._on_stop
        if on_stop is not None:
            self._begin_stop(on_stop, cause)

    def hang_up(self) -> None:
        """Start the ordered stop because nobody reads what the run prints."""
        self.stop(StopCause("hangup", exits.for_signal(signal.SIGHUP), "the terminal was closed"))

    def limit(self, seconds: float) -> None:
        """Stop the run when it has taken this long."""
        self._timeout = (monotonic() + seconds, seconds)
        self._look()

    def force_after(self, seconds: float, code: int) -> None:
        """End the process with `code` when it is still there after so many seconds."""
        self._force = (monotonic() + seconds, code)
        self._look()

    @staticmethod
    def _begin_stop(on_stop: Callable[[StopCause], None], cause: StopCause) -> None:
        # On its own thread: whatever it waits for, the watch goes on watching.
        threading.Thread(target=on_stop, args=(cause,), name="dsh-stop", daemon=True).start()

    def _look(self) -> None:
        try:
            os.write(self._write, _LOOK)
        except BlockingIOError:
            return  # the watch has enough to wake up for

    def _run(self) -> None:
        while True:
            for descriptor, events in self._poll.poll(self._patience()):
                if descriptor == self._read:
                    for number in os.read(self._read, 4096):
                        self._heard(number)
                elif events & _HANG_UP:
                    self._poll.unregister(descriptor)
                    self.hang_up()
            self._keep_deadlines()

    def _patience(self) -> float | None:
        moments = [
            moment
            for moment in (
                self._arm_at,
                self._timeout[0] if self._timeout else None,
                self._force[0] if self._force else None,
            )
            if moment is not None
        ]
        return max(0.0, min(moments) - monotonic()) * 1000 + 1 if moments else None

    def _heard(self, number: int) -> None:
        if number == 0 or number not in self._handled:
            return
        text = f"stopped by {signal.Signals(number).name}"
        if number not in _URGENT:
            # Shells and terminals send it several times over: never a wish to hurry.
            self.stop(StopCause("hangup", exits.for_signal(number), text))
            return
        if self._urged:
            self._exit(exits.for_signal(number))
        self._urged = True
        self.stop(StopCause("signal", exits.for_signal(number), text))

    def _keep_deadlines(self) -> None:
        now = monotonic()
        if self._arm_at is not None and now >= self._arm_at:
            _reset_after_one(_URGENT)
            self._arm_at = None
        timeout = self._timeout
        if timeout is not None and now >= timeout[0]:
            self.stop(StopCause("timeout", exits.TIMEOUT, f"not done after {timeout[1]:g} s"))
            self._timeout = None
        force = self._force
        if force is not None and now >= force[0]:
            self._exit(force[1])

    def _exit(self, code: int) -> NoReturn:
        on_kill = self._on_kill
        if on_kill is not None:
            killer = threading.Thread(target=on_kill, name="dsh-kill", daemon=True)
            killer.start()
            killer.join(_KILL_PATIENCE)
        os._exit(code)


def _reinstall(number: int, _frame: FrameType | None) -> None:
    """Take back a signal that the kernel has reset; what to do about it is the watch's affair."""
    signal.signal(number, _reinstall)
    if _armed and number in _URGENT:
        _reset_after_one((signal.Signals(number),))


def _reset_after_one(numbers: tuple[signal.Signals, ...]) -> None:
    """Have the kernel reset these signals to their default action once they have come.

    `signal.signal` has no way to ask for SA_RESETHAND, so the flag is set in the action that
    it has installed. Where the layout of that structure is not known, nothing is done: then
    only native code that never returns can hold up a second signal.
    """
    global _armed
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return
    import ctypes

    _armed = True

    libc = ctypes.CDLL(None, use_errno=True)
    flags_at, sa_resethand = 136, 0x80000000
    for number in numbers:
        action = (ctypes.c_ubyte * 256)()
        if libc.sigaction(int(number), None, action) != 0:
            continue
        flags = ctypes.c_uint32.from_buffer(action, flags_at)
        flags.value |= sa_resethand
        libc.sigaction(int(number), action, None)


_armed = False
_installed: Watch | None = None


def install() -> Watch:
    """Return the watch of this process, started at the first call. Only in the main thread."""
    global _installed
    if _installed is None:
        _installed = Watch()
        _installed.start()
    return _installed
