from __future__ import annotations

import subprocess
import sys

import pytest

# Hypothesis' own plugin would be imported anew by each of these runs, at 0.3 s a time.
PLUGIN = ("-p", "dsh_actors.testing.pytest_plugin", "-p", "no:hypothesispytest")
AUTOUSE = """
import pytest

@pytest.fixture(autouse=True)
def _clean(no_leaks):
    pass
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*PLUGIN, *arguments)


def test_behaviours_lists_numbers_without_running(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_one="""
        import pytest

        @pytest.mark.behaviour(136, 2)
        def test_a():
            assert False, "must not run"

        @pytest.mark.behaviour(136)
        @pytest.mark.parametrize("n", [1, 2])
        def test_b(n):
            assert False, "must not run"

        def test_unmarked():
            assert False, "must not run"
        """
    )
    result = run(pytester, "--behaviours")
    assert result.ret == 0
    lines = result.outlines
    first = lines.index("2  cancel returns at once, already in effect  test_one.py::test_a")
    assert lines[first + 1 : first + 3] == [
        "136  parent never misses a settlement notice  test_one.py::test_a, test_one.py::test_b",
        "covered 2 of 212",
    ]


def test_behaviours_fails_if_the_collection_does(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("raise RuntimeError")
    result = run(pytester, "--behaviours")
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_wrong_marks_are_errors_that_name_their_tests(pytester: pytest.Pytester) -> None:
    marks = ["213", "0", "'136'", "True", "", "136, kind='x'"]
    tests = "".join(
        f"@pytest.mark.behaviour({mark})\ndef test_{index}(): pass\n"
        for index, mark in enumerate(marks)
    )
    pytester.makepyfile(f"import pytest\n{tests}")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*::test_{n}: *behaviour*" for n in range(len(marks))])


def test_a_clean_test_passes(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(AUTOUSE)
    pytester.makepyfile("def test_clean(tmp_path): (tmp_path / 'x').write_text('y')")
    run(pytester).assert_outcomes(passed=1)


def test_leaks_are_errors_of_their_test_by_name(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_actors.testing.leaks.leaks_since.__kwdefaults__", {"timeout": 0.0})
    pytester.makeconftest(
        AUTOUSE
        + """
import subprocess, sys, threading
import pykka

left = []

def pytest_sessionfinish():
    for undo in left:
        undo()
"""
    )
    pytester.makepyfile(
        """
        import os, subprocess, sys, threading
        import pykka
        from conftest import left

        def test_thread():
            release = threading.Event()
            thread = threading.Thread(target=release.wait, name="loose-thread")
            thread.start()
            left.extend([release.set, thread.join])

        def test_actor():
            class LooseActor(pykka.ThreadingActor):
                pass
            left.append(LooseActor.start().stop)

        def test_process():
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", "input('loose')"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            )
            left.append(lambda: process.communicate(b"\\n"))

        def test_descriptor():
            reader, writer = os.pipe()
            left.extend([lambda: os.close(reader), lambda: os.close(writer)])

        def test_after():
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=5, errors=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_thread*",
            "thread 'loose-thread'*",
            "*ERROR at teardown of test_actor*",
            "actor LooseActor (urn:*",
            "*ERROR at teardown of test_process*",
            "process *loose*",
            "*ERROR at teardown of test_descriptor*",
            "file descriptor *: pipe:*",
        ]
    )


def test_the_plugin_adds_nothing_heavy() -> None:
    script = (
        "import sys, pytest, dsh_actors; before = set(sys.modules);"
        "import dsh_actors.testing.pytest_plugin;"
        "heavy = {'psutil', 'pykka', 'asyncio', 'structlog', 'pydantic', 'yaml', 'rich'};"
        "print(sorted(heavy & (sys.modules.keys() - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_package_does_not_need_pytest() -> None:
    script = "import sys, dsh_actors, dsh_actors.system; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
