"""The page of the versions that are promised: it says what the files for JUnit say, and what they leave out."""

import shutil

import pytest

HEAD = {
    "python": "3.11.7",
    "torch": "2.10.0+cu128",
    "triton": "3.6.0",
    "numpy": "1.26.0",
    "click": "8.1.0",
}
PASSED = '<testcase classname="tests.core.test_units" name="test_a"/>'
FAILED = '<testcase classname="tests.core.test_units" name="test_b[1]">{}</testcase>'.format(
    '<failure message="assert 1 == 2&#10;more"/>'
)
SKIPPED = (
    '<testcase classname="tests.ci.test_page.TestIt" name="test_c">'
    '<skipped message="needs a browser"/></testcase>'
)
WHOLE_FILE = (
    '<testcase classname="" name="tests.ci.test_mpi"><skipped message="needs MPI"/></testcase>'
)
TORN_DOWN = '<testcase classname="tests.core.test_units" name="test_a"><error message="teardown"/></testcase>'


@pytest.fixture(scope="module")
def versions(program):
    return program("versions")


@pytest.fixture
def saved(tmp_path):
    """Saves a file for JUnit with these tests."""

    def save(*cases, name="others", begun="2026-01-02T03:04:05", **changes):
        told = "".join(
            f'<property name="{key}" value="{value}"/>'
            for key, value in (HEAD | changes).items()
            if value
        )
        folder = tmp_path / "oldest" / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        suite = f'<testsuite timestamp="{begun}"><properties>{told}</properties>{"".join(cases)}</testsuite>'
        (folder / f"{name}.xml").write_text(f"<testsuites>{suite}</testsuites>", encoding="utf-8")
        return folder

    return save


def outcomes(tried):
    return {(one.file, one.name): one.outcome for one in tried.tests}


def test_the_page_has_versions_counts_failures_and_what_did_not_run(versions, saved):
    saved(PASSED, FAILED)
    folder = saved(SKIPPED, WHOLE_FILE, name="serial", begun="2026-01-03T00:00:00")
    files = {
        "tests/core/test_units.py",
        "tests/ci/test_page.py",
        "tests/ci/test_mpi.py",
        "tests/docs/test_pages.py",
    }
    lines = versions.page([versions.read_environment("oldest", folder)], files).splitlines()
    for line in (
        "| `oldest` | 3.11.7 | 2.10.0+cu128 | 3.6.0 | 1.26.0 | 2026-01-02 to 2026-01-03 | 1 | 1 | 2 |",
        "Beside these: click 8.1.0.",
        "| `tests/core` | 1 | 1 | 0 |",
        "| `tests/ci` | 0 | 0 | 2 |",
        "* `tests/core/test_units.py::test_b[1]`: assert 1 == 2",
        "* 1 × needs a browser",
        "Files of tests that did not run: 1 of `tests/docs`.",
    ):
        assert line in lines


@pytest.mark.parametrize("cases", [(PASSED, TORN_DOWN), (TORN_DOWN, PASSED)])
def test_a_test_that_fails_in_its_teardown_has_failed(versions, saved, cases):
    tried = versions.read_environment("oldest", saved(*cases))
    assert outcomes(tried) == {("tests/core/test_units.py", "test_a"): "error"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"torch": "2.11.0"},
            "ran with other versions than the files before it: torch 2.11.0, not 2.10.0",
        ),
        ({"triton": ""}, "says no version of triton"),
    ],
)
def test_files_of_other_versions_or_of_none_are_refused(versions, saved, changes, said):
    saved(PASSED)
    folder = saved(FAILED, name="serial", begun="2026-01-03T00:00:00", **changes)
    with pytest.raises(SystemExit, match=said):
        versions.read_environment("oldest", folder)


def test_a_run_of_the_tests_says_its_versions(versions, tmp_path, pytester, request):
    # The conftest of all tests, in a run of its own, with the modules that it imports.
    tests = pytester.mkpydir("tests")
    for name in ("conftest.py", "features.py", "warm.py"):
        shutil.copy(request.config.rootpath / "tests" / name, tests)
    (tests / "test_one.py").write_text("def test_one(): pass")
    assert (
        pytester.runpytest_subprocess("-p", "no:roofline", f"--junitxml={tmp_path}/tmp/one.xml").ret
        == 0
    )
    tried = versions.read_environment("cpu", tmp_path / "tmp")
    import torch

    assert (tried.versions["torch"], len(tried.tests)) == (torch.__version__, 1)


def answer(versions, registers, seconds=100.0):
    """Return what the command told of a kernel whose registers changed, and of one that is the same."""
    rows = [
        {"metric": "kernel", "label": label, "target": "sm_90", "baseline_figures": {"registers": 64},
         "figures": {"registers": after}}
        for label, after in (("flash[a]", registers), ("flash[b]", 64))
    ]  # fmt: skip
    facts = {
        "tests": rows,
        "sentence": "RED: 1 REGRESSED, 1 of 2 no worse",
        "notes": ["on A only: flash[c]"],
    }
    return versions.Answer(facts, seconds)


def test_two_compilers_have_a_line_for_each_figure_that_differs_and_must_answer_twice_alike(
    versions,
):
    same = versions.tritons_part("3.6.0", "3.9.0", *(answer(versions, 72) for _ in range(2)))
    assert ["| `flash[a]` | sm_90 | registers | 64 | 72 | worse |"] == [
        line for line in same.splitlines() if line.startswith("| `")
    ]
    assert "gave the same answer after 100 s and 100 s: RED: 1 REGRESSED" in same
    assert "* on A only: flash[c]" in same
    other = versions.tritons_part(
        "3.6.0", "3.9.0", answer(versions, 72), answer(versions, 73, 301.0)
    )
    assert "gave **another answer** after 100 s and 301 s, **over 300 s**" in other


def test_a_folder_of_wheels_names_two_compilers_the_older_first(versions, tmp_path):
    for version in ("3.10.0", "3.9.0"):
        (tmp_path / f"triton-{version}-cp311-cp311-manylinux_2_27_x86_64.whl").touch()
    assert ("3.9.0", "3.10.0") == versions.versions_in(tmp_path)
    (tmp_path / "triton-3.6.0-cp311-cp311-manylinux_2_27_x86_64.whl").touch()
    with pytest.raises(
        SystemExit, match=r"has wheels of Triton 3\.6\.0, 3\.9\.0, 3\.10\.0; expected two"
    ):
        versions.versions_in(tmp_path)


def test_the_page_of_environments_keeps_the_part_on_compilers(
    versions, saved, tmp_path, monkeypatch
):
    page = tmp_path / "page.md"
    page.write_text(
        "\n\n".join(
            [versions.comments(versions.PART)[0], "kept", versions.comments(versions.PART)[1]]
        )
    )
    monkeypatch.setattr("sys.argv", ["versions.py", str(saved(PASSED)), "-o", str(page)])
    versions.main()
    text = page.read_text(encoding="utf-8")
    assert "kept" == versions.part_of(text, versions.PART)
    assert text.startswith("# The versions that are promised, tried")


def test_the_first_sentence_counts_what_failed_in_each_environment(versions):
    assert versions.conclusion({"oldest": (8, 2, 5), "image": (1000, 0, 0)}) == (
        "Of the tests that ran, 2 of 10 with `oldest` and 0 of 1,000 with `image` failed."
    )
