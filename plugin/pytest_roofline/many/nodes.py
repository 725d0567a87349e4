"""Lists of nodes, in the notation of Slurm and ClusterShell, and the nodes of such a list that are silent."""

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high

from ..baselines.test_texts import RunFile
from ..core.errors import BadInput
from ..core.storage import read_bytes
from ..core.units import count, cut
from .files import is_over_several

# No cluster has more nodes; a longer list is a slip of the keyboard, and would fill the memory.
MOST_NODES = 100_000
# At most so many silent nodes are printed.
MOST_NAMED = 20
# Commas and blanks outside of brackets.
_BETWEEN = re.compile(r"[,\s]+(?![^\[\]]*\])")
# A name with any number of brackets: rack[1-2]n[01-16].
_ENTRY = re.compile(r"(?:[\w.:-]|\[[\d,/-]+\])+", re.ASCII)
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[]+)")
# A number, or a range with a step: 001-050, 0-8/2.
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?:/(\d{1,9}))?", re.ASCII)
# The choices of one part of a name: a text, or the ranges of a bracket, which are not listed yet; each with the least
# number of digits.
_Choices = list[tuple[Sequence[object], int]]


def parse_nodes(text: str, option: str) -> tuple[str, ...]:
    """Return the nodes of a list, each once, in order: `gpu[001-050,060],login1`.

    Numbers are as long as the first of their range. `@FILE` names a file with such lists; a line that
    begins with `#` is a remark.

    Raises:
        BadInput: the notation is wrong, the list is empty or too long, or the file cannot be read.
    """
    if text.startswith("@"):
        content = read_bytes(Path(text[1:]), f"{option} file", "names of nodes")
        lines = content.decode("utf-8-sig", errors="replace").splitlines()
        text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    entries = [_choices(entry, option) for entry in _BETWEEN.split(text) if entry]
    total = sum(math.prod(map(_count, choices)) for choices in entries)
    if not 1 <= total <= MOST_NODES:
        raise BadInput(f"{option} names {count(total, 'node')}; expected 1 to {MOST_NODES:,}")
    names = (
        "".join(parts) for choices in entries for parts in itertools.product(*map(_texts, choices))
    )
    return tuple(dict.fromkeys(names))


def _choices(entry: str, option: str) -> list[_Choices]:
    """Return the parts of an entry, each with its choices.

    `option` is named in the message.
    """
    if not _ENTRY.fullmatch(entry):
        raise BadInput(f"{option} has {entry!r}; expected names such as gpu[001-050],login1")
    return [
        _numbers(match[1], entry, option) if match[1] is not None else [([match[2]], 0)]
        for match in _PIECE.finditer(entry)
    ]


def _numbers(text: str, entry: str, option: str) -> _Choices:
    """Return the numbers of a bracket: `001-050,060`.

    `entry` and `option` are named in the message.
    """
    ranges: _Choices = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last, step = match.groups() if match else ("", None, None)
        step_size = int(step or 1)
        # It stays empty where the notation is wrong or the range goes down.
        numbers = range(0)
        if first and step_size > 0:
            numbers = range(int(first), int(last or first) + 1, step_size)
        if not numbers:
            raise BadInput(
                f"{option} has the range {part!r} in {entry!r}; expected FIRST-LAST, such as 001-050"
            )
        ranges.append((numbers, len(first)))
    return ranges


def _count(choices: _Choices) -> int:
    """Return how many choices one part of a name has."""
    return sum(len(values) for values, _ in choices)


def _texts(choices: _Choices) -> list[str]:
    """Return all choices of one part of a name."""
    return [str(value).zfill(digits) for values, digits in choices for value in values]


def is_among(node: str, names: Collection[str]) -> bool:
    """Return True if names hold a node, with its domain or without it."""
    return node in names or _short(node) in names


def _short(node: str) -> str:
    """Return the name of a node without its domain."""
    return node.partition(".")[0]


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node of a list that gave less than the others, and what is missing."""

    node: str
    reason: str


def silent_nodes(
    names: Sequence[str], sides: Mapping[str, Sequence[RunFile]]
) -> tuple[SilentNode, ...]:
    """Return the listed nodes that gave less than the others.

    They have no file, no usable number, or fewer tests than at least half of the nodes.

    Args:
        names: of the nodes that are expected.
        sides: the runs of each side, by its name; the name is empty where there is one side.
    """
    if not names:
        return ()
    reasons: dict[str, list[str]] = {name: [] for name in names}
    for side, files in sides.items():
        tests = _tests_by_node(files)
        expected = median_high([len(tests_of_node) for tests_of_node in tests.values()] or [0])
        # A list may name a node without its domain.
        tests |= {_short(node): tests_of_node for node, tests_of_node in tests.items()}
        for name in names:
            reason = _silence(name, tests.get(name), expected, files)
            if reason:
                reasons[name].append(f"{side}: {reason}" if side else reason)
    return tuple(SilentNode(name, "; ".join(texts)) for name, texts in reasons.items() if texts)


def silent_lines(nodes: Sequence[SilentNode]) -> list[str]:
    """Return the lines on listed nodes that gave less than the others."""
    lines = [f"silent: {node.node}: {node.reason}" for node in nodes]
    return cut(lines, MOST_NAMED, "silent nodes; --json has all of them")


def _silence(
    name: str, tests: Collection[str] | None, expected: int, files: Sequence[RunFile]
) -> str:
    """Return what is missing of a node; empty if nothing is.

    Args:
        name: of the node.
        tests: those that the node measured; None if no readable file is of this node.
        expected: the number of tests that at least half of the nodes measured.
        files: all files, of which some may be unreadable.
    """
    if tests is None:
        # The path of a file that cannot be used is all that tells its node.
        whole_name = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])")
        broken = (file.broken for file in files if file.broken and whole_name.search(file.path))
        return next(broken, "no file")
    if not tests:
        return "no number that counts"
    return f"{len(tests)} of {count(expected, 'test')}" if len(tests) < expected else ""


def _tests_by_node(files: Sequence[RunFile]) -> dict[str, set[str]]:
    """Return the tests of each node that count."""
    tests: dict[str, set[str]] = {}
    for file in files:
        if not file.broken:
            tests.setdefault(file.node, set()).update(
                test
                for test, unfit, hosts, *_ in file.rows
                if not unfit and not is_over_several(hosts)
            )
    return tests
