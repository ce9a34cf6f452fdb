"""Sessions as lines of JSON that can be kept, sent and read in again. Pure.

The first line says what the file is. Then comes, for each session, parents first, a line with
its header and one for each event; the last line counts, so that a file that was cut off is
noticed. What JSON lacks is wrapped: bytes as ``{"$bytes": base64}``, and times, registered
dataclasses and the like as ``{"$codec": base64}``.
"""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dsh_actors.codec import decode, decode_leniently, encode
from dsh_actors.errors import MessageError, StoreError
from dsh_actors.sessions.events import FORMAT, SessionHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dsh_actors.sessions.ops import StoredEvent

__all__ = ["PortableSession", "from_lines", "renamed", "to_lines"]

_NAME, _VERSION = "dsh-actors sessions", 1
_BYTES, _CODEC = "$bytes", "$codec"
# Deeper values are wrapped as a whole: JSON is read and written by recursion.
_DEEPEST = 64
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "agent_id", "system_id", "root", "behaviour"), str),
    **dict.fromkeys(("parent", "forked_from"), (str, type(None))),
    **dict.fromkeys(("depth", "format"), int),
    "created": (int, float),
    **dict.fromkeys(("policy", "options"), dict),
    "forked_at": (int, type(None)),
}


@dataclass(frozen=True, slots=True)
class PortableSession:
    """One session, outside of any store.

    Attributes:
        header: as it is stored.
        status: how its agent ended, or ``active``.
        events: all of them, numbered from 0, with their data encoded as in the store.
        damage: what could not be read when it was exported.
    """

    header: SessionHeader
    status: str
    events: Sequence[StoredEvent] = ()
    damage: tuple[str, ...] = ()


def to_lines(sessions: Iterable[PortableSession], exported: float) -> Iterator[str]:
    """Yield the lines, without line feeds.

    Parameters:
        sessions: parents first.
        exported: the moment, in Unix seconds.
    """
    yield _json({"type": "export", "of": _NAME, "version": _VERSION, "exported": exported})
    count = total = 0
    for session in sessions:
        header = {f.name: getattr(session.header, f.name) for f in fields(session.header)}
        header |= {key: _wrap(dict(header[key])) for key in ("policy", "options")}
        yield _json(
            {
                "type": "session",
                "header": header,
                "status": session.status,
                "events": len(session.events),
                **({"damage": list(session.damage)} if session.damage else {}),
            }
        )
        for seq, moment, kind, data in session.events:
            yield _json(
                {
                    "type": "event",
                    "seq": seq,
                    "time": moment,
                    "event": kind,
                    "data": _wrap_encoded(data),
                }
            )
        count, total = count + 1, total + len(session.events)
    yield _json({"type": "end", "sessions": count, "events": total})


def from_lines(lines: Iterable[str], name: str) -> list[PortableSession]:
    """Return the sessions in an export.

    Parameters:
        lines: of the file.
        name: of the file, for errors.

    Raises:
        StoreError: it is no export, is of a newer version, or is damaged; names the line.
    """
    sessions: list[PortableSession] = []
    expected = 0
    events: list[StoredEvent] = []
    started = ended = False
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{name}, line {number}"
        line = _parsed(text, where)
        if not started:
            _check_start(line, where)
            started = True
        elif ended:
            raise StoreError(f"{where}: there is more behind the end of the export")
        elif line["type"] == "session":
            _check_complete(sessions, expected, where)
            events = []
            sessions.append(_session(line, events, where))
            expected = _counted(line, "events", where)
        elif line["type"] == "event" and sessions:
            events.append(_event(line, len(events), where))
        elif line["type"] == "end":
            _check_complete(sessions, expected, where)
            if _counted(line, "sessions", where) != len(sessions):
                raise StoreError(f"{where}: sessions are missing; export them again")
            ended = True
        else:
            raise StoreError(f"{where}: {line['type']!r} has no place here")
    if not started:
        raise StoreError(f"{name}: it is empty; 'dsh-actors sessions export' writes such a file")
    if not ended:
        raise StoreError(f"{name}: it is cut off, its last line is missing; export it again")
    _check_family(sessions, name)
    return sessions


def renamed(
    sessions: Iterable[PortableSession], mint: Callable[[], str]
) -> tuple[list[PortableSession], dict[str, str]]:
    """Return the sessions under new ids, parents and forks among them alike, and the ids."""
    kept = list(sessions)
    names = {session.header.id: mint() for session in kept}

    def new(id: str | None) -> str | None:
        return None if id is None else names.get(id, id)

    changed = []
    for session in kept:
        old = session.header
        header = replace(
            old,
            id=names[old.id],
            root=names.get(old.root, old.root),
            parent=new(old.parent),
            forked_from=new(old.forked_from),
        )
        changed.append(replace(session, header=header))
    return changed, names


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _wrap(value: Any, depth: int = 0) -> Any:
    """Return `value` as JSON can carry it, so that `_unwrap` gives it back exactly."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if depth < _DEEPEST:
        if isinstance(value, float) and value - value == 0.0:
            return value
        if isinstance(value, list | tuple):
            return [_wrap(item, depth + 1) for item in value]
        if isinstance(value, dict) and all(
            isinstance(key, str) and not key.startswith("$") for key in value
        ):
            return {key: _wrap(item, depth + 1) for key, item in value.items()}
    return {_CODEC: base64.b64encode(encode(value)).decode("ascii")}


def _unwrap(value: Any) -> Any:
    if isinstance(value, list):
        return [_unwrap(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_BYTES}:
        return base64.b64decode(value[_BYTES], validate=True)
    if value.keys() == {_CODEC}:
        return decode(base64.b64decode(value[_CODEC], validate=True))
    return {key: _unwrap(item) for key, item in value.items()}


def _wrap_encoded(data: bytes) -> Any:
    """Return encoded data readable, if exactly these bytes can be made of it again."""
    try:
        value = decode(data)
        if encode(value) == data:
            return _wrap(value)
    except MessageError:
        pass  # a dataclass that is not registered here, say: it goes as it is
    return {_CODEC: base64.b64encode(data).decode("ascii")}


def _encoded(value: Any, where: str) -> bytes:
    """Return what `_wrap_encoded` was given."""
    if isinstance(value, dict) and value.keys() == {_CODEC}:
        with _reading(where):
            data = base64.b64decode(value[_CODEC], validate=True)
            decode_leniently(data)
            return data
    with _reading(where):
        return encode(_unwrap(value))


def _plain(value: Any, where: str) -> Any:
    with _reading(where):
        return _unwrap(value)


@contextmanager
def _reading(where: str) -> Iterator[None]:
    try:
        yield
    except (binascii.Error, TypeError, ValueError, RecursionError, MessageError) as error:
        raise StoreError(f"{where}: the data cannot be read: {error}") from None


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: it is not JSON: {error}") from None
    if not isinstance(line, dict) or not isinstance(line.get("type"), str):
        raise StoreError(f"{where}: it is not a line of a sessions export")
    return line


def _check_start(line: dict[str, Any], where: str) -> None:
    if line["type"] != "export" or line.get("of") != _NAME:
        raise StoreError(
            f"{where}: it is not an export; 'dsh-actors sessions export' writes such a file"
        )
    if line.get("version") != _VERSION:
        raise StoreError(
            f"{where}: version {line.get('version')!r} of the format is not known to this "
            f"release, which reads {_VERSION}; use the release that wrote it"
        )


def _counted(line: dict[str, Any], key: str, where: str) -> int:
    value = line.get(key)
    if not isinstance(value, int):
        raise StoreError(f"{where}: {key!r} must be a number")
    return value


def _session(line: dict[str, Any], events: list[StoredEvent], where: str) -> PortableSession:
    given = line.get("header")
    if not isinstance(given, dict):
        raise StoreError(f"{where}: the session has no header")
    known = {f.name for f in fields(SessionHeader)}
    strange = sorted(set(given) - known)
    if strange:
        raise StoreError(f"{where}: the header has an unknown key {strange[0]!r}")
    given = {**given, **{k: _plain(given.get(k, {}), where) for k in ("policy", "options")}}
    for key, kind in _TYPES.items():
        value = given.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise StoreError(f"{where}: the header's {key!r} is missing or of the wrong kind")
    if given["format"] > FORMAT:
        raise StoreError(
            f"{where}: the session is of format {given['format']}, this release reads {FORMAT}; "
            "use a newer one"
        )
    if not given["id"]:
        raise StoreError(f"{where}: the session has no id")
    status = line.get("status")
    if not isinstance(status, str) or not status:
        raise StoreError(f"{where}: the session has no status")
    damage = line.get("damage")
    told = tuple(map(str, damage)) if isinstance(damage, list) else ()
    return PortableSession(SessionHeader(**given), status, events, told)


def _event(line: dict[str, Any], seq: int, where: str) -> StoredEvent:
    moment, kind = line.get("time"), line.get("event")
    if line.get("seq") != seq:
        raise StoreError(f"{where}: event {line.get('seq')!r} stands where {seq} belongs")
    if not isinstance(moment, int | float) or not isinstance(kind, str) or "data" not in line:
        raise StoreError(f"{where}: the event lacks its time, its type or its data")
    return seq, float(moment), kind, _encoded(line["data"], where)


def _check_complete(sessions: list[PortableSession], expected: int, where: str) -> None:
    if sessions and len(sessions[-1].events) != expected:
        raise StoreError(
            f"{where}: session {sessions[-1].header.id!r} has {len(sessions[-1].events)} events "
            f"before it, not {expected}; the file is damaged, export it again"
        )


def _check_family(sessions: list[PortableSession], name: str) -> None:
    seen: set[str] = set()
    for session in sessions:
        id = session.header.id
        if id in seen:
            raise StoreError(f"{name}: session {id!r} is in it twice")
        seen.add(id)
    if not sessions:
        raise StoreError(f"{name}: there is no session in it")
