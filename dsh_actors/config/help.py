"""What each key is for, by the kind of mapping that it stands in.

It is the source of the descriptions in the JSON Schemas and of the valid names in errors.
"""

from __future__ import annotations

__all__ = ["HELP", "REMOVED"]

_SYSTEM = {
    "workers": "How many pooled worker processes there are.",
    "stop_grace": "How long cancelled work may take to end: 5s, 500ms, 2m or seconds.",
    "inbox_limit": "How many messages the inbox of an agent takes.",
    "max_turns": "How many turns run at a time.",
    "worker_limits": "What each worker process may use; what is absent is not limited.",
}
_AGENT = {
    "id": "Unique in the tree: letters, digits, '.', '_' and '-'.",
    "behaviour": "package.module:name, or ./file.py:name relative to this file.",
    "isolation": "Where it lives: in this process, in a shared worker, in one of its own.",
    "restart": "When it is restarted: always, after a failure, or never.",
    "interrupted": "What becomes of a prompt whose turn a crash cut off.",
    "prompt": "Its first message; ${NAME} stands for a parameter.",
    "args": "Arguments for its behaviour; ${NAME} stands for a parameter.",
    "policy": "What it and everything below it may do; what is absent is not restricted.",
    "budget": "What it and everything below it may use; what is absent is not limited.",
    "children": "Agents to create below it.",
}
_BUDGET = {
    "wall": "How long it may take from its start: 90s, 5m or seconds.",
    "turns": "How many turns may start.",
    "children": "How many agents may be started below it.",
    "depth": "How many levels of agents there may be below it; 0 allows no children.",
    "processes": "How many worker processes of their own agents below it may have.",
    "tokens": "How many tokens may be used.",
    "cost": "How much may be spent, in whatever unit behaviours report it in.",
}
_MERGE = (
    "Merge deeply instead of replacing whole keys: mappings merge, lists replace, null deletes."
)

HELP: dict[str, dict[str, str]] = {
    "tree": {
        "version": "The version of this format: 1.",
        "name": "What to call the tree; the file's name if absent.",
        "system": "Settings of the whole system.",
        "agents": "The root agents. A prompt of the command line goes to the first.",
        "parameters": "What --set NAME=VALUE may set and ${NAME} stands for.",
    },
    "system": _SYSTEM,
    "worker_limits": {
        "memory_soft": "Resident memory above which a worker is replaced: 512MiB, or bytes.",
        "memory_hard": "Resident memory above which a worker is killed: 2GiB, or bytes.",
        "cpu_seconds": "CPU time after which a worker is ended, in seconds.",
        "open_files": "How many files a worker may have open at a time.",
    },
    "agent": _AGENT,
    "policy": {
        "tools": "The names of the tools that may be used.",
        "paths": "What may be touched, each with all below it; relative to this file.",
        "network": "Whether the network may be used.",
        "isolation": "Where children may live: inline, pool, own.",
        "depth": "The greatest depth that an agent below it may have, where a root has 0.",
    },
    "budget": _BUDGET,
    "parameter": {
        "type": "How its text is read; str if absent.",
        "default": "Its value if none is set; without one it must be set.",
        "help": "What it is for.",
    },
    "overlay": {
        "version": "The version of this format: 1.",
        "merge": _MERGE + " It holds for 'system', and for each agent that does not say itself.",
        "name": "What to call the tree instead.",
        "system": "Settings of the whole system, in place of those of the tree file.",
        "agents": "Patches of agents, wherever in the tree those stand.",
        "parameters": "Other defaults for parameters that the tree declares.",
    },
    "patch": {
        "id": "The id of the agent that this patches.",
        "merge": _MERGE,
        **{key: text for key, text in _AGENT.items() if key != "id"},
        "policy": "What it may do. It can only take away from what the tree file allows.",
        "children": "Agents to create below it, in place of all those of the tree file.",
    },
    "patch_budget": _BUDGET,
    "default": {"default": "The value of the parameter if none is set with --set."},
}

_SESSION = "the session is given by the launcher alone; remove it, and resume one with --resume ID"
_LINE = "the line at the exit is given by the launcher alone, with its --resume ID; remove it"

REMOVED: dict[str, str] = {
    **dict.fromkeys(("resume", "resumeid", "resumesession", "resumesessionid"), _SESSION),
    **dict.fromkeys(("session", "sessionid", "identity", "identities"), _SESSION),
    **dict.fromkeys(("exitline", "resumecommand", "resumehint"), _LINE),
}
"""Names that belong to the launcher, which some configuration may still have, and what to say.

They are keys of no mapping. Here they are in lower case, without ``_`` and ``-``.
"""
