"""A card for a quarter of an hour: the most telling questions, in at most two calls of this program.

A card that is lent for 15 minutes spends some of them on starting, so 400 and 290 seconds are left for two commands. A
step is asked once, in the order of how much rests on it, and only where all of its time is left in the call; the next
call of the same command goes on there. With more minutes every limit grows alike.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import attention, probe, processes, stages
from .facts import Facts
from .stages import Command, Machine

MINUTES = 15.0
# Seconds of both calls out of a quarter of an hour; the page is made in the last of them.
CALLS_S, ENDING_S = (400.0, 290.0), 10.0
# They ask for gigabytes of host memory, on which no time rests.
SLOWEST = ("verification", "pinned")
COPIES = (
    "((memcpy_d2d and (4MiB or 512MiB)) or (memcpy_h2d and pinned and 32MiB) or stream)"
    " and not siblings"
)
GEMM, GATED = "gemm and 8192", "memcpy_d2d_triton"
MODEL = "small-step-c512-bf16_autocast-sdpa"
# What a recording, a proposal, an approval, a gate and a drill take at most, in seconds.
GATE_S = (35, 35, 35, 10, 10, 60, 60)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the plan.

    Args:
        stage: of its facts.
        names: of its facts: with one of them it was asked.
        seconds: that it takes at most.
        ask: asks it within so many seconds.
    """

    stage: str
    names: Sequence[str]
    seconds: float
    ask: Callable[[float], object]

    def begun(self, facts: Facts) -> bool:
        """Return whether an earlier call asked it, to its end or not."""
        return not facts.asked(self.stage).isdisjoint(self.names)


def plan(machine: Machine, facts: Facts) -> list[Step]:
    """Return every step, in the order in which they are asked."""
    probes = [name for name in probe.PROBES if name not in SLOWEST]
    cases = list(attention.cases(machine.fake))

    def command(stage: str, seconds: float, entry: Command) -> Step:
        return Step(
            stage,
            [entry.name],
            seconds,
            lambda most_s: stages.call_one(machine, facts, stage, entry, most_s),
        )

    doctor, selftest, _ = stages.trust(machine)
    gate = stages.gate(machine, GATED, rounds=1, drill_time="1m")
    model = "transformer" if machine.fake else MODEL
    return [
        Step(probe.STAGE, probes, 60, lambda s: processes.ask_probes(machine, facts, probes, s)),
        Step(
            attention.STAGE,
            cases,
            110,
            lambda s: processes.ask(machine, facts, attention.STAGE, cases, s),
        ),
        command("copies", 85, stages.suite(machine, "copies", COPIES)),
        command("gemm", 45, stages.suite(machine, "gemm", GEMM)),
        command("trust", 60, selftest),
        command("trust", 20, doctor),
        command("driver", 10, _driver(machine)),
        *(command("gate", seconds, each) for each, seconds in zip(gate, GATE_S, strict=True)),
        command(
            "model", 90, stages.suite(machine, "transformer", model, "--roofline-tier=nightly")
        ),
    ]


def _driver(machine: Machine) -> Command:
    """Everything that the driver tells, kept as it is printed."""
    tool = shutil.which("nvidia-smi")
    lacking = "" if machine.gpu and tool else "a GPU of NVIDIA's, and nvidia-smi in PATH"
    return Command("nvidia-smi", [tool or "", "-q"], lacking=lacking)


def call(machine: Machine, facts: Facts, minutes: float, began_s: float) -> None:
    """Ask the steps that fit into this call, and write down which stages are finished.

    Args:
        machine: to ask on.
        facts: to add to; without any, it is the first call.
        minutes: that the card is there for.
        began_s: when the call began, by `time.monotonic`.
    """
    scale = minutes / MINUTES
    ends_s = began_s + scale * (CALLS_S[bool(facts.all)] - ENDING_S)
    steps = plan(machine, facts)
    spent_s: dict[str, float] = defaultdict(float)
    for step in steps:
        step_began_s = time.monotonic()
        if step.begun(facts):
            continue
        if step_began_s + scale * step.seconds > ends_s:
            break
        print(f"{step.stage}, {step.names[0]}: at most {scale * step.seconds:g} s", flush=True)
        step.ask(scale * step.seconds)
        spent_s[step.stage] += time.monotonic() - step_began_s
    for stage in dict.fromkeys(step.stage for step in steps):
        if facts.outcome(stage) != "finished":
            left = [step for step in steps if step.stage == stage and not step.begun(facts)]
            facts.end(stage, "cut" if left else "finished", spent_s[stage])
