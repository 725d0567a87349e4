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
    """Return the absolute URL of a submodule. It may be relative to the repository's."""
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
    """Yield the options in place of the settings that `--init` would write.

    They also keep a setting from naming a program.
    """
    if "url" not in present and url and not url.startswith("-"):
        yield from ("-c", f"submodule.{name}.url={absolute_url(url, remote)}")
    if present.get("update", "").startswith("!"):
        yield from ("-c", f"submodule.{name}.update=checkout")


def _settings(folder: Path, *source: str) -> dict[str, dict[str, str]]:
    """Return the settings of submodules by name, in a file or the repository's."""
    text = _output(folder, "config", "--null", *source, "--get-regexp", r"^submodule\.")
    settings: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        if (match := _SETTING.fullmatch(key)) is not None:
            settings.setdefault(match["name"], {})[match["key"]] = value
    return settings


def _paths(folder: Path) -> list[str]:
    """Return the paths of submodules in a checkout, by its index. That names none outside."""
    entries = _output(folder, "ls-files", "--stage", "-z").split("\0")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def _remote(folder: Path) -> str:
    """Return the URL of a checkout's remote. Without one it is the repository's folder."""
    names = _output(folder, "remote").splitlines()
    name = "origin" if "origin" in names or not names else names[0]
    url = _output(folder, "config", f"remote.{name}.url").strip()
    common = _output(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    return url or str(Path(common).parent)


def _output(folder: Path, *words: str) -> str:
    """Return the output of git in a folder. It is empty where git fails."""
    command = [*GIT, "-C", str(folder), *words]
    done = subprocess.run(command, env=git_environ(), capture_output=True, check=False)
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else ""
