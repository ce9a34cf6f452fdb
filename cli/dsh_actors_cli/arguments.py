"""What a run was asked for, and the command line that asks for it again.

There is one builder, `resume_arguments`. The line that is printed at the exit and the hand-over
in place both use it, so that they cannot differ.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from dsh_actors_cli.telling import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Options", "launch_record", "recorded_options", "resume_arguments", "shell_line"]

PROGRAM = "dsh-actors"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        tree: the tree file.
        prompt: the text that replaces the prompt in the file, if any; on a resume, what the
            session is asked next.
        config: the files of `--config`, in order.
        settings: what `--set` gave, as `KEY=VALUE`, in order.
        workers: how many worker processes; None leaves it to the file.
        form: of the result.
        timeout: seconds that the run may take; None for no limit.
        store: the session store; None for the default one.
        keep: whether to store sessions at all.
        resume: the session that is continued, or the beginning of its id; None for a new one.
    """

    tree: str
    prompt: str | None = None
    config: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    workers: int | None = None
    form: Format = "text"
    timeout: float | None = None
    store: Path | None = None
    keep: bool = True
    resume: str | None = None


def resume_arguments(options: Options, session_id: str) -> list[str]:
    """Return the words of the command that resumes a session as it was run.

    They repeat everything that shapes the run. The prompt is not among them: it was for once.

    Parameters:
        options: of the run.
        session_id: the session.
    """
    words = ["--resume", session_id]
    for file in options.config:
        words += ["--config", file]
    for setting in options.settings:
        words += ["--set", setting]
    if options.workers is not None:
        words += ["--workers", str(options.workers)]
    if options.form != "text":
        words += ["--output-format", options.form]
    if options.timeout is not None:
        words += ["--timeout", _seconds(options.timeout)]
    if options.store is not None:
        words += ["--store", str(options.store)]
    if options.tree.startswith("-"):
        return [PROGRAM, "run", *words, "--", options.tree]
    return [PROGRAM, "run", options.tree, *words]


def shell_line(words: Iterable[str]) -> str:
    """Return a command as a line for a shell, without any character that acts on a terminal.

    A word with such characters, e.g. in a file's name, is written as ``$'...'``, which bash, zsh
    and ksh read back as it was.
    """
    return " ".join(_quoted(word) for word in words)


def launch_record(options: Options) -> dict[str, Any]:
    """Return, as plain data, what a later ``resume`` needs to know of a run."""
    record: dict[str, Any] = {"cwd": os.getcwd(), "tree": options.tree}
    if options.config:
        record["config"] = list(options.config)
    if options.settings:
        record["set"] = list(options.settings)
    if options.workers is not None:
        record["workers"] = options.workers
    if options.form != "text":
        record["output-format"] = options.form
    if options.timeout is not None:
        record["timeout"] = options.timeout
    return record


def recorded_options(record: Mapping[str, Any], store: Path | None) -> Options:
    """Return the options that a record stands for.

    Parameters:
        record: what `launch_record` gave. It may come from elsewhere, so nothing is taken for
            granted.
        store: the store that it was found in, if it is not the default one.

    Raises:
        ValueError: it is no such record; the message says what is wrong with it.
    """
    return Options(
        tree=_checked(record, "tree", str),
        config=_strings(record, "config"),
        settings=_strings(record, "set"),
        workers=_checked(record, "workers", int, None),
        form=_form(record),
        timeout=_checked(record, "timeout", float, None),
        store=store,
    )


def _checked(record: Mapping[str, Any], key: str, kind: type, *default: Any) -> Any:
    value = record.get(key, *default)
    if value is None and default:
        return None
    if not isinstance(value, kind) or isinstance(value, bool) or value in ("", 0):
        raise ValueError(f"its {key!r} is {value!r}")
    return value


def _strings(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = record.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"its {key!r} is {values!r}")
    return tuple(values)


def _form(record: Mapping[str, Any]) -> Format:
    for form in get_args(Format):
        if record.get("output-format", "text") == form:
            return form  # type: ignore[no-any-return]
    raise ValueError(f"its 'output-format' is {record['output-format']!r}")


def _seconds(seconds: float) -> str:
    """Return seconds as the command line takes them: exactly, and never with an exponent."""
    from decimal import Decimal

    text = format(Decimal(repr(seconds)), "f")
    return text.removesuffix(".0")


def _quoted(word: str) -> str:
    from dsh_actors.observe.display import display_text

    if display_text(word) == word:
        return shlex.quote(word)
    return f"$'{''.join(_escaped(byte) for byte in os.fsencode(word))}'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    if character in "\\'":
        return f"\\{character}"
    # In octal, of which a shell takes three digits at most; in hex some take all that follow.
    return character if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
