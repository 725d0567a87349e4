"""Whole and valid inputs, one of every kind that a command reads, made by the project's own writers where it has them.

A seed is the text of a file; what it is made of is told beside it, so that a change to it can be known to be wrong.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.baselines.runs import LINE_TYPES, encode_line
from pytest_roofline.core.entries import Baseline, CollectedTest, ExactEntry, Renewal
from pytest_roofline.core.facts import DeviceFacts, Environment, HostFacts
from pytest_roofline.core.memory import (
    AllocatorPoint,
    FailedAllocation,
    LostResults,
    MemoryPoint,
    OutOfMemory,
)
from pytest_roofline.core.profiles import (
    AttentionTime,
    ClassTime,
    KernelTime,
    OperatorTime,
    PartTime,
)
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.samples import Block, Calibration, Ranks, Samples
from pytest_roofline.core.storage import to_plain
from pytest_roofline.core.verdicts import ExactVerdict, OddSession, Spread, TimeLimit
from pytest_roofline.hardware.specs import Architecture, Catalogue, Name, Peak, Product
from pytest_roofline.machine.expectation import Expectation, ExpectedGpus

from ..conftest import MIB, Make
from ..report.page import page_runs

DATA = Path(__file__).parents[1] / "exchange" / "data"
MAKE = Make()
# Of the page's run, what has something of everything; each label once.
KEPT = (
    "[512KiB]",
    "[16MiB]",
    "all_reduce[1MiB-4]",
    "peer_copy[64MiB-0-",
    "flash_attention[sdpa-4096]",
    "transformer",
)
KEPT_KINDS = ("figure", "memory_use", "profile", "resources", "exact", "out_of_memory")


@dataclasses.dataclass(frozen=True, slots=True)
class Seed:
    """A file.

    Args:
        name: of the seed.
        file: the name that the command expects.
        data: its content.
        lines: whether each line is a JSON document of its own.
        record: the dataclass of a document, by what stands in `type`; None where nobody checks it against one.
    """

    name: str
    file: str
    data: bytes
    lines: bool = False
    record: Callable[[Any], type | None] = lambda _: None

    @property
    def is_json(self) -> bool:
        """Whether it is JSON at all."""
        return self.lines or self.file.endswith(".json")


def seeds() -> dict[str, Seed]:
    """All of them, by name."""
    with tempfile.TemporaryDirectory(prefix="roofline-fuzz-") as folder:
        found = [*_runs(Path(folder)), *_own(Path(folder)), *_others()]
    return {seed.name: seed for seed in found}


def _run(name: str, lines: str, file: str = "run.jsonl") -> Seed:
    return Seed(
        name, file, lines.encode(), lines=True, record=lambda raw: LINE_TYPES.get(raw.get("type"))
    )


def _runs(folder: Path) -> list[Seed]:
    """A run with something of everything, one of two tests, one of a canary, and the same two of another driver."""
    page_runs.everything(MAKE, folder / "page.jsonl")
    wanted = [
        line
        for line in (folder / "page.jsonl").read_text(encoding="utf-8").splitlines()
        if _is_wanted(line)
    ]
    found = [
        _run("run", "".join([*map(encode_line, _fullest()), *(f"{line}\n" for line in wanted)]))
    ]
    for index, (driver, slower) in enumerate((("550.54", 1.0), ("570.86", 1.2))):
        one = (
            MAKE.measurement(1e-3 * slower, 1.01e-3 * slower, gate=True, process=f"p{n}")
            for n in range(3)
        )
        two = MAKE.measurement(2e-3, key=MAKE.key("stream", MIB, metric="time_s"), gate=True)
        environment = {"driver": driver, "started": f"2026-01-0{index + 1}T03:04:05Z"}
        path = MAKE.save(folder / f"small-{index}.jsonl", *one, two, MAKE.footer(), **environment)
        found.append(_run(f"small-{index}", path.read_text(encoding="utf-8")))
    return found


def write_fleet(folder: Path) -> None:
    """Write whole runs beside those that are changed.

    `nights` are of the same device, `nodes` of four others, and `later` of these four again.
    """
    for index in range(8):
        slower = 1.3 if index > 4 else 1.0
        two = [
            MAKE.measurement(1e-3 * slower * (1 + index / 1000)),
            MAKE.measurement(2e-3, key=MAKE.key("stream", MIB)),
        ]
        date = {"started": f"2026-01-{index + 3:02d}T03:04:05Z"}
        MAKE.save(folder / "nights" / f"night-{index}.jsonl", *two, MAKE.footer(), **date)
        if index < 4:
            for nodes in ("nodes", "later"):
                MAKE.save(
                    folder / nodes / f"node-{index}.jsonl",
                    *two,
                    MAKE.footer(),
                    run_id=f"{nodes}-{index}",
                    uuid=f"GPU-{index + 2}",
                    host=f"node-{index}",
                    **date,
                )


def _is_wanted(line: str) -> bool:
    raw = json.loads(line)
    test = f"{raw.get('label', '')} {raw.get('test_id', '')}"
    return raw["type"] in ("footer", *KEPT_KINDS) or any(part in test for part in KEPT)


def _fullest() -> list[Any]:
    """Records that hold every field that they can."""
    blocks = (
        Block(2, clock_hz=1.9e9, power_capped=False),
        Block(1, "thermal", 1.2e9, power_capped=True),
    )
    samples = Samples(
        (1e-3, 1.1e-3, 1.2e-3), 10, 1e-9, 5, 0.1, 0.2, 3, ("host_bound",), blocks, "events", 1e-7, 1.3e-3, 8e-4,
        "none", True, (2e-3, 1e-3), (1e-3,),
    )  # fmt: skip
    result = MAKE.result(
        1.3e-3,
        1.31e-3,
        1.32e-3,
        key=MAKE.key("full", MIB),
        test_id="t.py::full",
        label="full[1MiB]",
    )
    ceiling = dataclasses.replace(page_runs.PEAK, confidence="high", limit=5e12)
    facts = {
        "ceiling": ceiling,
        "verified": True,
        "peak_bytes": MIB,
        "held_bytes": 1,
        "compile_s": 1.5,
        "tier": "nightly",
        "marks": {"perf": ({"size": 1, "dtype": "half"},), "roofline": ({}, {"tier": "nightly"})},
    }
    told = result.time_verdict
    attention = AttentionTime("forward", 1e-3, 2e-3, 3e-3, 0.0, 1e-3, 5, 6, 7)
    launched = KernelTime("gemm", "matrix product", 1e-3, 0.2, 8)
    profile = dataclasses.replace(
        page_runs._profile(), label="full[1MiB]", missing=("no FLOPs",), name="full", kernels=(launched,),
        operators=(OperatorTime("aten::mm", 1e-3, 0.2, 2e-3, 8, 1e-3, 1e-3),),
        classes=(ClassTime("matrix product", 1e-2, 0.6, 4, ("gemm",)),),
        test_id="t.py::full", attention=(attention,),
        parts=(PartTime("blocks.*", 1e-3, 2e-3),), host_s=1e-4,
    )  # fmt: skip
    ranks = Ranks(
        2, "local", "nccl", ("a", "b"), ((1e-3, 1e-3), (2e-3, 2e-3)), 1, (0.0, 1e-4), 4, 2, True
    )  # fmt: skip
    kernel = page_runs._kernel("sm_100")
    use = dataclasses.replace(
        page_runs._use(), label="full[1MiB]", before_bytes=5,
        phase_peaks={"forward": 5, "backward": 1024 * MIB}, device_before_bytes=6,
        over_time=(MemoryPoint(0.1, "backward", {"parameters": 5}),), allocator=(AllocatorPoint(0.1, 5, 6),),
    )  # fmt: skip
    return [
        dataclasses.replace(MAKE.header(), environment=_environment()),
        Calibration("cuda:0", 1e-6, 2e-6, 3e-6, 4e-6, 1.9e9, 1024, "p"),
        dataclasses.replace(
            result.measurement, samples=samples, tolerance=0.05, gate=True, **facts
        ),
        dataclasses.replace(
            told,
            subject=dataclasses.replace(
                told.subject,
                name="full",
                left_out=text_reasons("heat"),
                published=(MAKE.published("reference"),),
                idle=((MAKE.published(), "samples are batched"),),
            ),
            reference=dataclasses.replace(
                told.reference, clock_hz=1.9e9, shift=0.01, odd=(OddSession("", "", 5, 9, 0.2),)
            ),
            difference=dataclasses.replace(
                told.difference, device=Spread(0.01, "known", 5.0), unequal=True
            ),
            limit=TimeLimit(2e-3, MAKE.published(source="a guide")),
            p_adjusted=1.0,
            peak=ExactVerdict(
                "",
                "",
                "peak_bytes",
                "PASSED",
                reason="why",
                value=MIB,
                unit="B",
                baseline_value=MIB - 1,
                allowed=4096,
            ),
        ),
        MAKE.outcome(
            result.measurement, "failed", verdicts=("REGRESSED",), reason="slower", by_verdict=True
        ),
        profile,
        use,
        OutOfMemory(
            "t.py::oom",
            "oom",
            {"n": 2**20},
            "oom[n]",
            "cuda:0",
            FailedAllocation("out", 4, 3, 2, 1),
            2,
            False,
            "x",
            "calls",
            LostResults({"x": 1e-3}),
        ),
        MAKE.measurement(
            2e-3, key=MAKE.key("ranks", hardware=MAKE.hardware(devices=2)), ranks=ranks
        ),
        dataclasses.replace(
            kernel, options={"warps": 4}, slack={"registers": 2}, shared_limit_bytes=2**17
        ),
    ]


def _environment() -> Environment:
    """Every fact of a machine."""
    device = DeviceFacts(
        "cuda", "NVIDIA H200", 1, "GPU-1", 150 * 10**9, "sm_90", 132, 50 * MIB, "none", "570.86", "96.00", 1980.0,
        3201.0, 700.0, 5, 16,
    )  # fmt: skip
    host = HostFacts(
        "node", "Xeon", 96, 48, 2**40, 2**39, "6.8", 48, 2, 48.0, 2**39, "performance", "0-47"
    )
    return Environment(device, host, {"torch": "2.13.0"})


def _document(name: str, file: str, record: type, text: str | bytes) -> Seed:
    return Seed(
        name, file, text if isinstance(text, bytes) else text.encode(), record=lambda _: record
    )


def _own(folder: Path) -> list[Seed]:
    write_baseline(folder / "baseline.json", _baseline())
    gpus = ExpectedGpus("NVIDIA H200", 8, 150 * 10**9, 5, 16, 700.0, True, 18, "none")
    expectation = Expectation((gpus,), "570.86", "Xeon", 96, 2**40)
    write_fleet(folder)
    return [
        _document("baseline", "h200.json", Baseline, (folder / "baseline.json").read_bytes()),
        _document("hardware", "hardware.json", Catalogue, _plain(_catalogue())),
        _document("expectation", "expected.json", Expectation, _plain(expectation)),
    ]  # fmt: skip


def _plain(record: Any) -> str:
    return json.dumps({"schema": 1} | to_plain(record), indent=1) + "\n"


def _baseline() -> Baseline:
    old, new = (
        MAKE.session(1e-3, 1.01e-3, run_id=f"run-{n}", device_uuid="GPU-1", clock_hz=1.9e9)
        for n in range(2)
    )
    measured = MAKE.measured(
        tolerance=0.05, sessions=(old, new), anchor=(old,), provenance={"approved": "2026-01-02T03:04:05Z"},
        renewals=(Renewal("2026-01-02T03:04:05Z", 1, 0.01, 0.02, reason="why"),), peak_bytes=MIB,
        test=CollectedTest("t.py::full", "nightly", {"roofline": ({"tier": "nightly"},)}),
    )  # fmt: skip
    floor = MAKE.published(
        "floor",
        unit="share",
        value=0.8,
        figures=2,
        from_amount=MIB,
        convention=None,
        confidence=None,
    )
    kernel = ExactEntry(
        "flash",
        "sm_90",
        {"registers": 198},
        "",
        {"d": 64},
        {"warps": 4},
        {"q": "*fp16"},
        {"triton": "3"},
    )
    entries = (
        measured, MAKE.published(), MAKE.published("reference", value=(90.0, 110.0), statistic="best"), floor,
    )  # fmt: skip
    return Baseline("h200", entries, exact=(kernel,))


def _catalogue() -> Catalogue:
    def peak(value: float) -> Peak:
        return Peak(value, "https://example.org", "high")

    product = Product(
        "own", "own-1", "80gb", "PCIe", "sm_90-own", (Name("NVIDIA Own 1", "nvidia-smi", ("memory",)),),
        {"memory_GBps": peak(5000.0)}, {"memory_GB": peak(80.0), "memory_bus_bits": peak(5120.0)}, "HBM9", "PCIe 9",
    )  # fmt: skip
    return Catalogue(
        1, (product,), (Architecture("sm_90-own", {"fp16": 4096.0}, "https://example.org", "high"),)
    )


def _others() -> list[Seed]:
    """What other tools write, as tests of the importers have it."""
    names = [
        path.name
        for path in sorted(DATA.iterdir())
        if path.suffix != ".md" and ".schema." not in path.name
    ]
    # Of two products, of which one has to be chosen.
    names.remove("gv100-nvbench.json")
    # Of a collective, whose ranks its log does not say.
    names.remove("abci-osu-allreduce.mpi")
    return [Seed(name, name, (DATA / name).read_bytes()) for name in names]
