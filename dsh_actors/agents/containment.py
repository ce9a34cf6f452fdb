"""Which exceptions of user code the library keeps to itself."""

from __future__ import annotations

import threading


def passes(error: BaseException) -> bool:
    """Whether an exception out of a listener or callback is not to be contained.

    That is Ctrl-C, which Python raises on the main thread. Anywhere else nobody is there to take
    a ``KeyboardInterrupt`` or ``SystemExit``: it would only end a thread that others need.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )
