"""``dsh-actors config show``: what is in force for a tree, and where each value comes from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.options import config_option, json_option, set_option
from dsh_actors_cli.trees import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dsh_actors.config import TreeSpec
    from dsh_actors_cli.render.annotated import Path
    from dsh_actors_cli.render.style import Style

__all__ = ["Overlay", "config", "overlays_of"]

_EPILOG = """\b
Examples:
  dsh-actors config show tree.yaml
  dsh-actors config show tree.yaml --origins --set system.workers=3
  dsh-actors config show tree.yaml --config mine.yaml > effective.yaml
  dsh-actors config show

\b
Overlays are laid over the tree file in this order:
  system   dsh-actors/config.yaml in $XDG_CONFIG_DIRS (/etc/xdg)
  user     config.yaml in $DSH_ACTORS_HOME or ~/.config/dsh-actors
  project  .dsh-actors.yaml beside the tree file, or above it within its repository
  --config FILE, then --set KEY=VALUE, each in the order given

\b
An overlay replaces whole keys of what it patches; 'merge: true' in it merges deeply. What
is printed is a tree file itself.
"""


class Overlay(NamedTuple):
    """A place of an overlay, and what has become of it."""

    level: str
    path: str
    state: str


@click.group()
def config() -> None:
    """Show the configuration that is in force."""


@config.command(epilog=_EPILOG)
@click.argument("tree", type=click.Path(), required=False)
@click.option("--origins", is_flag=True, help="Say of each value where it comes from.")
@config_option
@set_option
@json_option
def show(
    tree: str | None,
    origins: bool,
    config: tuple[str, ...],
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Print the effective configuration of the file TREE.

    Without TREE, print what the overlays say that are found from the current folder.
    """
    if tree is None and settings:
        raise click.UsageError("--set needs a TREE to set something in")
    if as_json:
        data = _overlays_as_data(config) if tree is None else _as_data(tree, config, settings)
        click.echo(output.to_json(data, ascii_only=sys.stdout.isatty()))
        return exits.DONE
    lines = _overlay_lines(config, origins)
    if tree is not None:
        lines = _tree_lines(tree, config, settings, origins)
    for line in list(lines):  # all of it is made before anything is printed
        click.echo(line)
    return exits.DONE


def overlays_of(tree: str, config: tuple[str, ...]) -> list[Overlay]:
    """Return every place where an overlay was looked for, and the given ones, in their order."""
    from dsh_actors.config import overlay_places

    found = [
        Overlay(p.level, p.path, p.refusal or ("used" if p.found else "not there"))
        for p in overlay_places(tree)
    ]
    return found + [Overlay("config", path, "used") for path in config]


def _as_data(tree: str, config: tuple[str, ...], settings: tuple[str, ...]) -> dict[str, Any]:
    from dsh_actors.config import effective_tree

    spec = load(tree, config=config, settings=settings)
    value = effective_tree(spec)
    return {
        "path": spec.path,
        "tree": value,
        "origins": [
            {"path": list(place), "file": origin[0], "line": origin[1] or None}
            for place, origin in _all_origins(spec, value)
        ],
        "overlays": [overlay._asdict() for overlay in overlays_of(tree, config)],
        "settings": list(settings),
        "notices": list(spec.notices),
        "skipped": list(spec.skipped),
    }


def _overlays_as_data(config: tuple[str, ...]) -> dict[str, Any]:
    from dsh_actors.config import read_overlay

    return {
        "overlays": [
            {
                **overlay._asdict(),
                "value": read_overlay(overlay.path).value if overlay.state == "used" else None,
            }
            for overlay in overlays_of(_HERE, config)
        ]
    }


# A file in the current folder, which need not be there.
_HERE = os.path.join(os.curdir, "tree.yaml")


def _tree_lines(
    tree: str, config: tuple[str, ...], settings: tuple[str, ...], origins: bool
) -> Iterator[str]:
    from dsh_actors.config import effective_tree
    from dsh_actors_cli.render.annotated import aligned, yaml_lines
    from dsh_actors_cli.render.style import Style, wants_colour

    spec = load(tree, config=config, settings=settings)
    style = Style(wants_colour(sys.stdout))
    remarks = [("tree", spec.path, "")]
    remarks += [(o.level, o.path, o.state) for o in overlays_of(tree, config)]
    remarks += [("--set", setting, "used") for setting in settings]
    yield from _comments(remarks, style)
    yield from _comments([("notice", notice, "") for notice in spec.notices], style)
    yield from _comments([("skipped", skipped, "") for skipped in spec.skipped], style)
    value = effective_tree(spec)
    lines = yaml_lines(value)
    if not origins:
        yield from (line.text for line in lines)
        return
    yield from aligned(((line.text, _remark(spec, value, line.path)) for line in lines), style)


def _overlay_lines(config: tuple[str, ...], origins: bool) -> Iterator[str]:
    from dsh_actors.config import read_overlay
    from dsh_actors_cli.render.annotated import aligned, yaml_lines
    from dsh_actors_cli.render.style import Style, wants_colour

    style = Style(wants_colour(sys.stdout))
    overlays = overlays_of(_HERE, config)
    yield from _comments(overlays, style)
    for overlay in overlays:
        if overlay.state != "used":
            continue
        document = read_overlay(overlay.path)
        yield "---"
        yield from _comments([(overlay.level, overlay.path, "")], style)
        rows = []
        for line in yaml_lines(document.value):
            is_told = origins and line.path is not None
            line_number = document.line_of(line.path or ())
            remark = f"{_short(document.file)}:{line_number}" if is_told else ""
            rows.append((line.text, remark))
        yield from aligned(rows, style)


def _comments(rows: Sequence[tuple[str, ...]], style: Style) -> Iterator[str]:
    from dsh_actors.observe.display import display_text

    for label, text, state in rows:
        line = f"# {label:<8} {display_text(text)}{f'  ({state})' if state else ''}"
        yield style(line, "dim")


def _remark(spec: TreeSpec, value: dict[str, Any], path: Path | None) -> str:
    if path is None or path == ("version",):
        return ""
    origin = _origin(spec, value, path)
    return "default" if origin is None else str(origin._replace(file=_short(origin.file)))


def _short(path: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    return path.removeprefix(os.path.join(os.getcwd(), ""))


def _origin(spec: TreeSpec, value: dict[str, Any], path: Path) -> Any:
    """Return the origin of a value of the effective tree; None for a default."""
    assert spec.origins is not None
    if path[0] == "parameters" and path[2] == "default":
        return spec.origins.of("parameters", path[1], "value", *path[3:])
    if path[0] != "agents":
        return spec.origins.of(*path)
    entry, rest = value["agents"][path[1]], path[2:]
    while rest[0] == "children":
        entry, rest = entry["children"][rest[1]], rest[2:]
    return spec.origins.of("agents", entry["id"], *rest)


def _all_origins(spec: TreeSpec, value: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    from dsh_actors_cli.render.annotated import yaml_lines

    for line in yaml_lines(value):
        if line.path is not None:
            origin = _origin(spec, value, line.path)
            if origin is not None:
                yield line.path, origin
