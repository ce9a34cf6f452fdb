"""Follows growing files, one supervised process for each, and sorts what is wrong in them."""

from __future__ import annotations

import glob
import os
import sys
import time
from pathlib import Path
from typing import Any

import dsh_actors as dsh

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from lines import LEVELS, level_of, template_of  # noqa: E402

PIECE = 256 * 1024
"""How much of a file one look reads, in bytes."""

ATTEMPTS = 5
"""How often a look is tried whose process ends under it."""


@dsh.behaviour
def watch(turn: dsh.Turn, prompt: dict[str, Any]) -> dict[str, Any]:
    """Look at each file again and again; this agent knows how far each one has been read.

    A look is a question with the place to begin, so one whose process has died is asked again,
    and no line is lost or counted twice.
    """
    paths = find(prompt["files"])
    tails = {
        path: turn.spawn(
            Tail, {"path": path, "from": 0, "most": 0}, isolation="own", restart="permanent",
            id=f"tail-{number}",
        )
        for number, path in enumerate(paths, 1)
    }  # fmt: skip
    triage = turn.child("triage")
    places = dict.fromkeys(paths, 0)
    read = dict.fromkeys(paths, 0)
    repeated = 0
    last_line = time.monotonic()
    while not prompt["quiet"] or time.monotonic() - last_line < prompt["quiet"]:
        for path, agent in tails.items():
            look, tries = ask(turn, agent, {"path": path, "from": places[path], "most": PIECE})
            repeated += tries - 1
            places[path] = look["to"]
            read[path] += look["lines"]
            if look["lines"]:
                last_line = time.monotonic()
            if look["findings"]:
                triage.ask({"file": os.path.basename(path), "findings": look["findings"]}).result()
        turn.progress(sum(read.values()), note=f"{len(paths)} files")
        turn.sleep(prompt["interval"])
    report: dict[str, Any] = triage.ask(None).result()
    return {
        "files": [{"file": p, "lines": read[p]} for p in paths],
        "looks_repeated": repeated,
        **report,
    }


def find(patterns: str) -> list[str]:
    """The files that the patterns name; relative ones are meant from this folder."""
    found = {
        path
        for pattern in patterns.split(",")
        for path in glob.glob(os.path.join(HERE, pattern.strip()))
        if os.path.isfile(path) and os.access(path, os.R_OK)
    }
    if not found:
        raise ValueError(f"no file that can be read matches {patterns!r}; see --set files=PATTERN")
    return sorted(found)


def ask(turn: dsh.Turn, agent: dsh.Agent, look: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Ask for a look, again if the process that looks has died. The look, and the attempts."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return agent.ask(look).result(), attempt
        except dsh.AgentLost:
            turn.log.warning("a look was lost with its process", agent=agent.id, attempt=attempt)
    raise RuntimeError(f"{agent.id} has died {ATTEMPTS} times at {look['path']}:{look['from']}")


class Tail(dsh.Behaviour):
    """Reads one file. It keeps nothing, and lives on between two looks since it is a class."""

    def on_message(self, turn: dsh.Turn, look: dict[str, Any]) -> dict[str, Any]:
        """Read what the file has from some byte on, up to the last whole line."""
        place = look["from"]
        with open(look["path"], "rb") as file:
            if os.fstat(file.fileno()).st_size < place:
                place = 0  # it was truncated, or another one has taken its place
            file.seek(place)
            piece = file.read(look["most"])
        end = piece.rfind(b"\n") + 1
        if end == 0 and len(piece) == look["most"]:
            end = len(piece)  # a line without an end
        found = piece[:end].decode(errors="replace").splitlines()
        turn.check()
        findings = [[level, line] for line in found if (level := level_of(line)) is not None]
        return {"to": place + end, "lines": len(found), "findings": findings}


class Triage(dsh.Behaviour):
    """Groups findings that are the same but for numbers; a next life goes on with its groups."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, str], list[Any]] = {}

    def replay(self, event: Any) -> None:
        """Take in what an earlier life was told."""
        self._take(event.data)

    def on_message(self, turn: dsh.Turn, message: dict[str, Any] | None) -> Any:
        """Take findings in, or give the report for None."""
        if message is None:
            return self.report()
        turn.remember("findings", message)
        self._take(message)
        return len(self.groups)

    def _take(self, message: dict[str, Any]) -> None:
        for level, line in message["findings"]:
            key = (level, message["file"], template_of(line))
            group = self.groups.setdefault(key, [0, line])
            group[0] += 1

    def report(self) -> dict[str, Any]:
        """How many there are of each level, and the groups, the worst and largest first."""
        order = sorted(
            self.groups.items(), key=lambda item: (LEVELS.index(item[0][0]), -item[1][0], item[0])
        )
        return {
            "levels": {
                level: sum(count for key, (count, _) in order if key[0] == level)
                for level in LEVELS
            },
            "groups": [
                {"level": level, "count": count, "file": file, "example": line.strip()[:160]}
                for (level, file, _), (count, line) in order[:20]
            ],
        }
