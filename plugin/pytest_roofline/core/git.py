"""Calls of git that run no program of a repository. They write nothing beside their answer."""

import os

# The beginning of each command: no hook, no monitor of files, and no lock for a command that only reads.
GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
)
# Inside a git hook, these variables name the hook's repository.
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def git_environ() -> dict[str, str]:
    """Return this process's variables without those that name another repository."""
    return {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
