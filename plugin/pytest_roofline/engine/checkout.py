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

# All answers of git together may take so long; in a huge repository what takes longer is unknown.
GIT_S = 1.0
# The most files outside of version control that are read, and of each the most bytes.
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
    """Return the state of the repository around a folder. Empty if there is no repository, or no
    git.
    """
    place = folder.resolve()
    tops = (parent for parent in (place, *place.parents) if (parent / ".git").exists())
    return next(map(_code_at, tops), ())


@functools.cache
def _code_at(top: Path) -> tuple[Code, ...]:
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
    """Return a hash of all differences from the commit. Empty if there are none."""
    if not state:
        return ""
    (difference,) = git(top, ("diff", "HEAD", "--submodule=diff", "--no-ext-diff", "--no-textconv"))
    names = [entry[3:] for entry in state.split(b"\0") if entry.startswith(b"?? ")]
    content = state + (difference or b"") + _contents(top, names)
    return hashlib.sha256(content).hexdigest()[:8]


def _contents(top: Path, names: Sequence[bytes]) -> bytes:
    """Return the content of files outside of version control. Of a large file it is the size."""
    contents = []
    for path in [top / os.fsdecode(name) for name in names[:_FILES]]:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            small = path.is_file() and size <= _FILE_BYTES
            contents.append(path.read_bytes() if small else b"%d" % size)
    return b"\0".join(contents)


def with_ci(code: Code) -> Code:
    """Return the code with CI's facts about its commit."""
    number = re.fullmatch(r"refs/pull/(\d+)/.*", os.environ.get("GITHUB_REF", ""))
    return replace(
        code,
        branch=code.branch or _first(_BRANCH),
        merge_base=code.merge_base or _first(("CI_MERGE_REQUEST_DIFF_BASE_SHA",)),
        pull_request=number[1] if number else _first(_REQUEST),
    )


def _first(names: Sequence[str]) -> str:
    """Return the first of some variables that is set."""
    return next((setting for name in names if (setting := os.environ.get(name))), "")


def git(root: Path, *commands: Sequence[str]) -> list[bytes | None]:
    """Return the output of git commands that run at once. None if one fails or takes too long."""
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
    with process:
        try:
            output, _ = process.communicate(timeout=max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return output if process.returncode == 0 else None
