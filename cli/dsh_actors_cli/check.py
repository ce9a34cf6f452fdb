"""``dsh-actors check``: a tree file, validated and shown as it would run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from dsh_actors_cli import exits, output
from dsh_actors_cli.config import overlays_of
from dsh_actors_cli.options import config_option, json_option, resolve_from_here, set_option
from dsh_actors_cli.trees import load, misnamed, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dsh_actors.agents.behaviour import Resolved
    from dsh_actors.config import AgentSpec, TreeSpec

__all__ = ["check"]

_EPILOG = """\b
Examples:
  dsh-actors check tree.yaml
  dsh-actors check tree.yaml --set root=src --json

\b
Exit codes: 0 the tree can run, 2 it cannot; stderr then says why, one line for each
reason.
"""


@click.command(epilog=_EPILOG)
@click.argument("tree", type=click.Path())
@config_option
@set_option
@json_option
def check(tree: str, config: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> int:
    """Check the file TREE, import its behaviours, and show the tree as it would run."""
    resolve_from_here()
    spec = load(tree, config=config, settings=settings)
    for notice in spec.notices:
        output.print_notice(notice)
    for skipped in spec.skipped:
        output.print_notice(f"{skipped} (passed over)")
    found, errors = _resolve_all(spec)
    for error in errors:
        output.print_error(error, exits.USAGE)
    if errors:
        return exits.USAGE
    if as_json:
        overlays = [overlay._asdict() for overlay in overlays_of(tree, config)]
        data = {**_as_data(spec), "overlays": overlays}
        click.echo(output.to_json(data, ascii_only=sys.stdout.isatty()))
    else:
        for line in _lines(spec, found):
            click.echo(line)
    return exits.DONE


def _resolve_all(spec: TreeSpec) -> tuple[dict[str, Resolved], list[str]]:
    """Import each behaviour; return those that were found, by reference, and the errors."""
    from dsh_actors.agents.behaviour import resolve
    from dsh_actors.errors import BehaviourError

    found: dict[str, Resolved] = {}
    errors: list[str] = []
    for agent in walk(spec.agents):
        if agent.behaviour in found:
            continue
        try:
            found[agent.behaviour] = resolve(agent.behaviour)
        except BehaviourError as error:
            errors.append(str(misnamed(spec, str(error)) or error))
    return found, errors


def _as_data(spec: TreeSpec) -> dict[str, Any]:
    system = spec.system
    return {
        "name": spec.name,
        "path": spec.path,
        "system": {
            "workers": system.workers,
            "stop_grace": system.stop_grace,
            "inbox_limit": system.inbox_limit,
            "max_turns": system.max_turns,
        },
        "parameters": {
            name: {"type": p.type, "help": p.help, "value": spec.values.get(name)}
            for name, p in spec.parameters.items()
        },
        "agents": [_agent_data(agent) for agent in spec.agents],
        "notices": list(spec.notices),
        "skipped": list(spec.skipped),
    }


def _agent_data(agent: AgentSpec) -> dict[str, Any]:
    from dsh_actors.config import MISSING

    data: dict[str, Any] = {
        "id": agent.id,
        "behaviour": agent.behaviour,
        "isolation": agent.isolation,
        "restart": agent.restart,
        "args": dict(agent.args),
        "line": agent.line,
        "children": [_agent_data(child) for child in agent.children],
    }
    for key in ("policy", "budget", "interrupted"):
        value = getattr(agent, key)
        if value is not None:
            data[key] = value
    if agent.prompt is not MISSING:
        data["prompt"] = agent.prompt
    return data


def _lines(spec: TreeSpec, found: Mapping[str, Resolved]) -> Iterator[str]:
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.style import Style, wants_colour

    style = Style(wants_colour(sys.stdout))
    system = spec.system
    workers = "as many workers as cores" if system.workers is None else f"workers {system.workers}"
    yield (
        f"{style(display_text(spec.name), 'bold')}  "
        f"{style(f'{workers}, stop grace {system.stop_grace:g} s', 'dim')}"
    )
    yield from _tree(spec.agents, "", found, style)
    if spec.parameters:
        yield ""
        yield style("parameters", "bold")
    for name, parameter in spec.parameters.items():
        value = output.to_json(spec.values.get(name))
        told = f"  {parameter.help}" if parameter.help else ""
        yield display_text(f"  {name}={value}  ({parameter.type}){told}")


def _tree(
    agents: tuple[AgentSpec, ...], guide: str, found: Mapping[str, Resolved], style: Any
) -> Iterator[str]:
    from dsh_actors.config import MISSING
    from dsh_actors.observe.display import display_text
    from dsh_actors_cli.render.style import clip

    for agent in agents:
        is_last = agent is agents[-1]
        behaviour = found[agent.behaviour]
        kind = "class" if behaviour.is_class else "function"
        facts = [agent.isolation, agent.restart, f"async {kind}" if behaviour.is_async else kind]
        facts += [word for word in ("policy", "budget") if getattr(agent, word) is not None]
        if agent.interrupted is not None:
            facts.append(f"interrupted: {agent.interrupted}")
        if agent.prompt is not MISSING:
            facts.append(f"prompt {clip(output.to_json(agent.prompt), 60)}")
        yield (
            f"{guide}{'└─ ' if is_last else '├─ '}{display_text(agent.id)}  "
            f"{style(display_text(_short_reference(agent.behaviour)), 'cyan')}  "
            f"{style(display_text(', '.join(facts)), 'dim')}"
        )
        yield from _tree(agent.children, guide + ("   " if is_last else "│  "), found, style)


def _short_reference(reference: str) -> str:
    """Return a behaviour's reference, relative to the current folder if it is below it."""
    here = os.getcwd() + os.sep
    return reference.removeprefix(here) if reference.startswith(here) else reference
