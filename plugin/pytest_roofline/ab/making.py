"""What sides are made of: checkouts of commits beside the repository, and environments over the present one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import BadInput
from ..core.git import GIT, git_environ
from ..ranks.processes import last_words
from .submodules import add_submodules

UV = "pip install uv, or https://docs.astral.sh/uv"
# Over an environment, itself ahead of it.
_BELOW = "import site; list(map(site.addsitedir, {places!r}))\n"
# `pip` alone would be that of the environment below, and install into it.
_PIP = '#!/bin/sh\nexec "{python}" -m pip "$@"\n'


def interpreter(text: str, value: str) -> str:
    """The interpreter at a path, or of the environment there."""
    path = Path(value).expanduser().absolute()
    path = path / "bin" / "python" if path.is_dir() else path
    if not os.access(path, os.X_OK):
        raise BadInput(
            f"side {text!r}: {path} is no program; expected a Python, or the folder of an environment"
        )
    return str(path)


def over(environment: Path) -> str:
    """The interpreter of a new environment that sees the packages of the present one."""
    run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        "an environment of its own",
    )
    python = environment / "bin" / "python"
    places = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages_of(environment) / "below.pth").write_text(
        _BELOW.format(places=places), encoding="utf-8"
    )
    pip = environment / "bin" / "pip"
    pip.write_text(_PIP.format(python=python), encoding="utf-8")
    pip.chmod(0o755)
    return str(python)


def packages_of(environment: Path) -> Path:
    """Where an environment over the present one has its own packages."""
    return (
        environment
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )


def changed(text: str, requirement: str, folder: Path) -> str:
    """An environment over the present one with another version of a package; what needs none stays."""
    uv, what = _uv(text), f"side {text!r}: uv"
    python, pins = over(folder / "environment"), folder / "packages.txt"
    # What is pinned in the file that it writes is preferred.
    frozen = run([uv, "pip", "freeze", "--exclude-editable", "--python", sys.executable], what)
    pins.write_text(frozen, encoding="utf-8")
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{requirement}\n", encoding="utf-8")
    run(
        [uv, "pip", "compile", str(wanted), "--python", sys.executable, "--output-file", str(pins)],
        what,
    )
    run([uv, "pip", "install", "--python", python, "--no-deps", "--requirement", str(pins)], what)
    return python


def locked(text: str, path: Path, folder: Path) -> str:
    """A whole environment from a uv.lock, or from a file of requirements."""
    uv, what = _uv(text), f"side {text!r}: uv"
    if not path.is_file():
        raise BadInput(
            f"side {text!r}: {path} is no file; expected a uv.lock, a pylock.toml or requirements"
        )
    environment = folder / "environment"
    if path.name == "uv.lock":
        command = [uv, "sync", "--frozen", "--all-groups", "--project", str(path.parent)]
        run(command, what, environ=os.environ | {"UV_PROJECT_ENVIRONMENT": str(environment)})
    else:
        run([uv, "venv", "--python", sys.executable, str(environment)], what)
        python = str(environment / "bin" / "python")
        run([uv, "pip", "install", "--python", python, "--requirement", str(path)], what)
    return str(environment / "bin" / "python")


def _uv(text: str) -> str:
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    found = shutil.which("uv", path=places)
    if found is None:
        raise BadInput(
            f"side {text!r} needs uv, which makes its environment, and there is none; install it: {UV}"
        )
    return found


class Failed(BadInput):
    """A side could not be made; `lines` are the last words of what failed."""

    def __init__(self, text: str, lines: str) -> None:
        super().__init__(text)
        self.lines = lines


def run(
    command: Sequence[str],
    what: str,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Run a command to its end; what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    if done.returncode:
        text = f"{what} ended with exit code {done.returncode}; mend what its last lines say"
        raise Failed(text, last_words(done.stdout + done.stderr))
    return done.stdout


class Git:
    """The repository around a folder."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self.top = self._said("rev-parse", "--show-toplevel")

    def commit(self, text: str, ref: str) -> str:
        """The commit that a name means."""
        found = self._known(text, ref)
        if found is None:
            raise BadInput(
                f"side {text!r}: git knows no commit {ref!r} here; fetch it, or name another one"
            )
        return found

    def merge_base(self, text: str, branch: str) -> str:
        """The commit at which the branch at hand left the one that it is to go into."""
        named, target = branch, os.environ.get("GITHUB_BASE_REF") or os.environ.get("CHANGE_TARGET")
        merge = os.environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")
        refs = [named, f"origin/{named}"] if named else [f"origin/{target}"] * bool(target)
        refs += [] if named else [*([merge] if merge else []), "origin/HEAD", "main", "master"]
        into = next((ref for ref in refs if self._known(text, ref)), None)
        if into is None:
            raise BadInput(
                f"side {text!r}: git knows none of {', '.join(refs)}; fetch it, or name merge-base:BRANCH"
            )
        found = self._said("merge-base", "HEAD", str(into))
        if found:
            return found
        shallow = self._said("rev-parse", "--is-shallow-repository") == "true"
        why = "this clone is shallow; fetch its history: git fetch --unshallow (in CI fetch-depth: 0, GIT_DEPTH: 0)"
        raise BadInput(
            f"side {text!r}: HEAD and {into} have no commit in common here; "
            + (why if shallow else "expected a branch that HEAD came from: merge-base:BRANCH")
        )

    def add(self, text: str, folder: Path, commit: str) -> None:
        """Check a commit out into a folder, with its submodules."""
        what = f"side {text!r}: git"

        def call(command: Sequence[str]) -> str:
            return run(command, what, environ=git_environ())

        call([*GIT, "-C", str(self.top), "worktree", "add", "--detach", str(folder), commit])
        add_submodules(folder, call)

    def remove(self, below: str) -> None:
        """Forget the worktrees in a folder, with what is in them."""
        for line in (self._said("worktree", "list", "--porcelain") or "").splitlines():
            path = line.removeprefix("worktree ")
            if path != line and Path(path).is_relative_to(os.path.realpath(below)):
                self._said("worktree", "remove", "--force", "--force", path)

    def forget_abandoned(self) -> None:
        """Forget the worktrees of a run that was killed, whose folders are gone."""
        for line in (self._said("worktree", "list", "--porcelain") or "").splitlines():
            path = line.removeprefix("worktree ")
            if path != line and "/roofline-ab-" in path and not Path(path).exists():
                self._said("worktree", "remove", "--force", "--force", path)

    def _known(self, text: str, ref: str) -> str | None:
        if self.top is None:
            if shutil.which("git") and any(
                (one / ".git").exists() for one in (self._cwd, *self._cwd.parents)
            ):
                # It refuses what belongs to somebody else, and says how to allow it.
                command = [*GIT, "-C", str(self._cwd), "status"]
                run(command, f"side {text!r}: git", environ=git_environ())
            why = (
                "git found no repository here" if shutil.which("git") else "there is no git in PATH"
            )
            raise BadInput(
                f"side {text!r} is a commit, and {why}; expected a side without one, such as python:PATH"
            )
        return self._said(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )

    def _said(self, *words: str) -> str | None:
        """What git prints; None where it fails or is not there."""
        command = [*GIT, "-C", str(self._cwd), *words]
        try:
            done = subprocess.run(
                command, env=git_environ(), capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None
