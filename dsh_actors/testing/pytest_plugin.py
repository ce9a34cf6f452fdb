"""The pytest plugin: behaviour marks, ``--behaviours``, the fixtures ``no_leaks`` and ``gates``.

Load it with ``-p dsh_actors.testing.pytest_plugin``. To run every test of a suite under the
leak check, put this into its ``conftest.py``::

    @pytest.fixture(autouse=True)
    def _clean(no_leaks: None) -> None: ...

A leak is reported as an error at the teardown of the test that left it, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from dsh_actors.testing import leaks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dsh_actors.testing.gates import Gates

__all__ = ["gates", "no_leaks"]

# Its tests are imported by the modules that derive from them, and are to explain themselves.
pytest.register_assert_rewrite(
    "dsh_actors.testing.store_contract", "dsh_actors.testing.store_log_contract"
)

_LIST: Final = "behaviours.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--behaviours``."""
    parser.getgroup("dsh-actors").addoption(
        "--behaviours",
        action="store_true",
        help="run no test; list the numbered behaviours that the collected tests pin",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and mark the environment that child processes inherit."""
    config.addinivalue_line(
        "markers", "behaviour(*numbers): the numbered behaviours that this test pins"
    )
    leaks.mark_children()


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail the test that leaves a thread, actor, process or file descriptor behind.

    What is just ending gets up to 2 seconds. Request it before the fixtures that it is to
    watch: an autouse fixture that requests it does so.
    """
    before = leaks.snapshot()
    yield
    found = leaks.leaks_since(before)
    if found:
        pytest.fail("the test left behind:\n" + "\n".join(found), pytrace=False)


@pytest.fixture
def gates() -> Iterator[Gates]:
    """Hold and delay agents at named points: see :mod:`dsh_actors.testing.gates`.

    Request it before what makes the system, whose workers are to know of it.
    """
    from dsh_actors.testing.gates import Gates

    with Gates() as gates:
        yield gates


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse marks with numbers that are not in the list."""
    if not any(item.get_closest_marker("behaviour") for item in items):
        return
    titles = _titles()
    wrong = [
        f"{item.nodeid}: {problem}"
        for item in items
        for mark in item.iter_markers("behaviour")
        for problem in _problems(mark, titles)
    ]
    if wrong:
        raise pytest.UsageError(*wrong)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Print the covered behaviours instead of running the tests, if asked to."""
    if not session.config.getoption("behaviours") or session.testsfailed:
        return None  # pytest itself reports the errors of the collection
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        for line in _coverage(session.items):
            reporter.write_line(line)
    return True


def _coverage(items: list[pytest.Item]) -> Iterator[str]:
    """One line per covered number, in order, and the total."""
    tests: dict[int, dict[str, None]] = {}
    for item in items:
        # The cases of a parametrised test are one test here.
        name = item.nodeid.partition("[")[0]
        for mark in item.iter_markers("behaviour"):
            for number in mark.args:
                tests.setdefault(number, {})[name] = None
    titles = _titles()
    for number in sorted(tests):
        yield f"{number}  {titles[number]}  {', '.join(tests[number])}"
    yield f"covered {len(tests)} of {len(titles)}"


def _problems(mark: pytest.Mark, titles: dict[int, str]) -> Iterator[str]:
    if mark.kwargs or not mark.args:
        yield "the behaviour mark takes one or more numbers, e.g. @pytest.mark.behaviour(136)"
    for number in mark.args:
        if type(number) is not int or number not in titles:
            yield f"no behaviour has the number {number!r}; the list is in {_LIST}"


def _titles() -> dict[int, str]:
    """The numbered titles that ship beside this module."""
    from importlib.resources import files

    text = (files("dsh_actors.testing") / _LIST).read_text(encoding="utf-8")
    lines = (line.partition(" ") for line in text.splitlines() if line[:1].isdigit())
    return {int(number): title for number, _, title in lines}
