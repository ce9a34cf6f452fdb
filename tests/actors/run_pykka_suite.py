"""Run Pykka's own test suite against the pooled actor.

    python tests/actors/run_pykka_suite.py 4.4.2 4.5.0

Fetches the source distribution of each version with pip, as its tests are not in the wheel, puts
the pooled actor in the place of the threading one in their conftest, and runs them against that
version of Pykka. Exits with 1 if a case fails that is not one of the intended differences.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

# Pykka stops all actors when a handler raises a BaseException; here only the actor fails.
INTENDED_DIFFERENCES = (
    "tests/test_actor.py::test_all_actors_are_stopped_on_base_exception[pooled]",
    "tests/test_logging.py::test_base_exception_is_logged[pooled]",
)

# Where the runtimes are read: ours must be there before.
ANCHOR = '@pytest.fixture(scope="session", params=RUNTIMES.values())'

CONFTEST = """
from dsh_actors.actors import Future as PooledFuture
from dsh_actors.actors import PooledActor

RUNTIMES.clear()
RUNTIMES["pooled"] = pytest.param(
    Runtime(
        name="pooled",
        actor_class=PooledActor,
        event_class=threading.Event,
        future_class=PooledFuture,
        sleep_func=time.sleep,
    ),
    id="pooled",
)

try:
    import pytest_mock
except ImportError:
    from unittest import mock

    class Mocker:
        def __init__(self, stack):
            self._stack = stack
            self.patch = self

        def __getattr__(self, name):
            return getattr(mock, name)

        def object(self, *args, **kwargs):
            return self._stack.enter_context(mock.patch.object(*args, **kwargs))

    @pytest.fixture
    def mocker():
        import contextlib

        with contextlib.ExitStack() as stack:
            yield Mocker(stack)


"""


def main() -> int:
    """Run the suites of the versions on the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="such as 4.4.2")
    parser.add_argument(
        "--sdists", type=Path, metavar="FOLDER", help="take pykka-VERSION.tar.gz from here"
    )
    options = parser.parse_args()
    failed = [version for version in options.versions if not check(version, options.sdists)]
    if failed:
        print(f"Pykka's suite fails with: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def check(version: str, sdists: Path | None) -> bool:
    """Run the suite of one version; whether all is as intended."""
    with tempfile.TemporaryDirectory(prefix="pykka-suite-") as name:
        folder = Path(name)
        archive = (sdists or download(version, folder)) / f"pykka-{version}.tar.gz"
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        source = folder / f"pykka-{version}"
        conftest = source / "tests" / "conftest.py"
        before, anchor, after = conftest.read_text().partition(ANCHOR)
        if not anchor:
            print(f"The conftest of Pykka {version} has no line {ANCHOR!r}", file=sys.stderr)
            return False
        conftest.write_text(before + CONFTEST + anchor + after)
        print(f"== Pykka {version} ==", flush=True)
        deselected = [f"--deselect={case}" for case in INTENDED_DIFFERENCES]
        return run_pytest(source, "tests", *deselected) == 0


def download(version: str, folder: Path) -> Path:
    """Fetch the source distribution of one version."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", "pykka", "--dest", str(folder), f"pykka=={version}"]
    subprocess.run(command, check=True, timeout=300)
    return folder


def run_pytest(source: Path, *arguments: str) -> int:
    """Run pytest in the unpacked sources, with their Pykka and our package; its exit code."""
    paths = [str(source / "src"), str(PROJECT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={source}"]
    command += ["-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=source, env=environment, timeout=300).returncode


if __name__ == "__main__":
    sys.exit(main())
