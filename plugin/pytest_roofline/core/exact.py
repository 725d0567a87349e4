"""The verdict on a figure that is the same every time: held against its baseline exactly, and repeated by no round.

Compiled kernels have such verdicts, and kinds of result that a conftest.py adds.
"""

from dataclasses import dataclass, field
from typing import Literal

from .keys import Scalar


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure that differs from its baseline; `verdict` is `worse`, `better`, `slack` (worse, allowed) or empty."""

    figure: str
    before: int | None
    after: int | None
    verdict: Literal["worse", "better", "slack", ""] = ""


@dataclass(frozen=True, slots=True)
class ExactVerdict:
    """The verdict on one result of a test, as a run file keeps it.

    Args:
        test_id: the test's node id.
        label: the result as people call it.
        metric: the kind of result: `kernel` of a compiled kernel.
        verdict: `PASSED`, `IMPROVED`, `REGRESSED`, `INVALID` or `NO BASELINE`.
        name: tells several results of one test apart.
        target: of a compiled kernel, what it is compiled for.
        reason: why it could not be judged; empty where it could.
        source: the file of the baseline.
        value: the figure; None where the kind has several, as a kernel has.
        unit: of `value`.
        baseline_value: the figure of the baseline; None where there is none.
        changes: of a kind with several figures those that differ.
        remarks: what may explain a difference.
        benchmark: the benchmark that the test is; empty where other records say it.
        parameters: those of the test.
    """

    test_id: str
    label: str
    metric: str
    verdict: str
    name: str = ""
    target: str = ""
    reason: str = ""
    source: str = ""
    value: float | None = None
    unit: str = ""
    baseline_value: float | None = None
    changes: tuple[FigureChange, ...] = ()
    remarks: tuple[str, ...] = ()
    benchmark: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)

    @property
    def change(self) -> float | None:
        """The difference as a share of the baseline: +0.1 is a tenth more."""
        if self.value is None or not self.baseline_value:
            return None
        return self.value / self.baseline_value - 1
