"""The settings and the results of a run of `roofline ab`, which its folder `.roofline/ab/NAME` keeps."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..baselines.pairs import twin_of
from ..baselines.references import default_tolerance
from ..baselines.run_files import make_run_folder
from ..baselines.runs import Line, Run, encode_line, now, read_run
from ..core.errors import BadInput
from ..core.facts import Environment
from ..core.keys import Key, value_text
from ..core.records import SCHEMA, Footer, Header, Measurement
from ..core.resources import Resources
from ..core.samples import CANARY
from ..core.storage import Record, read_record, to_plain
from ..core.verdicts import ExactVerdict, Verdict
from ..core.writing import make_ignored_folder, write_atomically, write_json
from ..processes.children import why_void
from ..stats.key_results import KeyResults
from ..stats.paired import PROCESSES_PER_BLOCK_SIDE, Arm, Block, TimedProcess
from .command_plan import CommandPlan
from .sides import CACHES, SIDES

# A test that ended so many processes of a side early is not run again.
MOST_CRASHES = 2
# The second A: its difference from A shows how large a difference is without a change.
CONTROL: Arm = "control"
# The largest number of processes of a side: more would take hours.
MOST = 12
# By command, the arguments of a new run.
_ENDS = {"ab": "A B", "bisect": "GOOD BAD"}


@dataclass(frozen=True, slots=True)
class ArmProcess:
    """A fresh process of an arm: A, B, or the second A.

    Args:
        number: in the order of the run, from 1.
        block: the number of its block, from 0.
        arm: A, B, or the second A.
        files: its run files; several where a crash or an interruption cut it.
        left: the tests that it still has to run; empty of a complete process.
        lost: tests without a result, with the reason.
        seconds: from its start to its end.
    """

    number: int
    block: int
    arm: Arm
    files: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    lost: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def side(self) -> str:
        """The side whose tests it runs. The second A runs those of A."""
        return "B" if self.arm == "B" else "A"


@dataclass(frozen=True, slots=True)
class State:
    """The settings of a run and its processes so far: all that `--resume` needs.

    `sides` are A and B as the user wrote them, `commits` those that they meant when the run began, by side. `seconds`
    is the time of the run so far, preparing and warming up included. `taken` are the processes. `program` is run in
    place of pytest, if any.
    """

    name: str
    sides: tuple[str, str]
    arguments: tuple[str, ...]
    cwd: str
    seed: int
    processes: int
    tolerance: float | None = None
    commits: dict[str, str] = field(default_factory=dict)
    taken: tuple[ArmProcess, ...] = ()
    seconds: float = 0.0
    program: CommandPlan | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise BadInput for a number of processes that blocks cannot have."""
        if (
            self.processes % PROCESSES_PER_BLOCK_SIDE
            or not PROCESSES_PER_BLOCK_SIDE <= self.processes <= MOST
        ):
            raise BadInput(
                f"processes is {self.processes}; expected an even number from "
                f"{PROCESSES_PER_BLOCK_SIDE} to {MOST}, since a block takes {PROCESSES_PER_BLOCK_SIDE} processes of "
                "each side"
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command line after both sides: pytest's arguments, or the program."""
        if self.program is None:
            return ("--", *self.arguments)
        side_a, _ = self.sides
        # Two commands stand in the sides themselves. Another command is the same on both sides.
        return () if side_a.startswith("cmd:") else ("--run", self.program.commands["A"])

    def with_process(self, process: ArmProcess) -> "State":
        """Return the state with a process.

        It replaces an earlier process of the same number.
        """
        processes = {earlier.number: earlier for earlier in self.taken} | {process.number: process}
        return replace(self, taken=tuple(processes[number] for number in sorted(processes)))


def state_folder(folder: Path, name: str, command: str = "ab") -> Path:
    """Return the folder of the state of a run of `ab` or `bisect`. `folder` is `.roofline`."""
    return folder / command / name


def read_state(folder: Path, name: str, form: type[Record], command: str = "ab") -> Record:
    """Return the state of a run that is to be resumed.

    Args:
        folder: `.roofline`.
        name: of the run.
        form: of the state.
        command: whose run it is, `ab` or `bisect`.

    Raises:
        BadInput: no run of the command has this name.
        BadFile: the state cannot be read.
    """
    path = state_folder(folder, name, command) / "state.json"
    if not path.exists():
        names = sorted(file.parent.name for file in folder.glob(f"{command}/*/state.json"))
        expected = f"one of {', '.join(names)}" if names else "a run that was interrupted"
        advice = "" if names else f"; to begin a run, type: roofline {command} {_ENDS[command]}"
        raise BadInput(
            f"{folder} holds no `roofline {command}` run {name!r}; expected {expected}{advice}"
        )
    return read_record(path, form, "state")


def save_state(place: Path, state: object) -> None:
    """Write the state of a run of `ab` or `bisect` into its folder, which git ignores."""
    make_ignored_folder(place.parent)
    place.mkdir(exist_ok=True)
    write_json(place / "state.json", to_plain(state))


@dataclass(slots=True)
class Survey:
    """The results of a side's warm-up, which lists its tests.

    `tests` are measurements of the warm-up by the identity that both sides share. `trouble` and `skipped` have the
    reasons of failed and of skipped tests. `runs` filled the caches: their times do not count, their kernels do.
    `seconds` is the time of the warm-up.
    """

    tests: dict[str, Measurement] = field(default_factory=dict)
    trouble: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    seconds: float = 0.0


class SidesResults:
    """Everything that the processes of a run have measured.

    Args:
        folder: of the runs, `.roofline`.
        state: the settings of the run, and its processes so far.
        parameters: by side, the name and the value of the parameter that the side stands for, else None.
    """

    def __init__(
        self, folder: Path, state: State, parameters: Mapping[str, tuple[str, str] | None]
    ) -> None:
        """Read the results of the processes so far. The surveys of the warm-up are empty at first."""
        self.folder, self.state = folder, state
        # The second A, which is the control, runs the tests of A.
        self.parameters = {**parameters, CONTROL: parameters["A"]}
        self.surveys = {side: Survey() for side in (*SIDES, CONTROL)}
        # By the number of the process: its runs, and its measurements by the identity that both sides share.
        self._runs: dict[int, list[Run]] = {}
        self._measurements: dict[int, dict[str, list[Measurement]]] = {}
        for process in state.taken:
            self._read(process)

    @property
    def place(self) -> Path:
        """The folder of the run's files."""
        return state_folder(self.folder, self.state.name)

    @property
    def twins(self) -> list[str]:
        """The identities of the tests that both sides have, in A's order."""
        return [twin for twin in self.surveys["A"].tests if twin in self.surveys["B"].tests]

    def warming_runs(self, side: str) -> list[Run]:
        """Return the warm-up runs of a side, with its own kernels only.

        If the sides are values of a parameter, one process compiles the kernels of both.
        """
        runs, parameter = self.surveys[side].runs, self.parameters[side]
        if parameter is None:
            return runs
        return [
            run.with_lines(
                Resources, (kernel for kernel in run.resources if _has(kernel, parameter))
            )
            for run in runs
        ]

    def warming_runs_of_twins(self, side: str) -> list[Run]:
        """Return the warm-up runs, with kernels under the keys that both sides share."""
        runs, parameter = self.warming_runs(side), self.parameters[side]
        if parameter is None:
            return runs
        name, _ = parameter
        return [
            run.with_lines(Resources, (_twin_of(kernel, name) for kernel in run.resources))
            for run in runs
        ]

    def kernels(self, side: str) -> dict[str, Resources]:
        """Return the last result of each kernel, by the identity that both sides share."""
        runs = self.warming_runs_of_twins(side)
        return {kernel.key.identity: kernel for run in runs for kernel in run.resources}

    def add(self, process: ArmProcess, seconds: float) -> None:
        """Keep a process and read its results. The state is written first.

        `seconds` is the time of the run so far.
        """
        self.state = replace(self.state.with_process(process), seconds=seconds)
        save_state(self.place, self.state)
        self._read(process)

    def leave_out(self, until: int) -> int:
        """Drop the processes after number `until`. Their files stay.

        Return the number of dropped processes that had measured.
        """
        dropped = [process for process in self.state.taken if process.number > until]
        self.state = replace(
            self.state,
            taken=tuple(process for process in self.state.taken if process.number <= until),
        )
        for process in dropped:
            del self._runs[process.number], self._measurements[process.number]
        return sum(bool(process.files) for process in dropped)

    def twin(self, key: Key, side: str) -> str | None:
        """Return the identity that a test shares with its twin.

        The twin is the same test on the other side. None if the test lacks the parameter of the side, or has another
        value of it.
        """
        parameter = self.parameters[side]
        if parameter is None:
            return key.identity
        name, value = parameter
        # The identity without the parameter, and the value that the test has of it.
        identity, test_value = twin_of(key, name) or (None, None)
        return identity if test_value == value else None

    def _read(self, process: ArmProcess) -> None:
        """Read the run files of a process.

        Each measurement gets the number of the process as its round, and a reason if its test did not pass.
        """
        self._runs[process.number] = runs = [read_run(self.place / name) for name in process.files]
        attempts = self._measurements[process.number] = {}
        for run in runs:
            outcomes = {outcome.test_id: outcome for outcome in run.outcomes}
            for measurement in run.tested:
                twin = self.twin(measurement.key, process.side)
                reason = measurement.invalid or why_void(
                    outcomes.get(measurement.test_id), f"process {process.number}"
                )
                if twin is not None:
                    attempts.setdefault(twin, []).append(
                        replace(measurement, round=process.number, invalid=reason)
                    )

    def runs_of(self, side: str) -> list[Run]:
        """Return the runs of all processes of a side, in order."""
        return [
            run
            for process in self.state.taken
            if process.side == side
            for run in self._runs[process.number]
        ]

    def slowest_attempts(self, twin: str, *arms: Arm) -> list[tuple[ArmProcess, Measurement]]:
        """Return each process of some arms with its slowest sound attempt.

        The attempts are at one test, the arms `A`, `B` and `control`. The slowest counts, so that a rerun cannot hide a
        slow one. A process without a sound attempt is left out.
        """
        attempts = []
        for process in self.state.taken:
            sound = KeyResults(self._measurements[process.number].get(twin, [])).sound(None)
            if process.arm in arms and sound:
                attempts.append((process, max(sound, key=lambda measurement: measurement.median_s)))
        return attempts

    def blocks_of(self, twin: str, until: int) -> list[Block]:
        """Return the blocks of a test, with their times.

        A block is a group of processes of all sides that ran in turn. Blocks after block `until` are left out.
        """
        blocks: dict[int, list[TimedProcess]] = {}
        for process, measurement in self.slowest_attempts(twin, "A", "B", "control"):
            if process.block <= until:
                blocks.setdefault(process.block, []).append(
                    TimedProcess(process.arm, measurement.median_s, process.number)
                )
        return list(blocks.values())

    def tolerance_of(self, twin: str) -> float:
        """Return the tolerance of a test: its own, else the run's, else the default."""
        tolerances = (
            measurement.tolerance
            for arm in ("B", "A")
            for _, measurement in self.slowest_attempts(twin, arm)
            if measurement.tolerance
        )
        return (
            next(tolerances, None)
            or self.state.tolerance
            or default_tolerance(self.surveys["B"].tests[twin].key)
        )

    def unsound(self, twin: str) -> tuple[int, int, str]:
        """Return how many processes of a test have no sound time.

        `twin` is the identity of the test. The first number counts the
        processes without a sound time, the second all processes. The reason is that of the last unsound process, empty
        if there is none.
        """
        # Of each process that measured the test, the reasons why its attempts do not count; empty of one that counts.
        reasons_by_process = [
            [measurement.invalid for measurement in measurements[twin]]
            for measurements in self._measurements.values()
            if measurements.get(twin)
        ]
        last_reasons = [reasons[-1] for reasons in reasons_by_process if all(reasons)]
        last_reason = last_reasons[-1] if last_reasons else ""
        return len(last_reasons), len(reasons_by_process), last_reason

    def trouble(self, side: str) -> dict[str, str]:
        """Return the tests that do not run in further processes, with the reason.

        They failed or were skipped in the warm-up or a process, or ended too many processes early.
        """
        reasons = dict(self.surveys[side].trouble)
        loss_counts: Counter[str] = Counter()
        for process in self.state.taken:
            if process.side != side:
                continue
            for run in self._runs[process.number]:
                for outcome in run.outcomes:
                    if outcome.outcome != "passed":
                        reasons.setdefault(
                            outcome.test_id,
                            f"{outcome.outcome} in process {process.number}: {outcome.reason}",
                        )
            loss_counts.update(process.lost.keys())
            reasons |= {
                test_id: reason
                for test_id, reason in process.lost.items()
                if loss_counts[test_id] >= MOST_CRASHES
            }
        return reasons

    def save(self, verdicts: Sequence[Verdict | ExactVerdict]) -> dict[str, Path]:
        """Write a run file for each side, and return the paths by side.

        Each process becomes a round, so that `baseline propose` can read the file. A side without results has no file.

        Args:
            verdicts: of B against A, which B's file holds.
        """
        paths = {}
        for side in SIDES:
            runs = self._all_runs(side)
            if runs:
                make_run_folder(self.folder)
                path = self.folder / "runs" / f"{run_name(self.state.name, side)}.jsonl"
                lines = self._lines(side, runs, verdicts if side == "B" else ())
                write_atomically(path, "".join(map(encode_line, lines)))
                paths[side] = path
        return paths

    def _all_runs(self, side: str) -> list[Run]:
        """Return the runs of a side's processes, then its warm-up runs with kernels."""
        return [*self.runs_of(side), *(run for run in self.warming_runs(side) if run.resources)]

    def environment(self, side: str) -> Environment | None:
        """Return the environment of a side's first process; None without a run.

        The variables of its caches are left out, since they always differ.
        """
        runs = self._all_runs(side)
        if not runs:
            return None
        first_run = runs[0]
        environment = first_run.environment
        variables = {
            name: value for name, value in environment.variables.items() if name not in CACHES
        }
        return replace(environment, variables=variables)

    def _lines(
        self, side: str, runs: Sequence[Run], verdicts: Sequence[Verdict | ExactVerdict]
    ) -> list[Line]:
        """Return the lines of a side's run file.

        Each process is a round. The kernels of the warm-up follow, with the outcomes of their tests.

        Args:
            runs: all runs of the side.
            verdicts: those that the file holds.
        """
        environment = self.environment(side)
        assert environment is not None
        command = ("roofline", "ab", *self.state.sides, *self.state.words)
        first = runs[0].header
        lines: list[Line] = [
            Header(run_name(self.state.name, side), first.started, command, first.tool, environment)
        ]
        keys = set()
        processes = [process for process in self.state.taken if process.side == side]
        for number, process in enumerate(processes, 1):
            for run in self._runs[process.number]:
                lines += run.calibrations
                # Canaries measure the machine itself, and are no part of `_measurements`.
                lines += [
                    replace(measurement, round=number)
                    for measurement in run.measurements
                    if CANARY in measurement.samples.labels
                ]
                lines += [*run.out_of_memory, *run.outcomes]
            for attempts in self._measurements[process.number].values():
                lines += [replace(measurement, round=number) for measurement in attempts]
                keys |= {measurement.key.identity for measurement in attempts}
        for run in self.warming_runs(side):
            tests = {kernel.test_id for kernel in run.resources}
            lines += run.resources
            lines += [outcome for outcome in run.outcomes if outcome.test_id in tests]
        return [*lines, *verdicts, Footer(now(), 0, len(keys))]


def _has(kernel: Resources, parameter: tuple[str, str]) -> bool:
    """Return True if the test of a kernel has a parameter with this value."""
    name, value = parameter
    parameters = kernel.key.parameters
    return name in parameters and value_text(name, parameters[name]) == value


def _twin_of(kernel: Resources, parameter: str) -> Resources:
    """Return a kernel with a key and a label without one of its parameters."""
    parameters = {name: value for name, value in kernel.key.parameters.items() if name != parameter}
    key = replace(kernel.key, parameters=parameters)
    return replace(kernel, key=key, label=key.label)


def run_name(name: str, side: str) -> str:
    """Return the name of a side's saved run: `NAME-a`, `NAME-b`."""
    return f"{name}-{side.lower()}"
