"""Taking a feature out of a copy of a checkout: what goes, what remains, and how the tests of that are told."""

import subprocess

import pytest

TABLE = """FEATURES: dict[str, tuple[str, ...]] = {
    "ab": ("ab",),
    "many": ("fleet", "history"),
}
"""
PACKAGE = "plugin/pytest_roofline"
FILES = {
    f"{PACKAGE}/__init__.py": "",
    f"{PACKAGE}/core/features.py": TABLE,
    f"{PACKAGE}/ab/__init__.py": "",
    f"{PACKAGE}/many/__init__.py": "",
    f"{PACKAGE}/plugin/beside.py": "from ..ab import nothing\n",
    "tests/ab/test_sides.py": "def test_side(): pass\n",
    "tests/slow/ab/test_whole.py": "def test_whole(): pass\n",
    "tests/test_imports.py": "import pytest_roofline.ab\ndef test_it(): pass\n",
    "tests/test_beside.py": "from pytest_roofline.plugin import beside\ndef test_it(): pass\n",
    "tests/test_plain.py": "def test_plain(): pass\n",
    "tests/test_core.py": "import pytest_roofline.core.features\ndef test_core(): pass\n",
}


@pytest.fixture(scope="module")
def remove(program):
    return program("remove_features")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    # The package of this checkout has no plugin.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_feature_goes_with_its_folder_its_line_and_the_tests_that_need_it(remove, checkout):
    assert ["ab", "many"] == remove.features_in(checkout)
    gone = remove.take_out("ab", checkout)
    assert ["tests/ab", "tests/slow/ab", "tests/test_beside.py", "tests/test_imports.py"] == [
        str(path.relative_to(checkout)) for path in gone
    ]
    assert not (checkout / PACKAGE / "ab").exists()
    assert ["many"] == remove.features_in(checkout)
    assert ["test_core.py", "test_plain.py"] == sorted(
        path.name for path in checkout.rglob("test_*.py")
    )


def test_the_tests_that_remain_are_counted_and_the_checkout_stays_whole(remove, checkout, capsys):
    tests = ["--tests", "tests/ab", "tests/test_plain.py", "tests/test_core.py"]
    assert 0 == remove.main(["ab", *tests], checkout)
    heading, row = capsys.readouterr().out.splitlines()
    assert (["without", "passed", "failed"], ["ab", "green", "2", "0"]) == (
        heading.split(),
        row.split(),
    )
    assert set(FILES) <= {
        str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()
    }


def test_a_test_that_needs_what_was_taken_out_makes_the_status_1_and_is_named(
    remove, checkout, capsys
):
    (checkout / "tests/test_plain.py").write_text("def test_it():\n    import pytest_roofline.ab\n")
    assert 1 == remove.main(["many", "ab", "--tests", "tests/test_plain.py"], checkout)
    assert [
        ["many", "green", "1", "0"],
        ["ab", "RED", "0", "1"],
        ["tests.test_plain::test_it"],
    ] == [line.split() for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_file_that_cannot_be_collected_is_trouble_before_any_test_runs(remove, checkout, capsys):
    helper = "import pytest_roofline.ab\n"
    (checkout / "tests/helper.py").write_text(helper)
    (checkout / "tests/test_plain.py").write_text("import helper\ndef test_it(): pass\n")
    assert 1 == remove.main(["ab", "--collect-only"], checkout)
    assert "No module named 'pytest_roofline.ab'" in capsys.readouterr().out
