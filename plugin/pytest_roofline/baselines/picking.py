"""Which saved runs become a baseline: chosen by what they ran on, and none that lies apart from the rest.

A driver that is gone can still be compared. Runs of unchanged code differ, but only so far: each session is held
against all the others by the statistics of a verdict, with the spreads of the others, so that the odd one cannot excuse
itself by the spread that it makes. Runs that fall into two camps of equal size look like spread: they are not refused,
and what they make finds little, which `provisional` then says.
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
from .comparators import class_of_key, prior_of
from .runs import Run, read_run


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run must have run on, and when; what is empty or None lets every run through.

    Args:
        driver: the driver's version, or its first parts: `550` takes 550.54.14, but not 5501.
        before: begun before this moment; one without a date is not.
        product: a hardware key as it is printed, or words of it: `h200-sxm`.
    """

    driver: str = ""
    before: datetime.datetime | None = None
    after: datetime.datetime | None = None
    product: str = ""

    def __str__(self) -> str:
        before, after = (time.isoformat() if time else "" for time in (self.before, self.after))
        given = {"driver": self.driver, "product": self.product, "before": before, "after": after}
        return " ".join(f"--{name} {value}" for name, value in given.items() if value)


@dataclass(frozen=True, slots=True)
class Picked:
    """The runs to take, and what a person should know of those that were not."""

    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()


def parse_moment(text: str, what: str) -> datetime.datetime:
    """A date or time that a user gave."""
    time = moment(text.strip())
    if time is None:
        raise BadInput(
            f"{what} is {text!r}; expected a date or time in ISO 8601: 2026-03-01 or 2026-03-01T06:30Z"
        )
    return time


def hardware_of(run: Run) -> HardwareKey:
    """What a run was measured on, as one device."""
    alone = (measurement.key.hardware.alone for measurement in run.measurements)
    return next(alone, None) or key_of(run.header.environment)


def pick(runs: Sequence[Run], choice: Choice) -> Picked:
    """Those of the named runs that a choice takes."""
    # A product that names one of the hardware keys in full means no partition of it.
    exact = any(str(hardware_of(run)) == choice.product for run in runs)
    taken = [run for run in runs if _takes(choice, run, exact)]
    if not taken:
        raise BadInput(f"no run matches {choice}; {describe(runs)}")
    note = f"{len(taken)} of {len(runs)} runs match {choice}"
    return Picked(tuple(taken), (note,) if len(taken) < len(runs) else ())


def scan(folder: Path, choice: Choice) -> Picked:
    """The runs saved in a folder that a choice takes; files that cannot be read are named and left out."""
    paths = sorted((folder / "runs").glob("*.jsonl"))
    runs, notes = _readable(paths)
    if not runs:
        seen = f" that can be used ({'; '.join(notes[:3])})" if notes else ""
        raise BadInput(
            f"no run in {folder / 'runs'}{seen}; record one with `pytest --roofline-save=NAME`"
        )
    picked = pick(runs, choice)
    taken = list(picked.runs)
    for strange, why in (
        (is_fake, "it is of a fake device"),
        (is_imported, "it was imported from another tool"),
    ):
        left = [run for run in taken if strange(run)]
        if len(left) < len(taken):
            notes += [f"{run.path} is left out: {why}" for run in left]
            taken = [run for run in taken if not strange(run)]
    _refuse_several(taken)
    return Picked(tuple(taken), (*notes, *picked.notes))


def is_fake(run: Run) -> bool:
    """Whether a run is of the fake device that tests use."""
    return run.header.environment.device.type == "fake"


def is_imported(run: Run) -> bool:
    """Whether a run was made from another tool's output, by `roofline import`."""
    return run.header.command[:2] == ("roofline", "import")


def describe(runs: Sequence[Run]) -> str:
    """`there are 14, of driver 570.86 (12); 580.10 (2), begun from 2026-02-01 to 2026-02-14, on h200-sxm, 141gb`."""
    drivers = Counter(run.header.environment.device.driver or "unknown" for run in runs)
    hardware = Counter(str(hardware_of(run)) for run in runs)
    there = f"there are {len(runs)}" if len(runs) > 1 else "there is one"
    return f"{there}, of driver {_counted(drivers)}, begun {_span(runs)}, on {_counted(hardware)}"


def _span(runs: Sequence[Run]) -> str:
    times = sorted(time for run in runs if (time := moment(run.header.started)))
    if not times:
        return "nobody knows when"
    first, last = (time.isoformat(timespec="minutes") for time in (times[0], times[-1]))
    return f"at {first}" if first == last else f"from {first} to {last}"


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{name} ({count})" for name, count in counts.most_common())


def _readable(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    runs: dict[str, Run] = {}
    notes = []
    for path in paths:
        try:
            run = read_run(path)
        except BadFile as error:
            notes.append(f"left out: {error}")
            continue
        known = runs.setdefault(run.header.run_id, run)
        if known is not run:
            notes.append(f"{path} is left out: it is the same run as {known.path}")
        elif not run.measurements and not run.resources:
            notes.append(f"{path} is left out: it holds no measurement")
            del runs[run.header.run_id]
    return list(runs.values()), notes


def _takes(choice: Choice, run: Run, exact: bool) -> bool:
    time = moment(run.header.started)
    if choice.before is not None and not (time and time < choice.before):
        return False
    if choice.after is not None and not (time and time >= choice.after):
        return False
    return _has_driver(run, choice.driver) and _is_product(hardware_of(run), choice.product, exact)


def _has_driver(run: Run, wanted: str) -> bool:
    driver, prefix = run.header.environment.device.driver or "", wanted.rstrip(".")
    # The next character must end a part of the version: 550 is no driver of 5501.
    return driver.startswith(prefix) and not (prefix and driver[len(prefix) :][:1].isalnum())


def _is_product(hardware: HardwareKey, wanted: str, exact: bool) -> bool:
    if exact:
        return str(hardware) == wanted
    facts = {hardware.product, hardware.memory, hardware.partition, hardware.link}
    return all(word in facts for word in re.split(r"[,\s]+", wanted.strip()) if word)


def _refuse_several(runs: Sequence[Run]) -> None:
    # Compiled kernels belong to their targets, whatever compiled them.
    keys = Counter(str(hardware_of(run)) for run in runs if run.measurements)
    if len(keys) > 1:
        raise OtherHardware(
            f"the runs are of different hardware: {_counted(keys)}; expected one, choose it with "
            f'--product "{keys.most_common(1)[0][0]}"'
        )


# Standard errors between the middle test of a run and those of the others.
RUN_APART = 4.0
# Of a proposal whose runs are all honest: the chance that any run is refused. Where few processes stand behind the
# standard error, this asks for more of them than the above.
FALSE_ALARM = 0.005
# From so many degrees of freedom on, a spread between processes is believed as it was found.
MANY = 2 * PRIOR_FREEDOM
# The tests of a run share its hour, its node and its temperature: many of them agree on no more than a few do.
INDEPENDENT = 3


@dataclass(frozen=True, slots=True)
class Sessions:
    """The processes that measured one key, by the run that they belong to."""

    key: Key
    groups: Mapping[str, Group]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """How far a session lies from the others."""

    run_id: str
    estimate: float
    errors: float
    freedom: float
    tests: int


def runs_apart(tests: Sequence[Sessions]) -> list[Disagreement]:
    """The runs that disagree with the others over most of their tests, worst first; one is set aside at a time."""
    left = list(dict.fromkeys(run_id for test in tests for run_id in test.groups))
    odd: list[str] = []
    while len(left) > 1:
        found = [one for run_id in left if (one := _run_apart(run_id, left, tests)) is not None]
        # Of two sessions both comparisons, of each against the others, are the same one.
        apart = [one for one in found if _is_apart(one, len(left) if len(left) > 2 else 1)]
        if not apart:
            break
        odd.append(max(apart, key=lambda one: abs(one.errors)).run_id)
        left.remove(odd[-1])
    return [one for run_id in odd if (one := _run_apart(run_id, left, tests)) is not None]


def _run_apart(run_id: str, among: Sequence[str], tests: Sequence[Sessions]) -> Disagreement | None:
    """How far the middle test of a run lies from those of the others; None where no test is of another one too."""
    rest = [
        (test, [test.groups[name] for name in among if name != run_id and name in test.groups])
        for test in tests
    ]
    known = [(test, others) for test, others in rest if others]
    references = [(test.key, Reference(tuple(others), "")) for test, others in known]
    assumed = {kind: prior_of(references, kind) for kind in priors()}
    found = [
        _distance(run_id, test.groups[run_id], others, assumed[class_of_key(test.key)])
        for test, others in known
        if run_id in test.groups
    ]
    if not found:
        return None
    estimate, errors, freedom = (
        median(getattr(one, name) for one in found) for name in ("estimate", "errors", "freedom")
    )
    return Disagreement(run_id, estimate, errors, freedom, len(found))


def _distance(run_id: str, group: Group, others: Sequence[Group], prior: Prior) -> Disagreement:
    """How far a session lies from the others: the difference of a verdict, its spreads taken more carefully.

    A verdict may trust processes and sessions that happened to agree. Here nothing is trusted yet: the spread between
    sessions is at least the prior, and what few of either tell is joined with it.
    """
    found = difference([group], others, prior)
    freedom = found.process.degrees
    if freedom < MANY and not found.unequal:
        joined = difference([group], others, replace(prior, borrowed=True))
        freedom = joined.process.degrees
        found = max(found, joined, key=lambda one: one.process.value)
    held = sum(other.device == group.device for other in others) or len(others)
    session = _joined(found.session, prior.least_session(found.process.value))
    variance = found.error**2 + (session.value**2 - found.session.value**2) * (1 + 1 / held)
    known = [freedom, session.degrees, found.device.degrees if found.device else math.inf]
    # The least of all degrees of freedom: Satterthwaite's would count on a spread that came out small by luck.
    return Disagreement(run_id, found.estimate, found.estimate / math.sqrt(variance), min(known), 1)


def _joined(session: Spread, assumed: float) -> Spread:
    """The spread between sessions that some sessions tell, with what is assumed as if as many more had told it."""
    if session.freedom is None or session.value <= assumed:
        return Spread(assumed, "prior")
    # A verdict lets what the sessions tell stand alone where it is larger, with the freedom of both.
    return join_assumed(session.value**2, session.freedom - PRIOR_FREEDOM, assumed, "estimated")


def _is_apart(found: Disagreement, looks: int) -> bool:
    """Whether the middle test lies too many standard errors away, and chance is no excuse."""
    errors, freedom = abs(found.errors), found.freedom
    tail = float(special.ndtr(-errors) if math.isinf(freedom) else special.stdtr(freedom, -errors))
    counted = min(found.tests, INDEPENDENT)
    # At least half of the tests lie that far out, all on the same side.
    chance = 2 * float(special.bdtrc(math.ceil(counted / 2) - 1, counted, tail))
    return errors > RUN_APART and chance <= FALSE_ALARM / looks
