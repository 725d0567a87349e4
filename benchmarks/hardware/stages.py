"""Stages 2 to 9: the project's own commands as processes, read by their run files and JSON, never by their text."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.errors import RooflineError

from .facts import Fact, Facts
from .faithful import PLANTED
from .running import Ended, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STANDIN = HERE / "standin"
# Less than this left of a stage, and no further command is begun, in shares of the stage.
LEAST_LEFT = 0.02
# Runs of the same, and those that make a baseline with their processes: fewer would leave a drill undecided for long.
A_A, RECORDED, PROCESSES = 3, 3, 3
DRILL, QUICK_DRILL = "20%", "50%"

# The Triton kernels once forward and backward, for a tool that watches every access.
ATTENTION = """
import torch
from roofline_kernels.attention import flash_attention
q, k, v = (torch.randn(1, 4, 1000, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
flash_attention(q, k, v, causal=True).sum().backward()
torch.cuda.synchronize()
"""
SANITIZER_ERRORS = 99
# Run a command without what an earlier attempt left: that path, then the command.
WITHOUT = ("sh", "-c", 'rm -rf "$0"; exec "$@"')


@dataclass(frozen=True, slots=True)
class Machine:
    """On what the stages run.

    Args:
        device: `fake`, or as `--roofline-device` names it.
        out: the folder of everything that is found.
        planted: what deviates in the fake.
        quick: whether every measurement gets little time, for trying the program out.
    """

    device: str
    out: Path
    planted: dict[str, Any]
    quick: bool = False

    @property
    def fake(self) -> bool:
        """Whether the faithful fake stands in for a card."""
        return self.device == "fake"

    @property
    def gpu(self) -> bool:
        """Whether it is CUDA's or ROCm's."""
        return self.device.startswith("cuda")

    @property
    def environment(self) -> dict[str, str]:
        """Of every process."""
        path = {"PYTHONPATH": str(HERE.parent)} if self.fake else {}
        return {PLANTED: json.dumps(self.planted), "COLUMNS": "200", "NO_COLOR": "1"} | path


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a stage.

    Args:
        name: of its facts.
        command: as it is run.
        share: of the stage's time that it may take at most.
        runs: the folder with the run file that it leaves; None where it leaves none.
        lacking: why this machine cannot run it; empty where it can.
        read: what its output tells beside its exit status.
    """

    name: str
    command: Sequence[str]
    share: float = 1.0
    runs: Path | None = None
    lacking: str = ""
    read: Callable[[Path], dict[str, Any]] = lambda _: {}


def _fresh(path: Path) -> Path:
    """A folder that is not there yet: what an earlier attempt found is kept."""
    return next(one for number in range(1, 1000) if not (one := path / str(number)).exists())


def suite(
    machine: Machine,
    name: str,
    which: str,
    *options: str,
    share: float = 1.0,
    lacking: str = "",
    runs: Path | None = None,
) -> Command:
    """pytest over the shipped suite, or what stands in for it; run files lie in `runs`, or in a folder of their own."""
    runs = runs or _fresh(machine.out / "runs" / name.replace(" ", "-"))
    where = STANDIN if machine.fake else ROOT / "perf_tests"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(where),
        "-k",
        which,
    ]
    command += [*options, f"--roofline-dir={runs}", f"--roofline-save={name.replace(' ', '-')}"]
    command += [] if machine.fake else [f"--roofline-device={machine.device}"]
    command += ["--roofline-budget=0.05"] if machine.quick else []
    return Command(name, command, share, runs / "runs", lacking)


def _roofline(machine: Machine, *arguments: str) -> list[str]:
    if machine.fake and "--measure" in arguments:
        return [sys.executable, "-m", "hardware.faked", *arguments]
    main = "import sys; from pytest_roofline.cli.main import main; sys.argv[0] = 'roofline'; main()"
    return [sys.executable, "-c", main, *arguments]


def trust(machine: Machine) -> list[Command]:
    """Stage 2: `doctor`, and twice with `--measure`."""
    device = [] if machine.fake else ["--device", machine.device]
    asked = _roofline(machine, "doctor", "--measure", "--json", *device)
    return [
        Command("doctor", _roofline(machine, "doctor", "--json"), 0.2, read=_findings),
        *(Command(f"selftest {number}", asked, 0.4, read=_properties) for number in (1, 2)),
    ]


def _findings(said: Path) -> dict[str, Any]:
    told = json.loads(said.read_text(encoding="utf-8"))
    return {"findings": told["findings"]}


def _properties(said: Path) -> dict[str, Any]:
    told = json.loads(said.read_text(encoding="utf-8"))
    return {
        "properties": {one["name"]: one["outcome"] for one in told["properties"]},
        "observed": {one["name"]: one["observed"] for one in told["properties"]},
        "calibration": told["calibration"],
    }


def copies(machine: Machine) -> list[Command]:
    """Stage 3: memory copies and STREAM three times, or twice where it is only tried."""
    return [
        suite(machine, f"{which} {number}", f"{which} and not siblings", share=0.25)
        for number in range(1, (A_A - 1 if machine.quick else A_A) + 1)
        for which in ("memcpy", "stream")
    ]


def gemm(machine: Machine) -> list[Command]:
    """Stage 4."""
    return [suite(machine, "gemm", "gemm")]


def attention(machine: Machine) -> list[Command]:
    """Stage 5: ours beside SDPA's flash and cuDNN, then the leaderboard's step."""
    lacking = (
        ""
        if machine.gpu or machine.fake
        else f"a GPU that the kernels know; this is {machine.device}"
    )
    side_by_side = "(triton or gluon or sdpa_flash or sdpa_cudnn)"
    ours = f"{side_by_side} and not tile and not interpreted and not leaderboard and not resources"
    sweep = f"test_flash_attention and {ours} and (s4096 or s16384) and (d64 or d128)"
    nightly = "--roofline-tier=nightly"
    best = "leaderboard and (triton or sdpa_flash or sdpa_cudnn)"
    return [
        suite(
            machine,
            "attention",
            sweep,
            nightly,
            "--roofline-budget=0.5",
            share=0.75,
            lacking=lacking,
        ),
        suite(machine, "leaderboard", best, nightly, lacking=lacking),
    ]


def model(machine: Machine) -> list[Command]:
    """Stage 6: steps as they are, compiled and as a graph; memory, precision, a profile, one rank over NCCL."""
    torch = "a device of torch's; this is the faithful fake" if machine.fake else ""
    small = "transformer and small-step and bf16_autocast-sdpa-eager"
    quick = "transformer and not ranks and not memory and not warm_up"
    ranks = HERE / "one_rank"
    alone = suite(machine, "one rank", "one_rank", share=0.2, lacking=torch)
    command = [str(ranks) if part == str(ROOT / "perf_tests") else part for part in alone.command]
    return [
        suite(machine, "transformer", quick, share=0.6),
        suite(machine, "memory", "transformer_memory", share=0.3, lacking=torch),
        suite(
            machine, "precision", "precision or accumulation or autocast", share=0.3, lacking=torch
        ),
        suite(machine, "profile", small, "--roofline-profile=torch", share=0.2, lacking=torch),
        Command("one rank", command, 0.2, alone.runs, torch),
    ]


def gate(
    machine: Machine, on_gpu: str = "memcpy_d2d", rounds: int = PROCESSES, drill_time: str = "2m"
) -> list[Command]:
    """Stage 7: a baseline of three runs, an unchanged one against it, and one that is slowed down.

    Args:
        machine: to run it on.
        on_gpu: the tests, where there is a GPU.
        rounds: processes of a recording.
        drill_time: for further rounds against the baseline.
    """
    # The fake knows how long one of its copies takes: the gate is asked, not every size.
    which = (
        "memcpy_d2d and 4MiB" if machine.fake else on_gpu if machine.gpu else "memcpy_h2h and 4MiB"
    )
    proposal, into = machine.out / "proposal.json", machine.out / "baselines"
    recorded = [_recording(machine, number, which, rounds) for number in range(1, RECORDED + 1)]
    saved = [str(one.runs / f"{one.name.replace(' ', '-')}.jsonl") for one in recorded if one.runs]
    # What a round on the fake takes is this machine's, and an undecided drill would disprove the fake.
    most = "1h" if machine.fake else drill_time
    against = suite(
        machine,
        "gate",
        which,
        "--roofline-ci",
        f"--roofline-time={most}",
        f"--roofline-baselines={into}",
    )
    drilled = [
        part
        for part in against.command[3:]
        if not part.startswith(("--roofline-save", "--roofline-ci"))
    ]
    drill = _roofline(machine, "drill", QUICK_DRILL if machine.quick else DRILL, "--json", *drilled)
    return [
        *recorded,
        Command("propose", [*WITHOUT, str(proposal),
                            *_roofline(machine, "baseline", "propose", *saved, "-o", str(proposal))]),
        Command("approve", _roofline(machine, "baseline", "approve", str(proposal), "--into", str(into))),
        against,
        Command("drill", drill, read=_drilled),
    ]  # fmt: skip


def _recording(machine: Machine, number: int, which: str, rounds: int) -> Command:
    """Record once, always into the same folder: whoever proposes later finds it there, whichever call recorded it."""
    runs = machine.out / "runs" / f"baseline-{number}" / "last"
    rounds = 1 if machine.quick else rounds
    recording = suite(
        machine, f"baseline {number}", which, f"--roofline-rounds={rounds}", share=0.2, runs=runs
    )
    return replace(recording, command=[*WITHOUT, str(runs), *recording.command])


def _drilled(said: Path) -> dict[str, Any]:
    told = json.loads(said.read_text(encoding="utf-8"))
    return {name: told[name] for name in ("compared", "red")} | {
        "not_red": [t["not_red"] for t in told["tests"]]
    }


def memcheck(machine: Machine) -> list[Command]:
    """Stage 8: every access of the Triton kernels, where NVIDIA's tool is there."""
    tool = shutil.which("compute-sanitizer")
    lacking = (
        ""
        if machine.gpu and tool
        else "a GPU of NVIDIA's"
        if not machine.gpu
        else "compute-sanitizer in PATH"
    )
    command = [
        tool or "",
        "--tool",
        "memcheck",
        "--error-exitcode",
        str(SANITIZER_ERRORS),
        sys.executable,
        "-c",
    ]
    return [Command("memcheck", [*command, ATTENTION], lacking=lacking)]


def tuning(machine: Machine) -> list[Command]:
    """Stage 9: which configurations of our kernels are the fastest; it goes on where it was cut."""
    lacking = "" if machine.gpu else f"a GPU that the kernels know; this is {machine.device}"
    log, best = machine.out / "tuning.jsonl", machine.out / "tuned.json"
    command = [
        sys.executable,
        str(HERE.parent / "flash_tuning.py"),
        "--device",
        machine.device,
        "--log",
        str(log),
    ]
    command += ["--resume", "--peers", "--json", str(best), "--head-dims", "64", "128"]
    return [Command("tuning", command, lacking=lacking)]


STAGES: dict[str, Callable[[Machine], list[Command]]] = {
    "trust": trust, "copies": copies, "gemm": gemm, "attention": attention, "model": model, "gate": gate,
    "memcheck": memcheck, "tuning": tuning,
}  # fmt: skip


def call(machine: Machine, facts: Facts, stage: str, seconds: float) -> None:
    """Call what a stage has not called yet, until its time is over.

    Args:
        machine: to call it on.
        facts: to add to.
        stage: its name.
        seconds: that it may take.
    """
    began_s = time.monotonic()
    for command in STAGES[stage](machine):
        left_s = seconds - (time.monotonic() - began_s)
        if command.name in facts.asked(stage) - _cut(facts, stage):
            continue
        if not command.lacking and left_s < LEAST_LEFT * seconds:
            facts.end(stage, "cut", time.monotonic() - began_s)
            return
        most_s = min(left_s, command.share * seconds)
        if call_one(machine, facts, stage, command, most_s) is None and most_s == left_s:
            facts.end(stage, "cut", time.monotonic() - began_s)
            return
    facts.end(stage, "finished", time.monotonic() - began_s)


def call_one(
    machine: Machine, facts: Facts, stage: str, command: Command, seconds: float
) -> int | None:
    """Call a command, and write down what it left behind; return its exit status, None where its time was over."""
    if command.lacking:
        facts.add(Fact(stage, command.name, lacking=f"needs {command.lacking}"))
        return 0
    said = machine.out / "said" / f"{stage}-{command.name.replace(' ', '-')}.txt"
    ended = run(command.command, said, seconds, machine.environment, ROOT)
    _tell(facts, stage, command, ended)
    return ended.status


def _cut(facts: Facts, stage: str) -> set[str]:
    """Commands that ended at a deadline: they are called again where their stage is."""
    return {one.what for one in facts.find(stage, "*") if one.values.get("cut")}


def _tell(facts: Facts, stage: str, command: Command, ended: Ended) -> None:
    """What a command left behind, then the command itself."""
    values: dict[str, Any] = {"status": ended.status, "seconds": round(ended.seconds, 1)}
    error = ""
    if ended.status is None:
        values["cut"] = True
        error = f"cut at its deadline, after {ended.seconds:.0f} s"
    try:
        if command.runs is not None:
            values |= _tell_run(facts, stage, command)
        elif ended.status is not None:
            values |= command.read(ended.said)
    except (RooflineError, OSError, ValueError, KeyError) as trouble:
        error = (
            error
            or f"left nothing that could be read ({type(trouble).__name__}: {trouble}); {last_words(ended.said)}"
        )
    facts.add(Fact(stage, command.name, values, error))


def last_words(said: Path) -> str:
    """The last that a command printed, as an error or at all."""
    for path in (said.with_suffix(".err"), said):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f"it ended with: {_short(lines[-1])}"
    return "it printed nothing"


def _short(text: str) -> str:
    """The beginning of a text, without the paths of this machine: facts are committed."""
    return text.replace(f"{ROOT}/", "")[:300]


def _tell_run(facts: Facts, stage: str, command: Command) -> dict[str, Any]:
    assert command.runs is not None
    paths = sorted(command.runs.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise OSError(f"no run file in {command.runs}")
    found = read_run(paths[-1])
    for values in measured(found):
        facts.add(Fact(stage, f"{command.name}: {values['label']}", values))
    counts = {
        outcome: sum(one.outcome == outcome for one in found.outcomes)
        for outcome in ("passed", "failed")
    }
    told = {
        outcome: {
            one.test_id: _short(one.reason)
            for one in found.not_passed.values()
            if one.outcome == outcome
        }
        for outcome in ("failed", "skipped")
    }
    verdicts = [verdict.kind for verdict in found.verdicts]
    return counts | {
        "skipped": len(told["skipped"]), "measured": len({one.label for one in found.tested}),
        "run": found.header.run_id,
        "verdicts": {word: verdicts.count(word) for word in sorted(set(verdicts))}, "failures": told["failed"],
        "reasons": sorted(set(told["skipped"].values())), "profiles": len(found.profiles), "cut_run": found.cut,
    }  # fmt: skip


def measured(found: Run) -> list[dict[str, Any]]:
    """The measurements of a run, as facts."""
    return [
        {
            "label": one.label if one.round == 1 else f"{one.label}, round {one.round}",
            "benchmark": one.key.benchmark, "parameters": one.key.parameters, "metric": one.key.metric,
            "median_s": one.median_s, "rate": one.rate, "flops_per_s": one.flops_per_s, "mode": one.samples.mode,
            "labels": sorted(one.samples.labels), "invalid": one.invalid, "verified": one.verified,
        }
        for one in found.tested
    ]  # fmt: skip
