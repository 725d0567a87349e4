"""The order of things for one problem: compile, time once, time the best again in turn. What was done stays done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from roofline_kernels.attention.configurations import Configuration
from tuning.choosing import finalists, times
from tuning.compiling import Candidate, judged
from tuning.log import Log, Step, Tried
from tuning.problems import Problem


class Timer(Protocol):
    """What times a candidate: `timing.Bench.time`, or a test's own."""

    def __call__(
        self, problem: Problem, configuration: Configuration, step: Step, turn: int = 0
    ) -> Tried:
        """Seconds of a launch, or why there are none."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """How a problem is tuned.

    Args:
        judge: says why a candidate is not worth a launch; empty where it is.
        jobs: how many are compiled at once.
        finals: how many of the fastest are timed again, beside the shipped one.
        turns: how often.
    """

    judge: Callable[[Candidate], str]
    jobs: int
    finals: int
    turns: int

    def compile(self, log: Log, tasks: Sequence[Candidate]) -> None:
        """Hear the compiler on every candidate that it was not asked about yet."""
        new = [
            task for task in tasks if log.find(task.problem, task.configuration, "compile") is None
        ]
        for task, trouble in judged(new, self.judge, self.jobs) if new else ():
            log.add(Tried(task.problem, task.configuration, "compile", trouble=trouble))

    def time(self, log: Log, tasks: Sequence[Candidate], time: Timer) -> None:
        """Time what is worth it, all of one problem, the shipped configuration first and in any case."""
        problem, shipped = tasks[0].problem, tasks[0].configuration
        for task in tasks:
            heard = log.find(problem, task.configuration, "compile")
            if task.configuration == shipped or (heard is not None and not heard.trouble):
                _once(log, time, problem, task.configuration, "sweep")
        best = finalists(times(log.tried, problem, "sweep"), shipped, self.finals)
        for turn in range(self.turns):
            for configuration in best:
                _once(log, time, problem, configuration, "final", turn)


def _once(
    log: Log, time: Timer, problem: Problem, configuration: Configuration, step: Step, turn: int = 0
) -> None:
    """Time a candidate that was not timed in this step; what ends the program is written down, and not tried again."""
    if log.find(problem, configuration, step, turn) is not None:
        return
    try:
        log.add(time(problem, configuration, step, turn))
    except Exception as error:
        why = f"ended the sweep with {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        log.add(Tried(problem, configuration, step, turn, trouble=why))
        raise
