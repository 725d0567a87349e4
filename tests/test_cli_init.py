"""`roofline init`: what it writes, that it overwrites nobody's work, and what a later version renews."""

import errno
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline import cli_init, starting, starting_plan
from pytest_roofline.cli import main
from pytest_roofline.starting_plan import MANIFEST
from pytest_roofline.version import __version__

from . import warm

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ".github/workflows/roofline.yml"
MEMCPY = "perf_tests/test_memcpy.py"
H100 = "baselines/h100.json"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder, in which the command is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments):
    """The command's result."""
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def done(*arguments):
    """What a command that succeeds says of what it did."""
    result = init(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments):
    """The one sentence of a command that refuses."""
    result = init(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("roofline: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def tree(folder):
    """Every file below a folder with what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def later(monkeypatch, version="9.0", **changes):
    """Have a later version of the package installed, whose files are others; None is one that no longer ships."""
    every = starting.shipped()
    for name, text in changes.items():
        every[name] = text and text.encode()
    monkeypatch.setattr(cli_init, "shipped", lambda: {name: data for name, data in every.items() if data is not None})
    monkeypatch.setattr(cli_init, "__version__", version)


def changed(name, text):
    """As an argument of `later`, since paths are no names."""
    return {name: text}


def test_it_writes_the_suite_the_baselines_and_a_workflow(home):
    assert init("new").exit_code == 0
    suite = {f"perf_tests/{path.name}" for path in (ROOT / "perf_tests").glob("*.py")}
    baselines = {f"baselines/{path.name}" for path in (ROOT / "baselines").glob("*.json")}
    texts = {"pytest.ini", "perf_tests/README.md", "baselines/README.md", WORKFLOW, MANIFEST}
    assert suite | baselines | texts == set(tree(home / "new"))


def test_what_it_writes_is_what_ships(home):
    init("new")
    sources = [*(ROOT / "perf_tests").glob("*.py"), *(ROOT / "baselines").glob("*.json")]
    for path in sources:
        assert path.read_bytes() == (home / "new" / path.relative_to(ROOT)).read_bytes()


def test_the_suite_is_collected_there(home):
    init("new")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", "perf_tests", "-k", "memcpy_h2h", "--collect-only"],
        cwd=home / "new",
        env=plain,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "test_memcpy_h2h[4KiB]" in found.stdout


def test_without_the_ini_file_the_suite_is_collected_as_well(home):
    (home / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    init(".", "--ci=none")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", "perf_tests", "-q", "--collect-only"], cwd=home, env=plain
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "perf_tests/test_memcpy.py::test_memcpy_h2h[4KiB]" in found.stdout


def test_the_command_says_what_to_do_next(home):
    assert init("a folder").stdout.splitlines()[-1] == "next: cd 'a folder' && pytest perf_tests -k memcpy"
    assert init(".").stdout.splitlines()[-1] == "next: pytest perf_tests -k memcpy"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {WORKFLOW}),
        (["--ci=github"], {WORKFLOW}),
        (["--ci=gitlab"], {".gitlab-ci.yml"}),
        (["--ci=slurm", "--ci=gitlab"], {".gitlab-ci.yml", "roofline.sbatch"}),
        (["--ci=none"], set()),
    ],
)
def test_files_are_written_for_the_ci_that_was_asked_for(home, options, expected):
    assert expected == set(done("new", *options)["written"]) & {target for _, target in starting.CI.values()}


def test_none_beside_a_ci_is_a_usage_error(home):
    result = init("new", "--ci=none", "--ci=slurm")
    assert (result.exit_code, "expected one or the other" in result.stderr) == (2, True)
    assert not (home / "new").exists()


def test_a_second_run_writes_nothing_and_keeps_to_the_ci_of_the_first(home):
    init("new", "--ci=gitlab")
    before = tree(home / "new")
    again = done("new")
    assert ([], before) == (again["written"], tree(home / "new"))
    assert set(before) - {MANIFEST} == set(again["same"])


def test_another_ci_can_be_added(home):
    init("new", "--ci=gitlab")
    assert done("new", "--ci=slurm")["written"] == ["roofline.sbatch"]
    assert {".gitlab-ci.yml", "roofline.sbatch"} <= set(done("new")["same"])


def test_files_that_differ_are_refused_by_name_before_anything_is_written(home):
    for name in (MEMCPY, H100):
        (home / name).parent.mkdir()
        (home / name).write_text("mine\n")
    said = refused(".")
    assert f"{H100}, {MEMCPY} are there already" in said
    assert "--force" in said
    assert {MEMCPY: b"mine\n", H100: b"mine\n"} == tree(home)


def test_files_that_are_the_same_are_left_and_belong_to_the_suite_from_then_on(home, monkeypatch):
    (home / "perf_tests").mkdir()
    (home / MEMCPY).write_bytes((ROOT / MEMCPY).read_bytes())
    assert MEMCPY in done(".")["same"]
    later(monkeypatch, **changed(MEMCPY, "newer\n"))
    assert [MEMCPY] == done(".")["outdated"]


def test_force_overwrites_what_differs(home):
    (home / "perf_tests").mkdir()
    (home / MEMCPY).write_text("mine\n")
    assert MEMCPY in done(".", "--force")["written"]
    assert (home / MEMCPY).read_bytes() == (ROOT / MEMCPY).read_bytes()


def test_a_later_version_names_what_it_would_renew_and_writes_only_what_is_new(home, monkeypatch):
    init("new")
    later(monkeypatch, **changed(MEMCPY, "newer\n"), **changed("perf_tests/test_more.py", "more\n"))
    result = init("new")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "1 file written into new: perf_tests/test_more.py",
        f"left: {MEMCPY}: a newer one ships, and you have not changed it",
        "1 file is as an earlier version wrote it; `roofline init new --update` renews to 9.0",
    ]
    assert (home / "new" / MEMCPY).read_bytes() == (ROOT / MEMCPY).read_bytes()


def test_update_renews_what_was_not_changed_and_leaves_and_names_what_was(home, monkeypatch):
    init("new")
    (home / "new" / H100).write_text("{}\n")
    later(monkeypatch, **changed(MEMCPY, "newer\n"), **changed(H100, "newer\n"))
    said = done("new", "--update")
    assert ([MEMCPY], [H100], []) == (said["written"], said["changed"], said["outdated"])
    assert (b"newer\n", b"{}\n") == ((home / "new" / MEMCPY).read_bytes(), (home / "new" / H100).read_bytes())
    assert (__version__, "9.0") == (said["version_before"], done("new")["version_before"])


def test_a_change_stays_the_users_however_often_the_command_is_called(home, monkeypatch):
    init("new")
    (home / "new" / MEMCPY).write_text("mine\n")
    for text in ("newer\n", "newest\n"):
        later(monkeypatch, **changed(MEMCPY, text))
        assert [MEMCPY] == done("new", "--update")["changed"]
    assert (home / "new" / MEMCPY).read_text() == "mine\n"


def test_the_version_before_is_told_until_everything_is_renewed(home, monkeypatch):
    init("new")
    later(monkeypatch, **changed(MEMCPY, "newer\n"), **changed("perf_tests/test_more.py", "more\n"))
    init("new")
    assert done("new")["version_before"] == __version__


def test_what_the_user_removed_stays_away_until_forced(home):
    init("new")
    (home / "new" / MEMCPY).unlink()
    said = done("new", "--update")
    assert ([], [MEMCPY]) == (said["written"], said["removed"])
    assert [MEMCPY] == done("new", "--force")["written"]


def test_what_no_longer_ships_is_named_and_left(home, monkeypatch):
    init("new")
    later(monkeypatch, **changed(MEMCPY, None))
    for options in ([], ["--update"], ["--force"]):
        assert [MEMCPY] == done("new", *options)["no_longer_shipped"]
    assert (home / "new" / MEMCPY).exists()
    (home / "new" / MEMCPY).unlink()
    assert [] == done("new")["no_longer_shipped"]
    assert MEMCPY not in json.loads((home / "new" / MANIFEST).read_text())["files"]


def test_a_file_for_ci_that_you_have_changed_is_told_to_ask_for_another_version(home, monkeypatch):
    init("new", "--ci=github", "--ci=gitlab")
    path = home / "new" / WORKFLOW
    path.write_text(path.read_text().replace("pytest-roofline==", "pytest-roofline[nvidia]=="))
    assert done("new")["notes"] == []
    later(monkeypatch)
    for options in ([], ["--update"]):
        assert done("new", *options)["notes"] == [
            f"{WORKFLOW} asks for pytest-roofline=={__version__}, and this is 9.0: write it there, since what you have "
            "changed is not renewed"
        ]
    assert done("new", "--force")["notes"] == []


def test_what_was_changed_is_told_how_to_compare_and_what_force_does(home):
    init("new", "--ci=gitlab")
    (home / "new" / MEMCPY).write_text("mine\n")
    assert init("new").stdout.splitlines()[-1] == (
        "to see what ships: `roofline init other --ci=gitlab` and `diff -r other new`; `roofline init new --force` "
        "overwrites yours with it"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\n"),
        ("pytest.toml", "[pytest]\n"),
        ("pyproject.toml", "[project]\nname = 'x'\n[tool.pytest.ini_options]\n"),
        ("pyproject.toml", "[tool.pytest]\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
    ],
)
def test_a_configuration_of_pytest_that_is_there_stays_the_only_one(home, name, text):
    (home / name).write_text(text)
    said = done(".")
    assert "pytest.ini" not in said["written"]
    assert [f"no pytest.ini is written, since {name} configures pytest here; the suite needs nothing of it"] == said[
        "notes"
    ]
    assert (home / name).read_text() == text


def test_a_project_that_does_not_configure_pytest_gets_a_configuration(home):
    (home / "pyproject.toml").write_text("[project]\nname = 'pytest'\n[tool.pytester]\n")
    assert "pytest.ini" in done(".")["written"]


def test_our_own_ini_file_is_no_configuration_of_somebody_else(home):
    init(".")
    said = done(".")
    assert ("pytest.ini" in said["same"], said["notes"]) == (True, [])


def test_a_workflow_below_the_top_of_a_repository_is_told_where_it_belongs(home):
    (home / ".git").mkdir()
    start = f"is read at the top of a repository, which is {home}: move it there,"
    # That a job works after these changes is tested in tests/slow/ci.
    assert done("bench/gpu", "--ci=github", "--ci=gitlab", "--ci=slurm")["notes"] == [
        f"{WORKFLOW} {start} add `working-directory: bench/gpu` under the `run:` of `defaults:`, and write bench/gpu/ "
        "before every `path:`, those of the cache and of the report",
        f".gitlab-ci.yml {start} begin before_script and after_script with `cd bench/gpu`, and write bench/gpu/ before "
        "the paths of cache and artifacts, also that of junit",
    ]
    assert done(".", "--ci=github")["notes"] == []


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("perf_tests", Path.touch, "perf_tests is no folder"),
        ("perf_tests", lambda path: path.symlink_to("nowhere"), "perf_tests is a link that leads nowhere"),
        (".github", Path.touch, ".github is no folder"),
        ("pytest.ini", Path.mkdir, "pytest.ini is no file"),
        ("pytest.ini", lambda path: path.symlink_to("nowhere"), "pytest.ini is a link that leads nowhere"),
        ("pytest.ini", lambda path: path.symlink_to("pytest.ini"), "pytest.ini is a link that leads nowhere"),
    ],
)
def test_what_is_no_folder_or_no_file_is_refused(home, name, make, words):
    make(home / name)
    for options in ([], ["--force"]):
        assert words in refused(".", *options)
    assert [name] == [path.name for path in home.iterdir()]


def test_a_file_in_place_of_the_folder_is_refused(home):
    (home / "new").touch()
    assert "new is no folder" in refused("new")
    assert "new is no folder" in refused("new/below")


def test_a_link_to_itself_in_place_of_the_folder_is_refused(home):
    (home / "loop").symlink_to("loop")
    assert "loop is a link that leads nowhere" in refused("loop")
    assert "loop is a link that leads nowhere" in refused("loop/below")


def test_a_link_may_be_the_folder_itself(home):
    (home / "real").mkdir()
    (home / "link").symlink_to("real")
    assert init("link").exit_code == 0
    assert (home / "real" / MEMCPY).is_file()


@pytest.mark.parametrize("name", ["perf_tests", MEMCPY])
def test_nothing_is_written_through_a_link_that_leads_out_of_the_folder(home, name):
    outside, link = home / "outside", home / "new" / name
    link.parent.mkdir(parents=True)
    if name == MEMCPY:
        outside.write_text("mine\n")
    else:
        outside.mkdir()
    link.symlink_to(outside)
    said = refused("new", "--force")
    assert ("by a link, which is not in new" in said, "nothing was written" in said) == (True, True)
    assert link.is_symlink()
    assert (outside.read_text() == "mine\n") if name == MEMCPY else (list(outside.iterdir()) == [])
    assert not (home / "new" / MANIFEST).exists()


def test_a_link_that_stays_in_the_folder_is_followed_and_stays_a_link(home):
    (home / "new" / "shared").mkdir(parents=True)
    (home / "new" / "shared" / "mine.py").write_text("mine\n")
    (home / "new" / "perf_tests").mkdir()
    (home / "new" / MEMCPY).symlink_to("../shared/mine.py")
    (home / "new" / "baselines").symlink_to("shared")
    assert {MEMCPY, H100} <= set(done("new", "--force")["written"])
    assert ((home / "new" / MEMCPY).is_symlink(), (home / "new" / "baselines").is_symlink()) == (True, True)
    shared = tree(home / "new" / "shared")
    assert [(ROOT / MEMCPY).read_bytes(), (ROOT / H100).read_bytes()] == [shared["mine.py"], shared["h100.json"]]


def test_a_name_that_is_no_text_is_printed_and_is_json(home):
    name = os.fsdecode(b"not\xfftext\x1b[31m")
    said = init(name)
    assert (said.exit_code, "\x1b" in said.stdout) == (0, False)
    raw = CliRunner().invoke(main, ["init", name, "--json"]).stdout_bytes
    assert json.loads(raw)["folder"] == name


def test_an_empty_name_is_no_folder(home):
    assert (init("").exit_code, list(home.iterdir())) == (2, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("{", "is not JSON"),
        ("[]", "is a list; expected an object"),
        ('{"schema": 99, "version": "1", "files": {}}', "schema version 99"),
        ('{"schema": 1, "version": "1", "files": {"a": 1}}', "Expected `str`, got `int`"),
        ('{"schema": 1, "version": "1", "files": {}, "more": 1}', "unknown field `more`"),
    ],
)
def test_a_damaged_manifest_is_refused(home, text, words):
    (home / MANIFEST).write_text(text)
    assert words in refused(".")
    assert [MANIFEST] == [path.name for path in home.iterdir()]


def test_names_of_a_manifest_reach_no_file_and_no_terminal(home):
    init(".")
    raw = json.loads((home / MANIFEST).read_text())
    raw["files"] |= {"../outside.py": "sha256:0", "bell\u0007": "sha256:0"}
    (home / MANIFEST).write_text(json.dumps(raw))
    (home.parent / "outside.py").write_text("theirs\n")
    (home / "bell\u0007").touch()
    result = init(".", "--update")
    assert (result.exit_code, "\u0007" in result.stdout, "../outside.py" in result.stdout) == (0, False, True)
    assert (home.parent / "outside.py").read_text() == "theirs\n"


def full(monkeypatch, method, after):
    """A disk that is full after so many calls of a method of `Path`."""
    real, calls = getattr(Path, method), []

    def limited(path, *arguments):
        calls.append(path)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, *arguments)

    monkeypatch.setattr(Path, method, limited)


def test_a_full_disk_is_one_sentence_and_nothing_was_written(home, monkeypatch):
    with monkeypatch.context() as patch:
        full(patch, "write_bytes", 5)
        assert "new cannot be written: No space left on device; nothing was written" in refused("new")
    assert list(home.iterdir()) == []
    assert init("new").exit_code == 0


def test_a_disk_that_fills_up_between_leaves_whole_files_and_can_be_run_again(home, monkeypatch):
    with monkeypatch.context() as patch:
        full(patch, "replace", 5)
        said = refused("new")
    written = len(starting.shipped()) - 2 + 1
    assert f"5 of {written} files are in place, run it again for the others" in said
    assert len(tree(home / "new")) == 5
    assert (len(done("new")["written"]), written) == (written - 6, len(tree(home / "new")))


def test_an_installation_without_the_suite_says_so(home, monkeypatch):
    monkeypatch.setattr(starting, "SOURCES", home)
    monkeypatch.setattr(starting, "STARTER", home)
    for name in starting.TEXTS:
        (home / name).touch()
    assert f"has no {home / 'perf_tests'}; expected what its wheel holds there" in refused("new")


def test_the_ini_file_is_strict_about_markers_and_imports_by_path(home):
    init(".")
    text = (home / "pytest.ini").read_text()
    assert {"--import-mode=importlib", "--strict-markers"} <= set(re.search("addopts = (.*)", text)[1].split())


def test_no_text_that_is_written_leads_to_a_page_that_is_not(home):
    init(".")
    for path in home.rglob("*.md"):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
        assert [target for target in targets if not (path.parent / target).exists()] == []


def test_no_file_that_is_written_names_a_page_that_an_installed_user_does_not_have(home):
    init(".", "--ci=github", "--ci=gitlab", "--ci=slurm")
    written = [path for path in tree(home) if not path.endswith((".py", ".json"))]
    assert len(written) == 6
    assert [path for path in written if "docs/" in (home / path).read_text()] == []


def test_the_files_for_ci_ask_for_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] + f"=={__version__}"
    for name in ("github-actions.yml", "gitlab-ci.yml"):
        told = re.findall(r"ROOFLINE_PACKAGE: (\S+)", (ROOT / "docs" / "ci" / name).read_text())
        assert [version] == told, f"{name} installs another version than this one; write {version} there"


def test_what_hashes_are_of_is_told_in_the_manifest(home):
    init(".")
    raw = json.loads((home / MANIFEST).read_text())
    assert (raw["version"], raw["files"][MEMCPY]) == (
        __version__,
        starting_plan.hash_of((ROOT / MEMCPY).read_bytes()),
    )
