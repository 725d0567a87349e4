"""Everything that reads a file: the loaders as functions, and the commands as a user types them."""

import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.runs import ends_of, read_run
from pytest_roofline.cli.drill import report_drill
from pytest_roofline.cli.main import main
from pytest_roofline.cli.options import Commands
from pytest_roofline.core.directions import TOOLS
from pytest_roofline.core.errors import BadFile, RooflineError
from pytest_roofline.exchange.building import build
from pytest_roofline.exchange.formats import read as read_foreign
from pytest_roofline.exchange.records import UserFacts
from pytest_roofline.figures.reading import parse_path, read_figures
from pytest_roofline.hardware.lookup import merge_hardware
from pytest_roofline.machine.expectation import read_expectation
from pytest_roofline.many.files import read_files
from pytest_roofline.many.reading import tables_of

from .seeds import Seed

FIGURES = {
    "json": (
        "*",
        "*.*",
        "benchmarks.*.real_time",
        "benchmarks.*.states.*.summaries.*.data.value.value",
    ),
    "csv": ("function", "size", "N"),
    # Possessive: a pattern that goes back over a long word takes the cube of its length. Such a pattern is its user's.
    "regex": (r"(?P<number>[\d.]+)", r"figure=\b(?P<name>\w++)[^\d\n]*+([\d.]+)"),
}
RUNS = ("run", "small-0", "small-1")
LINE = "roofline: "


class Accepted(AssertionError):
    """A file was used that no reader may use, or a command told nothing, or too much, of why it did not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Something that reads a file.

    Args:
        name: of it.
        group: `runs`, `own`, `foreign` or `commands`.
        seeds: names of the files that it can be given.
        call: given the path of the changed file, its folder the current one and whole copies of all other seeds beside
            it in `whole`; true where the file was refused.
        share: of the cases, beside the others'.
    """

    name: str
    group: str
    seeds: tuple[str, ...]
    call: Callable[[Path], bool]
    share: float = 1.0


def targets(seeds: dict[str, Seed]) -> list[Target]:
    """All of them."""
    foreign = tuple(name for name, seed in seeds.items() if seed.record({}) is None and "." in name)
    own = {
        "read_baseline": (read_baseline, "baseline"),
        "read_expectation": (read_expectation, "expectation"),
        "read_hardware": (lambda path: merge_hardware([path]), "hardware"),
    }
    return [
        Target("read_run", "runs", RUNS, _loader(read_run), 4),
        Target("ends_of", "runs", RUNS, _ends, 1),
        Target("tables_of", "runs", RUNS, _many, 0.1),
        *(Target(name, "own", (seed,), _loader(call)) for name, (call, seed) in own.items()),
        Target("import", "foreign", foreign, _loader(_import), 5),
        Target("import --read", "foreign", foreign, _import_as_each, 1),
        Target("read_figures", "foreign", foreign, _figures, 0.5),
        *_commands(foreign),
    ]


def _loader(read: Callable[[Path], object]) -> Callable[[Path], bool]:
    def refused(path: Path) -> bool:
        try:
            read(path)
        except BadFile as error:
            _check_sentence(str(error))
            return True
        return False

    return refused


def _check_sentence(told: str) -> None:
    if not told.strip() or "\n" in told.strip():
        raise Accepted(f"told {told!r}; expected one line")


def _ends(path: Path) -> bool:
    # It looks at the first line and at the last alone, and its caller reads the rest.
    try:
        ends_of(path)
    except RooflineError as error:
        _check_sentence(str(error))
    return True


def _many(path: Path) -> bool:
    many = tables_of(
        read_files([str(path), str(path.parent / "whole" / "nights" / "night-0.jsonl")])
    )
    return any(path.name in told for told in many.left_out) or _is_broken(path)


# What only the careful reader refuses is in a field that the commands for many runs skip.
_is_broken = _loader(read_run)


def _import(path: Path, form: str = "") -> None:
    given = UserFacts(None, None, None, None)
    imported = read_foreign(path.read_bytes(), path.name, given, form)
    build(imported, given, "run", "tool", ("roofline", "import"))


def _import_as_each(path: Path) -> bool:
    """As every format, of which it is one at most."""
    refused = [_loader(functools.partial(_import, form=form))(path) for form in TOOLS]
    return all(refused)


def _figures(path: Path) -> bool:
    """Read the figures of a program, at paths that lead somewhere in some file and nowhere in others."""
    text = path.read_bytes().decode("utf-8", "replace")
    for reader, places in FIGURES.items():
        for place in places:
            try:
                read_figures(text, reader, [parse_path(reader, "lower", place)])
            except BadFile as error:
                _check_sentence(str(error))
    # Any number above zero is a figure, so that no change of a file must be refused.
    return True


def _command(
    *words: str, of: click.Group = main, leaves_out: bool = False, finds: bool = False
) -> Callable[[Path], bool]:
    """A command with `@` for the changed file, `@a` for a whole one of that name.

    Args:
        words: of the command line.
        of: the group that it is a command of.
        leaves_out: whether it goes on without a file that it names on standard error.
        finds: whether it tells of what cannot be by exit status 1, as `baseline check` does of hardware.
    """

    def refused(path: Path) -> bool:
        there = path.parent / "whole"
        places = {"@": str(path), "@dir": str(path.parent)}
        typed = [
            places.get(word) or (str(there / word[1:]) if word[:1] == "@" else word)
            for word in words
        ]
        done = CliRunner().invoke(of, typed)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        _check(done, as_json="--json" in words)
        return (
            (done.exit_code == 2 and _ends_in_sentence(done))
            or (finds and done.exit_code == 1)
            or (leaves_out and (path.name in done.stderr or _is_broken(path)))
        )

    return refused


def _ends_in_sentence(done: Result) -> bool:
    """Return whether the last line on standard error says what is wrong with the input."""
    *_, last = done.stderr.rstrip("\n").split("\n")
    return last.startswith((LINE, "Error: "))


def _check(done: Result, *, as_json: bool) -> None:
    """Refuse an end that no command has."""
    if done.exit_code not in (0, 1, 2):
        raise Accepted(f"status {done.exit_code}; expected 0, 1 or 2")
    if done.exit_code == 2 and _ends_in_sentence(done):
        if as_json and done.stdout:
            raise Accepted(
                "status 2, and something on standard output; expected nothing beside --json"
            )
    elif done.exit_code == 2 and not done.stdout.strip():
        # A comparison that cannot tell ends with 2 as well, and prints what it compared.
        raise Accepted(f"status 2, and told {done.stderr!r}; expected a sentence")
    elif as_json:
        json.loads(done.stdout, parse_constant=_no_number)


def _no_number(name: str) -> float:
    raise Accepted(f"printed {name} as JSON; expected a number")


@click.group(cls=Commands, sections={})
def parts() -> None:
    """What commands do behind a process that they start."""


@parts.command()
@click.argument("path", type=click.Path(path_type=Path))
def told_of_drill(path: Path) -> None:
    """What `roofline drill` says of the run that it had made."""
    sys.exit(report_drill(read_run(path), 0.2, as_json=True))


def _commands(foreign: tuple[str, ...]) -> list[Target]:
    small = ("small-0", "small-1")

    def one(
        name: str, seeds: tuple[str, ...], *words: str, share: float = 0.02, **facts: bool
    ) -> Target:
        return Target(f"roofline {name}", "commands", seeds, _command(*words, **facts), share)

    def both(name: str, seeds: tuple[str, ...], *words: str, **facts: Any) -> list[Target]:
        return [
            one(name, seeds, *words, **facts),
            one(f"{name} --json", seeds, *words, "--json", **facts),
        ]

    return [
        *both("explain", RUNS, "explain", "@", share=0.2),
        *both("compare", ("small-1",), "compare", "@small-0.jsonl", "@"),
        *both("compare with a baseline", ("baseline",), "compare", "@", "@small-0.jsonl"),
        *(
            one(f"export {form}", RUNS, "export", "@", "--to", form, "-o", "exported")
            for form in ("pytest-benchmark", "github-action-benchmark", "bencher", "openmetrics")
        ),
        one("report", RUNS, "report", "@", "-o", "page", share=0.004),
        *both("history", small, "history", "@", "@nights", leaves_out=True),
        *both("fleet", small, "fleet", "@", "@nodes", leaves_out=True),
        *both(
            "rollout",
            ("small-1",),
            "rollout",
            "@small-0.jsonl",
            "@",
            "--control",
            "@nodes",
            "@later",
            leaves_out=True,
        ),
        *both(
            "baseline propose",
            RUNS,
            "baseline",
            "propose",
            "@",
            "-o",
            "proposal.json",
            "--all",
            "--accept-slower",
        ),
        *both(
            "baseline approve",
            ("baseline",),
            "baseline",
            "approve",
            "@",
            "--into",
            "kept",
            "--dry-run",
        ),
        *both("baseline show", ("baseline",), "baseline", "show", "@"),
        *both("baseline check", ("baseline",), "baseline", "check", "@"),
        *both("baseline check of hardware", ("hardware",), "baseline", "check", "@", finds=True),
        *both("hardware", ("hardware",), "--hardware", "@dir", "hardware", "own-1"),
        *both("import", foreign, "import", "@", "-o", "imported.jsonl"),
        Target(
            "roofline drill", "commands", ("run",), _command("told-of-drill", "@", of=parts), 0.2
        ),
    ]
