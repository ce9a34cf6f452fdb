"""How users' code is found, named and called.

A behaviour is a function ``(turn, message) -> result``, plain or ``async``, or a subclass of
:class:`Behaviour`. In a worker it is found by its reference, ``module:name`` or
``/path/to/file.py:name``; code is never pickled.
"""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from _thread import RLock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, overload

from dsh_actors.errors import BehaviourError, DshActorsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from dsh_actors.agents.turn import Turn
    from dsh_actors.shell.tool import ShellNotice

F = TypeVar("F", bound="Callable[..., Any]")

InterruptedPolicy: TypeAlias = Literal["fail", "retry"]
INTERRUPTED: Final = ("fail", "retry")
"""What may become of a message whose turn a crash has cut off."""

FILE_MODULE = "_dsh_file_"
"""Begins the names of modules that were made of behaviours' files."""
_COROUTINE_FUNCTION = 0x80  # inspect.CO_COROUTINE; inspect itself is slow to import
_VARARGS = 0x04  # inspect.CO_VARARGS
_resolved: dict[str, Resolved] = {}
# Whoever asks for a module that is just being executed waits, as with an import statement.
_file_lock = RLock()


def _own_main() -> ModuleType:
    return sys.modules["__main__"]


find_main: Callable[[], ModuleType] = _own_main
"""Finds the module behind ``__main__:name``. A worker replaces it, since its own ``__main__`` is
not the script that was run."""


class Settlement(NamedTuple):
    """The notice that a continuable child has settled or ended.

    Attributes:
        child: its id.
        outcome: ``completed``, ``aborted``, ``failed`` or ``lost``.
        detail: more about it, if there is more.
        last: what its last turn returned.
    """

    child: str
    outcome: str
    detail: str | None
    last: Any


class Remembered(NamedTuple):
    """An event of an agent's own, as it is replayed: what ``turn.remember`` was given."""

    type: str
    data: Any


@overload
def behaviour(function: F) -> F: ...


@overload
def behaviour(
    *, settlements: bool = False, interrupted: InterruptedPolicy | None = None
) -> Callable[[F], F]: ...


def behaviour(
    function: F | None = None,
    *,
    settlements: bool = False,
    interrupted: InterruptedPolicy | None = None,
) -> Any:
    """Mark a function as a behaviour: one message in, one result out.

    The mark is for readers and for ``dsh-actors check``; any function with the two parameters
    ``(turn, message)`` is accepted. The function is returned as it is.

    Parameters:
        function: the function.
        settlements: whether it is also called with a :class:`Settlement` for each of its
            continuable children that settles; by default those are only recorded.
        interrupted: what becomes of a message whose turn a crash has cut off, unless who
            creates the agent says it: ``fail`` (the default) or ``retry``, which hands it to a
            turn again. A behaviour that is to be retried makes its calls by ``turn.call``.
    """
    _check_interrupted(interrupted)

    def mark(function: F) -> F:
        function.__dsh_behaviour__ = True  # type: ignore[attr-defined]
        function.__dsh_settlements__ = settlements  # type: ignore[attr-defined]
        function.__dsh_interrupted__ = interrupted  # type: ignore[attr-defined]
        return function

    return mark if function is None else mark(function)


class Behaviour:
    """A behaviour with state: one instance per activation of an agent.

    ``on_message`` is required; it and the other hooks may be plain or ``async``, but all of the
    same kind. Arguments given at creation (``args``) are passed to ``__init__`` as keywords.
    """

    interrupted: InterruptedPolicy | None = None
    """What becomes of a message whose turn a crash has cut off, as with :func:`behaviour`."""

    def on_start(self, turn: Turn) -> Any:
        """Run before the first message."""

    def on_message(self, turn: Turn, message: Any) -> Any:
        """Handle one message; what it returns is the reply to an ``ask``."""
        raise NotImplementedError(f"{type(self).__qualname__} does not define on_message")

    def on_shell_done(self, turn: Turn, notice: ShellNotice) -> Any:
        """Handle the end of a command that it had started in the background.

        Not called unless it is overridden.
        """

    def on_settled(self, turn: Turn, settlement: Settlement) -> Any:
        """Take the notice that a continuable child has settled or ended. Optional."""

    def on_stop(self, turn: Turn) -> Any:
        """Run once when the agent is disposed, after its last turn has ended."""

    def replay(self, event: Remembered) -> None:
        """Take one remembered event when the agent goes on in a next life, before ``on_start``.

        A class that defines this can be settled and started again; one that does not is kept
        alive, since its state could not be brought back.
        """


def interrupted_by(target: Any) -> InterruptedPolicy | None:
    """What a behaviour says about messages whose turn a crash has cut off, if it says anything.

    Raises:
        BehaviourError: it is none of the possible values.
    """
    name = "interrupted" if isinstance(target, type) else "__dsh_interrupted__"
    said: InterruptedPolicy | None = getattr(target, name, None)
    if said is not None and said not in INTERRUPTED:
        raise BehaviourError(f"behaviour {_name_of(target)!r}: {_not_interrupted(said)}")
    return said


def _check_interrupted(value: Any) -> None:
    if value is not None and value not in INTERRUPTED:
        raise UsageError(_not_interrupted(value))


def _not_interrupted(value: Any) -> str:
    return f"interrupted must be one of {', '.join(INTERRUPTED)}, not {value!r}"


class Resolved(NamedTuple):
    """A behaviour that was found and checked."""

    target: Callable[..., Any]
    name: str
    is_class: bool
    is_async: bool


def resolve(target: Any) -> Resolved:
    """Find and check a behaviour.

    Parameters:
        target: a function, a subclass of :class:`Behaviour`, or a reference to one.

    Raises:
        BehaviourError: it cannot be found, imported or called, with what to do.
    """
    if not isinstance(target, str):
        return _checked(target, _name_of(target))
    found = _resolved.get(target)
    if found is None:
        found = _resolved[target] = _checked(_load(target), target)
    return found


def found_before(reference: str) -> Resolved | None:
    """What a reference has been resolved to in this process, if it has been: without importing."""
    return _resolved.get(reference)


def reference(target: Any) -> str:
    """The name by which another process finds this behaviour.

    Raises:
        BehaviourError: it is a lambda or was defined inside a function, so no other process
            can find it.
    """
    if isinstance(target, str):
        return target
    name = _name_of(target)
    if "<" in name:
        raise BehaviourError(
            f"behaviour {name!r} is defined inside a function or is a lambda, so a worker cannot "
            "import it; define it at the top level of a module, or run it with isolation='inline'"
        )
    return name


def _name_of(target: Any) -> str:
    module = getattr(target, "__module__", None) or "?"
    qualname = getattr(target, "__qualname__", None) or type(target).__qualname__
    if module.startswith(FILE_MODULE):
        module = getattr(sys.modules.get(module), "__file__", None) or module
    elif module == "__mp_main__":
        module = "__main__"
    return f"{module}:{qualname}"


def _checked(target: Any, name: str) -> Resolved:
    if isinstance(target, type):
        if not issubclass(target, Behaviour):
            raise BehaviourError(
                f"behaviour {name!r} is a class but no subclass of dsh_actors.Behaviour; "
                "derive it from Behaviour, or name a function"
            )
        interrupted_by(target)
        kinds = {
            _is_async(getattr(target, hook))
            for hook in ("on_start", "on_message", "on_settled", "on_shell_done", "on_stop")
            if getattr(target, hook) is not getattr(Behaviour, hook)
        }
        if len(kinds) > 1:
            raise BehaviourError(
                f"behaviour {name!r} mixes plain and async hooks; make all of them the same kind"
            )
        return Resolved(target, name, True, kinds == {True})
    if not callable(target):
        raise BehaviourError(
            f"behaviour {name!r} is not callable (it is {_article(type(target).__name__)}); "
            "name a function (turn, message) or a subclass of dsh_actors.Behaviour"
        )
    problem = _parameter_problem(target)
    if problem:
        raise BehaviourError(f"behaviour {name!r} cannot be called with (turn, message): {problem}")
    return Resolved(target, name, False, _is_async(target))


def _is_async(target: Any) -> bool:
    code = getattr(target, "__code__", None)
    if code is None:  # a partial or an object with __call__
        import inspect

        return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
            getattr(target, "__call__", None)  # noqa: B004
        )
    return bool(code.co_flags & _COROUTINE_FUNCTION)


def _parameter_problem(target: Any) -> str:
    code = getattr(target, "__code__", None)
    if code is None or getattr(target, "__self__", None) is not None:
        return ""
    takes = code.co_argcount
    needs = takes - len(target.__defaults__ or ())
    if takes < 2 and not code.co_flags & _VARARGS:
        return f"it takes {takes} positional parameter{'' if takes == 1 else 's'}"
    if needs > 2:
        return f"it needs {needs} positional parameters"
    keywords = code.co_varnames[takes : takes + code.co_kwonlyargcount]
    missing = [word for word in keywords if word not in (target.__kwdefaults__ or {})]
    return f"it needs the keyword {missing[0]!r}" if missing else ""


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _load(reference: str) -> Any:
    module_name, separator, qualname = reference.rpartition(":")
    if not separator or not module_name or not qualname:
        raise BehaviourError(
            f"behaviour {reference!r} is not of the form module:name or ./file.py:name"
        )
    module = (
        _load_file(module_name, reference)
        if module_name.endswith(".py")
        else _load_module(module_name, reference)
    )
    target: Any = module
    for part in qualname.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            raise BehaviourError(_no_such_name(reference, module, module_name, qualname)) from None
    return target


def _no_such_name(reference: str, module: ModuleType, module_name: str, qualname: str) -> str:
    import difflib  # only on this error path

    near = difflib.get_close_matches(qualname, [n for n in vars(module) if n[:1] != "_"], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"behaviour {reference!r}: {module_name} has no {qualname!r}{hint}"


def _load_module(name: str, reference: str) -> ModuleType:
    if name == "__main__":
        return find_main()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        what = "no module" if name == missing or name.startswith(f"{missing}.") else "it needs"
        raise BehaviourError(
            f"behaviour {reference!r}: {what} {missing!r}; check the name, or install the package "
            "where dsh-actors runs"
        ) from None
    except DshActorsError:
        raise
    except Exception as error:
        raise BehaviourError(
            f"behaviour {reference!r}: importing {name} failed: {_brief(error)}"
        ) from error


def _load_file(path: str, reference: str) -> ModuleType:
    file = os.path.realpath(path)
    if not os.path.isfile(file):
        raise BehaviourError(f"behaviour {reference!r}: there is no file {path}")
    stem = os.path.basename(file)[:-3]
    name = f"{FILE_MODULE}{stem}_{zlib.crc32(file.encode()):08x}"
    with _file_lock:
        return sys.modules.get(name) or _execute(name, file, path, reference)


def _execute(name: str, file: str, path: str, reference: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BehaviourError(f"behaviour {reference!r}: {path} cannot be loaded as Python")
    # Its own folder is importable for it, as it is for a script.
    folder = os.path.dirname(file)
    if folder not in sys.path:
        sys.path.append(folder)
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, (DshActorsError, KeyboardInterrupt)):
            raise
        raise BehaviourError(
            f"behaviour {reference!r}: importing {path} failed: {_brief(error)}"
        ) from error
    return module


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
