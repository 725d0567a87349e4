"""How git is called, so that it runs no program of a repository and writes nothing beside what it was asked for."""

import os

# What begins every command: no hook, no monitor of files, and no lock for what only looks.
GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
)
# They name another repository in a hook.
_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")


def git_environ() -> dict[str, str]:
    """Return this process's variables without those that name another repository."""
    return {name: value for name, value in os.environ.items() if name not in _OTHERS}
