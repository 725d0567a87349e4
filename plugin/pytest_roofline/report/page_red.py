"""What is red, one by one: the message, how it came about as `roofline explain` says it, and how to look closer."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.rows import Row
from ..core.units import count, printable
from .explain import explanation
from .page_results import reason

# Of so many tests, and of so many measurements of each, everything is told; the others stand among all results.
MOST_DETAILED = 40
MOST_OF_A_TEST = 5
# The item that looks at the device, which has no file to run it from.
DEVICE = "device health"
# Columns of an explanation.
WIDTH = 110


@dataclass(frozen=True, slots=True)
class Red:
    """A failed test as the page tells it.

    Args:
        row: with its label, word and test id.
        message: why it failed, in a sentence.
        explained: how that came about, as lines that keep their columns; none where there is no number.
        commands: that show more of it or try it again.
    """

    row: Row
    message: str
    explained: tuple[str, ...]
    commands: tuple[str, ...]


def reds(rows: Sequence[Row]) -> list[Red]:
    """The measurements of failed tests, in the order given, up to the number that anybody reads."""
    return [_red(row) for test in list(_by_test(rows).values())[:MOST_DETAILED] for row in test[:MOST_OF_A_TEST]]


def not_told(rows: Sequence[Row]) -> str:
    """How many failed tests, and measurements of those that are told, stand in the table of all results alone."""
    tests = list(_by_test(rows).values())
    measured = sum(len(test[MOST_OF_A_TEST:]) for test in tests[:MOST_DETAILED])
    parts = [count(len(tests) - MOST_DETAILED, "more failed test")] if len(tests) > MOST_DETAILED else []
    parts += [f"{count(measured, 'more measurement')} of the tests above"] if measured else []
    return f"… and {' and '.join(parts)}, in the table of all results." if parts else ""


def _by_test(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    tests: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.red:
            tests.setdefault((row.run or "", row.test), []).append(row)
    return tests


def _red(row: Row) -> Red:
    ended = row.ended.reason if row.ended is not None else ""
    explained = explanation(row, WIDTH)[1:] if row.what in ("time", "kernel") else []
    # The message of a verdict begins with the name, which stands above it already.
    message = ended.removeprefix(f"{row.label}: ") or reason(row)
    return Red(row, message, tuple(explained), _commands(row))


def _commands(row: Row) -> tuple[str, ...]:
    if row.test != DEVICE:
        rounds = ["--roofline-rounds=auto"] if row.what == "time" else []
        again = ["python", "-m", "pytest", row.test, *rounds]
    else:
        # Its tests are the load. A name that a run was saved under is not given twice.
        save, arguments = "--roofline-save", row.header.command[1:] if row.header is not None else ()
        pairs = zip(("", *arguments), arguments, strict=False)
        kept = [one for before, one in pairs if save not in (before, one) and not one.startswith(f"{save}=")]
        again = ["python", "-m", "pytest", *kept]
    # What holds no number explains nothing, and a run that could not be saved is told of by its report alone.
    explained = row.what in ("time", "kernel") and row.path.is_file()
    commands = [["roofline", "explain", str(row.path), row.label]] * explained + [again]
    # Nobody can type what is written otherwise: a name is another one then.
    return tuple(shlex.join(words) for words in commands if all(word == printable(word) for word in words))
