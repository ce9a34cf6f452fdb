"""The log of the library: structured lines on stderr, and nothing paid until one is written.

structlog takes ten times as long to import as Python takes to start, and most runs log
nothing. `get_logger` therefore gives a proxy that compares two integers for a call below the
level, and imports structlog at the first line that is really written.

The level comes from the environment variable ``DSH_ACTORS_LOG``: ``debug``, ``info``,
``warning`` (as without it), ``error`` or ``off``. With ``:json`` behind it (``info:json``)
each line is a JSON object. A program that has configured structlog itself gets the lines
through its own configuration.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from dsh_actors.observe.display import display_text

__all__ = ["VARIABLE", "Logger", "dropped_lines", "get_logger", "set_level"]

VARIABLE = "DSH_ACTORS_LOG"
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 100}

# None until the variable has been read: at the first call, not at import, so that a program
# may still set it.
_threshold: int | None = None
_as_json = False
_dropped = 0


def set_level(setting: str) -> None:
    """Set the level, and perhaps the format, for this process.

    Parameters:
        setting: as in ``DSH_ACTORS_LOG``: a level, with ``:json`` behind it for JSON lines.

    Raises:
        ValueError: there is no such level or format.
    """
    global _threshold, _as_json
    level, _, form = setting.strip().lower().partition(":")
    if level not in _LEVELS or form not in ("", "text", "json"):
        raise ValueError(f"not a log setting: {setting!r}; use {', '.join(_LEVELS)}, or info:json")
    _threshold, _as_json = _LEVELS[level], form == "json"


def dropped_lines() -> int:
    """Return how many lines could not be written, because stderr was closed or full."""
    return _dropped


def _read_level() -> int:
    global _threshold
    try:
        set_level(os.environ.get(VARIABLE) or "warning")
    except ValueError as error:
        _threshold = _LEVELS["warning"]
        get_logger(__name__).warning(f"{VARIABLE} is ignored", reason=str(error))
    assert _threshold is not None
    return _threshold


class Logger:
    """A logger that costs nothing until it writes.

    Parameters:
        name: the module that speaks, as in ``__name__``.
        context: pairs that every line carries.
    """

    __slots__ = ("_context", "_name")

    def __init__(self, name: str, context: dict[str, Any] | None = None) -> None:
        self._name, self._context = name, context or {}

    def bind(self, **context: Any) -> Logger:
        """Return a logger that adds these pairs to each line."""
        return Logger(self._name, {**self._context, **context})

    def is_enabled_for(self, level: str) -> bool:
        """Return whether lines of this level are written, to spare costly arguments."""
        return _LEVELS[level] >= (_threshold if _threshold is not None else _read_level())

    def debug(self, event: str, **values: Any) -> None:
        """Write a line for those who look for a fault."""
        self._log("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Write a line about the ordinary course of things."""
        self._log("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Write a line about something that went wrong and was dealt with."""
        self._log("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Write a line about something that went wrong and needs somebody."""
        self._log("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Write an error with the traceback of the exception being handled, or of `exc_info`."""
        values.setdefault("exc_info", True)
        self._log("error", event, values)

    def _log(self, level: str, event: str, values: dict[str, Any]) -> None:
        if self.is_enabled_for(level):
            _emit(self._name, level, event, {**self._context, **values})


def get_logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(name)


class _Stderr:
    """What structlog writes to: the stderr of the moment, one write for one line.

    A log call must never be the reason that a thread of the library dies, so a line that
    cannot be written is counted instead.
    """

    def msg(self, line: str) -> None:
        global _dropped
        stream = sys.stderr
        if stream is None:
            _dropped += 1
            return
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            _dropped += 1

    debug = info = warning = error = msg


def _emit(name: str, level: str, event: str, values: dict[str, Any]) -> None:
    import structlog

    if structlog.is_configured():
        logger: Any = structlog.get_logger(name)
    else:
        logger = structlog.wrap_logger(
            _Stderr(),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=False),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=repr) if _as_json else _line,
            ],
            wrapper_class=structlog.BoundLogger,
            context_class=dict,
            cache_logger_on_first_use=False,
        )
    getattr(logger, level)(event, logger=name, **values)


def _line(_logger: Any, _method: str, event: Any) -> str:
    """Render one line: time, level, logger, event, then the pairs; a traceback comes below."""
    trace = event.pop("exception", None)
    head = (
        f"{event.pop('timestamp')} {event.pop('level'):<7} "
        f"{display_text(event.pop('logger'))}: {display_text(event.pop('event'))}"
    )
    pairs = "".join(f" {key}={display_text(_short(value))}" for key, value in event.items())
    tail = "\n" + display_text(trace, multiline=True) if trace else ""
    return head + pairs + tail


def _short(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in "\"'=" for c in value):
        return value
    return repr(value)
