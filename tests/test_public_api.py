"""The public names carry the suite: it imports nothing else of the plugin, and a page tells of each."""

import ast
import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

import pytest_roofline
from pytest_roofline.cli.main import main

ROOT = Path(__file__).resolve().parents[1]


def private_imports(folder):
    """What the Python files below a folder import of the plugin beside the package itself."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [
                f"{path.name}: {name}" for name in names if name.startswith("pytest_roofline.")
            ]
    return found


def test_a_private_import_is_found(tmp_path):
    source = (
        "from pytest_roofline import Work\nimport pytest_roofline.core\n"
        "def f():\n    from pytest_roofline.a import c"
    )
    (tmp_path / "test_a.py").write_text(source)
    assert private_imports(tmp_path) == [
        "test_a.py: pytest_roofline.core",
        "test_a.py: pytest_roofline.a",
    ]


def test_the_suite_and_what_init_writes_of_it_import_public_names_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["init", "."]).exit_code == 0
    assert (tmp_path / "perf_tests" / "test_memcpy.py").exists()
    assert private_imports(ROOT / "perf_tests") + private_imports(tmp_path) == []


@pytest.fixture
def program(monkeypatch):
    """The program that writes the page."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("api_page")


@pytest.mark.feature("ranks")
def test_the_page_of_public_names_says_what_the_docstrings_say(program):
    message = "`python benchmarks/api_page.py` writes it anew"
    assert program.PAGE.read_text(encoding="utf-8") == program.page(), message


def test_every_public_name_is_on_the_page_once(program):
    told = [name for names in program.SECTIONS.values() for name in names]
    assert sorted(told) == sorted(
        name for name in pytest_roofline.__all__ if not name.startswith("_")
    )


def test_a_docstring_becomes_prose_and_lists(program):
    def told(one, *, two=None):
        """Says it.

        More of it.

        Args:
            one: the first,
                over two lines.
            two: the second.

        Raises:
            BadInput: never.

        The end of it.
        """

    lines = "\n".join(program.described("###", "told", told)).splitlines()
    assert [line for line in lines if line] == [
        "### `told`", "`told(one, *, two=None)`", "Says it.", "More of it.", "The end of it.", "Args:",
        "- `one`: the first, over two lines.", "- `two`: the second.", "Raises: `BadInput`: never.",
    ]  # fmt: skip


def test_what_is_a_fixture_and_no_name_of_the_package_says_what_to_write():
    for source in (
        "from pytest_roofline import roofline",
        "from pytest_roofline import measure",
        "import pytest_roofline as roofline; roofline.measure",
    ):
        with pytest.raises(ImportError, match=r"expected the fixture.*def test_copy\(roofline\): "):
            exec(source, {})
