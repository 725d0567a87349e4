"""What of pytest's settings a reproducer needs is read where pytest reads it."""

import pytest

from pytest_roofline.bundle.settings_of import kept_settings, options_of, pytest_settings, words_of


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\npythonpath = src lib\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\npythonpath = ['src', 'lib']\n"),
        ("tox.ini", "[tox]\nx = %s\n[pytest]\npythonpath =\n  src\n  lib\n"),
        ("setup.cfg", "[tool:pytest]\npythonpath = src lib\n"),
    ],
)
def test_the_settings_are_found_in_every_file_that_may_hold_them(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert ["src", "lib"] == pytest_settings(tmp_path)["pythonpath"].split()


def test_the_first_file_that_is_pytests_counts(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\npythonpath = late\n")
    assert ["late"] == pytest_settings(tmp_path)["pythonpath"].split()
    (tmp_path / "pytest.ini").write_text("")
    assert {} == pytest_settings(tmp_path)


@pytest.mark.parametrize("text", ["[", "= 1", "\0", "[pytest"])
def test_a_file_that_cannot_be_read_has_no_settings(tmp_path, text):
    for name in ("pytest.ini", "pyproject.toml", "setup.cfg"):
        (tmp_path / name).write_text(text)
    assert {} == pytest_settings(tmp_path)


def test_only_what_the_tests_need_is_kept(tmp_path):
    settings = {"markers": "\na: one\nb: two", "addopts": "-x", "python_files": "bench_*.py", "testpaths": "t"}
    kept = kept_settings(settings)
    (tmp_path / "pytest.ini").write_text(kept)
    assert {"markers": "a: one\nb: two", "python_files": "bench_*.py"} == pytest_settings(tmp_path)


def test_what_was_typed_beats_addopts_and_that_the_settings():
    settings = {
        "roofline_budget": "1",
        "roofline_launcher": "srun",
        "addopts": "--roofline-budget=2 --roofline-boot-timeout 5m",
    }
    assert {
        "--roofline-budget": "3",
        "--roofline-launcher": "srun",
        "--roofline-boot-timeout": "5m",
        "--roofline-address": "host-1",
    } == options_of(settings, ["pytest", "--roofline-budget", "3", "-q", "--roofline-address=host-1"])


def test_a_quote_without_an_end_divides_at_spaces():
    settings = {"addopts": "-k 'a --roofline-budget=2", "pythonpath": "it's src"}
    assert {"--roofline-budget": "2"} == options_of(settings, ["pytest"])
    assert ["it's", "src"] == words_of(settings["pythonpath"])
