"""Options that several verbs share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

__all__ = ["config_option", "json_option", "resolve_from_here", "set_option", "store_option"]


def _assignments(
    _ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        key, equals, _ = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return values


set_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_assignments,
    help="Give a parameter of the tree file a value, or set one of its values by its dotted "
    "path, e.g. system.workers=3 or agents.ID.isolation=own. May be repeated.",
)
config_option = click.option(
    "--config",
    "config",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Lay a file over the tree file, after those of the system, the user and the project. "
    "May be repeated.",
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
