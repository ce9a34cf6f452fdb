"""Print how this library does beside its peers, as ratios of figures of one run.

Usage: ``python benchmarks/run.py [--quick] [--only NAME...] [--peers-only] [--json]``
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness import measure
from benchmarks.rows import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Figures, Measure
    from benchmarks.rows import Row

HEADINGS = ("work", "ours", "beside", "peer", "ratio", "to reach", "")
LAYOUT = "{:<54} {:>12}   {:<20} {:>12} {:>9}   {:<13} {}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        0; 1 if a measurement failed. A missed ratio is a result, not a failure.
    """
    options = _parse(arguments)
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    repetitions = options.repetitions or (3 if options.quick else 5)
    if not options.json:
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()};")
        print(f"medians of {repetitions} runs, each in a process of its own\n")
        print(LAYOUT.format(*HEADINGS).rstrip())
    lines, failed = [], False
    for _, group in itertools.groupby(rows, key=lambda row: row.group):
        for line in _group(list(group), repetitions, options):
            failed |= bool(line["problem"]) and "not installed" not in line["problem"]
            lines.append(line)
            if not options.json:
                print(_text(line), flush=True)
    if options.json:
        print(json.dumps(lines, indent=2))
    return int(failed)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description="Measure dsh-actors beside its peers.")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, 3 repetitions")
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"of: {', '.join(names)}"
    )
    parser.add_argument("--repetitions", type=int, help="default: 5, with --quick 3")
    parser.add_argument("--peers-only", action="store_true", help="leave our side out")
    parser.add_argument("--json", action="store_true", help="one JSON list, with all samples")
    return parser.parse_args(arguments)


def _group(
    rows: list[Row], repetitions: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Measure the rows of a group together and give the lines of the table."""

    def work(measure: Measure) -> tuple[str, int]:
        return measure.reference, measure.quick if options.quick else measure.n

    ours = [] if options.peers_only else [work(row.ours) for row in rows]
    peers = [work(peer) for row in rows for peer in row.peers]
    if options.peers_only:
        peers = [each for each in peers if each[0].startswith("peers.")]
    found = measure([*ours, *peers], repetitions)
    for row in rows:
        mine = found.get(work(row.ours))
        for peer in row.peers:
            if work(peer) in found:
                yield _line(row, peer, mine, found[work(peer)])
        if not row.peers and mine is not None:
            yield _alone(row, mine)


def _alone(row: Row, mine: Figures) -> dict[str, Any]:
    """The line of a row that has a limit of its own and nobody beside it."""
    ours = mine.median(row.ours.metric)
    target = row.target
    return {
        "name": row.name,
        "work": row.work,
        "unit": row.unit,
        "ours": ours,
        "peer": "",
        "theirs": None,
        "ratio": None,
        "target": _target(row) if target is not None else None,
        "reached": None if target is None or ours is None else target.reached(ours),
        "problem": f"ours: {mine.problem}" if mine.problem else "",
        "samples": {"ours": mine.samples.get(row.ours.metric, []), "theirs": []},
    }


def _line(row: Row, peer: Measure, mine: Figures | None, theirs: Figures) -> dict[str, Any]:
    """One line: our figure beside one peer's."""
    ours = mine.median(row.ours.metric) if mine else None
    figure = theirs.median(peer.metric)
    ratio = ours / figure if ours is not None and figure else None
    target = row.target
    judged: float | None = None
    if target is not None and target.peer == peer.label:
        judged = ratio
    elif target is not None and target.peer is None and peer is row.peers[0]:
        judged = ours
    applies = target is not None and target.peer in (peer.label, None)
    first = target is not None and (target.peer is not None or peer is row.peers[0])
    return {
        "name": row.name,
        "work": row.work,
        "unit": row.unit,
        "ours": ours,
        "peer": peer.label,
        "theirs": figure,
        "ratio": ratio,
        "target": _target(row) if applies and first else None,
        "reached": None if judged is None or target is None else target.reached(judged),
        "problem": f"ours: {mine.problem}" if mine and mine.problem else theirs.problem,
        "samples": {
            "ours": mine.samples.get(row.ours.metric, []) if mine else [],
            "theirs": theirs.samples.get(peer.metric, []),
        },
    }


def _target(row: Row) -> str:
    assert row.target is not None
    sign = ">=" if row.target.kind == "at least" else "<="
    unit = f" {row.unit}" if row.target.peer is None else "x"
    return f"{sign} {row.target.value:g}{unit}"


def _text(line: dict[str, Any]) -> str:
    verdict = {True: "ok", False: "MISS", None: ""}[line["reached"]]
    ratio = "" if line["ratio"] is None else f"{line['ratio']:.3g}x"
    return LAYOUT.format(
        line["work"],
        _figure(line["ours"], line["unit"]),
        line["peer"],
        _figure(line["theirs"], line["unit"]),
        ratio,
        line["target"] or "",
        line["problem"] or verdict,
    ).rstrip()


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "/s" and value >= 1000:
        return f"{value / 1000:,.1f} k/s"
    return f"{value:,.1f} {unit}" if value >= 10 else f"{value:.2f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
