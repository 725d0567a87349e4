"""Two values of one parameter within one run, such as eager and compiled.

Every process that timed both is a pair. Whatever slows a whole process slows both times and cancels: see
`stats.paired_difference`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from statistics import geometric_mean, variance

from ..core.errors import BadInput
from ..core.groups import group_by
from ..core.keys import BY_POSITION, Key, Scalar, canonical, value_text
from ..core.records import Measurement
from ..core.rows import Row, badness
from ..core.units import count
from ..core.verdicts import Kind, Subject, Verdict
from ..stats.analyses import ENOUGH_KNOWN, SUGGESTED_COUNTS
from ..stats.key_results import KeyResults
from ..stats.spread import Prior, borrow, priors
from ..stats.stats import paired_difference
from ..stats.verdicts import judge_once, settle, span_text, would_decide
from .reasons import modes_text
from .references import default_tolerance
from .rows import compared_row, told_metric
from .runs import Run

# Where processes have two modes, fewer pairs may be divided between them by chance exactly as the two values are.
FEWEST_PAIRS = ENOUGH_KNOWN
# The parameter of `--by` that stands for the names of several measurements of one test.
NAME = "name"


@dataclass(frozen=True, slots=True)
class Variant:
    """A test under one value of the parameter: its measurements.

    `unfit` holds for each measurement the reason why it does not count, empty where it does.
    """

    value: str
    measurements: list[Measurement] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)

    @property
    def sound(self) -> list[Measurement]:
        """Return the slowest attempt of every process, of those that count."""
        return KeyResults(
            [
                measurement
                for measurement, reason in zip(self.measurements, self.unfit, strict=True)
                if not reason
            ]
        ).sound(None)


@dataclass(frozen=True, slots=True)
class Twins:
    """A test under two values of the parameter, and the processes that timed both."""

    base: Variant
    variant: Variant

    @property
    def pairs_s(self) -> tuple[list[float], list[float]]:
        """Return the times under the variant and under the base.

        Each process that timed both has its place in the two lists, in seconds.
        """
        base_s, variant_s = (
            {measurement.process: measurement.median_s for measurement in side.sound}
            for side in (self.base, self.variant)
        )
        processes = [process for process in base_s if process in variant_s]
        variant_times = [variant_s[process] for process in processes]
        base_times = [base_s[process] for process in processes]
        return variant_times, base_times

    @property
    def label(self) -> str:
        """Return the test's name without the two values: `step[small]`.

        The words in brackets that both have at the start and at the end remain.
        """
        (name, base_words), (_, variant_words) = (
            _parts(side.measurements[0]) for side in (self.base, self.variant)
        )
        front = _common_start(base_words, variant_words)
        # The end is searched only behind the start, so that no word counts twice.
        reversed_words = (words[len(front) :][::-1] for words in (base_words, variant_words))
        back = _common_start(*reversed_words)[::-1]
        common_words = "-".join([*front, *back])
        return name.replace("[]", f"[{common_words}]" if front or back else "")


def _parts(measurement: Measurement) -> tuple[str, list[str]]:
    """Return the name of a measurement and its bracketed words.

    The name reads `step[].forward`.
    """
    suffix = f".{measurement.key.name}" if measurement.key.name else ""
    head, bracket, words = measurement.label.removesuffix(suffix).partition("[")
    name = f"{head}[]" if bracket else head
    return name, words.removesuffix("]").split("-")


def _common_start(first_words: list[str], second_words: list[str]) -> list[str]:
    """Return the words that both begin with."""
    pairs = zip(first_words, second_words, strict=False)
    return [word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Tests under other values of a parameter against the base.

    Args:
        rows: each with its value of the parameter, worst first.
        alone: labels of tests without a twin.
    """

    parameter: str
    base: str
    rows: tuple[tuple[str, Row], ...]
    alone: tuple[str, ...]


def compare_by(
    runs: Sequence[Run], parameter: str, base: str | None, tolerance: float | None = None
) -> Contrast:
    """Return each test under its other values against the base.

    Raises:
        BadInput: no test has the parameter, or none has this base and another value.
    """
    tests = _variants_by_test(runs, parameter)
    values = dict.fromkeys(value for sides in tests.values() for value in sides)
    base = _check_base(runs, parameter, base, list(values))
    tests_with_base = [sides for sides in tests.values() if base in sides and len(sides) > 1]
    twins = [
        Twins(sides[base], side)
        for sides in tests_with_base
        for value, side in sides.items()
        if value != base
    ]
    if not twins:
        raise BadInput(
            f"no test with {parameter}={base} has a counterpart that differs only in {parameter}"
        )
    rows = [
        (pair.variant.value, _row(pair, parameter, verdict, len(twins)))
        for pair, verdict in zip(twins, _verdicts(twins, parameter, tolerance), strict=True)
    ]
    return Contrast(
        parameter=parameter,
        base=base,
        rows=tuple(sorted(rows, key=_worst_first)),
        alone=tuple(
            side.measurements[0].label
            for sides in tests.values()
            if sides not in tests_with_base
            for side in sides.values()
        ),
    )


def parameters_of(key: Key) -> dict[str, Scalar]:
    """Return a test's parameters and measurement name, for `--by`."""
    named = {name.removesuffix(BY_POSITION): value for name, value in key.parameters.items()}
    return ({NAME: key.name} if key.name else {}) | named


def _verdicts(twins: Sequence[Twins], parameter: str, tolerance: float | None) -> list[Verdict]:
    """Return the verdict on each pair, after all of them are judged together."""
    prior = _shared_prior(twins)
    # `settle` tells verdicts apart by a name; here it is the number of the pair.
    verdicts = {
        f"{number}": _verdict(pair, parameter, tolerance, prior)
        for number, pair in enumerate(twins)
    }
    return list(settle(verdicts, len(twins)).values())


def _worst_first(value_and_row: tuple[str, Row]) -> tuple[int, float]:
    """Return the sort key of a row with the value of its parameter."""
    _, row = value_and_row
    return badness(row.verdict, row.slowdown)


def twin_of(key: Key, parameter: str) -> tuple[str, str] | None:
    """Return the identity of a test without a parameter, and the value.

    None where the test has no such parameter.
    """
    parameters = parameters_of(key)
    if parameter not in parameters:
        return None
    value = value_text(parameter, parameters.pop(parameter))
    # No parameter has an empty name, so the other facts of the key stand under it.
    other_facts = [key.benchmark, str(key.hardware), key.cache, key.timing]
    return canonical({**parameters, "": other_facts}), value


def _variants_by_test(runs: Sequence[Run], parameter: str) -> dict[str, dict[str, Variant]]:
    """Return the variants of each test, by the value of a parameter.

    A test is named by its key without the parameter. `twin_of` leaves the name of the metric out as well, since that
    name may contain the value.
    """
    tests: dict[str, dict[str, Variant]] = {}
    for run in runs:
        for measurement in run.tested:
            twin_and_value = twin_of(measurement.key, parameter)
            if twin_and_value is not None:
                twin, value = twin_and_value
                variant = tests.setdefault(twin, {}).setdefault(value, Variant(value))
                variant.measurements.append(measurement)
                variant.unfit.append(run.unfit(measurement, accept_slower=True))
    return tests


def _check_base(
    runs: Sequence[Run], parameter: str, base: str | None, values: Sequence[str]
) -> str:
    """Return the value of the parameter that all others are compared with, once it is checked.

    `values` are those of the parameter in the runs.

    Raises:
        BadInput: the runs do not have this base, or no other value.
    """
    expected = f"expected one of {', '.join(values)}"
    if not values:
        names = dict.fromkeys(
            name
            for run in runs
            for measurement in run.tested
            for name in parameters_of(measurement.key)
        )
        raise BadInput(
            f"no test has a parameter {parameter!r}; expected one of {', '.join(names) or 'none at all'}"
        )
    if base is None:
        raise BadInput(
            f"--base is missing; give the value of {parameter} to compare with; {expected}"
        )
    if base not in values:
        raise BadInput(f"no test has {parameter}={base}; {expected}")
    if len(values) == 1:
        raise BadInput(f"every test has {parameter}={base}; expected a second value to compare")
    return base


def _shared_prior(twins: Sequence[Twins]) -> Prior:
    """Return the prior of pairs from eight or more tests.

    With fewer tests it is the starting value, which is not joined with the spread of a test.
    """
    logs = [[math.log(new / old) for new, old in zip(*pair.pairs_s, strict=True)] for pair in twins]
    return borrow(
        priors()["device"],
        [(variance(pair_logs), len(pair_logs) - 1) for pair_logs in logs if len(pair_logs) > 1],
    )


def _subject(twins: Twins, parameter: str) -> Subject:
    """Return the subject of a pair, named without its two values."""
    measurement = twins.variant.measurements[0]
    name = "" if parameter == NAME else measurement.key.name
    label = twins.label + (f".{name}" if name else "")
    metric = told_metric(measurement.key)
    return Subject(measurement.test_id, label, name, metric=metric)


def _verdict(twins: Twins, parameter: str, run_tolerance: float | None, prior: Prior) -> Verdict:
    """Return the verdict on a test under two values.

    It is never REGRESSED, which needs the p of all tests.
    """
    subject = _subject(twins, parameter)
    sides = twins.variant, twins.base
    tolerances = (record.tolerance for side in sides for record in side.measurements)
    test_tolerance = next(filter(None, tolerances), None)
    key = twins.variant.measurements[0].key
    tolerance = test_tolerance or run_tolerance or default_tolerance(key)
    new_s, base_s = twins.pairs_s
    if not new_s:
        return Verdict(Kind.INVALID, tolerance, subject)
    # One pair has no spread, so it gives an estimate without an interval.
    if len(new_s) == 1:
        estimate = math.log(new_s[0] / base_s[0])
        return Verdict(Kind.INCONCLUSIVE, tolerance, subject, estimate=estimate, processes=1)
    verdict = judge_once(
        paired_difference(new_s, base_s, prior), tolerance, subject, processes=len(new_s)
    )
    # Fewer pairs may be divided between two modes by chance, so they decide nothing and take no part in `settle`.
    if len(new_s) >= FEWEST_PAIRS:
        return verdict
    return replace(verdict, kind=Kind.INCONCLUSIVE, p_spent=None)


def _reason(twins: Twins, verdict: Verdict, tests: int) -> str:
    """Return the reason of a verdict, and the modes where they differ."""
    if verdict.kind is Kind.INVALID:
        return _unsound_text(twins)
    texts = []
    if verdict.kind is Kind.INCONCLUSIVE:
        is_few = verdict.processes < FEWEST_PAIRS
        texts.append(
            _too_few_text(twins, verdict.processes) if is_few else _open_text(verdict, tests)
        )
    texts.append(_modes_reason(twins))
    return "; ".join(filter(None, texts))


def _unsound_text(twins: Twins) -> str:
    """Return why no process gives a pair."""
    unsound = [side for side in (twins.variant, twins.base) if not side.sound]
    texts = [
        f"{' and '.join(side.value for side in sides)}: {reason}"
        for reason, sides in group_by(unsound, lambda side: side.unfit[-1]).items()
    ]
    return "; ".join(texts) or "no process timed both values"


def _too_few_text(twins: Twins, pairs: int) -> str:
    """Return how many processes timed both values, why the others do not count, and a remedy."""
    sides = twins.variant, twins.base
    processes = {measurement.process for side in sides for measurement in side.measurements}
    lost_count = len(processes) - pairs
    lost_reason = next((reason for side in sides for reason in side.unfit if reason), "")
    lost = f" ({lost_count} not counted: {lost_reason})" if lost_reason else ""
    return (
        f"{count(pairs, 'process', 'es')} timed both values{lost}; expected at least {FEWEST_PAIRS}; measure with "
        f"--roofline-rounds={FEWEST_PAIRS + lost_count} --roofline-save=NAME, or name several runs, separated by commas"
    )


def _open_text(verdict: Verdict, tests: int) -> str:
    """Return the interval of an undecided test, and a remedy."""
    assert verdict.own_interval is not None
    needed = would_decide(verdict, verdict.processes, tests)
    if needed is None:
        remedy = f"{SUGGESTED_COUNTS[-1]} processes cannot decide so close to the tolerance; raise --tolerance"
    else:
        remedy = (
            f"a verdict needs about {needed} processes; measure with --roofline-rounds={needed}"
        )
    subject = "" if verdict.subject.metric else " in time"
    return f"the change{subject} may be {span_text(verdict.own_interval)}; {remedy}"


def _modes_reason(twins: Twins) -> str:
    """Return the modes of both sides; empty where they are the same."""
    base_modes, variant_modes = (
        {measurement.samples.achieved for measurement in side.sound}
        for side in (twins.base, twins.variant)
    )
    if base_modes == variant_modes:
        return ""
    return f"{twins.base.value} {modes_text(base_modes)}, {twins.variant.value} {modes_text(variant_modes)}"


def _row(twins: Twins, parameter: str, verdict: Verdict, tests: int) -> Row:
    """Return the row of a test under two values.

    The base takes the place of a baseline. `tests` is the number of all tests, for the remedy of an undecided one.
    """
    key, (new_s, base_s) = twins.variant.measurements[0].key, twins.pairs_s
    name = verdict.subject.name
    before_s = geometric_mean(base_s) if base_s else None
    return replace(
        compared_row(
            key,
            # A rate is shown only where the verdict is told in its terms: both values may do other work.
            twins.variant.measurements[0].work if verdict.subject.metric else None,
            verdict,
            geometric_mean(new_s) if new_s else None,
            before_s,
        ),
        name=name,
        reason=_reason(twins, verdict, tests),
        parameters={
            parameter_name: value
            for parameter_name, value in key.parameters.items()
            if parameter_name != parameter
        },
        counting=None,
        baseline_processes=len(base_s) or None,
    )
