"""Submodules of a worktree, checked out without a change to the repository's settings.

`git submodule update --init` writes the URLs of all submodules into these settings. Every later `git submodule update`
of the user would then fetch submodules that the user had left out. Here the URLs are passed on the command line.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from ..core.git import GIT, git_environ

_SETTING = re.compile(r"submodule\.(?P<name>.*)\.(?P<key>\w+)", re.DOTALL)
Run = Callable[[list[str]], object]


def add_submodules(folder: Path, run: Run) -> None:
    """Check out the submodules of a worktree, and the submodules in them.

    Args:
        folder: the top of the worktree, or of a submodule in it.
        run: runs a command to its end, and raises where that fails.
    """
    modules = folder / ".gitmodules"
    if not modules.exists():
        return
    listed_settings = _settings(folder, "--file", str(modules))
    repository_settings = _settings(folder)
    remote = _remote(folder)
    options = [
        option
        for name, module in listed_settings.items()
        for option in _options(
            name, module.get("url", ""), repository_settings.get(name, {}), remote
        )
    ]
    run([*GIT, *options, "-C", str(folder), "submodule", "update"])
    for path in _paths(folder):
        # A submodule that was not checked out is an empty folder. In it git would use the worktree around it.
        if (folder / path / ".git").exists():
            add_submodules(folder / path, run)


def absolute_url(url: str, remote: str) -> str:
    """Return the absolute URL of a submodule.

    A relative one begins with ./ or ../ and is relative to `remote`, the URL of the repository.
    """
    if not url.startswith(("./", "../")):
        return url
    base, separator = remote.rstrip("/"), "/"
    while url.startswith(("./", "../")):
        step, _, url = url.partition("/")
        if step == "..":
            # `host:path` has no slash ahead of its path.
            separator = "/" if "/" in base else ":"
            base, _, _ = base.rpartition(separator)
    return f"{base}{separator}{url}".rstrip("/")


def _options(name: str, url: str, settings: dict[str, str], remote: str) -> Iterator[str]:
    """Yield the options of git that replace the settings of `--init`.

    `settings` are those of the repository for the submodule. A URL among them is kept. An update that would run a
    program (`!command`) becomes a checkout.
    """
    if "url" not in settings and url and not url.startswith("-"):
        yield from ("-c", f"submodule.{name}.url={absolute_url(url, remote)}")
    if settings.get("update", "").startswith("!"):
        yield from ("-c", f"submodule.{name}.update=checkout")


def _settings(folder: Path, *source: str) -> dict[str, dict[str, str]]:
    """Return the settings of each submodule, by its name.

    `source` are arguments of `git config`; without them the settings are the repository's.
    """
    text = _output(folder, "config", "--null", *source, "--get-regexp", r"^submodule\.")
    settings: dict[str, dict[str, str]] = {}
    for entry in text.split("\0"):
        key, _, value = entry.partition("\n")
        if (match := _SETTING.fullmatch(key)) is not None:
            settings.setdefault(match["name"], {})[match["key"]] = value
    return settings


def _paths(folder: Path) -> list[str]:
    """Return the paths of submodules in a checkout.

    They come from the index, which cannot name a path outside of the checkout. 160000 is the mode of a submodule.
    """
    entries = _output(folder, "ls-files", "--stage", "-z").split("\0")
    # Mode, hash and stage go before a tab, and the path after it.
    parts = [entry.partition("\t") for entry in entries if entry.startswith("160000 ")]
    return [path for _, _, path in parts]


def _remote(folder: Path) -> str:
    """Return the URL of a checkout's remote; without one the repository's folder.

    `origin` is preferred to other remotes.
    """
    names = _output(folder, "remote").splitlines()
    name = "origin" if "origin" in names or not names else names[0]
    url = _output(folder, "config", f"remote.{name}.url").strip()
    common = _output(folder, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
    return url or str(Path(common).parent)


def _output(folder: Path, *words: str) -> str:
    """Return the output of git in a folder; empty if git fails."""
    command = [*GIT, "-C", str(folder), *words]
    process = subprocess.run(command, env=git_environ(), capture_output=True, check=False)
    return process.stdout.decode("utf-8", "surrogateescape") if process.returncode == 0 else ""
