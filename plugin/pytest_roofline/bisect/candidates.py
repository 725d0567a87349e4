"""The row of candidates between two ends: versions of a package, or commits. The good end comes first."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from ..ab.making import Git, find_uv, run
from ..ab.sides import HERE, SideSpec, parse_side
from ..core.errors import BadInput

EXPECTED = (
    "expected two versions of a package (with:triton==3.6.* with:triton==3.9.*), two commits (v1.4 .), "
    "or two saved runs"
)

# Letters of a commit's hash that tell it from all others.
SHORT = 12


def row_between(good: str, bad: str, cwd: Path, *, pre: bool) -> list[str]:
    """Return the candidates between two ends, which are among them.

    They are sides of `roofline ab`, from the good end to the bad one.

    Args:
        good: the end that is fast, as a side; `bad` the slow one.
        cwd: a folder of the repository, for commits.
        pre: True if versions before a release count.

    Raises:
        BadInput: the ends are neither two versions nor two commits, or nothing lies between them.
    """
    ends = parse_side(good), parse_side(bad)
    kinds = {spec.kind for spec in ends}
    if kinds == {"with"}:
        row = _versions(ends, pre=pre)
    elif kinds <= {"commit", "merge-base", HERE} and ends[0].kind != HERE:
        row = _commits(ends, Git(cwd))
    else:
        raise BadInput(f"{good!r} and {bad!r} have no candidates between them; {EXPECTED}")
    if len(row) < 2:
        raise BadInput(f"{good!r} and {bad!r} are the same; expected two ends that differ")
    return row


def _versions(ends: Sequence[SideSpec], *, pre: bool) -> list[str]:
    """Return the versions of a package between both ends.

    They are those that pip finds, from the newest that fits the good end to that of the bad.
    """
    requirements = [_requirement(spec) for spec in ends]
    names = {requirement.name.lower() for requirement in requirements}
    if len(names) > 1:
        raise BadInput(f"{ends[0].text!r} and {ends[1].text!r} name two packages; {EXPECTED}")
    requirement, _ = requirements
    versions = _versions_of(requirement.name)
    good, bad = (_newest_index(spec, versions, pre=pre) for spec in ends)
    # The good end may be the newer version.
    step = 1 if good < bad else -1
    row = [versions[index] for index in range(good, bad + step, step)]
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return [f"with:{requirement.name}{extras}=={version}" for version in row]


def _versions_of(package: str) -> list[Version]:
    """Return the versions of a package that pip finds for this interpreter, the oldest first."""
    pip, uv = [sys.executable, "-m", "pip"], find_uv()
    if uv is not None and importlib.util.find_spec("pip") is None:
        # An environment that uv made has no pip, and uv itself lists no versions.
        pip = [uv, "tool", "run", "--python", sys.executable, "pip"]
    command = [*pip, "index", "versions", package]
    printed = run(command, f"pip, which lists the versions of {package},")
    match = re.search(r"^Available versions: (.*)$", printed, re.MULTILINE)
    texts = match[1].split(", ") if match else []
    return sorted(map(Version, texts))


def _newest_index(spec: SideSpec, versions: Sequence[Version], *, pre: bool) -> int:
    """Return the index of the newest version that fits a side. Raise BadInput if none does."""
    # None leaves it to the requirement whether versions before a release count.
    fitting = list(_requirement(spec).specifier.filter(versions, prereleases=pre or None))
    if not fitting:
        texts = ", ".join(map(str, versions)) or "none"
        raise BadInput(f"side {spec.text!r} fits no version that pip finds; pip finds {texts}")
    return versions.index(fitting[-1])


def _requirement(spec: SideSpec) -> Requirement:
    """Return the requirement of a side. Raise BadInput if it is none."""
    try:
        return Requirement(spec.value)
    except InvalidRequirement as error:
        raise BadInput(f"side {spec.text!r} is no requirement ({error}); {EXPECTED}") from None


def _commits(ends: Sequence[SideSpec], git: Git) -> list[str]:
    """Return the commits from the good end to the bad one.

    They are sides. The working tree is the last one if it is the bad end.
    """
    # A merge base is the newest commit that the checkout shares with the branch that it names.
    hashes = [
        git.merge_base(spec.text, spec.value)
        if spec.kind == "merge-base"
        else git.commit(spec.text, spec.value or "HEAD")
        for spec in ends
    ]
    build = next((f",build={spec.build}" for spec in ends if spec.build), "")
    good, bad = ends
    commits = git.commits_between(good.text, *hashes)
    row = [f"commit:{commit[:SHORT]}{build}" for commit in commits]
    if bad.kind == HERE:
        # The working tree of a clean checkout has the sources of the last commit, so it takes the place of that commit.
        is_last_commit = git.is_clean and len(row) > 1
        row = [*(row[:-1] if is_last_commit else row), HERE]
    return row
