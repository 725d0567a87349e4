"""Submodules of a worktree, checked out without a word in the settings of the repository.

`git submodule update --init` writes their URLs there, where they stay, and every later `git submodule update` fetches
what its user had left out. Here they stand on the command line.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from ..core.git import GIT, git_environ

_SETTING = re.compile(r"submodule\.(?P<name>.*)\.(?P<key>\w+)", re.DOTALL)
Run = Callable[[list[str]], object]


def add_submodules(folder: Path, run: Run) -> None:
    """Check out the submodules of a worktree, and theirs.

    Args:
        folder: the top of the worktree, or of a submodule in it.
        run: runs a command to its end, and raises where that fails.
    """
    modules = folder / ".gitmodules"
    if not modules.exists():
        return
    listed, present = _settings(folder, "--file", str(modules)), _settings(folder)
    remote = _remote(folder)
    options = [
        option
        for name, module in listed.items()
        for option in _options(name, module.get("url", ""), present.get(name, {}), remote)
    ]
    run([*GIT, *options, "-C", str(folder), "submodule", "update"])
    for path in _paths(folder):
        # Of one that is left out there is an empty folder, in which git would mean the worktree around it.
        if (folder / path / ".git").exists():
            add_submodules(folder / path, run)


def absolute_url(url: str, remote: str) -> str:
    """Return the URL of a submodule as git resolves it: it may be relative to that of the repository."""
    if not url.startswith(("./", "../")):
        return url
    base, separator = remote.rstrip("/"), "/"
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        if step == "..":
            # `host:path` has no slash ahead of its path.
            separator = "/" if "/" in base else ":"
            base = base.rpartition(separator)[0]
    return f"{base}{separator}{url}".rstrip("/")


def _options(name: str, url: str, present: dict[str, str], remote: str) -> Iterator[str]:
    """Yield the options that stand for what `--init` would write, and that keep a setting from being a program."""
    if "url" not in present and url and not url.startswith("-"):
        yield from ("-c", f"submodule.{name}.url={absolute_url(url, remote)}")
    if present.get("update", "").startswith("!"):
        yield from ("-c", f"submodule.{name}.update=checkout")


def _settings(folder: Path, *source: str) -> dict[str, dict[str, str]]:
    """Return what a file, or the repository's settings, say of submodules, by their names."""
    text = _output(folder, "config", "--null", *source, "--get-regexp", r"^submodule\.")
    settings: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        if (match := _SETTING.fullmatch(key)) is not None:
            settings.setdefault(match["name"], {})[match["key"]] = value
    return settings


def _paths(folder: Path) -> list[str]:
    """Return where submodules lie in a checkout, by its index, which names no place outside."""
    entries = _output(folder, "ls-files", "--stage", "-z").split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def _remote(folder: Path) -> str:
    """Return the URL of the remote that a detached checkout is of; of none the repository's own folder."""
    names = _output(folder, "remote").splitlines()
    name = "origin" if "origin" in names or not names else names[0]
    url = _output(folder, "config", f"remote.{name}.url").strip()
    common = _output(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    return url or str(Path(common).parent)


def _output(folder: Path, *words: str) -> str:
    """Return what git prints in a folder; empty where it fails."""
    command = [*GIT, "-C", str(folder), *words]
    done = subprocess.run(command, env=git_environ(), capture_output=True, check=False)
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else ""
