"""What a run of `roofline ab` was asked for and has taken, as its folder `.roofline/ab/NAME` keeps it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..baselines.comparators import default_tolerance
from ..baselines.pairs import twin_of
from ..baselines.run_files import make_run_folder
from ..baselines.runs import Line, Run, encode_line, now, read_run
from ..core.errors import BadInput
from ..core.facts import Environment
from ..core.keys import Key, value_text
from ..core.records import Footer, Header, Measurement
from ..core.resources import Resources
from ..core.samples import CANARY
from ..core.storage import check_schema, decode_json, read_bytes, to_plain, to_record
from ..core.verdicts import ExactVerdict, Verdict
from ..core.writing import write_atomically, write_json
from ..ranks.children import why_void
from ..stats.key_results import KeyResults
from ..stats.paired import A_SIDE, Arm, Block, TimedProcess
from .sides import CACHES, SIDES

SCHEMA = 1
# A test whose process died so often on one side is not tried again.
MOST_CRASHES = 2
# The second A, which tells what no change looks like.
CONTROL: Arm = "control"
# More processes a side are a matter of hours.
MOST = 12


@dataclass(frozen=True, slots=True)
class Taken:
    """One fresh process of an arm.

    Args:
        number: in the order of the run, from 1.
        block: from 0.
        arm: A, B, or the second A.
        files: its run files; several where a crash or an interruption cut it.
        left: tests that it has yet to run; empty of a process that came to its end.
        lost: tests that gave nothing, with the reason.
        seconds: that it took, from its start to its end.
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
        """Whose tests it runs."""
        return "B" if self.arm == "B" else "A"


@dataclass(frozen=True, slots=True)
class State:
    """What was asked for, and what was taken until now: all that `--resume` needs.

    `commits` are those that the sides meant when the run began, by side; `seconds` what all of it took until now,
    preparing and warming up included.
    """

    name: str
    a: str
    b: str
    arguments: tuple[str, ...]
    cwd: str
    seed: int
    processes: int
    tolerance: float | None = None
    commits: dict[str, str] = field(default_factory=dict)
    taken: tuple[Taken, ...] = ()
    seconds: float = 0.0
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.processes % A_SIDE or not A_SIDE <= self.processes <= MOST:
            raise BadInput(
                f"processes is {self.processes}; expected an even number from {A_SIDE} to {MOST}, since a block holds "
                f"{A_SIDE} a side"
            )

    def with_taken(self, taken: Taken) -> "State":
        """The same with what a process has taken, in place of what was known of it."""
        others = [one for one in self.taken if one.number != taken.number]
        return replace(self, taken=tuple(sorted([*others, taken], key=lambda one: one.number)))


def state_folder(folder: Path, name: str) -> Path:
    """Where a run of a name keeps its state."""
    return folder / "ab" / name


def read_state(folder: Path, name: str) -> State:
    """The state of a run that is to be resumed.

    Raises:
        BadInput: there is none of that name.
        BadFile: it cannot be read.
    """
    path = state_folder(folder, name) / "state.json"
    if not path.exists():
        known = sorted(one.parent.name for one in folder.glob("ab/*/state.json"))
        raise BadInput(
            f"no `roofline ab` is called {name!r} in {folder}; expected one of {', '.join(known) or 'none'}"
        )
    raw = decode_json(read_bytes(path, "state"), f"state {path}")
    check_schema(raw, f"state {path}")
    state: State = to_record(raw, State, f"state {path}")
    return state


def save_state(folder: Path, state: State) -> None:
    """Replace the state of a run whole; git is told to ignore all of them."""
    place = state_folder(folder, state.name)
    place.mkdir(parents=True, exist_ok=True)
    ignore = place.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    write_json(place / "state.json", to_plain(state))


@dataclass(frozen=True, slots=True)
class Found:
    """A test as a side's warming process found it."""

    test_id: str
    label: str
    key: Key


@dataclass(slots=True)
class Survey:
    """The tests of a side, by what tells twins apart; by test, why it gave nothing; and how long it took.

    `runs` are those that filled the caches: their times do not count, their kernels do.
    """

    tests: dict[str, Found] = field(default_factory=dict)
    trouble: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    seconds: float = 0.0


class SidesResults:
    """Everything that the processes of a run have measured.

    Args:
        folder: of the runs, `.roofline`.
        state: what was asked for, and the processes that there were.
        parameters: by side, the parameter of tests that it stands for, with its value; None for none.
    """

    def __init__(
        self, folder: Path, state: State, parameters: Mapping[str, tuple[str, str] | None]
    ) -> None:
        self.folder, self.state = folder, state
        self.parameters = {**parameters, CONTROL: parameters["A"]}
        self.surveys = {side: Survey() for side in (*SIDES, CONTROL)}
        self._runs: dict[int, list[Run]] = {}
        self._measured: dict[int, dict[str, list[Measurement]]] = {}
        for taken in state.taken:
            self._read(taken)

    @property
    def place(self) -> Path:
        """Where the run keeps its files."""
        return state_folder(self.folder, self.state.name)

    @property
    def twins(self) -> list[str]:
        """Tests that both sides have."""
        return [twin for twin in self.surveys["A"].tests if twin in self.surveys["B"].tests]

    def compiled(self, side: str) -> list[Run]:
        """The runs that filled a side's caches, of whose kernels those stay that are of the side."""
        runs, parameter = self.surveys[side].runs, self.parameters[side]
        if parameter is None:
            return runs
        return [
            replace(run, resources=tuple(each for each in run.resources if _has(each, parameter)))
            for run in runs
        ]

    def twins_compiled(self, side: str) -> list[Run]:
        """The same, with each kernel under the key that it has in common with its twin."""
        runs, parameter = self.compiled(side), self.parameters[side]
        if parameter is None:
            return runs
        return [
            replace(run, resources=tuple(_twin_of(each, parameter[0]) for each in run.resources))
            for run in runs
        ]

    def kernels(self, side: str) -> dict[str, Resources]:
        """The last of each kernel of a side, by the identity that it has in common with its twin."""
        runs = self.twins_compiled(side)
        return {each.key.identity: each for run in runs for each in run.resources}

    def add(self, taken: Taken, seconds: float) -> None:
        """Keep what a process has taken, on disk before anything else happens."""
        self.state = replace(self.state.with_taken(taken), seconds=seconds)
        save_state(self.folder, self.state)
        self._read(taken)

    def leave_out(self, until: int) -> int:
        """Count no process behind one; how many of them had measured. Their files stay."""
        left_out = [one for one in self.state.taken if one.number > until]
        self.state = replace(
            self.state, taken=tuple(one for one in self.state.taken if one.number <= until)
        )
        for one in left_out:
            del self._runs[one.number], self._measured[one.number]
        return sum(bool(one.files) for one in left_out)

    def twin(self, key: Key, side: str) -> str | None:
        """What a test and its twin on the other side have in common; None where the side has no such test."""
        parameter = self.parameters[side]
        if parameter is None:
            return key.identity
        found = twin_of(key, parameter[0])
        return found[0] if found is not None and found[1] == parameter[1] else None

    def _read(self, taken: Taken) -> None:
        self._runs[taken.number] = runs = [read_run(self.place / name) for name in taken.files]
        measured = self._measured[taken.number] = {}
        for run in runs:
            outcomes = {outcome.test_id: outcome for outcome in run.outcomes}
            for one in run.tested:
                twin = self.twin(one.key, taken.side)
                why = one.invalid or why_void(outcomes.get(one.test_id), f"process {taken.number}")
                if twin is not None:
                    measured.setdefault(twin, []).append(
                        replace(one, round=taken.number, invalid=why)
                    )

    def runs_of(self, side: str) -> list[Run]:
        """The runs of all processes of a side, in the order taken."""
        return [
            run
            for taken in self.state.taken
            if taken.side == side
            for run in self._runs[taken.number]
        ]

    def taken_of(self, twin: str, *arms: Arm) -> list[tuple[Taken, Measurement]]:
        """Of every process of some arms what stands for a test: its slowest sound attempt."""
        found = []
        for taken in self.state.taken:
            sound = KeyResults(self._measured[taken.number].get(twin, [])).sound(None)
            if taken.arm in arms and sound:
                found.append((taken, max(sound, key=lambda one: one.median_s)))
        return found

    def blocks_of(self, twin: str, until: int) -> list[Block]:
        """What the processes of each block, up to the one of that number, say of a test."""
        blocks: dict[int, list[TimedProcess]] = {}
        for taken, one in self.taken_of(twin, "A", "B", "control"):
            if taken.block <= until:
                blocks.setdefault(taken.block, []).append(
                    TimedProcess(taken.arm, one.median_s, float(taken.number))
                )
        return list(blocks.values())

    def tolerance_of(self, twin: str) -> float:
        """The slowdown that still counts as the same: the test's own, what was asked for, or the default."""
        own = (
            one.tolerance
            for arm in ("B", "A")
            for _, one in self.taken_of(twin, arm)
            if one.tolerance
        )
        return (
            next(own, None)
            or self.state.tolerance
            or default_tolerance(self.surveys["B"].tests[twin].key)
        )

    def unsound(self, twin: str) -> tuple[int, int, str]:
        """How many processes have no sound time of a test, of how many, and why, as the last of them says."""
        attempts = [
            known for number in self._measured if (known := self._measured[number].get(twin))
        ]
        reasons = [known[-1].invalid for known in attempts if all(one.invalid for one in known)]
        return len(reasons), len(attempts), reasons[-1] if reasons else ""

    def trouble(self, side: str) -> dict[str, str]:
        """Tests of a side that are not worth another process, with the reason."""
        found = dict(self.surveys[side].trouble)
        lost: Counter[str] = Counter()
        for taken in self.state.taken:
            if taken.side != side:
                continue
            for run in self._runs[taken.number]:
                for outcome in run.outcomes:
                    if outcome.outcome != "passed":
                        found.setdefault(
                            outcome.test_id,
                            f"{outcome.outcome} in process {taken.number}: {outcome.reason}",
                        )
            lost.update(taken.lost.keys())
            found |= {
                test_id: why for test_id, why in taken.lost.items() if lost[test_id] >= MOST_CRASHES
            }
        return found

    def save(self, verdicts: Sequence[Verdict | ExactVerdict]) -> dict[str, Path]:
        """Write a run file for each side, its processes as rounds, as `baseline propose` takes it; by side its path.

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
        """The runs of a side's processes; behind them those that compiled kernels."""
        return [*self.runs_of(side), *(run for run in self.compiled(side) if run.resources)]

    def environment(self, side: str) -> Environment | None:
        """That of a side's first process, without the caches that every side has of its own; None where none counts."""
        runs = self._all_runs(side)
        if not runs:
            return None
        known = runs[0].environment
        kept = {name: value for name, value in known.variables.items() if name not in CACHES}
        return replace(known, variables=kept)

    def _lines(
        self, side: str, runs: Sequence[Run], verdicts: Sequence[Verdict | ExactVerdict]
    ) -> list[Line]:
        """The records of a side's run, of which each process is a round."""
        environment = self.environment(side)
        assert environment is not None
        command = ("roofline", "ab", self.state.a, self.state.b, "--", *self.state.arguments)
        first = runs[0].header
        lines: list[Line] = [
            Header(run_name(self.state.name, side), first.started, command, first.tool, environment)
        ]
        keys = set()
        for number, taken in enumerate((one for one in self.state.taken if one.side == side), 1):
            for run in self._runs[taken.number]:
                canaries = [one for one in run.measurements if CANARY in one.samples.labels]
                lines += [*run.calibrations, *(replace(one, round=number) for one in canaries)]
                lines += [*run.out_of_memory, *run.outcomes]
            for attempts in self._measured[taken.number].values():
                lines += [replace(one, round=number) for one in attempts]
                keys |= {one.key.identity for one in attempts}
        for run in self.compiled(side):
            tests = {each.test_id for each in run.resources}
            lines += run.resources
            lines += [outcome for outcome in run.outcomes if outcome.test_id in tests]
        return [*lines, *verdicts, Footer(now(), 0, len(keys))]


def _has(kernel: Resources, parameter: tuple[str, str]) -> bool:
    """Return whether the test of a kernel has a value of a parameter."""
    name, value = parameter
    parameters = kernel.key.parameters
    return name in parameters and value_text(name, parameters[name]) == value


def _twin_of(kernel: Resources, parameter: str) -> Resources:
    """Return a kernel without a parameter in its key and its label."""
    parameters = {name: value for name, value in kernel.key.parameters.items() if name != parameter}
    key = replace(kernel.key, parameters=parameters)
    return replace(kernel, key=key, label=key.label)


def run_name(name: str, side: str) -> str:
    """What the run of a side is called."""
    return f"{name}-{side.lower()}"
