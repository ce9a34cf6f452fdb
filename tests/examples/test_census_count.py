from __future__ import annotations

import os
import random
import sysconfig
import warnings
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from census_count import (
    Census,
    count_file,
    count_lines,
    count_source,
    display,
    most_complex,
)
from census_files import (
    THIRD_PARTY,
    SourceFile,
    split,
    standard_library,
    walk,
)
from independent_census import count_folder

if TYPE_CHECKING:
    from census_count import FunctionData


def find_sources(root: Path, *, skip: tuple[str, ...] = ()) -> list[SourceFile]:
    found = [source for listing in walk(root, skip=skip) for source in listing.files]
    return sorted(found, key=lambda source: source.path)


def census_of(root: Path, *, skip: tuple[str, ...] = ()) -> Census:
    census = Census()
    for source in find_sources(root, skip=skip):
        census.add(count_file(str(root), source.path))
    return census


def complexity_of(source: str) -> int:
    """Return the complexity of the first function of a source."""
    return min(count_source(dedent(source), "f.py").top, key=lambda f: f["line"])["complexity"]


def assert_equals_independent_count(
    census: Census, root: Path, *, skip: tuple[str, ...] = ()
) -> None:
    expected = count_folder(str(root), skip=skip)
    data = census.data()
    for name in ("files", "failed_files", "lines", "functions", "async_functions", "classes"):
        assert data[name] == expected[name], name  # type: ignore[literal-required]
    assert data["bare_excepts"] == expected["bare_excepts"]
    assert [(f["path"], f["line"], f["complexity"]) for f in data["top"]] == expected["top"]
    assert [f["path"] for f in data["failures"]] == expected["failed"]


def test_counts_equal_an_independent_count_of_a_package() -> None:
    root = Path(sysconfig.get_path("stdlib")) / "asyncio"
    assert_equals_independent_count(census_of(root), root)


@pytest.mark.slow
def test_counts_equal_an_independent_count_of_the_standard_library() -> None:
    root = standard_library()
    assert_equals_independent_count(census_of(root, skip=THIRD_PARTY), root, skip=THIRD_PARTY)


def test_definitions_are_counted_wherever_they_stand() -> None:
    census = count_source(
        dedent("""\
        import os
        if os.name == "posix":
            def conditional(): pass
        class Outer:
            class Inner:
                async def method(self):
                    def nested():
                        class Local: pass
        for _ in ():
            with x:
                try: pass
                except:
                    def handler(): pass
                finally:
                    async def last(): pass
        match x:
            case 1:
                def case(): pass
        lambda: 0
        """),
        "f.py",
    )
    assert (census.functions, census.async_functions, census.classes) == (4, 2, 3)
    assert census.bare_excepts == 1
    assert {f["function"]: f["line"] for f in census.top} == {
        "conditional": 3,
        "Outer.Inner.method": 6,
        "Outer.Inner.method.nested": 7,
        "handler": 13,
        "last": 15,
        "case": 18,
    }


def test_only_a_clause_without_a_type_is_a_bare_except() -> None:
    source = """\
    try: pass
    except (A, B): pass
    except C as c:
        try: pass
        except: pass
    except: pass
    """
    assert count_source(dedent(source), "f.py").bare_excepts == 2


@pytest.mark.parametrize(
    ("body", "complexity"),
    [
        ("pass", 1),
        ("if a: pass", 2),
        ("if a: pass\n    elif b: pass\n    else: pass", 3),
        ("for x in y: pass\n    else: pass", 2),
        ("while a and b or c: pass", 2),
        ("return [x for x in y if x] if y else (lambda: 0 if y else 1)", 1),
        ("assert a", 1),
        ("with a: b", 1),
        ("try: a\n    except A: b", 3),
        ("try: a\n    except A: b\n    except B: b\n    else: c", 4),
        ("try: a\n    finally:\n        if b: c", 3),
        ("try: a\n    except* A: b", 3),
        ("match a:\n        case 1: b\n        case 2:\n            if c: d", 4),
        ("match a:\n        case 1: b\n        case _: c", 2),
        ("match a:\n        case 1: b\n        case other: c", 2),
        ("match a:\n        case 1: b\n        case other if other: c", 3),
        ("def g():\n        if a: b", 3),
        ("class C:\n        def g(self):\n            if a: b", 3),
    ],
)
def test_complexity_rules(body: str, complexity: int) -> None:
    assert complexity_of(f"def f():\n    {body}\n") == complexity


def test_complexity_of_async_statements() -> None:
    source = "async def f():\n async for x in y:\n  async with z:\n   if a: b\n"
    assert complexity_of(source) == 3


def test_line_of_a_decorated_function_is_the_line_of_its_def() -> None:
    assert count_source("@d\n\ndef f(): pass\n", "f.py").top[0]["line"] == 3


def test_a_chain_of_elif_as_deep_as_the_parser_takes_is_counted() -> None:
    chain = "\n".join(f"    elif a == {n}: pass" for n in range(300))
    assert complexity_of(f"def f():\n    if a: pass\n{chain}\n") == 302


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 0), ("\n", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\x0cb\n", 1), ("a\u2028b", 1)],
)
def test_lines_are_physical_lines(text: str, lines: int) -> None:
    assert count_lines(text) == lines


def test_files_are_decoded_as_they_declare(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\ndef grün(): pass\n".encode("latin-1"))
    (tmp_path / "bom.py").write_bytes("def grün(): pass\r\n\r\n".encode("utf-8-sig"))
    (tmp_path / "mac.py").write_bytes(b"def f(): pass\r\r")
    census = census_of(tmp_path)
    assert census.failures == []
    assert (census.functions, census.lines) == (3, 6)
    assert {f["function"] for f in census.top} == {"grün", "f"}


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"def f(:\n", "SyntaxError: "),
        (b"a = 1\n\x00\n", "null bytes"),
        (b"a = '\xff'\n", "SyntaxError: "),
        (b"# coding: latin-1\n# \xe9\n" + b"a = '\n", "line 3"),
        (b"# coding: ascii\n\n\na = '\xff'\n", "UnicodeDecodeError: "),
        (b"# coding: no-such\n", "SyntaxError: unknown encoding: no-such"),
        (b"# coding: rot13\nqrs\n", "Error: "),
        (b"(" * 500 + b")" * 500, "SyntaxError: "),
        (b"-" * 100_000 + b"1\n", "Error"),
        (b"a = " + b"9" * 5_000 + b"\n", "Error: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_parsed_is_a_listed_failure(tmp_path: Path, data: bytes, error: str) -> None:
    (tmp_path / "bad.py").write_bytes(data)
    (tmp_path / "good.py").write_text("def f(): pass\n")
    census = census_of(tmp_path)
    assert (census.files, census.failed_files, census.functions) == (2, 1, 1)
    [failure] = census.failures
    assert failure["path"] == "bad.py"
    assert error in failure["error"]
    assert "\n" not in failure["error"]
    assert str(tmp_path) not in failure["error"]


def test_what_cannot_be_read_is_a_listed_failure(tmp_path: Path) -> None:
    (tmp_path / "broken.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")  # opening it would wait for a writer for ever
    (tmp_path / "folder.py").mkdir()
    census = census_of(tmp_path)
    assert census.failures == [
        {"path": "broken.py", "error": "FileNotFoundError: No such file or directory"},
        {"path": "pipe.py", "error": "OSError: not a regular file"},
    ]


def test_a_name_that_is_not_utf8_is_counted_and_shown_escaped(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/odd\xff.py", "wb") as file:
        file.write(b"def f(): pass\n")
    [source] = find_sources(tmp_path)
    [function] = count_file(os.fsencode(tmp_path), os.fsencode(source.path)).top
    assert function["path"] == display(source.path) == "odd\\xff.py"


def test_warnings_about_the_counted_source_neither_show_nor_fail_it() -> None:
    """A filter "error" turns a warning of the parser into a SyntaxError of the file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        assert count_source("a = '\\d'\nif 1: 1or 2\n", "f.py").lines == 2
        assert caught == []


def test_the_sum_does_not_depend_on_order_or_grouping() -> None:
    root = Path(sysconfig.get_path("stdlib")) / "json"
    counts = [count_file(str(root), source.path) for source in find_sources(root)]
    counts.append(Census(2, 2, failures=[{"path": "a", "error": "x"}, {"path": "z", "error": "y"}]))
    whole = Census()
    for count in counts:
        whole.add(count)
    random.Random(7).shuffle(counts)
    halves = Census(), Census()
    for index, count in enumerate(counts):
        halves[index % 2].add(count.data())
    halves[1].add(halves[0])
    assert halves[1] == whole
    assert whole.failed_files == len(whole.failures) == 2


def test_the_most_complex_go_by_path_then_line_where_equal() -> None:
    def function(path: str, line: int, complexity: int) -> FunctionData:
        return {"path": path, "function": "f", "line": line, "complexity": complexity}

    many = [function("b", line, 2) for line in range(20)] + [function("a", 9, 2)]
    top = most_complex([*many, function("z", 1, 3)])
    assert [(f["path"], f["line"]) for f in top] == [
        ("z", 1),
        ("a", 9),
        *(("b", n) for n in range(8)),
    ]


def test_walk_lists_python_files_and_skips_only_named_folders(
    tmp_path: Path,
) -> None:
    for path in ("b.py", "a/x.py", "a/y.txt", "site-packages/p.py", "a/site-packages/q.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x = 1\n")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert find_sources(tmp_path, skip=THIRD_PARTY) == [
        SourceFile("a/site-packages/q.py", 6),
        SourceFile("a/x.py", 6),
        SourceFile("b.py", 6),
    ]
    assert len(find_sources(tmp_path)) == 4


def test_a_missing_root_is_an_error_and_not_an_empty_census(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        find_sources(tmp_path / "missing")
    (tmp_path / "file.py").write_text("")
    with pytest.raises(NotADirectoryError):
        find_sources(tmp_path / "file.py")


def test_chunks_share_the_work_evenly_and_hold_each_file_once() -> None:
    random_sizes = random.Random(3)
    sources = [SourceFile(f"{n:04}.py", random_sizes.randrange(60_000)) for n in range(1_000)]
    chunks = split(sources)
    assert sorted((s for chunk in chunks for s in chunk), key=lambda s: s.path) == sources
    sizes = [sum(source.size for source in chunk) for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] < 16_000
    assert len(chunks) == sum(sizes) // (256 * 1024)


@pytest.mark.parametrize(("files", "chunks"), [(0, 0), (1, 1), (5, 5), (100, 8)])
def test_a_small_folder_still_has_work_for_several_workers(files: int, chunks: int) -> None:
    parts = split(SourceFile(f"{n}.py", 0) for n in range(files))
    assert len(parts) == chunks
    assert all(parts)
