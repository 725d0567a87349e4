"""A run that holds a record of every kind, and hostile texts."""

import pytest

from pytest_roofline.core.memory import FailedAllocation, LostResults, MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import (
    AttentionTime,
    ClassTime,
    Figure,
    KernelTime,
    PartTime,
    Profile,
)
from pytest_roofline.core.records import Ceiling, CurveSummary, Fit, Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.samples import Block, Calibration, Ranks, Samples
from pytest_roofline.core.verdicts import ExactVerdict, FigureChange, Group, Reference
from pytest_roofline.core.work import Work

HOSTILE = "=x|`y``\\|<script>alert(1)</script>\n::error::[a](http://b) @team #1 ‮\t\"',;é"


class Report:
    """Records of every kind, each of a test of its own."""

    hostile = HOSTILE

    def __init__(self, make):
        self.make = make

    def compared(self, word="REGRESSED", label=None, change=0.2, outcome=None, **changes):
        """A measurement with its verdict and outcome."""
        one = self.make.measurement(
            1.2e-3,
            **(
                {"label": label, "test_id": f"test_a.py::test_{label}"} if label is not None else {}
            ),
            **changes,
        )
        group = Group((1e-3, 1.01e-3), "GPU-1", "2026-01-01T00:00:00Z")
        verdict = self.make.verdict(
            one, word, estimate=change, interval=(change - 0.01, change + 0.01), processes=1,
            reference=Reference((group,), "h200.json"), difference=self.make.difference(change),
            changed=("driver 550.54 → 570.86",),
        )  # fmt: skip
        failed = word == "REGRESSED"
        ended = outcome or self.make.outcome(
            one, "failed" if failed else "passed", verdicts=(word,), by_verdict=failed
        )
        return [one, verdict, ended]

    def everything(self):
        """A record of every kind that a run file may hold, but for its header."""
        make = self.make
        samples = Samples(
            (1e-3, 1.1e-3, 5e-3), 10, 1e-9,
            blocks=(Block(2, clock_hz=1.9e9, power_capped=True), Block(1, "neighbours")), mode="events",
            labels=("noisy",), first_calls_s=(0.5,), warm_calls_s=(2e-3,),
        )  # fmt: skip
        ranked = make.measurement(
            key=make.key("all_reduce", metric="busbw_GBps"), samples=samples, peak_bytes=10, held_bytes=5,
            compile_s=1.5, work=Work(algbw_bytes=2**20, busbw_bytes=2**20),
            ceiling=Ceiling("busbw_GBps", 4.5e11, "datasheet", "x"),
            ranks=Ranks(2, "local", "gloo", ("a", "b"), ((1e-3,) * 3, (9e-4,) * 3), 1, (0.0, 1e-4)),
        )  # fmt: skip
        step = make.measurement(
            key=make.key("step", metric="TFLOPS"),
            work=Work(flops=10**9, tokens=512),
            test_id="test_a.py::test_step",
        )
        kernel = Resources(
            ResourceKey("kernel", {"head": 64}, "sm_90"), "test_k.py::test_kernel", "kernel[64]@sm_90", "p",
            {"registers": 72, "spill_loads": 0, "spill_stores": 0, "shared_bytes": 1024, "matrix_instructions": 4},
            compiler={"triton": "3.9"}, slack={"registers": 2},
        )  # fmt: skip
        change = FigureChange("registers", 64, 72, "worse")
        time_of = KernelTime("gemm", "matrix product", 4e-3, 0.1, 8)
        profile = Profile(
            test_id=step.test_id, process="p", device="cuda:0", calls=2, label="step", measured_s=12e-3, on_device=True,
            span_s=26e-3, busy_s=20e-3, kernels=(time_of,), classes=(ClassTime("idle", 6e-3, 0.2),),
            distinct=1, parts=(PartTime("", 1e-3, 0.0),), missing=("the moon",),
            attention=(AttentionTime("forward", 4e-3, 2e-2, 6e-3, 0.0, 2e-3, 2, 200, 4),),
        )  # fmt: skip
        use = MemoryUse(
            test_id=step.test_id, label="step", process="p", device="cuda:0", name="", peak_bytes=1000, phase="forward",
            categories={"activations": 1000}, before_bytes=10, phase_peaks={"forward": 1000},
        )  # fmt: skip
        curve = CurveSummary(
            "all_reduce",
            "busbw_GBps",
            4,
            1e9,
            {"50%": 1024, "90%": None},
            Fit(1e-5, 2e9, 0.01),
            "PASSED",
        )
        return [
            Calibration("cuda:0", 1e-9, 2e-6, 1e-6, 3e-6, 1.9e9, 1024, "p"),
            *self.compared(),
            ranked, make.outcome(ranked), step, make.outcome(step),
            kernel, Outcome(kernel.test_id, "failed", ("REGRESSED",), by_verdict=True),
            ExactVerdict(
                kernel.test_id, kernel.label, "kernel", "REGRESSED", target="sm_90", changes=(change,), remarks=("x",),
            ),
            OutOfMemory(
                "test_a.py::test_big", "big", {"size": 9}, "big[9]", "cuda:0",
                FailedAllocation("tried to allocate", asked_bytes=2**31, free_bytes=2**30), name="", phase="calls",
                lost=LostResults({"": 1e-3}),
            ), Outcome("test_a.py::test_big", "passed", ("OUT OF MEMORY",)),
            Outcome(f"test_h.py::test_hostile[{HOSTILE}]", "failed", reason=HOSTILE),
            Outcome("test_a.py::test_two", "skipped", reason="needs 2 GPUs"),
            Figure(step.test_id, "step", "p", "loss", 0.5, "x"), profile, use,
            make.footer(exit_status=1, measured=3, compiled=1, not_measured={"needs 2 GPUs": 1}, curves=(curve,)),
        ]  # fmt: skip


@pytest.fixture
def report(make):
    return Report(make)
