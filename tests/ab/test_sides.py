"""What a word means: commits in worktrees, environments, and sentences where a side cannot be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_roofline.ab import making, sides, submodules
from pytest_roofline.ab.sides import parse_side, parse_sides, prepare_sides
from pytest_roofline.core.errors import BadInput

from .conftest import git


def test_a_side_is_taken_apart():
    for text, *parts in (
        (".", ".", "", ""),
        ("main", "commit", "main", ""),
        ("v1.0,build=make -C csrc,all", "commit", "v1.0", "make -C csrc,all"),
        ("commit:a/b", "commit", "a/b", ""),
        ("merge-base", "merge-base", "", ""),
        ("merge-base:next,build=make", "merge-base", "next", "make"),
        ("python:/opt/env", "python", "/opt/env", ""),
        ("with:torch>=2.12,build=3", "with", "torch>=2.12,build=3", ""),
        ("lock:uv.lock", "lock", "uv.lock", ""),
        ("var:A=b=c:d", "var", "A=b=c:d", ""),
        ("param:execution=eager", "param", "execution=eager", ""),
    ):
        one = parse_side(text)
        assert [one.kind, one.value, one.build] == parts, text


def test_what_is_no_side_is_refused_with_what_is():
    for a, b, why in (
        ("", ".", "side '' has an unknown form; expected . (the code as it stands), commit:REF"),
        ("branch:main", ".", "side 'branch:main' has an unknown form"),
        ("--force", ".", "side '--force' has an unknown form"),
        ("commit:", ".", "has nothing after 'commit:'"),
        ("python:", ".", "has nothing after 'python:'"),
        (".,build=make", ".", "has the build command 'make'; expected a commit and a command"),
        ("main,build=", ".", "has the build command ''"),
        ("var:A", ".", "names no value; expected var:NAME=VALUE"),
        ("param:a=1", ".", "expected the same parameter of tests on both"),
        ("param:a=1", "param:b=1", "expected the same parameter of tests on both"),
        ("param:a=1", "param:a=1", "both sides are 'param:a=1'"),
    ):
        with pytest.raises(BadInput) as raised:
            parse_sides(a, b)
        assert why in str(raised.value), (a, b)


def made(a, b=".", cwd=None):
    """Both sides, and nothing of them behind it."""
    return prepare_sides(dict(zip("AB", parse_sides(a, b), strict=True)), cwd or Path.cwd())


def refused(text, cwd=None):
    """Why a side cannot be made."""
    with pytest.raises(BadInput) as raised, made(text, cwd=cwd):
        pass
    return str(raised.value)


@pytest.fixture
def _plain(monkeypatch):
    """No interpreter is asked what it imports."""
    monkeypatch.setattr(sides, "_import_paths", lambda *_: ([], []))


@pytest.mark.usefixtures("_plain")
def test_a_commit_lies_in_a_worktree_that_is_gone_behind_it(repository):
    base = git(repository, "rev-parse", "main")
    (repository / "code.py").write_text("not committed")
    for text in ("main", "commit:main", base[:12], "merge-base", "merge-base:main"):
        with made(text, cwd=repository / "bench") as both:
            old, new = both["A"], both["B"]
            assert (old.commit, new.commit) == (base, "")
            assert (
                Path(old.folder, "code.py").read_text(),
                (old.cwd / "test_it.py").read_text(),
            ) == ("old", "old")
            assert (old.checkout, new.folder, new.cwd) == (
                str(repository),
                str(repository),
                repository / "bench",
            )
            assert str(old) == (f"{text} ({base[:10]})" if text != base[:12] else text)
            assert sides.pin_commit(old.spec, base).value == base
        assert not Path(old.folder).exists()
        assert len(git(repository, "worktree", "list").splitlines()) == 1
    with pytest.raises(KeyboardInterrupt), made("main"):
        raise KeyboardInterrupt
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    # Those of a run that was killed, whose folder the system has emptied.
    left = repository.parent / "roofline-ab-1" / "worktree"
    git(repository, "worktree", "add", "--detach", str(left), "main")
    left.parent.rename(repository.parent / "elsewhere")
    with made("."):
        assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert (repository / "code.py").read_text() == "not committed"


@pytest.fixture
def nested(repository, tmp_path, monkeypatch):
    """The repository with a submodule by a relative URL, which has another; the user has left both out."""
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    for name in ("inner", "outer"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q", "-b", "main")
        (tmp_path / name / "file").write_text(name)
        git(tmp_path / name, "add", "-A")
        git(tmp_path / name, "commit", "-q", "-m", name)
    git(tmp_path / "outer", "submodule", "--quiet", "add", str(tmp_path / "inner"), "in side")
    git(tmp_path / "outer", "commit", "-q", "-m", "with its own")
    git(repository, "remote", "add", "origin", str(repository))
    git(repository, "submodule", "--quiet", "add", "../outer", "out side")
    git(repository, "commit", "-q", "-m", "with a submodule")
    git(repository, "submodule", "--quiet", "deinit", "-f", "out side")
    return repository


@pytest.mark.usefixtures("_plain")
def test_the_submodules_of_a_commit_are_there_and_the_settings_stay_as_they_are(nested):
    settings = nested / ".git" / "config"
    before = settings.read_bytes()
    with made("HEAD") as both:
        folder = Path(both["A"].folder, "out side")
        assert (folder / "file").read_text() == "outer"
        assert (folder / "in side" / "file").read_text() == "inner"
        assert settings.read_bytes() == before
    assert settings.read_bytes() == before
    # What the user says of it holds: it stays out.
    git(nested, "config", "submodule.out side.active", "false")
    with made("HEAD") as both:
        assert list(Path(both["A"].folder, "out side").iterdir()) == []


@pytest.mark.usefixtures("_plain")
def test_no_program_that_the_repository_or_a_template_names_is_run(nested, tmp_path, monkeypatch):
    program, trace = tmp_path / "program", tmp_path / "trace"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {trace}\n')
    program.chmod(0o755)
    for place in (nested / ".git" / "hooks", tmp_path / "template" / "hooks"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("post-checkout", "post-index-change", "reference-transaction"):
            (place / name).symlink_to(program)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(tmp_path / "template"))
    git(nested, "config", "core.fsmonitor", str(program))
    git(nested, "config", "submodule.out side.update", f"!{program}")
    trace.unlink(missing_ok=True)
    with made("HEAD") as both:
        assert Path(both["A"].folder, "out side", "file").read_text() == "outer"
    assert not trace.exists()


@pytest.mark.parametrize(
    ("url", "remote", "absolute"),
    [
        ("https://host/a/b.git", "https://other/c", "https://host/a/b.git"),
        ("../b.git", "https://host/group/a.git", "https://host/group/b.git"),
        ("../../b", "ssh://git@host/group/a/", "ssh://git@host/b"),
        ("./b", "/srv/a", "/srv/a/b"),
        ("../b", "host:a", "host:b"),
        ("../b/", "host:group/a", "host:group/b"),
    ],
)
def test_a_relative_url_of_a_submodule_is_resolved_as_git_does(repository, url, remote, absolute):
    assert submodules.absolute_url(url, remote) == absolute
    # Git's own word.
    git(repository, "remote", "add", "origin", remote)
    (repository / ".gitmodules").write_text(f'[submodule "m"]\n\tpath = m\n\turl = {url}\n')
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},m")
    git(repository, "submodule", "--quiet", "init", "m")
    assert git(repository, "config", "submodule.m.url") == absolute


@pytest.mark.usefixtures("_plain")
def test_a_commit_that_cannot_be_had_says_why(repository, tmp_path, monkeypatch):
    assert "this repository has no commit 'absent'" in refused("absent")
    assert (
        "this repository has none of the branches absent, origin/absent; fetch the branch, or name another"
        in refused("merge-base:absent")
    )
    monkeypatch.setenv("GITHUB_BASE_REF", "next")
    git(repository, "checkout", "-q", "--orphan", "alone")
    git(repository, "commit", "-q", "-m", "alone")
    assert "HEAD and main have no commit in common in this repository; name the branch" in refused(
        "merge-base"
    )
    git(repository, "checkout", "-q", "-f", "feature")
    # As CI has it: two commits, and nothing of how they belong together.
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=feature", repository.as_uri(), str(shallow))
    git(shallow, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/next")
    monkeypatch.delenv("GITHUB_BASE_REF")
    monkeypatch.setenv("CHANGE_TARGET", "next")
    why = refused("merge-base", cwd=shallow)
    assert (
        "HEAD and origin/next have no commit in common in this repository; this clone is shallow"
        in why
    )
    assert "fetch-depth: 0" in why
    with monkeypatch.context() as patch:
        for name in ("TEST_ASSUME_DIFFERENT_OWNER", "CONFIG_NOSYSTEM"):
            patch.setenv(f"GIT_{name}", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        with pytest.raises(making.CommandError) as raised, made("main"):
            pass
    assert "safe.directory" in raised.value.lines
    (tmp_path / "none").mkdir()
    assert "git found no repository in this folder; expected a side without a commit" in refused(
        "main", cwd=tmp_path / "none"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "the program git is not in PATH" in refused("main")


def test_code_that_was_installed_from_the_checkout_comes_from_the_worktree(repository, monkeypatch):
    """As an editable install has it, on a path or, of setuptools, in the table of a finder."""
    (repository / "src").mkdir()
    (repository / "src" / "package.py").write_text("")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "package")
    (repository / "src" / "package.py").write_text("raise AssertionError")
    # A home, say, is often a link to where it lies.
    (repository.parent / "link").symlink_to(repository)
    for source in ("src", str(repository.parent / "link" / "src")):
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, "/opt/mine")))
        with made("HEAD") as both:
            side = both["A"]
            assert side.environ["PYTHONPATH"].split(os.pathsep) == [
                f"{side.folder}/src",
                "/opt/mine",
            ]
            asked = [side.python, "-c", "import package; print(package.__file__)"]
            told = subprocess.run(
                asked, env=side.environ, capture_output=True, text=True, check=True
            )
            assert told.stdout.strip() == f"{side.folder}/src/package.py"
    found = [
        str(repository / "lib"),
        str(repository / ".venv" / "lib" / "site-packages"),
        "/usr/lib",
    ]
    # As `/usr` may hold the checkout, too.
    prefixes = [str(repository / ".venv"), str(repository.parent)]
    monkeypatch.setattr(sides, "_import_paths", lambda *_: (found, prefixes))
    with made("HEAD") as both:
        assert both["A"].environ["PYTHONPATH"].split(os.pathsep) == [
            f"{both['A'].folder}/lib",
            "/opt/mine",
        ]


def test_what_a_build_installs_is_imported_and_else_the_code_of_the_worktree(
    repository, monkeypatch
):
    (repository / "src").mkdir()
    (repository / "src" / "package.py").touch()
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "package")
    monkeypatch.setenv("PYTHONPATH", "src")
    into = "$(dirname $(dirname $(command -v pip)))/lib/python*/site-packages/"
    for build, expected in (
        (f"echo 1 > $(echo {into})/package.py", "environment/lib"),
        ("true", "worktree/src"),
    ):
        with made(f"HEAD,build={build}") as both:
            side = both["A"]
            # As the processes of pytest have it in a folder of tests.
            asked = [
                side.python,
                "-c",
                "import importlib.util; print(importlib.util.find_spec('package').origin)",
            ]
            cwd = side.cwd / "bench"
            told = subprocess.run(
                asked, env=side.environ, cwd=cwd, capture_output=True, text=True, check=True
            )
            assert expected in told.stdout, told.stdout


@pytest.mark.usefixtures("_plain")
def test_a_build_runs_in_the_worktree_and_installs_into_an_environment_of_its_own(repository):
    with made(
        "main,build=python -m pip --version > told; command -v pip >> told; cp code.py built"
    ) as both:
        side = both["A"]
        folder = Path(side.folder)
        assert (folder / "built").read_text() == "old"
        pip, own = (folder / "told").read_text().splitlines()
        environment = folder.parent / "environment"
        assert (pip.startswith("pip "), own) == (True, str(environment / "bin" / "pip"))
        assert side.python == str(environment / "bin" / "python")
        # The packages of this one are there, and another one of the same name comes first.
        asked = "import sys, pytest; print(pytest.__version__, sys.prefix)"
        told = subprocess.run(
            [side.python, "-c", asked], env=side.environ, capture_output=True, text=True, check=True
        )
        assert told.stdout.split() == [pytest.__version__, str(environment)]
    with (
        pytest.raises(making.CommandError) as raised,
        made("main,build=echo compiling; echo no compiler >&2; exit 3"),
    ):
        pass
    assert (
        "the build of its commit ended with exit code 3; correct the fault that its last lines show"
        in str(raised.value)
    )
    assert raised.value.lines.splitlines() == ["compiling", "no compiler"]
    assert len(git(repository, "worktree", "list").splitlines()) == 1


UV = """#!/bin/sh
echo "$@" >> "$UV_LOG"
case "$1 $2" in
"pip freeze") echo "numpy==1.26.0" ;;
"venv --python") mkdir -p "$4/bin" && ln -s "$3" "$4/bin/python" ;;
sync*) mkdir -p "$UV_PROJECT_ENVIRONMENT/bin" && ln -s "$REAL" "$UV_PROJECT_ENVIRONMENT/bin/python" ;;
esac
"""


@pytest.mark.usefixtures("_plain")
def test_uv_makes_the_environments_and_where_it_is_not_there_a_sentence_says_how_to_get_it(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    # This machine may have it.
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        "needs uv to make its environment, but uv is not in PATH; type: pip install uv"
        in refused("lock:uv.lock")
    )
    monkeypatch.undo()
    monkeypatch.chdir(repository)
    programs, log = tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    (programs / "uv").write_text(UV)
    (programs / "uv").chmod(0o755)
    monkeypatch.setattr(making, "find_uv", lambda: str(programs / "uv"))
    monkeypatch.setattr(sides, "_import_paths", lambda *_: ([], []))
    monkeypatch.setenv("UV_LOG", str(log))
    monkeypatch.setenv("REAL", sys.executable)
    with made("with:torch==2.12.*") as both:
        place = Path(both["A"].python).parents[2]
        assert (place / "wanted.txt").read_text() == "torch==2.12.*\n"
        # What it prefers where nothing asks for another version.
        assert (place / "packages.txt").read_text() == "numpy==1.26.0\n"
        assert both["A"].environ["VIRTUAL_ENV"] == str(place / "environment")
    assert [line.split()[:2] for line in log.read_text().splitlines()] == [
        ["pip", "freeze"],
        ["pip", "compile"],
        ["pip", "install"],
    ]
    for name in ("requirements.txt", "uv.lock"):
        assert "is not a file; expected a uv.lock" in refused(f"lock:{name}")
        (repository / name).touch()
        with made(f"lock:{name}") as both:
            assert Path(both["A"].python).resolve() == Path(sys.executable).resolve()


@pytest.mark.usefixtures("_plain")
def test_without_uv_pip_installs_another_version(repository, monkeypatch):
    commands = []
    monkeypatch.setattr(making, "find_uv", lambda: None)
    monkeypatch.setattr(making, "run", lambda command, *_: commands.append(command))
    monkeypatch.setattr(making, "make_overlay", lambda _: "overlay/bin/python")
    with made("with:torch==2.12.*") as both:
        assert both["A"].python == "overlay/bin/python"
    assert commands == [["overlay/bin/python", "-m", "pip", "install", "torch==2.12.*"]]


def test_another_interpreter_must_be_one_that_has_the_plugin(repository, tmp_path):
    with made(f"python:{sys.executable}", f"python:{Path(sys.executable).parents[1]}") as both:
        assert both["A"].python == both["B"].python == sys.executable
        assert both["A"].environ["PATH"].startswith(f"{Path(sys.executable).parent}{os.pathsep}")
    assert "absent is not a program; expected a Python" in refused(f"python:{tmp_path}/absent")
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\necho \"No module named 'pytest_roofline'\" >&2; exit 1\n")
    without.chmod(0o755)
    why = refused(f"python:{without}")
    assert (
        "cannot import pytest_roofline (No module named 'pytest_roofline'); expected an environment with"
        in why
    )
