"""The choice of saved runs for a baseline, without runs that lie apart from the others.

Saved runs of a driver that is no longer installed can still be chosen. Runs of unchanged code differ only so far: each
session is compared with all the others by the statistics of a verdict, with the spreads of the others, so that an odd
session cannot widen the spread that it is judged by. Runs in two camps of equal size look like spread: they are not
refused, and the baseline from them detects only large effects, which `checks.provisional` reports.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from scipy import special

from ..core.errors import BadFile, BadInput, OtherHardware
from ..core.facts import HardwareKey
from ..core.keys import Key
from ..core.units import moment
from ..core.verdicts import Group, Reference, Spread
from ..hardware import key_of
from ..stats.spread import PRIOR_FREEDOM, Prior, join_assumed, priors
from ..stats.stats import difference
from .references import class_of_key, prior_of
from .runs import Run, read_run

# The beginning of the command of a run that was imported.
IMPORT = ("roofline", "import")


@dataclass(frozen=True, slots=True)
class Choice:
    """The hardware and dates that a run must match; an empty field lets every run through.

    Args:
        driver: the driver's version, or its first parts: `550` takes 550.54.14, but not 5501.
        before: the run began before this moment. A run without a date does not match.
        product: a hardware key as it is printed, or words of it: `h200-sxm`.
    """

    driver: str = ""
    before: datetime.datetime | None = None
    after: datetime.datetime | None = None
    product: str = ""

    def __str__(self) -> str:
        before, after = (time.isoformat() if time else "" for time in (self.before, self.after))
        options = {"driver": self.driver, "product": self.product, "before": before, "after": after}
        return " ".join(f"--{name} {value}" for name, value in options.items() if value)


# The runs that were chosen, and notes on the others for a person.
RunSelection = tuple[tuple[Run, ...], tuple[str, ...]]


def parse_moment(text: str, option: str) -> datetime.datetime:
    """Return a date or time that a user typed."""
    time = moment(text.strip())
    if time is None:
        raise BadInput(
            f"{option} is {text!r}; expected a date or time in ISO 8601: 2026-03-01 or 2026-03-01T06:30Z"
        )
    return time


def hardware_of(run: Run) -> HardwareKey:
    """Return the hardware of a run, as one device."""
    alone = (measurement.key.hardware.alone for measurement in run.measurements)
    return next(alone, None) or key_of(run.header.environment)


def pick(runs: Sequence[Run], choice: Choice) -> RunSelection:
    """Return those of the named runs that match a choice."""
    # Where the product is a whole hardware key, partitions (MIG) of that hardware do not match it.
    is_whole_key = any(str(hardware_of(run)) == choice.product for run in runs)
    matches = [run for run in runs if _matches(choice, run, is_whole_key)]
    if not matches:
        raise BadInput(f"no run matches {choice}; {describe(runs)}")
    note = f"{len(matches)} of {len(runs)} runs match {choice}"
    return tuple(matches), (note,) if len(matches) < len(runs) else ()


def scan(folder: Path, choice: Choice) -> RunSelection:
    """Return the runs of a folder that match a choice.

    Notes name files that cannot be read. Runs of a fake device and imported runs are left out where
    others match.
    """
    paths = sorted((folder / "runs").glob("*.jsonl"))
    runs, notes = _read_all(paths)
    if not runs:
        faults = f" that can be used ({'; '.join(notes[:3])})" if notes else ""
        raise BadInput(
            f"{folder / 'runs'} holds no run{faults}; record a run with `pytest --roofline-save=NAME`"
        )
    matches, further_notes = pick(runs, choice)
    for is_excluded, reason in (
        (is_fake, "the run was measured on a fake device"),
        (is_imported, "the run was imported from another tool"),
    ):
        excluded = [run for run in matches if is_excluded(run)]
        # Where all runs are of this kind, they stay.
        if len(excluded) < len(matches):
            notes += [f"{run.path} is left out: {reason}" for run in excluded]
            matches = tuple(run for run in matches if not is_excluded(run))
    _refuse_several(matches)
    return matches, (*notes, *further_notes)


def is_fake(run: Run) -> bool:
    """Return True where a run is of the fake test device."""
    return run.header.environment.device.type == "fake"


def is_imported(run: Run) -> bool:
    """Return True where `roofline import` made the run."""
    return run.header.command[:2] == IMPORT


def describe(runs: Sequence[Run]) -> str:
    """Return the number, drivers, dates and hardware of runs.

    It reads `there are 14 runs with the driver 570.86 (12); 580.10 (2), started from 2026-02-01 to
    2026-02-14, on the hardware h200-sxm, 141gb`.
    """
    drivers = Counter(run.header.environment.device.driver or "unknown" for run in runs)
    hardware = Counter(str(hardware_of(run)) for run in runs)
    runs_text = f"there are {len(runs)} runs" if len(runs) > 1 else "there is one run"
    return (
        f"{runs_text} with the driver {_counts_text(drivers)}, started {_span_text(runs)}, "
        f"on the hardware {_counts_text(hardware)}"
    )


def _span_text(runs: Sequence[Run]) -> str:
    """Return when runs began, from the first to the last."""
    times = sorted(time for run in runs if (time := moment(run.header.started)))
    if not times:
        return "at an unknown time"
    first, last = (time.isoformat(timespec="minutes") for time in (times[0], times[-1]))
    return f"at {first}" if first == last else f"from {first} to {last}"


def _counts_text(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{name} ({count})" for name, count in counts.most_common())


def _read_all(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Return the runs of files, each once, and a note on each file left out."""
    runs: dict[str, Run] = {}
    notes = []
    for path in paths:
        try:
            run = read_run(path)
        except BadFile as error:
            notes.append(f"left out: {error}")
            continue
        earlier = runs.setdefault(run.header.run_id, run)
        if earlier is not run:
            notes.append(f"{path} is left out: it is the same run as {earlier.path}")
        elif not run.measurements and not run.resources:
            notes.append(f"{path} is left out: it holds no measurement")
            del runs[run.header.run_id]
    return list(runs.values()), notes


def _matches(choice: Choice, run: Run, is_whole_key: bool) -> bool:
    """Return True where a run matches; `is_whole_key` is as in `_is_product`."""
    time = moment(run.header.started)
    if choice.before is not None and not (time and time < choice.before):
        return False
    if choice.after is not None and not (time and time >= choice.after):
        return False
    return _has_driver(run, choice.driver) and _is_product(
        hardware_of(run), choice.product, is_whole_key
    )


def _has_driver(run: Run, version: str) -> bool:
    """Return True where a run's driver begins with the parts of a version."""
    driver, prefix = run.header.environment.device.driver or "", version.rstrip(".")
    # The next character must end a part of the version: 550 is no driver of 5501.
    next_character = driver[len(prefix) :][:1]
    return driver.startswith(prefix) and not (prefix and next_character.isalnum())


def _is_product(hardware: HardwareKey, product: str, is_whole_key: bool) -> bool:
    """Return True where a hardware key has all words of `product`.

    If that is a whole key, the hardware key must be the same.
    """
    if is_whole_key:
        return str(hardware) == product
    facts = {hardware.product, hardware.memory, hardware.partition, hardware.link}
    return all(word in facts for word in re.split(r"[,\s]+", product.strip()) if word)


def _refuse_several(runs: Sequence[Run]) -> None:
    """Raise OtherHardware where runs are of several hardware keys."""
    # Compiled kernels do not depend on the machine that compiled them, so only measurements count.
    keys = Counter(str(hardware_of(run)) for run in runs if run.measurements)
    if len(keys) > 1:
        most_common_key, _ = keys.most_common(1)[0]
        raise OtherHardware(
            f"the runs are of different hardware: {_counts_text(keys)}; expected one hardware; choose one with "
            f'--product "{most_common_key}"'
        )


# A run is apart if its median test lies more than so many standard errors from the other runs.
RUN_APART = 4.0
# The chance that any run of a sound proposal is refused. Where the standard error comes from few processes, this needs
# a distance of more standard errors than `RUN_APART`.
FALSE_ALARM = 0.005
# With so many degrees of freedom, a spread between processes is believed without the prior.
MANY = 2 * PRIOR_FREEDOM
# The tests of a run share its hour, its node and its temperature, so they count as at most so many independent tests.
INDEPENDENT = 3


# A key, and the processes that measured it by the run that they belong to.
Sessions = tuple[Key, Mapping[str, Group]]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The distance of a session from the others.

    Args:
        estimate: in log seconds; positive is slower.
        errors: the same in standard errors, with so many degrees of `freedom`.
        tests: how many tests it is the median of.
    """

    run_id: str
    estimate: float
    errors: float
    freedom: float
    tests: int


def runs_apart(tests: Sequence[Sessions]) -> list[Disagreement]:
    """Return the runs that disagree with the others, worst first.

    The median test of such a run lies apart. The worst run is left out, and the others are compared
    again.
    """
    remaining = list(dict.fromkeys(run_id for _, groups in tests for run_id in groups))
    odd: list[str] = []
    while len(remaining) > 1:
        distances = [
            distance
            for run_id in remaining
            if (distance := _run_apart(run_id, remaining, tests)) is not None
        ]
        # With two runs left, both distances are the same comparison: it counts once.
        comparisons = len(remaining) if len(remaining) > 2 else 1
        apart = [distance for distance in distances if _is_apart(distance, comparisons)]
        if not apart:
            break
        worst = max(apart, key=lambda distance: abs(distance.errors))
        odd.append(worst.run_id)
        remaining.remove(worst.run_id)
    return [
        distance for run_id in odd if (distance := _run_apart(run_id, remaining, tests)) is not None
    ]


def _run_apart(
    run_id: str, run_ids: Sequence[str], tests: Sequence[Sessions]
) -> Disagreement | None:
    """Return how far a run lies from the other runs of `run_ids`, or None.

    It is the median over the tests of the run. None where no other run measured any of them.
    """
    others_by_test = [
        (key, groups, [groups[name] for name in run_ids if name != run_id and name in groups])
        for key, groups in tests
    ]
    comparable = [(key, groups, others) for key, groups, others in others_by_test if others]
    references = [(key, Reference(tuple(others), "")) for key, _, others in comparable]
    priors_by_class = {kind: prior_of(references, kind) for kind in priors()}
    distances = [
        _distance(run_id, groups[run_id], others, priors_by_class[class_of_key(key)])
        for key, groups, others in comparable
        if run_id in groups
    ]
    if not distances:
        return None
    estimate, errors, freedom = (
        median(getattr(distance, name) for distance in distances)
        for name in ("estimate", "errors", "freedom")
    )
    return Disagreement(run_id, estimate, errors, freedom, tests=len(distances))


def _distance(
    run_id: str, group: Group, other_groups: Sequence[Group], prior: Prior
) -> Disagreement:
    """Return the distance of a session from the others, in one test.

    It is the difference of a verdict with more careful spreads. A verdict may trust processes and
    sessions that happened to agree. Here nothing is trusted yet: spreads that come from few
    processes or sessions are joined with the prior, and that between sessions is no less than the
    prior.
    """
    compared = difference([group], other_groups, prior)
    freedom = compared.process.degrees
    if freedom < MANY and not compared.unequal:
        # A verdict drops the prior where few processes rule it out. Here the wider spread counts.
        joined = difference([group], other_groups, replace(prior, borrowed=True))
        freedom = joined.process.degrees
        compared = max(compared, joined, key=lambda candidate: candidate.process.value)
    # How many sessions the difference was compared with: those of the same device, or all.
    sessions = sum(other_group.device == group.device for other_group in other_groups) or len(
        other_groups
    )
    session = _join_spread(compared.session, prior.least_session(compared.process.value))
    # In the error, the spread between sessions is replaced by the joined one.
    variance = compared.error**2 + (session.value**2 - compared.session.value**2) * (
        1 + 1 / sessions
    )
    freedoms = [freedom, session.degrees, compared.device.degrees if compared.device else math.inf]
    # The least of all degrees of freedom. Satterthwaite's would rely on a spread that is small by luck.
    return Disagreement(
        run_id,
        estimate=compared.estimate,
        errors=compared.estimate / math.sqrt(variance),
        freedom=min(freedoms),
        tests=1,
    )


def _join_spread(session: Spread, assumed: float) -> Spread:
    """Return the spread between sessions joined with an assumed spread.

    A spread that is no larger than the assumed one is replaced by it.
    """
    if session.freedom is None or session.value <= assumed:
        return Spread(assumed, "prior")
    # The freedom of a verdict's spread already includes that of the prior.
    return join_assumed(session.value**2, session.freedom - PRIOR_FREEDOM, assumed, "estimated")


def _is_apart(distance: Disagreement, comparisons: int) -> bool:
    """Return True where a run is apart, and not by chance.

    The chance of a false alarm is shared among so many comparisons.
    """
    # `tail` is the chance that one test lies so far out on one side.
    errors, freedom = abs(distance.errors), distance.freedom
    tail = float(special.ndtr(-errors) if math.isinf(freedom) else special.stdtr(freedom, -errors))
    independent = min(distance.tests, INDEPENDENT)
    # At least half of the tests lie that far out, all on the same side.
    chance = 2 * float(special.bdtrc(math.ceil(independent / 2) - 1, independent, tail))
    return errors > RUN_APART and chance <= FALSE_ALARM / comparisons
