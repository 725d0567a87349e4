"""The processes of a search: blocks of both ends and a candidate between them, and what they measured."""

import contextlib
import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..ab.making import CommandError
from ..ab.results import SidesResults, State, read_state, save_state, state_folder
from ..ab.running import Runner
from ..ab.side_process import WARMING_BUDGET, WARMING_S, check_end, run_side
from ..ab.sides import PreparedSide
from ..ab.telling import Report, make_report, twin_row
from ..baselines.exact import records_in_runs
from ..baselines.run_files import runs_of_child
from ..baselines.runs import Run
from ..core.errors import BadFile, BadInput
from ..core.resources import ResourceKey
from ..core.rows import Row
from ..core.units import count
from ..core.verdicts import Kind
from ..processes.children import QUIET_FACTOR, QUIET_S, why_void
from ..processes.system import owned_prefix
from ..stats.key_results import KeyResults
from ..stats.paired import Paired
from .clear import MOST_PROCESSES, is_clear
from .environments import Environments
from .search import Floats, Narrowed, Observation, Place, exact_levels, fit_levels
from .state import BisectState, Broken, Lead
from .telling import change_text, left_text

# The orders of a block. The candidate is in the middle, so that a straight drift cancels.
ORDERS = (("A", "M", "B"), ("B", "M", "A"))
# A candidate without a sound time in so many processes counts as broken.
MOST_SPOILED = 3


class BudgetSpent(Exception):
    """The end of the time for a search."""


class _NoFigure(Exception):
    """A process that gave no sound figure; `is_final` if a further process would not either."""

    def __init__(self, reason: str, *, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class Bench:
    """Measures the candidates of a search, and keeps what it measured.

    Args:
        state: of the search.
        folder: of the runs, `.roofline`.
        ends: the good and the bad end of the row.
        environments: make the sides.
        tell: prints a line on the progress.
        deadline_s: by the monotonic clock.
    """

    def __init__(
        self,
        state: BisectState,
        folder: Path,
        ends: tuple[Place, Place],
        environments: Environments,
        tell: Callable[[str], None],
        deadline_s: float,
    ) -> None:
        """Prepare to measure the candidates of a search."""
        self.state, self.ends, self._tell = state, ends, tell
        # Where the steps may lie after the last measurement, in words.
        self.left = "no candidate between the ends was measured"
        self._folder, self._environments, self._deadline_s = folder, environments, deadline_s
        self._settings = state.comparison("step", state.ends, 2)
        # By arm: the side, and the seconds of the process that warmed it up, 0 where another process did.
        self._sides: dict[str, PreparedSide] = {}
        self._warmed_s: dict[str, float] = {}
        # The candidate that was measured last. Its side stays until another candidate is measured.
        self._candidate: Place | None = None
        self._candidate_side = contextlib.ExitStack()

    @property
    def broken(self) -> Collection[Place]:
        """The candidates that cannot be measured."""
        return {candidate.place for candidate in self.state.broken}

    @property
    def _lead(self) -> Lead:
        assert self.state.lead is not None
        return self.state.lead

    def evidence(self) -> Mapping[Place, Floats]:
        """Return the evidence of all measurements for the level of each candidate between both ends."""
        if self._lead.is_exact:
            return exact_levels(self.state.observations, self.ends)
        return fit_levels(self.state.observations, self.ends)

    def compare(
        self,
        name: str,
        sides: Mapping[str, PreparedSide],
        is_enough: Callable[[SidesResults, Mapping[str, Paired]], bool] = lambda *_: False,
    ) -> tuple[Report, SidesResults]:
        """Measure two sides in turn as `roofline ab` does. Return the report, and the results behind it.

        A comparison that was interrupted goes on.

        Args:
            name: of the comparison.
            sides: by `A` and `B`.
            is_enough: ends the comparison early, by the results and the verdicts so far.
        """
        began_s = time.monotonic()
        texts = sides["A"].spec.text, sides["B"].spec.text
        settings = self.state.comparison(name, texts, MOST_PROCESSES)
        place = state_folder(self._folder, settings.name)
        if place.exists():
            settings = read_state(self._folder, settings.name, State)
        save_state(place, settings)
        results = SidesResults(self._folder, settings, {"A": None, "B": None})
        runner = Runner(results, sides, self._tell, began_s)
        paired_by_twin = runner.run(self._deadline_s - began_s, partial(is_enough, results))
        report = make_report(results, paired_by_twin, sides, interrupted=False)
        # Each side was warmed up in a process. If there are kernels, a third process compiled those of A once more.
        uncounted_processes = 3 if report.kernel_rows else 2
        processes = len(results.state.taken) + uncounted_processes
        self.keep(processes=self.state.processes + processes)
        return report, results

    @contextlib.contextmanager
    def using_ends(self, sides: Mapping[str, PreparedSide], *, warm: bool) -> Iterator[None]:
        """Measure both ends on these sides while this context is open. With `warm` they have run already."""
        self._sides, self._candidate = dict(sides), None
        self._warmed_s = dict.fromkeys(sides, 0.0) if warm else {}
        with self._candidate_side:
            yield

    def keep(self, **changes: object) -> None:
        """Change the state, and write it."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]
        save_state(state_folder(self._folder, self.state.name, "bisect"), self.state)

    def require_time(self) -> None:
        """Raise BudgetSpent if the time for the search is over."""
        if time.monotonic() > self._deadline_s:
            raise BudgetSpent

    def measure(self, place: Place) -> None:
        """Measure a candidate once more.

        That is one block of it and both ends, or one process of it if the figures are exact. A candidate that cannot be
        measured is noted as broken.

        Raises:
            BudgetSpent: the time is over.
            BadInput: the disk is full, or an end gives no figure.
        """
        self.require_time()
        # By the seed, a search that goes on chooses the same orders.
        order = random.Random(f"{self.state.seed} {self.state.blocks}").choice(ORDERS)
        # The lead has the figures of the ends only if they are exact.
        is_exact = self._lead.is_exact
        try:
            self._use_candidate(place)
            for _ in range(MOST_SPOILED):
                if self._measure_block(place, ("M",) if is_exact else order):
                    return
            reason = f"{MOST_SPOILED} processes gave no sound time"
        except _NoFigure as failure:
            reason = str(failure)
        self.keep(broken=(*self.state.broken, Broken(place, reason)))

    def _use_candidate(self, place: Place) -> None:
        """Make the side of a candidate in place of the last one.

        If it is the same, its side stays.

        Raises:
            _NoFigure: the side cannot be made.
        """
        if place == self._candidate:
            return
        self._candidate_side.close()
        # `M` is the arm of the candidate. That of the candidate before may have been warm, but this one is new.
        self._candidate, _ = None, self._warmed_s.pop("M", None)
        sides = self._environments.sides({"M": place})
        try:
            self._sides |= self._candidate_side.enter_context(sides)
        except BadInput as error:
            raise _NoFigure(_reason_of(error), is_final=True) from None
        self._candidate = place

    def report(self, place: Place, row: Sequence[Place], narrowed: Narrowed) -> None:
        """Print the line of a step.

        It has the candidate that was measured, and says which ones are left.

        Args:
            place: the candidate.
            row: all candidates in their order.
            narrowed: where the steps may lie.
        """
        names = self._environments.names_in(row)
        self.left = left_text(narrowed.gaps, names)
        broken = " cannot be measured" if place in self.broken else ""
        processes = count(self.state.processes, "process", "es")
        self._tell(f"{names[row.index(place)]}{broken}: {self.left}; {processes} so far")

    def _measure_block(self, place: Place, order: tuple[str, ...]) -> bool:
        """Run the processes of a block. Return True if the candidate has a figure.

        Args:
            place: the candidate.
            order: the arms in which processes run: `A` and `B` for the ends, `M` for the candidate.
        """
        good_end, bad_end = self.ends
        places = {"A": good_end, "M": place, "B": bad_end}
        block, has_figure = self.state.blocks, False
        self.keep(blocks=block + 1)
        is_exact = self._lead.is_exact
        # An exact figure is the same in a cold process.
        if not is_exact:
            self._warm_up(order)
        for arm in order:
            quiet_s = max(QUIET_S, QUIET_FACTOR * self._warmed_s.get(arm, WARMING_S))
            try:
                value = self._figure(arm, quiet_s)
            except _NoFigure as failure:
                if failure.is_final:
                    raise
                continue
            if arm == "M":
                has_figure = True
            observation = Observation(block, places[arm], value)
            self.keep(observations=(*self.state.observations, observation))
        return has_figure

    def _warm_up(self, arms: Sequence[str]) -> None:
        """Run a process on each of these arms that has had none.

        It fills their caches. The candidate is first, since it may be broken.
        """
        for arm in ("M", "A", "B"):
            if arm in arms and arm not in self._warmed_s:
                began_s = time.monotonic()
                self._figure(arm, WARMING_S, WARMING_BUDGET)
                self._warmed_s[arm] = time.monotonic() - began_s

    def _figure(self, arm: str, quiet_s: float, *options: str) -> float:
        """Run one process of an arm, and return its figure.

        The figure is in log seconds. An exact one is the share of the way from the good end to the bad one.

        Args:
            arm: `A` or `B` for an end, `M` for the candidate.
            quiet_s: a process without any sign for so long hangs.
            options: further words for pytest.

        Raises:
            _NoFigure: the process gave no figure.
            BadInput: the side of an end is broken.
        """
        lead, side = self._lead, self._sides[arm]
        number = self.state.processes + 1
        # Counted before it runs, so that a search that goes on after a break does not use the number again.
        self.keep(processes=number)
        with tempfile.TemporaryDirectory(
            prefix=owned_prefix("round"), ignore_cleanup_errors=True
        ) as name:
            end = run_side(
                side,
                self._settings,
                Path(name),
                number,
                [lead.test_id],
                quiet_s,
                *options,
                side="A",
            )
            runs = list(runs_of_child(Path(name), self._tell_unreadable))
        try:
            check_end(arm, side, end, runs)
        except BadInput as error:
            if arm != "M":
                raise
            raise _NoFigure(_reason_of(error), is_final=True) from None
        figures = _figures_of(lead, runs, f"process {number}")
        return lead.share(figures) if lead.is_exact else math.log(figures[""])

    def _tell_unreadable(self, error: BadFile) -> None:
        self._tell(f"the results of a process cannot be read: {error}")


def _figures_of(lead: Lead, runs: list[Run], name: str) -> dict[str, float]:
    """Return the figures of a lead in the runs of a process.

    A lead is the result that the search follows. The figures are those of a compiled kernel, or seconds under an empty
    name.

    Raises:
        _NoFigure: it has none; a failed test is final, and a process that was disturbed is not.
    """
    outcomes = {outcome.test_id: outcome for run in runs for outcome in run.outcomes}
    reason = why_void(outcomes.get(lead.test_id), name)
    if reason:
        raise _NoFigure(reason, is_final=True)
    if lead.is_kernel:
        record = records_in_runs(runs).kernels.get(lead.identity)
        if record is None:
            raise _NoFigure(f"{name} did not compile {lead.label}", is_final=True)
        return dict(record.entry.figures)
    measurements = [
        measurement
        for run in runs
        for measurement in run.tested
        if measurement.key.identity == lead.identity
    ]
    if not measurements:
        raise _NoFigure(f"{name} did not measure {lead.label}", is_final=True)
    sound = KeyResults(measurements).sound(None)
    if not sound:
        raise _NoFigure(measurements[-1].invalid, is_final=False)
    # The slowest attempt counts, so that a rerun cannot hide a slow one.
    return {"": max(measurement.median_s for measurement in sound)}


def choose_lead(report: Report, results: SidesResults) -> Lead | None:
    """Return the result that the search follows.

    It is a kernel that is worse, else the test whose slowdown is clearest. None if no result is clearly slower.
    """
    kernels = [row for row in report.kernel_rows if row.verdict == Kind.REGRESSED]
    if kernels:
        return _kernel_lead(kernels[0])
    slower = [row for row in report.test_rows if _is_slower(row, len(results.twins))]
    if not slower:
        return None
    row = max(slower, key=_clearness)
    assert row.key is not None
    good_times, bad_times = (
        {measurement.median_s for _, measurement in results.slowest_attempts(row.key.identity, arm)}
        for arm in ("A", "B")
    )
    good: dict[str, float] = {}
    bad: dict[str, float] = {}
    # Times that are the same in all processes of an end have no noise, so they are exact figures of the lead.
    if len(good_times) == len(bad_times) == 1:
        good, bad = {"": good_times.pop()}, {"": bad_times.pop()}
    return Lead(row.key.identity, row.test, row.label, change_text(row), good, bad)


def any_lead(results: SidesResults, paired_by_twin: Mapping[str, Paired]) -> bool:
    """Return True if the search can follow a test of the ends.

    `choose_lead` does not leave such a test out.
    """
    tests = len(results.twins)
    return any(
        # A row reads all results, so only a clear test gets one.
        is_clear(paired.verdict, tests) and _is_slower(twin_row(results, twin, paired), tests)
        for twin, paired in paired_by_twin.items()
    )


def _is_slower(row: Row, tests: int) -> bool:
    """Return True for a test that is clearly slower at the bad end.

    It is one of these many, and must be sound on both ends.
    """
    verdict = row.time_verdict
    return verdict is not None and row.verdict == verdict.kind and is_clear(verdict, tests)


def _clearness(row: Row) -> float:
    """Return the slowdown of a test in standard errors."""
    assert row.time_verdict is not None
    difference = row.time_verdict.difference
    return difference.estimate / difference.error if difference is not None else 0.0


def _kernel_lead(row: Row) -> Lead:
    """Return a kernel as the result that the search follows.

    It has those of its figures that are worse. A figure that an end lacks is left out there.
    """
    assert row.exact is not None
    changes = [change for change in row.exact.changes if change.verdict == "worse"]
    key = ResourceKey(row.benchmark, row.parameters, row.target or "", row.name)
    good, bad = (
        {
            change.figure: float(value)
            for change in changes
            if (value := getattr(change, side)) is not None
        }
        for side in ("before", "after")
    )
    return Lead(key.identity, row.test, row.label, change_text(row), good, bad, is_kernel=True)


def observations_of(
    results: SidesResults, lead: Lead, ends: tuple[Place, Place]
) -> tuple[Observation, ...]:
    """Return the log seconds that the processes of a comparison of both ends measured.

    They are the first evidence of the search. A process belongs to a block, in which both ends were measured in turn.
    """
    good_end, bad_end = ends
    places = {"A": good_end, "B": bad_end}
    return tuple(
        Observation(process.block, places[process.arm], math.log(measurement.median_s))
        for process, measurement in results.slowest_attempts(lead.identity, "A", "B")
    )


def _reason_of(error: BadInput) -> str:
    """Return an error as a reason, with the last line that its command printed."""
    lines = error.lines.splitlines() if isinstance(error, CommandError) else []
    return " | ".join([str(error), *lines[-1:]])
