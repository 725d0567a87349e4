"""The state of code under version control, from git and CI."""

import contextlib
import functools
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.facts import Code
from ..core.git import GIT, git_environ

# Seconds that commands of git, which run at once, may take. In a huge repository a slow answer counts as unknown.
GIT_S = 1.0
# Of files outside of version control, so many are read, and none that is larger than so many bytes.
_FILES, _FILE_BYTES = 200, 1 << 20
# Variables of GitHub, GitLab and Jenkins about the commit that they checked out.
_BRANCH = (
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_COMMIT_REF_NAME",
    "CHANGE_BRANCH",
    "BRANCH_NAME",
)
_REQUEST = ("CI_MERGE_REQUEST_IID", "CHANGE_ID")
_TARGET = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "CHANGE_TARGET")


def code_of(folder: Path) -> tuple[Code, ...]:
    """Return the state of the repository around a folder.

    Empty if there is no repository, or if git does not answer.
    """
    place = folder.resolve()
    repositories = (parent for parent in (place, *place.parents) if (parent / ".git").exists())
    return next(map(_code_at, repositories), ())


@functools.cache
def _code_at(top: Path) -> tuple[Code, ...]:
    """Return the state of the repository with this top folder.

    Empty if git does not answer.
    """
    head, state, base = git(
        top,
        ("rev-parse", "HEAD", "--abbrev-ref", "HEAD"),
        ("status", "--porcelain", "-z", "--untracked-files=all"),
        ("merge-base", "HEAD", f"origin/{_first(_TARGET) or 'HEAD'}"),
    )
    if not head:
        return ()
    commit, _, branch = head.decode(errors="replace").strip().partition("\n")
    return (
        Code(
            ".",
            commit=commit,
            changes="unknown" if state is None else _changes(top, state),
            branch=branch if branch != "HEAD" else "",
            merge_base=(base or b"").decode().strip(),
        ),
    )


def _changes(top: Path, state: bytes) -> str:
    """Return a hash of all differences from the commit; empty without any.

    `state` is the output of `git status --porcelain -z`.
    """
    if not state:
        return ""
    (difference,) = git(top, ("diff", "HEAD", "--submodule=diff", "--no-ext-diff", "--no-textconv"))
    # Files outside of version control are not in the difference, so their contents are added.
    # Their entries are `?? NAME`.
    entries = state.split(b"\0")
    names = [entry.removeprefix(b"?? ") for entry in entries if entry.startswith(b"?? ")]
    content = state + (difference or b"") + _contents(top, names)
    return hashlib.sha256(content).hexdigest()[:8]


def _contents(top: Path, names: Sequence[bytes]) -> bytes:
    """Return the joined contents of the first `_FILES` files. A large file adds its size instead."""
    contents = []
    for path in [top / os.fsdecode(name) for name in names[:_FILES]]:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            is_small = path.is_file() and size <= _FILE_BYTES
            contents.append(path.read_bytes() if is_small else b"%d" % size)
    return b"\0".join(contents)


def with_ci(code: Code) -> Code:
    """Return the code with the facts that CI's variables state.

    The branch and merge base that git told come first.
    """
    number = re.fullmatch(r"refs/pull/(\d+)/.*", os.environ.get("GITHUB_REF", ""))
    return replace(
        code,
        branch=code.branch or _first(_BRANCH),
        merge_base=code.merge_base or _first(("CI_MERGE_REQUEST_DIFF_BASE_SHA",)),
        pull_request=number[1] if number else _first(_REQUEST),
    )


def _first(names: Sequence[str]) -> str:
    """Return the setting of the first variable that has one; empty if none has."""
    return next((setting for name in names if (setting := os.environ.get(name))), "")


def git(root: Path, *commands: Sequence[str]) -> list[bytes | None]:
    """Run git commands at once, and return their outputs.

    An output is None if its command fails or takes longer than `GIT_S`.
    """
    environ = git_environ()
    end_s = time.monotonic() + GIT_S
    try:
        processes = [
            subprocess.Popen(
                [*GIT, "-C", str(root), *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environ,
            )
            for command in commands
        ]
    except OSError:
        return [None] * len(commands)
    return [_output(process, end_s) for process in processes]


def _output(process: "subprocess.Popen[bytes]", end_s: float) -> bytes | None:
    """Return a command's output; None if it fails.

    None too if it runs beyond `end_s` of the monotonic clock.
    """
    with process:
        try:
            output, _ = process.communicate(timeout=max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return output if process.returncode == 0 else None
