"""The table: what is measured, beside whom, and which ratio is to be reached."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness import Measure

__all__ = ["ROWS", "Row", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached.

    Parameters:
        kind: ``at least`` or ``at most``.
        value: a ratio ours/peer, or a figure in the row's unit.
        peer: the label of the peer, or None for a figure of ours alone.
    """

    kind: str
    value: float
    peer: str | None = None

    def reached(self, value: float) -> bool:
        """Whether a ratio or figure is good enough."""
        return value >= self.value if self.kind == "at least" else value <= self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work. Rows of one group share their measurements."""

    name: str
    group: str
    work: str
    unit: str
    ours: Measure
    peers: tuple[Measure, ...]
    target: Target | None


def _ours(reference: str, n: int, quick: int, metric: str) -> Measure:
    return Measure("dsh-actors", f"ours.{reference}", n, quick, metric)


def _threads(function: str, n: int, quick: int, metric: str) -> Measure:
    return Measure("ThreadingActor", f"peers.threading_actor:{function}", n, quick, metric)


def _trio(function: str, n: int, quick: int, metric: str) -> Measure:
    return Measure("trio", f"peers.trio_peer:{function}", n, quick, metric)


def _xoscar(function: str, n: int, quick: int, metric: str) -> Measure:
    return Measure("xoscar", f"peers.xoscar_peer:{function}", n, quick, metric)


def _raw(label: str, function: str, n: int, quick: int, metric: str) -> Measure:
    return Measure(label, f"peers.raw:{function}", n, quick, metric)


def _link(label: str, function: str, n: int, quick: int, metric: str) -> Measure:
    return Measure(label, f"peers.bare_link:{function}", n, quick, metric)


def _tree(name: str, work: str, n: int, quick: int, metric: str, limit: float) -> Row:
    function = "tree" if n < 10 else "flat"
    return Row(
        name=f"{name}-{metric.removesuffix('_ms')}",
        group=name,
        work=work,
        unit="ms",
        ours=_ours(f"trees:{function}", n, quick, metric),
        peers=(
            _trio(function, n, quick, metric),
            _raw("plain flags", f"flags_{function}", n, quick, metric),
        ),
        target=Target("at most", limit),
    )


ROWS = (
    Row(
        "memory",
        "memory",
        "resident memory per idle inline agent",
        "KiB",
        _ours("inline:memory", 20_000, 10_000, "kib"),
        (_threads("memory", 5_000, 2_000, "kib"), _trio("memory", 20_000, 10_000, "kib")),
        Target("at most", 3.0),
    ),
    Row(
        "spawn",
        "spawn",
        "spawn, inline, 10,000 of each",
        "/s",
        _ours("inline:spawn", 10_000, 10_000, "rate"),
        (_threads("spawn", 10_000, 10_000, "rate"), _trio("spawn", 10_000, 10_000, "rate")),
        Target("at least", 15, "ThreadingActor"),
    ),
    Row(
        "live",
        "live",
        "spawn of each of 100,000 live agents",
        "us",
        _ours("inline:live", 100_000, 100_000, "us"),
        (Measure("ours at 25,000", "ours.inline:live", 25_000, 25_000, "us"),),
        Target("at most", 1.5, "ours at 25,000"),
    ),
    Row(
        "tell",
        "tell",
        "tell to one pooled actor, until handled",
        "/s",
        _ours("inline:tell", 200_000, 50_000, "handled"),
        (_threads("tell", 200_000, 50_000, "handled"),),
        Target("at least", 2.5, "ThreadingActor"),
    ),
    Row(
        "send",
        "tell",
        "send to one agent's inbox, until accepted",
        "/s",
        _ours("inline:send", 50_000, 20_000, "accepted"),
        (_threads("tell", 200_000, 50_000, "accepted"),),
        Target("at least", 0.7, "ThreadingActor"),
    ),
    Row(
        "turns",
        "tell",
        "send to one agent, until handled, each in its own turn",
        "/s",
        _ours("inline:send", 50_000, 20_000, "handled"),
        (_threads("tell", 200_000, 50_000, "handled"),),
        None,
    ),
    Row(
        "ask",
        "ask",
        "ask, in process, one at a time",
        "us",
        _ours("inline:ask", 10_000, 3_000, "us"),
        (
            _threads("ask", 10_000, 3_000, "us"),
            _raw("thread hand-off", "handoff", 10_000, 3_000, "us"),
        ),
        Target("at most", 0.7, "ThreadingActor"),
    ),
    Row(
        "remote-ask",
        "remote-ask",
        "ask across processes, one at a time",
        "us",
        _ours("remote:ask", 3_000, 1_000, "us"),
        (_xoscar("ask", 3_000, 1_000, "us"), _link("bare link", "link_ask", 3_000, 1_000, "us")),
        Target("at most", 0.6, "xoscar"),
    ),
    Row(
        "remote-pipelined",
        "remote-pipelined",
        "asks across processes, 20,000 outstanding",
        "/s",
        _ours("remote:pipelined", 20_000, 10_000, "rate"),
        (
            _xoscar("pipelined", 20_000, 10_000, "rate"),
            _link("bare link", "link_pipelined", 100_000, 50_000, "rate"),
            _link("bare stream", "stream_pipelined", 100_000, 50_000, "rate"),
        ),
        Target("at least", 15, "xoscar"),
    ),
    Row(
        "remote-tell",
        "remote-tell",
        "tells across processes",
        "/s",
        _ours("remote:tell", 50_000, 20_000, "rate"),
        (
            _link("bare link", "link_tell", 200_000, 100_000, "rate"),
            _link("bare stream", "stream_tell", 200_000, 100_000, "rate"),
            _xoscar("tell", 20_000, 10_000, "rate"),
        ),
        Target("at least", 0.3, "bare link"),
    ),
    Row(
        "remote-spawn",
        "remote-spawn",
        "spawn in a running worker, pipelined",
        "/s",
        _ours("remote:spawn", 5_000, 2_000, "rate"),
        (_xoscar("spawn", 5_000, 2_000, "rate"),),
        Target("at least", 15, "xoscar"),
    ),
    _tree("tree", "tree of 11,111: all marked", 4, 4, "marked_ms", 12),
    _tree("tree", "tree of 11,111: all disposed", 4, 4, "disposed_ms", 250),
    _tree("flat", "flat tree of 100,000: all marked", 100_000, 100_000, "marked_ms", 100),
    _tree("flat", "flat tree of 100,000: all disposed", 100_000, 100_000, "disposed_ms", 2500),
    Row(
        "launch",
        "launch",
        "launch of the command to an answer from a worker",
        "ms",
        _ours("command:launch", 5, 3, "ms"),
        (_raw("5 starts, 2 spawned", "starts", 5, 3, "ms"),),
        Target("at most", 1.0, "5 starts, 2 spawned"),
    ),
    Row(
        "kill",
        "kill",
        "SIGKILL of a worker to the supervisor knowing",
        "ms",
        _ours("remote:kill", 10, 5, "ms"),
        (
            _raw("pipe EOF", "kill_eof", 20, 10, "ms"),
            _raw("pipe EOF, smallest", "kill_eof", 20, 10, "smallest_ms"),
        ),
        Target("at most", 5.0, "pipe EOF"),
    ),
    Row(
        "census",
        "census",
        "code census with 2 workers",
        "s",
        _ours("command:census", 2, 2, "seconds"),
        (Measure("ours with 1 worker", "ours.command:census", 1, 1, "seconds"),),
        Target("at most", 0.65, "ours with 1 worker"),
    ),
    Row(
        "store",
        "store",
        "events appended to the session store, until durable",
        "/s",
        _ours("storage:append", 200_000, 50_000, "rate"),
        (Measure("bare sqlite3", "peers.bare_sqlite:append", 200_000, 50_000, "rate"),),
        Target("at least", 0.5, "bare sqlite3"),
    ),
    Row(
        "store-system",
        "store-system",
        "events that one system writes, until durable",
        "/s",
        _ours("storage:system", 50_000, 20_000, "rate"),
        (),
        Target("at least", 20_000),
    ),
    Row(
        "store-list",
        "store-large",
        "list of 10,000 sessions with 1,000,000 events",
        "ms",
        _ours("storage:large", 10_000, 1_000, "list_ms"),
        (),
        Target("at most", 300),
    ),
    Row(
        "store-open",
        "store-large",
        "opening one of them: file, lease and all its events",
        "ms",
        _ours("storage:large", 10_000, 1_000, "open_ms"),
        (),
        Target("at most", 50),
    ),
    Row(
        "stay-spawn",
        "stay",
        "spawn of continuable children, sessions in the store",
        "/s",
        _ours("continuable:flat", 25_000, 10_000, "rate"),
        (),
        Target("at least", 8_000),
    ),
    Row(
        "stay-memory",
        "stay",
        "resident memory of each while live",
        "KiB",
        _ours("continuable:flat", 25_000, 10_000, "kib"),
        (),
        Target("at most", 10),
    ),
    Row(
        "stay-settled",
        "stay-settled",
        "resident memory that each leaves once settled",
        "KiB",
        _ours("continuable:settled", 10_000, 5_000, "kib"),
        (),
        Target("at most", 0.5),
    ),
    Row(
        "stay-tree-marked",
        "stay-tree",
        "tree of 11,111 of them: all marked",
        "ms",
        _ours("continuable:tree", 4, 4, "marked_ms"),
        (),
        Target("at most", 30),
    ),
    Row(
        "stay-tree-disposed",
        "stay-tree",
        "tree of 11,111 of them: all disposed, with final flushes",
        "ms",
        _ours("continuable:tree", 4, 4, "disposed_ms"),
        (),
        Target("at most", 1500),
    ),
    Row(
        "stay-flat",
        "stay-flat",
        "disposal of each of 100,000 of them, flat",
        "us",
        _ours("continuable:flat", 100_000, 100_000, "disposed_us_each"),
        (Measure("ours at 25,000", "ours.continuable:flat", 25_000, 25_000, "disposed_us_each"),),
        Target("at most", 1.5, "ours at 25,000"),
    ),
)
