"""``dsh-actors schema``: the JSON Schema of a tree file, for editors."""

from __future__ import annotations

import sys

import click

from dsh_actors_cli import exits, output

__all__ = ["schema"]

_EPILOG = """\b
Examples:
  dsh-actors schema > dsh-actors.schema.json
  dsh-actors schema --overlay > dsh-actors-overlay.schema.json

\b
Editors with the YAML language server then complete a file that begins with:
  # yaml-language-server: $schema=dsh-actors.schema.json
"""


@click.command(epilog=_EPILOG)
@click.option("--overlay", is_flag=True, help="The schema of an overlay instead.")
def schema(overlay: bool) -> int:
    """Print the JSON Schema of a tree file."""
    from dsh_actors.config import json_schema

    described = json_schema("overlay" if overlay else "tree")
    click.echo(output.to_json(described, indent=2, ascii_only=sys.stdout.isatty()))
    return exits.DONE
