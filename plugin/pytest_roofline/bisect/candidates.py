"""The row of candidates between two ends: versions of a package, or commits. The good end comes first."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ..ab.making import Git, run
from ..ab.sides import HERE, SideSpec, parse_side
from ..core.errors import BadInput

EXPECTED = (
    "expected two versions of a package (with:triton==3.6.* with:triton==3.9.*), two commits (v1.4 .), "
    "or two saved runs"
)

# Letters of a commit's hash that tell it from all others.
SHORT = 12


def row_between(good: str, bad: str, cwd: Path, *, pre: bool) -> list[str]:
    """Return the candidates from the good end to the bad one, both included, as sides of `roofline ab`.

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
        return _versions(ends, pre=pre)
    if kinds <= {"commit", "merge-base", HERE} and ends[0].kind != HERE:
        return _commits(ends, Git(cwd))
    raise BadInput(f"{good!r} and {bad!r} have no candidates between them; {EXPECTED}")


def _versions(ends: Sequence[SideSpec], *, pre: bool) -> list[str]:
    """Return the versions of a package that pip finds, from the newest that fits the good end to that of the bad."""
    requirements = [_requirement(spec) for spec in ends]
    names = {requirement.name.lower() for requirement in requirements}
    if len(names) > 1:
        raise BadInput(f"{ends[0].text!r} and {ends[1].text!r} are two packages; {EXPECTED}")
    name = requirements[0].name
    command = [sys.executable, "-m", "pip", "index", "versions", name, *["--pre"] * pre]
    printed = run(command, f"pip, which lists the versions of {name},")
    listed = re.search(r"^Available versions: (.*)$", printed, re.MULTILINE)
    versions = sorted(map(_version, listed[1].split(", ") if listed else []))
    places = []
    for spec, requirement in zip(ends, requirements, strict=True):
        fitting = list(requirement.specifier.filter(versions, prereleases=pre or None))
        if not fitting:
            texts = ", ".join(map(str, versions)) or "none"
            raise BadInput(f"side {spec.text!r} fits no version that pip finds; there are {texts}")
        places.append(versions.index(fitting[-1]))
    step = 1 if places[0] < places[1] else -1
    extras = f"[{','.join(sorted(requirements[0].extras))}]" if requirements[0].extras else ""
    row = [versions[place] for place in range(places[0], places[1] + step, step)]
    return _checked([f"with:{name}{extras}=={version}" for version in row], ends)


def _requirement(spec: SideSpec) -> Requirement:
    """Return the requirement of a side. Raise BadInput if it is none."""
    try:
        return Requirement(spec.value)
    except InvalidRequirement as error:
        raise BadInput(f"side {spec.text!r} is no requirement ({error}); {EXPECTED}") from None


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise BadInput(f"pip lists the version {text!r}; expected one such as 3.6.0") from None


def _commits(ends: Sequence[SideSpec], git: Git) -> list[str]:
    """Return the commits between two, and the working tree if it is the bad end."""
    hashes = [
        git.merge_base(spec.text, spec.value)
        if spec.kind == "merge-base"
        else git.commit(spec.text, spec.value or "HEAD")
        for spec in ends
    ]
    build = next((f",build={spec.build}" for spec in ends if spec.build), "")
    commits = git.commits_between(ends[0].text, *hashes)
    row = [f"commit:{commit[:SHORT]}{build}" for commit in commits]
    if ends[1].kind == HERE:
        # A clean checkout is its commit, with what was built in it.
        row = [*(row[:-1] if git.is_clean and len(row) > 1 else row), HERE]
    return _checked(row, ends)


def _checked(row: list[str], ends: Sequence[SideSpec]) -> list[str]:
    """Return a row of candidates. Raise BadInput if both ends are the same."""
    if len(row) < 2:
        raise BadInput(
            f"{ends[0].text!r} and {ends[1].text!r} are the same; expected two that differ"
        )
    return row
