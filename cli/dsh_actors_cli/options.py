"""Options that several verbs share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

__all__ = ["json_option", "resolve_from_here", "set_option", "store_option"]


def _assignments(
    _ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        pairs[key.strip()] = text
    return pairs


set_option = click.option(
    "--set",
    "parameters",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_assignments,
    help="Give a parameter of the tree file a value. May be repeated.",
)
store_option = click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="The session store to use instead of the default one.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def resolve_from_here() -> None:
    """Let behaviours named ``module:name`` be imported from the current folder.

    The folder comes last, so that no file in it can take the place of an installed module.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.append(here)
