"""The parts of sides: checkouts of commits beside the repository, and environments over the present one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import BadInput
from ..core.git import GIT, git_environ
from ..processes.system import last_words
from .submodules import add_submodules

UV = "pip install uv (or see https://docs.astral.sh/uv)"
# The content of a .pth file: it adds the packages of the present environment behind those of the new one.
_BELOW = "import site; list(map(site.addsitedir, {places!r}))\n"
# Without this script `pip` would be that of the present environment, and install there.
_PIP = '#!/bin/sh\nexec "{python}" -m pip "$@"\n'


def find_interpreter(text: str, value: str) -> str:
    """Return the interpreter at a path, or in the environment at that path.

    `text` is the side as the user wrote it. Raise BadInput if there is no interpreter.
    """
    path = Path(value).expanduser().absolute()
    path = path / "bin" / "python" if path.is_dir() else path
    if not os.access(path, os.X_OK):
        raise BadInput(
            f"side {text!r}: {path} is not a program; expected a Python interpreter or the folder of an environment"
        )
    return str(path)


def make_overlay(environment: Path) -> str:
    """Make an environment over the present one, and return its interpreter.

    Its own packages go before those of the present environment.
    """
    run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        "a separate environment",
    )
    python = environment / "bin" / "python"
    package_folders = [
        path for path in sys.path if path.endswith(("site-packages", "dist-packages"))
    ]
    (packages_of(environment) / "below.pth").write_text(
        _BELOW.format(places=package_folders), encoding="utf-8"
    )
    pip = environment / "bin" / "pip"
    pip.write_text(_PIP.format(python=python), encoding="utf-8")
    pip.chmod(0o755)
    return str(python)


def packages_of(environment: Path) -> Path:
    """Return the folder into which an environment's own packages are installed."""
    return (
        environment
        / "lib"
        / f"python{sys.version_info.major}.{sys.version_info.minor}"
        / "site-packages"
    )


def change_package(text: str, requirement: str, folder: Path) -> str:
    """Make an environment over the present one with another version of a package.

    Packages that the requirement does not touch keep their version. Return the interpreter. `text` is the side as the
    user wrote it; `folder` holds the environment. Without uv, pip installs what the present environment lacks.
    """
    python, pins, uv = make_overlay(folder / "environment"), folder / "packages.txt", find_uv()
    if uv is None:
        run([python, "-m", "pip", "install", requirement], f"side {text!r}: pip")
        return python
    subject = f"side {text!r}: uv"
    # `uv pip compile` keeps the versions in its output file where it can, so that holds the present ones first.
    frozen = run([uv, "pip", "freeze", "--exclude-editable", "--python", sys.executable], subject)
    pins.write_text(frozen, encoding="utf-8")
    requirements = folder / "wanted.txt"
    requirements.write_text(f"{requirement}\n", encoding="utf-8")
    run(
        [
            uv,
            "pip",
            "compile",
            str(requirements),
            "--python",
            sys.executable,
            "--output-file",
            str(pins),
        ],
        subject,
    )
    run(
        [uv, "pip", "install", "--python", python, "--no-deps", "--requirement", str(pins)], subject
    )
    return python


def install_exactly(text: str, requirements: Sequence[str], folder: Path) -> str:
    """Make an environment over the present one with these packages, and nothing that they need.

    Return the interpreter. `text` names the side in messages; `folder` holds the environment.
    """
    python, uv = make_overlay(folder / "environment"), find_uv()
    installer = [python, "-m", "pip"] if uv is None else [uv, "pip"]
    options = ["--no-deps"] if uv is None else ["--no-deps", "--python", python]
    subject = f"side {text!r}: {'pip' if uv is None else 'uv'}"
    run([*installer, "install", *options, *requirements], subject)
    return python


def install_locked(text: str, path: Path, folder: Path) -> str:
    """Make an environment from a uv.lock, a pylock.toml or requirements, and return its interpreter.

    `text` is the side as the user wrote it. Raise BadInput without uv or the file.
    """
    uv, subject = find_uv(), f"side {text!r}: uv"
    if uv is None:
        raise BadInput(
            f"side {text!r} needs uv to make its environment, but uv is not in PATH; type: {UV}"
        )
    if not path.is_file():
        raise BadInput(
            f"side {text!r}: {path} is not a file; expected a uv.lock, a pylock.toml or a requirements file"
        )
    environment = folder / "environment"
    if path.name == "uv.lock":
        command = [uv, "sync", "--frozen", "--all-groups", "--project", str(path.parent)]
        run(command, subject, environ=os.environ | {"UV_PROJECT_ENVIRONMENT": str(environment)})
    else:
        run([uv, "venv", "--python", sys.executable, str(environment)], subject)
        python = str(environment / "bin" / "python")
        run([uv, "pip", "install", "--python", python, "--requirement", str(path)], subject)
    return str(environment / "bin" / "python")


def find_uv() -> str | None:
    """Return the path of uv; None if it is not installed."""
    folders = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return shutil.which("uv", path=folders)


class CommandError(BadInput):
    """A failed command that makes or starts a side. `lines` are the last lines of its output."""

    def __init__(self, text: str, lines: str) -> None:
        super().__init__(text)
        self.lines = lines


def run(
    command: Sequence[str],
    subject: str,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Run a command to its end, and return its output.

    Raises:
        CommandError: the command fails; `subject` begins the message.
    """
    process = subprocess.run(
        command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    if process.returncode:
        text = f"{subject} ended with exit code {process.returncode}; correct the fault that its last lines show"
        raise CommandError(text, last_words(process.stdout + process.stderr))
    return process.stdout


class Git:
    """The repository around a folder. `top` is its folder, None without a repository.

    In its methods `text` is the side as the user wrote it, for messages.
    """

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self.top = self._output("rev-parse", "--show-toplevel")

    def commit(self, text: str, ref: str) -> str:
        """Return the commit of a ref. Raise BadInput if there is none."""
        commit = self._commit_of(text, ref)
        if commit is None:
            raise BadInput(
                f"side {text!r}: this repository has no commit {ref!r}; fetch the commit, or name another"
            )
        return commit

    def merge_base(self, text: str, branch: str) -> str:
        """Return the commit at which HEAD left its target branch.

        Without a branch, CI names the target; without CI it is the default branch. Raise BadInput if there is none.
        """
        target = os.environ.get("GITHUB_BASE_REF") or os.environ.get("CHANGE_TARGET")
        gitlab_base = os.environ.get("CI_MERGE_REQUEST_DIFF_BASE_SHA")
        if branch:
            refs = [branch, f"origin/{branch}"]
        else:
            refs = [f"origin/{target}"] if target else []
            refs += [gitlab_base] if gitlab_base else []
            refs += ["origin/HEAD", "main", "master"]
        # The first of these that this repository has.
        target_ref = next((ref for ref in refs if self._commit_of(text, ref)), None)
        if target_ref is None:
            raise BadInput(
                f"side {text!r}: this repository has none of the branches {', '.join(refs)}; fetch the branch, or name "
                "another with merge-base:BRANCH"
            )
        commit = self._output("merge-base", "HEAD", target_ref)
        if commit:
            return commit
        is_shallow = self._output("rev-parse", "--is-shallow-repository") == "true"
        advice = "this clone is shallow; type: git fetch --unshallow (in CI set fetch-depth: 0 or GIT_DEPTH: 0)"
        raise BadInput(
            f"side {text!r}: HEAD and {target_ref} have no commit in common in this repository; "
            + (advice if is_shallow else "name the branch that HEAD left: merge-base:BRANCH")
        )

    def commits_between(self, text: str, good: str, bad: str) -> list[str]:
        """Return the commits from `good` to `bad`, both included, oldest first.

        Of a merge the first parent counts: the branch at hand went through these states, and a merge is one change.

        Raises:
            BadInput: `good` is no ancestor of `bad`. `text` is the side of `good`.
        """
        if self._output("merge-base", "--is-ancestor", good, bad) is None:
            raise BadInput(
                f"side {text!r} is no ancestor of the other side; expected one, such as their merge base: "
                f"{self._output('merge-base', good, bad) or 'none here'}"
            )
        commits = self._output("rev-list", "--first-parent", "--reverse", f"{good}..{bad}") or ""
        return [good, *commits.split()]

    @property
    def is_clean(self) -> bool:
        """True if the checkout has no change that a commit lacks."""
        return self._output("status", "--porcelain", "--untracked-files=no") == ""

    def add(self, text: str, folder: Path, commit: str) -> None:
        """Check a commit out into a folder, with its submodules."""
        subject = f"side {text!r}: git"

        def call(command: Sequence[str]) -> str:
            return run(command, subject, environ=git_environ())

        call([*GIT, "-C", str(self.top), "worktree", "add", "--detach", str(folder), commit])
        add_submodules(folder, call)

    def remove(self, below: str) -> None:
        """Remove the worktrees in a folder, with their files."""
        for line in (self._output("worktree", "list", "--porcelain") or "").splitlines():
            path = line.removeprefix("worktree ")
            if path != line and Path(path).is_relative_to(os.path.realpath(below)):
                self._output("worktree", "remove", "--force", "--force", path)

    def forget_abandoned(self) -> None:
        """Remove worktrees of killed runs from the repository's list.

        The folders of these worktrees are gone already.
        """
        for line in (self._output("worktree", "list", "--porcelain") or "").splitlines():
            path = line.removeprefix("worktree ")
            if path != line and "/roofline-ab-" in path and not Path(path).exists():
                self._output("worktree", "remove", "--force", "--force", path)

    def _commit_of(self, text: str, ref: str) -> str | None:
        """Return the commit of a ref; None if there is none. Raise BadInput without a repository."""
        if self.top is None:
            if shutil.which("git") and any(
                (folder / ".git").exists() for folder in (self._cwd, *self._cwd.parents)
            ):
                # git refuses a repository of another user. This command fails with its message, which says how to
                # allow it.
                command = [*GIT, "-C", str(self._cwd), "status"]
                run(command, f"side {text!r}: git", environ=git_environ())
            problem = (
                "git found no repository in this folder"
                if shutil.which("git")
                else "the program git is not in PATH"
            )
            raise BadInput(
                f"side {text!r} is a commit, but {problem}; expected a side without a commit, such as python:PATH"
            )
        return self._output(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )

    def _output(self, *words: str) -> str | None:
        """Return the output of git. It is None where git fails or is missing."""
        command = [*GIT, "-C", str(self._cwd), *words]
        try:
            process = subprocess.run(
                command, env=git_environ(), capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return process.stdout.strip() if process.returncode == 0 else None
