"""The sides of `roofline ab`: the folder, the interpreter and the variables of their processes.

A commit is checked out into a worktree outside of the checkout. Packages that were installed from the checkout are then
imported from the worktree. A side with packages of its own gets an environment over the present one, into which nothing
is installed.
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
from ..processes.system import last_words, owned_prefix, remove_abandoned
from .making import (
    Git,
    change_package,
    find_interpreter,
    install_exactly,
    install_locked,
    make_overlay,
    packages_of,
    run,
)

HERE = "."
# A side that no text names: packages and variables, of which `roofline bisect` has made a list.
LISTED = "listed"
SIDES = ("A", "B")
FORMS = (
    ". (the code as it stands), commit:REF[,build=COMMAND] or REF, merge-base[:BRANCH], python:PATH, with:REQUIREMENT, "
    "lock:FILE, var:NAME=VALUE, param:NAME=VALUE or cmd:COMMAND"
)
# What the interpreter of a side must import; of a program it need be nothing that Python does not bring.
PLUGIN, NOTHING = "pytest_roofline", "sys"
# Each side has its own caches, so that neither uses binaries of the other.
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
# Prints the folders of installed code: those on the path, and those of the finder that setuptools installs. Each folder
# is printed as it is and with its links resolved, since git names the resolved one.
_PATHS_PROGRAM = """
import json, os, sys
folders = [path for path in sys.path if path]
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    folders += [os.path.dirname(place) for place in getattr(module, "MAPPING", {}).values()]
both = lambda paths: [form for path in paths for form in (path, os.path.realpath(path))]
print(json.dumps([both(folders), both([sys.prefix, sys.base_prefix])]))
"""


@dataclass(frozen=True, slots=True)
class SideSpec:
    """A side as a user writes it, in its parts.

    Args:
        text: the whole text.
        kind: the part before the colon.
        value: the part behind the colon.
        build: the command that builds a commit; empty without one.
        requirements: of a side that is `LISTED`, the packages that it has in place of those of the present environment.
        variables: of such a side, the environment variables; None unsets one.
    """

    text: str
    kind: str
    value: str = ""
    build: str = ""
    requirements: tuple[str, ...] = ()
    variables: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def parameter(self) -> tuple[str, str] | None:
        """The name and value of a side `param:NAME=VALUE`; None for other sides."""
        name, _, value = self.value.partition("=")
        return (name, value) if self.kind == "param" else None


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """The interpreter, folder and variables of a side's processes.

    Args:
        spec: the side as the user wrote it.
        python: its interpreter.
        cwd: the folder in which its processes run.
        environ: all of their variables.
        checkout: the top folder of the repository; empty without one.
        folder: the folder whose code runs in place of the checkout's: a worktree, or the checkout itself.
        commit: the commit that must run; empty for a working tree.
    """

    spec: SideSpec
    python: str
    cwd: Path
    environ: dict[str, str] = field(repr=False)
    checkout: str = ""
    folder: str = ""
    commit: str = ""

    def __str__(self) -> str:
        """Return the side as the user wrote it.

        The commit follows, unless the text is its hash or the beginning of it.
        """
        side, _, _ = self.spec.text.partition(",")
        is_named = self.commit.startswith(side.removeprefix("commit:"))
        commit = f" ({self.commit[:10]})" if self.commit and not is_named else ""
        return printable(f"{self.spec.text}{commit}")


def parse_side(text: str) -> SideSpec:
    """Return the parts of a side that a user names.

    Raises:
        BadInput: the text is no side.
    """
    head, comma, build = text.partition(",build=")
    kind, colon, value = head.partition(":")
    if head == HERE:
        spec = SideSpec(text, HERE)
    elif kind in ("commit", "merge-base"):
        spec = SideSpec(text, kind, value, build)
    elif colon and kind in ("python", "with", "lock", "var", "param", "cmd"):
        # A requirement or a value may hold anything, also `,build=`, which is no build command here.
        _, _, whole_value = text.partition(":")
        return _require_value(SideSpec(text, kind, whole_value))
    elif colon or not head or head.startswith("-"):
        raise BadInput(f"side {text!r} has an unknown form; expected {FORMS}")
    else:
        spec = SideSpec(text, "commit", head, build)
    if comma and not (build and spec.kind in ("commit", "merge-base")):
        raise BadInput(
            f"side {text!r} has the build command {build!r}; expected a commit and a command: commit:REF,build=make"
        )
    return _require_value(spec)


def _require_value(spec: SideSpec) -> SideSpec:
    """Return a side. Raise BadInput if its kind needs a value that it lacks."""
    name, sign, _ = spec.value.partition("=")
    if spec.kind in ("var", "param") and not (name and sign):
        raise BadInput(f"side {spec.text!r} names no value; expected {spec.kind}:NAME=VALUE")
    if spec.kind in ("python", "with", "lock", "commit", "cmd") and not spec.value:
        raise BadInput(f"side {spec.text!r} has nothing after '{spec.kind}:'; expected {FORMS}")
    return spec


def parse_sides(a: str, b: str) -> tuple[SideSpec, SideSpec]:
    """Return the parts of both sides.

    Raises:
        BadInput: a text is no side, only one is a parameter, or the parameters differ.
    """
    specs = side_a, side_b = parse_side(a), parse_side(b)
    # The name of the parameter on each side; None for a side that is no parameter.
    parameter_names = set()
    for spec in specs:
        name, _ = spec.parameter or (None, None)
        parameter_names.add(name)
    if len(parameter_names) > 1:
        raise BadInput(
            f"sides {a!r} and {b!r} cannot be compared; expected the same parameter of tests on both sides, such as "
            "param:execution=eager and param:execution=compile"
        )
    if [spec.kind for spec in specs].count("cmd") == 1:
        raise BadInput(
            f"sides {a!r} and {b!r} cannot be compared; expected cmd:COMMAND on both sides, or --run COMMAND"
        )
    if side_a.parameter and side_a == side_b:
        raise BadInput(f"both sides are {a!r}; expected two different values of the parameter")
    return specs


def pin_commit(spec: SideSpec, commit: str) -> SideSpec:
    """Return a side fixed to a commit. An empty commit changes nothing."""
    return replace(spec, kind="commit", value=commit) if commit else spec


@contextlib.contextmanager
def prepare_sides(
    specs: Mapping[str, SideSpec], cwd: Path, module: str = PLUGIN
) -> Iterator[dict[str, PreparedSide]]:
    """Yield both sides, ready to run. Their worktrees and environments are removed afterwards.

    The interpreter of each side must import `module`.

    Raises:
        BadInput: a side cannot be made, for example without its commit, git or uv, or after a failed build.
    """
    remove_abandoned()
    git = Git(cwd)
    git.forget_abandoned()
    with tempfile.TemporaryDirectory(
        prefix=owned_prefix("ab"), ignore_cleanup_errors=True
    ) as folder:
        try:
            yield {
                arm: _prepare(spec, Path(folder, arm), cwd, git, module)
                for arm, spec in specs.items()
            }
        finally:
            git.remove(folder)


def _prepare(spec: SideSpec, folder: Path, cwd: Path, git: Git, module: str) -> PreparedSide:
    """Return a side that is ready to run, made in a new folder.

    Args:
        spec: the side as the user wrote it.
        folder: gets its caches, environment and worktree.
        cwd: the folder in which the user called `roofline ab`.
        git: the repository around that folder.
        module: what the interpreter of the side must import.
    """
    folder.mkdir()
    environ = dict(os.environ) | {name: str(folder / place) for name, place in CACHES.items()}
    if spec.kind in ("commit", "merge-base"):
        return _prepare_commit(spec, folder, cwd, git, module, environ)
    python = sys.executable
    if spec.kind == "python":
        python = find_interpreter(spec.text, spec.value)
    elif spec.kind == "with":
        python = change_package(spec.text, spec.value, folder)
    elif spec.kind == "lock":
        python = install_locked(spec.text, (cwd / spec.value).absolute(), folder)
    elif spec.kind == "var":
        name, _, value = spec.value.partition("=")
        environ[name] = value
    elif spec.requirements:
        python = install_exactly(spec.text, spec.requirements, folder)
    variables = {**environ, **spec.variables}
    environ = {name: value for name, value in variables.items() if value is not None}
    environ |= _interpreter_variables(spec, python)
    # Only checks that the interpreter can import the module.
    _import_paths(spec, python, environ, cwd, module)
    checkout = git.top or ""
    return PreparedSide(spec, python, cwd, environ, checkout, checkout)


def _prepare_commit(
    spec: SideSpec, folder: Path, cwd: Path, git: Git, module: str, environ: dict[str, str]
) -> PreparedSide:
    """Return the side of a commit, in its worktree.

    It is built there if the user gave a command for that. The arguments are those of `_prepare`; `environ` are the
    variables of the side so far.
    """
    find_commit = git.merge_base if spec.kind == "merge-base" else git.commit
    commit = find_commit(spec.text, spec.value)
    checkout = git.top or ""
    worktree = folder / "worktree"
    git.add(spec.text, worktree, commit)
    # What a build installs goes into an environment of its own.
    python = make_overlay(folder / "environment") if spec.build else sys.executable
    environ |= _interpreter_variables(spec, python)
    if spec.build:
        run(
            ["sh", "-c", spec.build],
            f"side {spec.text!r}: the build of its commit",
            worktree,
            environ,
        )
    folders = _worktree_folders(
        _import_paths(spec, python, environ, cwd, module), Path(checkout), worktree
    )
    if spec.build:
        # The folders come behind the packages that the build installed, and before those of the present environment.
        lines = "".join(f"{path}\n" for path in folders)
        (packages_of(folder / "environment") / "ahead.pth").write_text(lines, encoding="utf-8")
        folders = []
    environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([*folders, *_outside_paths(environ, Path(checkout))])
    )
    place = worktree / cwd.relative_to(checkout)
    if not place.is_dir():
        raise BadInput(
            f"side {spec.text!r} has no folder {cwd.relative_to(checkout)}; start the command in a "
            "folder that both sides have"
        )
    return PreparedSide(spec, python, place, environ, checkout, str(worktree), commit)


def _worktree_folders(
    paths: tuple[Sequence[str], Sequence[str]], checkout: Path, worktree: Path
) -> list[str]:
    """Return the folders in the worktree that replace import folders of the checkout.

    `paths` are the import folders and the prefixes of the interpreter. An environment inside the checkout is not
    replaced.
    """
    folders, prefixes = paths
    # Only prefixes inside the checkout count, since the checkout may be inside a prefix: `/usr/src` in `/usr`.
    prefixes = [prefix for prefix in prefixes if Path(prefix).is_relative_to(checkout)]
    inside = [Path(path) for path in folders if Path(path).is_relative_to(checkout)]
    inside = [path for path in inside if path.name not in ("site-packages", "dist-packages")]
    own_folders = [
        path for path in inside if not any(path.is_relative_to(prefix) for prefix in prefixes)
    ]
    return [str(worktree / path.relative_to(checkout)) for path in own_folders]


def _outside_paths(environ: Mapping[str, str], checkout: Path) -> list[str]:
    """Return the folders of the user's PYTHONPATH that are outside the checkout.

    A folder counts as inside by its path as it is, or with links resolved.
    """
    paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    inside = (Path.absolute, Path.resolve)
    return [
        path for path in paths if not any(at(Path(path)).is_relative_to(checkout) for at in inside)
    ]


def _import_paths(
    spec: SideSpec, python: str, environ: Mapping[str, str], cwd: Path, module: str
) -> tuple[list[str], list[str]]:
    """Return the import folders of an interpreter, and its prefixes.

    Raises:
        BadInput: the interpreter lacks this plugin.
    """
    command = [python, "-c", f"import {module}\n{_PATHS_PROGRAM}"]
    process = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    if process.returncode:
        _, _, reason = last_words(process.stderr).rpartition("\n")
        raise BadInput(
            f"side {spec.text!r}: {python} cannot import {module} ({reason}); expected an environment with "
            "pytest-roofline and all that the tests import"
        )
    # An import may print lines before.
    last_line = process.stdout.splitlines()[-1]
    folders, prefixes = json.loads(last_line)
    return folders, prefixes


def _interpreter_variables(spec: SideSpec, python: str) -> dict[str, str]:
    """Return the variables that `activate` would set for a side's own interpreter.

    A side that uses the present interpreter has none.
    """
    if not (spec.kind in ("python", "with", "lock") or spec.build or spec.requirements):
        return {}
    place = Path(python).parent
    path = f"{place}{os.pathsep}{os.environ.get('PATH', '')}"
    variables = {"PATH": path}
    environment = place.parent
    if (environment / "pyvenv.cfg").exists():
        variables["VIRTUAL_ENV"] = str(environment)
    return variables
