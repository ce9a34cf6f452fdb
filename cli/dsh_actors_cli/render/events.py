"""Events of a session for people: one line each, and the lines of a traceback in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsh_actors_cli import output

if TYPE_CHECKING:
    from dsh_actors.sessions import Event

__all__ = ["event_text", "readable"]

_VALUE_WIDTH = 100
# What stands in an event as it was sent, encoded.
_ENCODED = ("body", "args", "result")


def readable(event: Event) -> Event:
    """Return the event with the messages and results in it, which are stored encoded, decoded."""
    from dataclasses import replace

    if not isinstance(event.data, dict):
        return event
    data = {key: _decoded(value) if key in _ENCODED else value for key, value in event.data.items()}
    if isinstance(data.get("results"), list):
        data["results"] = [_result(result) for result in data["results"]]
    return replace(event, data=data)


def _result(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    return {key: _decoded(value) if key == "result" else value for key, value in record.items()}


def _decoded(value: Any) -> Any:
    from dsh_actors.codec import decode
    from dsh_actors.errors import MessageError

    if not isinstance(value, bytes):
        return value
    try:
        return decode(value)
    except MessageError:
        return value  # it is shown as it is stored


def event_text(data: Any) -> tuple[str, list[str]]:
    """Return an event's data in one line, and the lines of a traceback in it."""
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.style import clip

    if not isinstance(data, dict):
        return display_text(clip(output.to_json(data), _VALUE_WIDTH)), []
    parts: list[str] = []
    block: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict) and isinstance(value.get("traceback"), str):
            block = display_text(value["traceback"].rstrip(), multiline=True).split("\n")
            value = {name: item for name, item in value.items() if name != "traceback"}
        text = value if isinstance(value, str) and " " not in value else output.to_json(value)
        parts.append(f"{key}={clip(display_text(text), _VALUE_WIDTH)}")
    return "  ".join(parts), [line for line in block if line]
