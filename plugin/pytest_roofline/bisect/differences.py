"""The differences of two runs in packages and variables, which an environment can switch."""

import importlib.metadata
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..ab.sides import CACHES
from ..core.errors import BadInput
from ..core.facts import Environment, fact_text
from ..hardware import key_of
from .search import Place

PACKAGE = "package "
# A variable as an environment names it. A file may hold others, which no environment can switch.
_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A package or a variable (`$NAME`) that differs. None is a variable that is not set."""

    name: str
    good: str | None
    bad: str | None

    @property
    def text(self) -> str:
        """The difference in words: `triton 3.7.1 → 3.7.2`."""
        return f"{self.name} {self.good or 'unset'} → {self.bad or 'unset'}"


# Differences that can only change together.
SettingGroup = tuple[ChangedSetting, ...]


def group_text(group: SettingGroup) -> str:
    """Return a group of differences in words."""
    return " with ".join(setting.text for setting in group)


def groups_between(good: Environment, bad: Environment) -> tuple[list[SettingGroup], list[str]]:
    """Return the groups of differences of two runs.

    Names of differences that no environment can switch are beside them.

    Raises:
        BadInput: the runs are of two kinds of hardware, or nothing differs that can be switched.
    """
    good_hardware, bad_hardware = key_of(good), key_of(bad)
    if good_hardware != bad_hardware:
        raise BadInput(
            f"the runs are of two kinds of hardware, {good_hardware} and {bad_hardware}; "
            "expected two runs of one hardware"
        )
    before, after = good.everything(), bad.everything()
    # Each side has caches of its own, wherever those of the runs were.
    facts = [name for name in {**before, **after} if name.removeprefix("$") not in CACHES]
    changed = [name for name in facts if before.get(name) != after.get(name)]
    differences, fixed = [], []
    for name in changed:
        is_in_both = name in before and name in after
        # The name of an environment variable begins with a `$`.
        if _VARIABLE.fullmatch(name):
            differences.append(ChangedSetting(name, before.get(name), after.get(name)))
        elif name.startswith(PACKAGE) and is_in_both:
            package = name.removeprefix(PACKAGE)
            versions = _version_of(before[name]), _version_of(after[name])
            differences.append(ChangedSetting(package, *versions))
        # A package may also be a fact of its own, as `triton` beside `package triton`: it is named once.
        elif f"{PACKAGE}{name}" not in changed:
            fixed.append(f"{name} {fact_text(before, name)} → {fact_text(after, name)}")
    if not differences:
        texts = "; ".join(fixed) or "nothing"
        raise BadInput(
            f"the runs differ in {texts}; "
            "expected a difference in a package or a variable, which one machine can switch"
        )
    return _grouped(differences), fixed


def _version_of(fact: str) -> str:
    """Return the version in the fact of a package.

    A `#` and a hash may follow it there.
    """
    version, _, _ = fact.partition("#")
    return version.strip()


def _grouped(differences: Sequence[ChangedSetting]) -> list[SettingGroup]:
    """Return groups of differences. Packages of which one pins the version of another are one group."""
    # By name. Members of one group have the same list, so that one change of it reaches all of them.
    groups: dict[str, list[ChangedSetting]] = {
        canonicalize_name(difference.name): [difference] for difference in differences
    }
    for name in list(groups):
        for pinned in filter(groups.__contains__, _pinned_by(name)):
            if groups[pinned] is not groups[name]:
                groups[name] += groups[pinned]
                for member in groups[pinned]:
                    groups[canonicalize_name(member.name)] = groups[name]
    # Each list once, though all of its members name it.
    distinct_groups = {id(group): group for group in groups.values()}.values()
    return [tuple(members) for members in distinct_groups]


def _pinned_by(name: str) -> Iterator[str]:
    """Yield the packages whose version an installed package requires exactly."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        if any(part.operator in ("==", "===") for part in requirement.specifier):
            yield canonicalize_name(requirement.name)


def settings_of(
    groups: Sequence[SettingGroup], place: Place
) -> tuple[list[str], dict[str, str | None]]:
    """Return the package requirements and the environment variables of a candidate.

    `place` are the groups that have the values of the slow run; all others have those of the fast one.
    """
    requirements: list[str] = []
    variables: dict[str, str | None] = {}
    for number, group in enumerate(groups):
        for member in group:
            value = member.bad if number in place else member.good
            if member.name.startswith("$"):
                variables[member.name.removeprefix("$")] = value
            else:
                requirements.append(f"{member.name}=={value}")
    return requirements, variables
