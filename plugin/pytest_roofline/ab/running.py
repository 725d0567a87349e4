"""The processes of both sides: fresh ones, in blocks of random order, until each test is decided."""

import itertools
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..baselines.run_files import runs_of_child
from ..baselines.runs import Run
from ..core.errors import BadFile, BadInput
from ..core.samples import MOST_EXCLUDED
from ..core.units import count, listed, printable
from ..processes.children import QUIET_FACTOR, QUIET_S, ChildEnd
from ..processes.round_parent import RoundParent
from ..processes.system import owned_prefix
from ..stats.key_results import MOST_UNSOUND
from ..stats.paired import PROCESSES_PER_BLOCK_SIDE, Paired, judge_paired, order_of_blocks
from .command_process import PRINTED
from .results import CONTROL, ArmProcess, SidesResults, Survey
from .side_process import WARMING_BUDGET, WARMING_S, check_end, run_side
from .sides import CACHES, SIDES, PreparedSide

# The number of spare blocks as a share of the planned ones. They replace processes without a sound time.
SPARE = 0.25


class Runner:
    """The runner of the processes of one `roofline ab`.

    Args:
        results: of the run; a resumed run has the earlier ones already.
        sides: both, by name.
        tell: prints a line on the progress.
        began_s: the start of this call, by the monotonic clock.
    """

    def __init__(
        self,
        results: SidesResults,
        sides: Mapping[str, PreparedSide],
        tell: Callable[[str], None],
        began_s: float,
    ) -> None:
        """Prepare to run processes; none is started yet."""
        self.results, self.sides = results, {**sides, CONTROL: _with_new_caches(sides["A"])}
        self._tell = tell
        # Each arm has its own parent: processes of one parent may resemble each other, and A and A' must not do so.
        self._parents: dict[str, RoundParent] = {}
        # The start of this call, and that of the run if it had not been interrupted.
        self._invoked_s, self._began_s = began_s, began_s - results.state.seconds

    def run(
        self,
        budget_s: float | None,
        is_enough: Callable[[Mapping[str, Paired]], bool] = lambda _: False,
    ) -> dict[str, Paired]:
        """Warm up both sides, then run blocks. Return the verdict on each test.

        Blocks end when every test is decided, the budget is spent, or `is_enough` says so of the verdicts so far.

        Raises:
            BadInput: no test is on both sides, a side cannot start, or a side runs code of another commit.
        """
        self._warm()
        self._guard()
        try:
            return self._run_blocks(budget_s, is_enough)
        finally:
            for parent in self._parents.values():
                parent.close()

    def _run_blocks(
        self, budget_s: float | None, is_enough: Callable[[Mapping[str, Paired]], bool]
    ) -> dict[str, Paired]:
        """Run blocks, groups of processes of both sides in turn, and judge after each. Return the last verdicts.

        Blocks that an interrupted run has completed are used, and not run again. `budget_s` counts from the start of
        this call; the first block always runs.
        """
        state = self.results.state
        number = 0
        paired_by_twin: dict[str, Paired] = {}
        block_count = state.processes // PROCESSES_PER_BLOCK_SIDE
        # Spare blocks replace processes without a sound time.
        spare = order_of_blocks(math.ceil(SPARE * block_count), state.seed + 1)
        orders = [*order_of_blocks(block_count, state.seed), *spare]
        self._begin_anew([len(order) for order in orders])
        for block, order in enumerate(orders):
            undecided = self._undecided(paired_by_twin)
            if not undecided:
                break
            if budget_s is not None and block and time.monotonic() - self._invoked_s > budget_s:
                self._tell(
                    f"the time of --budget is over after block {block}; still undecided: {self._count(undecided)}"
                )
                # Blocks count from 0, so the last one that ran is the one before.
                return self.judge(block - 1, ended=True)
            processes = {process.number: process for process in self.results.state.taken}
            # A block that an interrupted run has completed is not announced again.
            if not all(place in processes for place in range(number + 1, number + len(order) + 1)):
                self._announce(block, block_count, order, undecided)
            for arm in order:
                number += 1
                self._run_process(
                    processes.get(number) or self._plan_process(number, block, arm, undecided)
                )
            paired_by_twin = self.judge(block, ended=False)
            if is_enough(paired_by_twin):
                return self.judge(block, ended=True)
        if self._undecided(paired_by_twin):
            return self.judge(len(orders) - 1, ended=True)
        return paired_by_twin

    def _announce(
        self, block: int, block_count: int, order: Sequence[str], undecided: Sequence[str]
    ) -> None:
        """Print the line on a block.

        It has the arms in their order, and the number of undecided tests.
        """
        arms = " ".join("A'" if arm == "control" else arm for arm in order)
        title = (
            f"block {block + 1} of at most {block_count}"
            if block < block_count
            else "processes in place of spoiled ones"
        )
        self._tell(f"{title}: {arms}, {self._count(undecided)}")

    def _begin_anew(self, lengths: Sequence[int]) -> None:
        """Drop the processes of the block that was interrupted, so that it runs again.

        Otherwise the processes of one block would be of two sessions. `lengths` are the numbers of processes of all
        blocks.
        """
        complete = {process.number for process in self.results.state.taken if not process.left}
        ends = [0, *itertools.accumulate(lengths)]
        # Processes are numbered from 1 on. The last block end up to which every process is complete.
        until = max(end for end in ends if complete.issuperset(range(1, end + 1)))
        if dropped := self.results.leave_out(until):
            block, processes = ends.index(until) + 1, count(dropped, "process", "es")
            self._tell(
                f"block {block} was interrupted and runs again; its results so far ({processes}) do not count, but "
                f"their files stay in {self.results.place}"
            )

    def judge(self, until: int, *, ended: bool) -> dict[str, Paired]:
        """Return the verdict on each test that both sides have, by its identity.

        Args:
            until: the last block that counts, from 0.
            ended: True if no further block follows; then the verdicts are final.
        """
        results = self.results
        blocks = {twin: results.blocks_of(twin, until) for twin in results.twins}
        tolerances = {twin: results.tolerance_of(twin) for twin in blocks}
        return (
            judge_paired(blocks, tolerances, results.state.processes, ended=ended) if blocks else {}
        )

    def _undecided(self, paired_by_twin: Mapping[str, Paired]) -> list[str]:
        """Return the tests that more processes could decide.

        Left out are tests that failed on a side, and those with too many unsound processes.
        """
        surveys = self.results.surveys
        troubles = {side: self.results.trouble(side) for side in SIDES}
        undecided = []
        for twin in self.results.twins:
            is_open = twin not in paired_by_twin or paired_by_twin[twin].open
            failed = any(surveys[side].tests[twin].test_id in troubles[side] for side in SIDES)
            unsound_count, process_count, _ = self.results.unsound(twin)
            if is_open and not failed and not _is_spoiled(unsound_count, process_count):
                undecided.append(twin)
        return undecided

    def _warm(self) -> None:
        """Run every test of both sides once.

        This fills the caches and lists the tests. Raise BadInput if the sides have no test and no kernel in common.
        """
        began_s, surveys = time.monotonic(), self.results.surveys
        self._survey("A", None)
        program = self.results.state.program
        # Which tests B runs: with two values of a parameter, the process of A has measured those of B already.
        # A program that fails on B alone fails in each figure of A. In all other cases B lists its tests itself.
        listing_side = "B" if program is None else "A"
        of_one_list = self.results.parameters["B"] is not None or program is not None
        listed_ids = [test.test_id for test in surveys[listing_side].tests.values()]
        self._survey("B", listed_ids if of_one_list else None)
        twins, kernels = self.results.twins, self._kernels()
        parts = [self._count(twins)] if twins or not kernels else []
        parts += [count(len(kernels), "kernel")] if kernels else []
        beginning = f"the warm-up took {time.monotonic() - began_s:.0f} s"
        self._tell(f"{beginning}: {' and '.join(parts)} on both sides")
        if program is not None and not listed_ids:
            reason = next(iter(surveys["A"].trouble.values()))
            raise BadInput(f"the command gave no figure on A ({self.sides['A']}): {reason}")
        if not twins and not kernels and program is None:
            texts = [
                f"{side} ({setup}): {_survey_text(surveys[side])}"
                for side, setup in self.sides.items()
                if side in SIDES
            ]
            raise BadInput(
                f"no test was measured on both sides; {'; '.join(texts)}; select other tests by path or -k"
            )

    def _count(self, twins: Sequence[str]) -> str:
        """Return the number of tests, or of a program's figures, with the noun."""
        return count(len(twins), "test" if self.results.state.program is None else "figure")

    def _kernels(self) -> list[str]:
        """Return the identities of the kernels that both sides compiled."""
        kernels = self.results.kernels("B")
        return [identity for identity in self.results.kernels("A") if identity in kernels]

    def _guard(self) -> None:
        """Compile the kernels that both sides have once more on A, in empty caches.

        Figures that differ between both processes of A are not judged.
        """
        kernels = self.results.kernels("A")
        tests = dict.fromkeys(kernels[identity].test_id for identity in self._kernels())
        if tests:
            self._survey(CONTROL, list(tests))

    def _survey(self, side: str, ids: Sequence[str] | None) -> None:
        """Run the warm-up of a side, until no process ends early.

        A test in which a process ends is left out of the next one. `ids` are the tests to run, None for all.
        """
        survey, remaining_ids = self.results.surveys[side], ids
        while remaining_ids is None or remaining_ids:
            with tempfile.TemporaryDirectory(
                prefix=owned_prefix("round"), ignore_cleanup_errors=True
            ) as name:
                began_s = time.monotonic()
                end = self._child(side, Path(name), 1, remaining_ids, WARMING_S, WARMING_BUDGET)
                survey.seconds += time.monotonic() - began_s
                runs = list(runs_of_child(Path(name), self._unreadable(side)))
            check_end(side, self.sides[side], end, runs)
            # If the sides are two values of a parameter, one process runs the tests of both.
            sides_noted = SIDES if self.results.parameters[side] and side in SIDES else (side,)
            for run, noted_side in itertools.product(runs, sides_noted):
                self._note(noted_side, run)
            if not end.died_in:
                break
            survey.trouble[end.died_in] = f"the process of this test ended early: {end.cause}"
            remaining_ids = [
                test_id for test_id in remaining_ids or end.planned if test_id not in end.started
            ]

    def _note(self, side: str, run: Run) -> None:
        """Add a run of the warm-up to the survey of a side.

        A failed or skipped test counts for a side only if it has the side's parameter value in its id.
        """
        survey, parameter = self.results.surveys[side], self.results.parameters[side]
        passed = {outcome.test_id for outcome in run.outcomes if outcome.outcome == "passed"}
        for outcome in run.outcomes:
            concerns_side = True
            if parameter is not None:
                _, value = parameter
                # The id of a test ends in its parameter values: `test_step[eager-fp16]`.
                _, _, values_text = outcome.test_id.partition("[")
                concerns_side = value in values_text.rstrip("]").split("-")
            if outcome.outcome != "passed" and concerns_side:
                reasons = survey.trouble if outcome.outcome == "failed" else survey.skipped
                reasons[outcome.test_id] = outcome.reason
        survey.runs.append(run)
        for measurement in run.tested:
            twin = self.results.twin(measurement.key, side)
            if twin is not None and measurement.test_id in passed:
                survey.tests[twin] = measurement

    def _plan_process(self, number: int, block: int, arm: str, twins: Sequence[str]) -> ArmProcess:
        """Return a process of an arm that has to run these tests."""
        process = ArmProcess(number, block, arm)  # type: ignore[arg-type]
        tests = self.results.surveys[process.side].tests
        return replace(process, left=tuple(dict.fromkeys(tests[twin].test_id for twin in twins)))

    def _run_process(self, process: ArmProcess) -> None:
        """Run the tests that a process still has to run.

        After a crash a new process runs the remaining tests, without the one that crashed.
        """
        # A process that prints nothing for many times as long as the warm-up took hangs.
        quiet_s = max(QUIET_S, QUIET_FACTOR * self.results.surveys[process.side].seconds)
        while process.left:
            with tempfile.TemporaryDirectory(
                prefix=owned_prefix("round"), ignore_cleanup_errors=True
            ) as name:
                began_s, end = time.monotonic(), None
                try:
                    end = self._child(
                        process.side,
                        Path(name),
                        process.number,
                        process.left,
                        quiet_s,
                        arm=process.arm,
                    )
                finally:
                    # An interrupted process keeps its results as well.
                    process = self._keep_files(process, Path(name), end, time.monotonic() - began_s)
                check_end(
                    process.side,
                    self.sides[process.side],
                    end,
                    self.results.runs_of(process.side)[-1:],
                )

    def _keep_files(
        self, process: ArmProcess, folder: Path, end: ChildEnd | None, seconds: float
    ) -> ArmProcess:
        """Copy the run files of a process into the folder of the run.

        Return the process with its files and its remaining tests. After a crash the test that crashed is lost, after a
        normal end every test that did not run. `end` is None after an interruption, which loses no test.
        """
        files, ids_done, lost = list(process.files), set[str](), dict(process.lost)
        for run in runs_of_child(folder, self._unreadable(process.side)):
            file_name = self._free_name(process, len(files))
            files.append(file_name)
            shutil.copyfile(run.path, self.results.place / file_name)
            ids_done |= {outcome.test_id for outcome in run.outcomes}
            # What a program printed goes beside its run file.
            for path in folder.glob(f"{PRINTED}.*"):
                printed_name = Path(file_name).with_suffix(path.suffix)
                shutil.copyfile(path, self.results.place / printed_name)
        remaining_ids = [test_id for test_id in process.left if test_id not in ids_done]
        if end is not None and end.died_in:
            lost[end.died_in] = (
                f"process {process.number} on side {process.side} ended early in this test: {end.cause}"
            )
            self._tell(f"{printable(end.died_in)}: {lost[end.died_in]}")
            remaining_ids = [test_id for test_id in remaining_ids if test_id not in end.started]
        elif end is not None:
            lost |= dict.fromkeys(
                remaining_ids,
                f"process {process.number} on side {process.side} did not run the test",
            )
            remaining_ids = []
        process_so_far = replace(
            process,
            files=tuple(files),
            left=tuple(remaining_ids),
            lost=lost,
            seconds=process.seconds + seconds,
        )
        self.results.add(process_so_far, time.monotonic() - self._began_s)
        return process_so_far

    def _free_name(self, process: ArmProcess, first_number: int) -> str:
        """Return a new name for a run file of a process, numbered from `first_number` on.

        Files of an interrupted process stay, so their names are not free.
        """
        names = (
            f"{process.number:03d}-{process.arm}-{number}.jsonl"
            for number in itertools.count(first_number)
        )
        return next(name for name in names if not (self.results.place / name).exists())

    def _unreadable(self, side: str) -> Callable[[BadFile], None]:
        """Return a function that prints a note on an unreadable run file."""
        return lambda error: self._tell(
            f"the results of a process on side {side} cannot be read: {error}"
        )

    def _child(
        self,
        side: str,
        folder: Path,
        number: int,
        ids: Sequence[str] | None,
        quiet_s: float,
        *options: str,
        arm: str = "",
    ) -> ChildEnd:
        """Run pytest in a new process of a side, and return its end.

        Args:
            side: A, B, or the second A.
            folder: for the files of the process.
            number: the round in which the process measures.
            ids: the tests to run; None for all.
            quiet_s: the longest time without output.
            options: arguments of pytest, behind those of the user.
            arm: of the process; empty in a warm-up.
        """
        return run_side(
            self.sides[side],
            self.results.state,
            folder,
            number,
            ids,
            quiet_s,
            *options,
            side=side,
            parent=self._parent_of(side, arm),
        )

    def _parent_of(self, side: str, arm: str) -> RoundParent | None:
        """Return the parent process that forks the processes of an arm.

        Make it at the first call. None for a program, a warm-up, before the first process of the side, and on a GPU:
        then each process is started by itself.
        """
        runs = self.results.runs_of(side) if self.results.state.program is None else []
        if not arm or not runs or runs[-1].header.environment.device.type != "cpu":
            return None
        setup = self.sides[side]
        if arm not in self._parents:
            self._parents[arm] = RoundParent(python=setup.python, folder=setup.cwd)
        return self._parents[arm]


def _with_new_caches(side: PreparedSide) -> PreparedSide:
    """Return a side with other folders for its caches, which are empty."""
    caches = {name: f"{side.environ[name]}-again" for name in CACHES if name in side.environ}
    return replace(side, environ=side.environ | caches)


def _is_spoiled(unsound: int, attempts: int) -> bool:
    """Return True if a test is given up.

    Too many of its processes have no sound time then. `unsound` is their number, `attempts` the number of all.
    """
    return unsound >= MOST_UNSOUND and unsound > MOST_EXCLUDED * attempts


def _survey_text(survey: Survey) -> str:
    """Return the names of a side's tests and kernels, at most two.

    Without any, it is the reasons of failed and skipped tests.
    """
    kernels = [kernel.label for run in survey.runs for kernel in run.resources]
    names = [*(test.label for test in survey.tests.values()), *kernels]
    reasons = [*survey.trouble.values(), *survey.skipped.values()]
    return listed(list(dict.fromkeys(names or reasons)), 2) or "nothing that measures"
