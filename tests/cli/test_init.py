"""`roofline init`: what it writes, and that it overwrites nobody's work."""

import errno
import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.cli import output as cli_init
from pytest_roofline.cli.main import main

from .. import warm

ROOT = Path(__file__).resolve().parents[2]
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


def test_it_writes_what_ships_and_a_workflow(home):
    assert init("new").exit_code == 0
    sources = [*(ROOT / "perf_tests").glob("*.py"), *(ROOT / "baselines").glob("*.json")]
    texts = {"pytest.ini", "perf_tests/README.md", "baselines/README.md", WORKFLOW}
    written = tree(home / "new")
    assert {str(path.relative_to(ROOT)) for path in sources} | texts == set(written)
    assert all(path.read_bytes() == written[str(path.relative_to(ROOT))] for path in sources)


def test_the_suite_is_collected_there_also_where_pytest_is_configured_already(home):
    (home / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    init(".", "--ci=none")
    assert not (home / "pytest.ini").exists()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", "perf_tests", "-q", "--collect-only"], cwd=home, env=plain
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "perf_tests/test_memcpy.py::test_memcpy_h2h[4KiB]" in found.stdout


def test_the_command_says_what_it_wrote_and_what_to_do_next(home):
    first, last = init("a folder").stdout.splitlines()
    assert re.fullmatch(r"\d+ files written into a folder: baselines/ \d+, perf_tests/ \d+, \.github/.*", first)
    assert last == "next: cd 'a folder' && pytest perf_tests -k memcpy"
    assert init(".").stdout.splitlines()[-1] == "next: pytest perf_tests -k memcpy"


def test_files_are_written_for_the_ci_that_was_asked_for(home):
    every = {target for _, target in cli_init.CI.values()}
    for number, (options, expected) in enumerate((
        ([], {WORKFLOW}),
        (["--ci=github"], {WORKFLOW}),
        (["--ci=slurm", "--ci=gitlab"], {".gitlab-ci.yml", "roofline.sbatch"}),
        (["--ci=none"], set()),
    )):  # fmt: skip
        assert expected == set(done(f"new{number}", *options)["written"]) & every


def test_a_second_run_writes_nothing(home):
    init("new")
    before = tree(home / "new")
    again = done("new")
    assert ([], before, set(before)) == (again["written"], tree(home / "new"), set(again["same"]))


def test_files_that_differ_are_refused_by_name_and_overwritten_by_force(home):
    for name in (MEMCPY, H100):
        (home / name).parent.mkdir()
        (home / name).write_text("mine\n")
    assert f"{H100}, {MEMCPY} are there already and differ from what ships; nothing was written, --force" in refused(
        "."
    )
    assert {MEMCPY: b"mine\n", H100: b"mine\n"} == tree(home)
    assert {MEMCPY, H100} <= set(done(".", "--force")["written"])
    assert (home / MEMCPY).read_bytes() == (ROOT / MEMCPY).read_bytes()


def test_update_says_what_to_use_instead(home):
    result = init("new", "--update")
    assert (result.exit_code, list(home.iterdir())) == (2, [])
    assert "commit your changes, call it with --force, and read `git diff`" in result.stderr


def test_a_configuration_of_pytest_that_is_there_stays_the_only_one(home):
    for number, (name, text) in enumerate((
        ("pytest.toml", "[pytest]\n"),
        ("pyproject.toml", "[project]\nname = 'x'\n[tool.pytest.ini_options]\n"),
        ("pyproject.toml", "[tool.pytest]\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
    )):  # fmt: skip
        (home / str(number)).mkdir()
        (home / str(number) / name).write_text(text)
        assert f"note: no pytest.ini is written, since {name} configures pytest here" in init(number).stdout
        assert not (home / str(number) / "pytest.ini").exists()
    (home / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "pytest.ini" in done(".")["written"]


def test_a_workflow_below_the_top_of_a_repository_is_told_where_it_belongs(home):
    (home / ".git").mkdir()
    # That a job works after these changes is tested in tests/slow/ci.
    told = init("bench/gpu", "--ci=github", "--ci=gitlab", "--ci=slurm").stdout
    assert f"note: {WORKFLOW} is read at the top of a repository only: move it there, and put bench/gpu/" in told
    assert "note: .gitlab-ci.yml is read at the top" in told
    assert "roofline.sbatch is read" not in told
    assert "note" not in init(".", "--ci=github").stdout


def test_what_is_no_folder_or_no_file_is_refused(home):
    for number, (name, make) in enumerate((
        ("perf_tests", Path.touch),
        ("pytest.ini", Path.mkdir),
        ("pytest.ini", lambda path: path.symlink_to("pytest.ini")),
    )):  # fmt: skip
        folder = home / str(number)
        folder.mkdir()
        make(folder / name)
        for options in ([], ["--force"]):
            said = refused(folder, *options)
            assert ("is no file that can be read" in said, "nothing was written" in said) == (True, True)
        assert [name] == [path.name for path in folder.iterdir()]
    (home / "file").touch()
    assert "is a file" in init("file").stderr


def test_nothing_is_written_through_a_link_that_leads_out_of_the_folder(home):
    (home / "outside").mkdir()
    (home / "outside" / "test_memcpy.py").write_text("mine\n")
    for number, name in enumerate(("perf_tests", MEMCPY)):
        link = home / str(number) / name
        link.parent.mkdir(parents=True)
        link.symlink_to(home / ("outside/test_memcpy.py" if name == MEMCPY else "outside"))
        assert f"leads out of {number} by a link; nothing was written" in refused(number, "--force")
    assert {"test_memcpy.py": b"mine\n"} == tree(home / "outside")


def test_a_name_that_is_no_text_is_printed_and_is_json(home):
    name = os.fsdecode(b"not\xfftext\x1b[31m")
    said = init(name)
    assert (said.exit_code, "\x1b" in said.stdout) == (0, False)
    raw = CliRunner().invoke(main, ["init", name, "--json"]).stdout_bytes
    assert json.loads(raw)["folder"] == name


def test_a_full_disk_is_one_sentence_and_the_command_can_be_called_again(home, monkeypatch):
    real, calls = Path.write_bytes, []

    def limited(path, data):
        calls.append(path)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", limited)
        assert "cannot be written: No space left on device; 5 of" in refused("new")
    assert init("new", "--force").exit_code == 0


def test_an_installation_without_the_suite_says_so(home, monkeypatch):
    monkeypatch.setattr(cli_init, "SOURCES", home)
    monkeypatch.setattr(cli_init, "STARTER", home)
    for name in cli_init.TEXTS:
        (home / name).touch()
    assert f"has no {home / 'perf_tests'}; expected what its wheel holds there" in refused("new")


def test_the_ini_file_is_strict_about_markers_and_imports_by_path(home):
    init(".")
    text = (home / "pytest.ini").read_text()
    assert {"--import-mode=importlib", "--strict-markers"} <= set(re.search("addopts = (.*)", text)[1].split())


def test_no_text_that_is_written_leads_to_a_page_that_an_installed_user_does_not_have(home):
    init(".", "--ci=github", "--ci=gitlab", "--ci=slurm")
    for path in home.rglob("*.md"):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
        assert [target for target in targets if not (path.parent / target).exists()] == []
    written = [path for path in tree(home) if not path.endswith((".py", ".json"))]
    assert len(written) == 6
    assert [path for path in written if "docs/" in (home / path).read_text()] == []
