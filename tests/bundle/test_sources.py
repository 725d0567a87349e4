"""A test is copied with what it imports of its checkout, and with nothing else."""

import os

from pytest_roofline.bundle.sources import sources_of

LATE, EARLY = "2100-01-01T00:00:00Z", "2000-01-01T00:00:00Z"


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def sources(root, files, started=LATE, test_id="perf/test_a.py::test_x[1]"):
    write(root, **files)
    return sources_of(test_id, root, started)


def test_the_test_comes_with_every_conftest_around_it(tmp_path):
    files = {"conftest.py": "", "perf/conftest.py": "", "perf/test_a.py": "import torch", "perf/test_b.py": "",
             "other/conftest.py": ""}  # fmt: skip
    assert {"conftest.py", "perf/conftest.py", "perf/test_a.py"} == set(sources(tmp_path, files).files)


def test_what_is_imported_comes_along_from_root_and_folder_and_from_there_on(tmp_path):
    files = {
        "perf/test_a.py": "import beside\nfrom tools.shapes import sizes",
        "perf/beside.py": "def f():\n    import third",
        "perf/third.py": "",
        "tools/__init__.py": "",
        "tools/shapes.py": "",
        "tools/unused.py": "",
    }
    assert {name for name in files if "unused" not in name} == set(sources(tmp_path, files).files)


def test_relative_imports_are_followed(tmp_path):
    files = {
        "perf/__init__.py": "",
        "perf/test_a.py": "from . import beside\nfrom .deep.inner import x",
        "perf/beside.py": "",
        "perf/deep/__init__.py": "",
        "perf/deep/inner.py": "",
    }
    assert set(files) == set(sources(tmp_path, files).files)


def test_modules_that_are_handed_to_pytest_as_plugins_are_followed(tmp_path):
    files = {
        "conftest.py": "pytest_plugins = ['fixtures_of_us', 'tools.more', 'xdist']",
        "perf/test_a.py": "",
        "fixtures_of_us.py": "",
        "tools/__init__.py": "",
        "tools/more.py": "",
    }
    assert set(files) == set(sources(tmp_path, files).files)


def test_plugins_beside_a_name_or_with_a_type_are_followed(tmp_path):
    text = "MORE = []\npytest_plugins: list[str] = ['fixtures_of_us', *MORE, '']"
    files = {"conftest.py": text, "perf/test_a.py": "", "fixtures_of_us.py": ""}
    found = sources(tmp_path, files)
    assert (set(files), set()) == (set(found.files), found.needs)


def test_a_package_is_imported_from_the_folder_above_it_and_a_folder_without_init_is_one_too(tmp_path):
    files = {
        "perf/beside.py": "",
        "perf/conftest.py": "",
        "perf/pkg/__init__.py": "",
        "perf/pkg/shapes.py": "",
        "perf/pkg/test_a.py": "import beside\nfrom .shapes import sizes\nfrom tools.deep.more import x",
        "tools/deep/more.py": "",
    }
    found = sources(tmp_path, files, test_id="perf/pkg/test_a.py::test_x")
    assert ("", set(files), set()) == (found.missing, set(found.files), found.needs)


def test_what_the_checkout_holds_is_not_named_as_a_package_of_others(tmp_path):
    write(tmp_path, **{"triton/README.md": "a folder without a module is none of the checkout's"})
    (tmp_path / "compiled.so").write_bytes(b"\x7fELF\xff")
    files = {
        "perf/test_a.py": "from pkg import CONSTANT, gone\nimport triton, compiled",
        "pkg/__init__.py": "CONSTANT = 1",
    }
    assert {"triton", "compiled"} == sources(tmp_path, files).needs


def test_what_pythonpath_names_is_imported_from_within_the_checkout_only(tmp_path):
    root = tmp_path / "root"
    write(tmp_path, **{"other/outside.py": ""})
    write(root, **{"perf/test_a.py": "import mylib, outside", "src/mylib/__init__.py": ""})
    found = sources_of("perf/test_a.py::test_x", root, LATE, ["src", "../other"])
    assert ({"perf/test_a.py", "src/mylib/__init__.py"}, {"outside"}) == (set(found.files), found.needs)


def test_packages_of_others_are_named_and_those_that_are_there_anyway_are_not(tmp_path):
    text = "import json, pytest, torch, numpy.linalg\nfrom triton import language\nfrom pytest_roofline import Work"
    found = sources(tmp_path, {"perf/test_a.py": text})
    assert {"numpy", "triton"} == found.needs


def test_what_is_not_a_file_of_the_checkout_is_missing(tmp_path):
    for test_id in ("gone.py::test_x", "../test_a.py::test_x", "/etc/passwd::test_x", "perf::test_x", ""):
        found = sources(tmp_path, {"perf/test_a.py": ""}, test_id=test_id)
        assert ({}, True) == (found.files, "is not below" in found.missing)


def test_a_file_that_is_no_python_is_told(tmp_path):
    found = sources(tmp_path, {"perf/test_a.py": "def"})
    assert ({}, True) == (found.files, "cannot be read as Python" in found.missing)


def test_files_that_changed_after_the_run_began_are_named(tmp_path):
    write(tmp_path, **{"perf/test_a.py": "import beside", "perf/beside.py": ""})
    os.utime(tmp_path / "perf/beside.py", (0, 0))
    assert ["perf/test_a.py"] == sources(tmp_path, {}, EARLY).newer
    assert [] == sources(tmp_path, {}, LATE).newer
