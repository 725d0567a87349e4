"""What a side of `roofline ab` means: the folder, the interpreter and the variables that its processes get.

A commit is checked out beside the checkout, and what is installed from the checkout is imported from there. What has
packages of its own is an environment over the present one, so that nothing is installed into that.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..core.errors import BadInput
from ..core.units import printable
from ..ranks.processes import last_words, owned_prefix, remove_abandoned
from .making import Git, changed, interpreter, locked, over, packages_of, run

HERE = "."
SIDES = ("A", "B")
FORMS = (
    ". (as it stands), commit:REF[,build=COMMAND] or a ref alone, merge-base[:BRANCH], python:PATH, with:REQUIREMENT, "
    "lock:FILE, var:NAME=VALUE or param:NAME=VALUE"
)
# Each side has its own, so that none finds what the other compiled.
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
# Where code that was installed from a folder is imported from: by path, or by the finder that setuptools installs. A
# path may lead through a link, where git tells the folder behind it.
_PATHS = """
import json, os, sys
import pytest_roofline
found = [path for path in sys.path if path]
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    found += [os.path.dirname(place) for place in getattr(module, "MAPPING", {}).values()]
both = lambda paths: [one for path in paths for one in (path, os.path.realpath(path))]
print(json.dumps([both(found), both([sys.prefix, sys.base_prefix])]))
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A side as a user writes it, taken apart.

    Args:
        text: all of it.
        kind: what stands ahead of the colon.
        value: what stands behind it.
        build: the command that builds a commit; empty for none.
    """

    text: str
    kind: str
    value: str = ""
    build: str = ""

    @property
    def parameter(self) -> tuple[str, str] | None:
        """The parameter of tests that it stands for, with its value."""
        name, _, value = self.value.partition("=")
        return (name, value) if self.kind == "param" else None


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """How the processes of a side are started.

    Args:
        asked: what the user wrote.
        python: its interpreter.
        cwd: where its processes run.
        environ: all of their variables.
        checkout: the repository's top; empty where there is none.
        folder: the folder whose code runs in its place, mostly the same.
        commit: that it must run; empty of a working tree.
    """

    asked: Asked
    python: str
    cwd: Path
    environ: dict[str, str] = field(repr=False)
    checkout: str = ""
    folder: str = ""
    commit: str = ""

    def __str__(self) -> str:
        known = self.commit.startswith(self.asked.text.partition(",")[0].removeprefix("commit:"))
        return printable(
            self.asked.text + (f" ({self.commit[:10]})" if self.commit and not known else "")
        )


def parse_side(text: str) -> Asked:
    """A side that a user names.

    Raises:
        BadInput: it is none.
    """
    head, comma, build = text.partition(",build=")
    kind, colon, value = head.partition(":")
    if head == HERE:
        asked = Asked(text, HERE)
    elif kind in ("commit", "merge-base"):
        asked = Asked(text, kind, value, build)
    elif colon and kind in ("python", "with", "lock", "var", "param"):
        # A requirement or a value may hold anything.
        return _checked(Asked(text, kind, text.partition(":")[2]))
    elif colon or not head or head.startswith("-"):
        raise BadInput(f"side {text!r} is none; expected {FORMS}")
    else:
        asked = Asked(text, "commit", head, build)
    if comma and not (build and asked.kind in ("commit", "merge-base")):
        raise BadInput(
            f"side {text!r} has a build of {build!r}; expected a command, and a commit: commit:REF,build=make"
        )
    return _checked(asked)


def _checked(asked: Asked) -> Asked:
    name, sign, _ = asked.value.partition("=")
    if asked.kind in ("var", "param") and not (name and sign):
        raise BadInput(f"side {asked.text!r} names no value; expected {asked.kind}:NAME=VALUE")
    if asked.kind in ("python", "with", "lock", "commit") and not asked.value:
        raise BadInput(f"side {asked.text!r} is cut off behind {asked.kind}; expected {FORMS}")
    return asked


def parse_sides(a: str, b: str) -> tuple[Asked, Asked]:
    """Both sides, which must fit together.

    Raises:
        BadInput: one is none, or only one is a parameter, or they are different ones.
    """
    both = parse_side(a), parse_side(b)
    names = {one.parameter[0] if one.parameter else None for one in both}
    if len(names) > 1:
        raise BadInput(
            f"sides {a!r} and {b!r} cannot be compared; expected the same parameter of tests on both, such as "
            "param:execution=eager and param:execution=compile"
        )
    if both[0].parameter and both[0] == both[1]:
        raise BadInput(
            f"both sides are {a!r}; expected another value of the parameter on one of them"
        )
    return both


def pinned(asked: Asked, commit: str) -> Asked:
    """A side at the commit that it meant when its run began, whatever the name means now; as it is without one."""
    return replace(asked, kind="commit", value=commit) if commit else asked


@contextlib.contextmanager
def prepared(asked: Mapping[str, Asked], cwd: Path) -> Iterator[dict[str, PreparedSide]]:
    """Both sides, ready to run; their worktrees and environments are gone behind it.

    Raises:
        BadInput: a side cannot be made: no such commit, no git, no uv, a build that fails.
    """
    remove_abandoned()
    git = Git(cwd)
    git.forget_abandoned()
    with tempfile.TemporaryDirectory(
        prefix=owned_prefix("ab"), ignore_cleanup_errors=True
    ) as folder:
        try:
            yield {arm: _prepare(one, Path(folder, arm), cwd, git) for arm, one in asked.items()}
        finally:
            git.remove(folder)


def _prepare(asked: Asked, folder: Path, cwd: Path, git: Git) -> PreparedSide:
    folder.mkdir()
    checkout = git.top or ""
    python, environ = sys.executable, dict(os.environ)
    environ |= {name: str(folder / place) for name, place in CACHES.items()}
    if asked.kind == "python":
        python = interpreter(asked.text, asked.value)
    elif asked.kind == "with":
        python = changed(asked.text, asked.value, folder)
    elif asked.kind == "lock":
        python = locked(asked.text, (cwd / asked.value).absolute(), folder)
    elif asked.kind == "var":
        name, _, value = asked.value.partition("=")
        environ[name] = value
    if asked.kind not in ("commit", "merge-base"):
        environ |= _of_environment(asked, python)
        _paths(asked, python, environ, cwd)
        return PreparedSide(asked, python, cwd, environ, checkout, checkout)
    commit = (git.merge_base if asked.kind == "merge-base" else git.commit)(asked.text, asked.value)
    worktree = folder / "worktree"
    git.add(asked.text, worktree, commit)
    if asked.build:
        python = over(folder / "environment")
    environ |= _of_environment(asked, python)
    if asked.build:
        run(["sh", "-c", asked.build], f"side {asked.text!r}: its build", worktree, environ)
    moved = _moved(_paths(asked, python, environ, cwd), Path(checkout), worktree)
    if asked.build:
        # Behind what the build has installed, and ahead of what lies below.
        lines = "".join(f"{path}\n" for path in moved)
        (packages_of(folder / "environment") / "ahead.pth").write_text(lines, encoding="utf-8")
        moved = []
    environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([*moved, *_kept(environ, Path(checkout))])
    )
    place = worktree / cwd.relative_to(checkout)
    if not place.is_dir():
        raise BadInput(
            f"side {asked.text!r} has no folder {cwd.relative_to(checkout)}; run it where both sides have one"
        )
    return PreparedSide(asked, python, place, environ, checkout, str(worktree), commit)


def _moved(paths: tuple[Sequence[str], Sequence[str]], checkout: Path, worktree: Path) -> list[str]:
    """The folders of the worktree that stand for those of the checkout from which code is imported."""
    found, prefixes = paths
    # The checkout may as well lie in the interpreter's own folder, as in `/usr/src`.
    prefixes = [prefix for prefix in prefixes if Path(prefix).is_relative_to(checkout)]
    below = [Path(path) for path in found if Path(path).is_relative_to(checkout)]
    below = [path for path in below if path.name not in ("site-packages", "dist-packages")]
    own = [path for path in below if not any(path.is_relative_to(prefix) for prefix in prefixes)]
    return [str(worktree / path.relative_to(checkout)) for path in own]


def _kept(environ: Mapping[str, str], checkout: Path) -> list[str]:
    """Of the user's own PYTHONPATH what is not of the checkout."""
    paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    inside = (Path.absolute, Path.resolve)
    return [
        path for path in paths if not any(at(Path(path)).is_relative_to(checkout) for at in inside)
    ]


def _paths(
    asked: Asked, python: str, environ: Mapping[str, str], cwd: Path
) -> tuple[list[str], list[str]]:
    """Where an interpreter imports from, and its prefixes; it must have this plugin."""
    command = [python, "-c", _PATHS]
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        _, _, why = last_words(done.stderr).rpartition("\n")
        raise BadInput(
            f"side {asked.text!r}: {python} cannot import pytest_roofline ({why}); expected an environment that has "
            "pytest-roofline and what the tests import"
        )
    found, prefixes = json.loads(done.stdout.splitlines()[-1])
    return found, prefixes


def _of_environment(asked: Asked, python: str) -> dict[str, str]:
    """The variables of a side's own interpreter, as `activate` sets them."""
    if not (asked.kind in ("python", "with", "lock") or asked.build):
        return {}
    place = Path(python).parent
    path = f"{place}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path} | (
        {"VIRTUAL_ENV": str(place.parent)} if (place.parent / "pyvenv.cfg").exists() else {}
    )
