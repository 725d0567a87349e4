"""Two values of one parameter within one run, such as eager and compiled: every process that timed both is a pair.

What a process, its hour and its clock do to both is no difference: see `stats.paired_difference`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from statistics import geometric_mean, variance

from ..core.errors import BadInput
from ..core.groups import grouped
from ..core.keys import BY_POSITION, Key, Scalar, canonical, value_text
from ..core.records import Measurement
from ..core.rows import Row, badness
from ..core.units import count
from ..core.verdicts import Kind, Subject, Verdict
from ..stats.key_results import KeyResults
from ..stats.looks import ENOUGH_KNOWN, WORTHWHILE
from ..stats.spread import Prior, borrow, priors
from ..stats.stats import paired_difference
from ..stats.verdicts import judge_once, settle, span_text, would_decide
from .comparators import default_tolerance
from .reasons import modes_text
from .rows import compared_row
from .runs import Run

# Fewer pairs may all lie in the two modes of a test by chance, as fewer processes of a baseline may.
FEWEST_PAIRS = ENOUGH_KNOWN
# What `--by` calls the names of several measurements of one test.
NAME = "name"


@dataclass(frozen=True, slots=True)
class Way:
    """A test under one value of the parameter: what was taken, and why some of that does not count."""

    value: str
    taken: list[Measurement] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)

    @property
    def sound(self) -> list[Measurement]:
        """Of every process its slowest attempt that counts."""
        return KeyResults(
            [one for one, why in zip(self.taken, self.unfit, strict=True) if not why]
        ).sound(None)


@dataclass(frozen=True, slots=True)
class Twins:
    """A test under two values of the parameter, and the processes that timed both."""

    base: Way
    other: Way

    @property
    def pairs_s(self) -> tuple[list[float], list[float]]:
        """Of every such process the time under the other value, and that under the base, in seconds."""
        base, other = (
            {one.process: one.median_s for one in side.sound} for side in (self.base, self.other)
        )
        both = [process for process in base if process in other]
        return [other[process] for process in both], [base[process] for process in both]

    @property
    def label(self) -> str:
        """The test's own name without what the two values make of it: `step[small]`."""
        (name, mine), (_, theirs) = (_parts(side.taken[0]) for side in (self.base, self.other))
        front = _shared(mine, theirs)
        back = _shared(mine[len(front) :][::-1], theirs[len(front) :][::-1])[::-1]
        return name.replace("[]", f"[{'-'.join(front + back)}]" if front or back else "")


def _parts(one: Measurement) -> tuple[str, list[str]]:
    """Return the name of a measurement, `step[].forward`, and the words between its brackets."""
    name = f".{one.key.name}" if one.key.name else ""
    head, bracket, words = one.label.removesuffix(name).partition("[")
    return head + bracket + "]" * bool(bracket), words.removesuffix("]").split("-")


def _shared(mine: list[str], theirs: list[str]) -> list[str]:
    """Return the words that both begin with."""
    pairs = zip(mine, theirs, strict=False)
    return [word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Tests under other values of a parameter against the base: each a value and a row, worst first; and the rest."""

    parameter: str
    base: str
    rows: tuple[tuple[str, Row], ...]
    alone: tuple[str, ...]


def compare_by(
    runs: Sequence[Run], parameter: str, base: str | None, tolerance: float | None = None
) -> Contrast:
    """Every test of some runs that has the parameter, under its other values against the base.

    Raises:
        BadInput: no test has the parameter, or none has this base and another value.
    """
    tests = _sides(runs, parameter)
    values = dict.fromkeys(value for sides in tests.values() for value in sides)
    base = _checked(runs, parameter, base, list(values))
    whole = [sides for sides in tests.values() if base in sides and len(sides) > 1]
    twins = [
        Twins(sides[base], side)
        for sides in whole
        for value, side in sides.items()
        if value != base
    ]
    if not twins:
        raise BadInput(
            f"no test with {parameter}={base} has a twin that differs in {parameter} alone"
        )
    prior = _lent(twins)
    verdicts = {
        f"{number}": _verdict(pair, parameter, tolerance, prior)
        for number, pair in enumerate(twins)
    }
    rows = [
        (pair.other.value, _row(pair, parameter, verdict, len(twins)))
        for pair, verdict in zip(twins, settle(verdicts, len(twins)).values(), strict=True)
    ]
    return Contrast(
        parameter=parameter,
        base=base,
        rows=tuple(sorted(rows, key=lambda pair: badness(pair[1].verdict, pair[1].change))),
        alone=tuple(
            side.taken[0].label
            for sides in tests.values()
            if sides not in whole
            for side in sides.values()
        ),
    )


def parameters_of(key: Key) -> dict[str, Scalar]:
    """What `--by` may name: a test's parameters, and the names of several measurements."""
    named = {name.removesuffix(BY_POSITION): value for name, value in key.parameters.items()}
    return ({NAME: key.name} if key.name else {}) | named


def twin_of(key: Key, parameter: str) -> tuple[str, str] | None:
    """A test without a parameter, as one string, and its value of that; None where it has none."""
    rest = parameters_of(key)
    if parameter not in rest:
        return None
    value = value_text(parameter, rest.pop(parameter))
    return canonical({**rest, "": [key.benchmark, str(key.hardware), key.cache, key.timing]}), value


def _sides(runs: Sequence[Run], parameter: str) -> dict[str, dict[str, Way]]:
    """By test without the parameter, and by value. A rate's name, which may hold the value, tells no tests apart."""
    tests: dict[str, dict[str, Way]] = {}
    for run in runs:
        for measurement in run.tested:
            twin_and_value = twin_of(measurement.key, parameter)
            if twin_and_value is not None:
                twin, value = twin_and_value
                side = tests.setdefault(twin, {}).setdefault(value, Way(value))
                side.taken.append(measurement)
                side.unfit.append(run.unfit(measurement, accept_slower=True))
    return tests


def _checked(runs: Sequence[Run], parameter: str, base: str | None, values: Sequence[str]) -> str:
    """The base, if the runs have it and something else."""
    expected = f"expected one of {', '.join(values)}"
    if not values:
        known = dict.fromkeys(
            name for run in runs for one in run.tested for name in parameters_of(one.key)
        )
        raise BadInput(
            f"no test has a parameter {parameter!r}; expected one of {', '.join(known) or 'none at all'}"
        )
    if base is None:
        raise BadInput(f"--base is missing, the value of {parameter} to compare with; {expected}")
    if base not in values:
        raise BadInput(f"no test has {parameter}={base}; {expected}")
    if len(values) == 1:
        raise BadInput(f"every test has {parameter}={base}; expected another value beside it")
    return base


def _lent(twins: Sequence[Twins]) -> Prior:
    """How pairs differ in all tests, where eight or more tell; else nothing is lent."""
    logs = [[math.log(new / old) for new, old in zip(*one.pairs_s, strict=True)] for one in twins]
    return borrow(
        priors()["device"], [(variance(each), len(each) - 1) for each in logs if len(each) > 1]
    )


def _subject(twins: Twins, parameter: str) -> Subject:
    """Return what is compared: a test, without what the two values make of its name."""
    other = twins.other.taken[0]
    name = "" if parameter == NAME else other.key.name
    return Subject(other.test_id, twins.label + (f".{name}" if name else ""), name)


def _verdict(one: Twins, parameter: str, asked: float | None, lent: Prior) -> Verdict:
    """All but REGRESSED, which the other tests have a say in."""
    subject = _subject(one, parameter)
    sides = one.other, one.base
    own = next((each.tolerance for side in sides for each in side.taken if each.tolerance), None)
    tolerance = own or asked or default_tolerance(one.other.taken[0].key)
    new_s, base_s = one.pairs_s
    if not new_s:
        return Verdict(Kind.INVALID, tolerance, subject)
    if len(new_s) == 1:
        alone = math.log(new_s[0] / base_s[0])
        return Verdict(Kind.INCONCLUSIVE, tolerance, subject, estimate=alone, processes=1)
    verdict = judge_once(
        paired_difference(new_s, base_s, lent), tolerance, subject, processes=len(new_s)
    )
    if len(new_s) >= FEWEST_PAIRS:
        return verdict
    return replace(verdict, kind=Kind.INCONCLUSIVE, p_spent=None)


def _reason(one: Twins, verdict: Verdict, tests: int) -> str:
    """Return why a verdict is what it is, and how the two were timed where that differs."""
    if verdict.kind is Kind.INVALID:
        return _unsound(one)
    texts = [_modes(one)]
    if verdict.kind is Kind.INCONCLUSIVE:
        few = verdict.processes < FEWEST_PAIRS
        texts.insert(0, _too_few(verdict.processes) if few else _open(verdict, tests))
    return "; ".join(filter(None, texts))


def _unsound(one: Twins) -> str:
    unsound = [side for side in (one.other, one.base) if not side.sound]
    texts = [
        f"{' and '.join(side.value for side in alike)}: {why}"
        for why, alike in grouped(unsound, lambda side: side.unfit[-1]).items()
    ]
    return "; ".join(texts) or "no process timed both"


def _too_few(pairs: int) -> str:
    return (
        f"{count(pairs, 'process', 'es')} timed both, and fewer than {FEWEST_PAIRS} decide nothing: measure with "
        f"--roofline-rounds={FEWEST_PAIRS} --roofline-save=NAME, or name several runs with commas between"
    )


def _open(verdict: Verdict, tests: int) -> str:
    """What an open test may be, and what would decide it."""
    assert verdict.interval is not None
    needed = would_decide(verdict, verdict.processes, tests)
    if needed is None:
        remedy = f"{WORTHWHILE[-1]} processes are too few this near the tolerance: --tolerance allows more"
    else:
        remedy = f"needs about {needed} processes (--roofline-rounds={needed})"
    return f"may be {span_text(verdict.interval)} time; {remedy}"


def _modes(one: Twins) -> str:
    """How the two were timed, where that differs."""
    base, other = ({each.samples.achieved for each in side.sound} for side in (one.base, one.other))
    return (
        ""
        if base == other
        else f"{one.base.value} {modes_text(base)}, {one.other.value} {modes_text(other)}"
    )


def _row(one: Twins, parameter: str, verdict: Verdict, tests: int) -> Row:
    """A test as every door shows it: the base's time stands for a baseline's."""
    key, (new_s, base_s) = one.other.taken[0].key, one.pairs_s
    name = verdict.subject.name
    before_s = geometric_mean(base_s) if base_s else None
    return replace(
        compared_row(key, None, verdict, geometric_mean(new_s) if new_s else None),
        name=name,
        reason=_reason(one, verdict, tests),
        parameters={
            called: value for called, value in key.parameters.items() if called != parameter
        },
        counting=None,
        baseline_value=before_s,
        baseline_time_s=before_s,
        baseline_processes=len(base_s) or None,
    )
