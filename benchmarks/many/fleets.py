"""Fleets of made-up nodes: how fast each GPU and link is, what strikes them, and the run files of many nights.

log seconds = test + device(σ_g, by kind) + node + link + night and GPU (σ_s) + process (σ_p) + sample, plus faults.
"""

import datetime
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.facts import DeviceFacts, Environment, HostFacts
from pytest_roofline.core.records import Footer, Header, Measurement, Outcome
from pytest_roofline.core.samples import Ranks, Samples

from .bench_tests import Bench, of_a_node, of_one_gpu

# Standard deviations of log seconds: those that the plugin assumes of an accelerator (`stats/priors.json`).
PROCESS, SESSION, DEVICE = 0.01, 0.005, 0.04
LINK, NODE, SAMPLE = 0.01, 0.01, 0.003
# Of all measurements: processes in which something else happened, this much slower at most; and invalid ones.
ODD, ODD_BY, INVALID = 0.005, 0.3, 0.005
KINDS = ("memory", "host link", "peer link", "arithmetic", "collectives")
FIRST_NIGHT = datetime.datetime(2026, 1, 5, 2, tzinfo=datetime.UTC)
OLD_DRIVER, NEW_DRIVER = "570.86.15", "580.65.06"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a part of a fleet.

    Args:
        name: `slow GPU`, `slow link`, `slow node`, `drift` or `step`.
        kinds: the kinds of tests that it strikes.
        by: how much slower, as a share of the time; of a drift in all, from the first night to the last.
        node: which one; None is all of them.
        gpu: which one of the node; None is all of them.
        pair: the ends of a link.
        from_night: of a step.
    """

    name: str
    kinds: tuple[str, ...]
    by: float
    node: int | None = None
    gpu: int | None = None
    pair: tuple[int, int] | None = None
    from_night: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet of `nodes` × `gpus`, each GPU measured once in each of `nights`."""

    nodes: int
    gpus: int = 4
    nights: int = 25
    seed: int = 1
    faults: tuple[Fault, ...] = ()

    @property
    def files(self) -> int:
        """Run files."""
        return self.nodes * self.gpus * self.nights


def planted(nodes: int, nights: int) -> tuple[Fault, ...]:
    """One fault of every sort, none on the same part as another."""
    return (
        Fault("slow GPU", ("memory", "arithmetic"), 0.40, node=1, gpu=2),
        Fault("slow link", ("peer link",), 0.20, node=nodes // 2, pair=(1, 3)),
        Fault("slow node", ("host link",), 0.40, node=nodes - 1),
        Fault("drift", ("memory",), 0.12, node=2, gpu=1),
        Fault("step", ("arithmetic",), 0.06, from_night=nights * 3 // 5),
    )


def write(plan: Plan, folder: Path) -> None:
    """The run files of a fleet, one a GPU and night."""
    rng = np.random.default_rng(plan.seed)
    own, shared = of_one_gpu(), of_a_node(plan.gpus)
    device = rng.normal(0, DEVICE, (plan.nodes, plan.gpus, len(KINDS)))
    node = rng.normal(0, NODE, (plan.nodes, len(KINDS)))
    link = rng.normal(0, LINK, (plan.nodes, plan.gpus, plan.gpus))
    for place in range(plan.nodes):
        for gpu in range(plan.gpus):
            benches = own + shared if gpu == 0 else own
            for night in range(plan.nights):
                logs = [
                    math.log(bench.seconds)
                    + node[place, KINDS.index(bench.kind)]
                    + (
                        link[place][bench.pair]
                        if bench.pair
                        else device[place, gpu, KINDS.index(bench.kind)]
                    )
                    + sum(
                        _effect(fault, bench, place, gpu, night, plan.nights)
                        for fault in plan.faults
                    )
                    for bench in benches
                ]
                path = folder / f"node{place:03d}-gpu{gpu}-night{night:02d}.jsonl"
                path.write_text(
                    _run(plan, benches, logs, (place, gpu, night), rng), encoding="utf-8"
                )


def _effect(fault: Fault, bench: Bench, place: int, gpu: int, night: int, nights: int) -> float:
    elsewhere = fault.node not in (None, place) or fault.gpu not in (None, gpu)
    pair = fault.pair is not None and (bench.pair is None or set(bench.pair) != set(fault.pair))
    if elsewhere or pair or bench.kind not in fault.kinds or night < fault.from_night:
        return 0.0
    # A pair's GPU stands in its parameters; the device of the run is the first one of the node.
    if fault.gpu is not None and bench.pair is not None:
        return 0.0
    share = night / (nights - 1) if fault.name == "drift" else 1.0
    return math.log1p(fault.by) * share


def _run(
    plan: Plan, benches: list[Bench], logs: list[float], where: tuple[int, int, int], rng
) -> str:
    place, gpu, night = where
    # Nodes are measured one after the other, so that no two runs begin at once.
    started = FIRST_NIGHT + datetime.timedelta(
        days=night, seconds=30 * (place * plan.gpus + gpu) % 14_400
    )
    stamp = started.strftime("%Y-%m-%dT%H:%M:%SZ")
    header = Header(
        f"nightly-{night}",
        stamp,
        ("pytest", "perf_tests"),
        "pytest-roofline",
        _environment(plan, where),
    )
    lines = [encode_line(header)]
    session = rng.normal(0, SESSION)
    for bench, log in zip(benches, logs, strict=True):
        odd = math.log1p(ODD_BY * rng.random()) if rng.random() < ODD else 0.0
        centre = log + session + rng.normal(0, PROCESS) + odd
        seconds = np.exp(centre + rng.normal(0, SAMPLE, 12))
        measurement = Measurement(
            bench.key,
            test_id=f"perf_tests/test_nightly.py::test_{bench.key.label}",
            label=bench.key.label,
            process=f"{plan.seed:08x}{place:04x}{gpu:04x}{night:04x}",
            work=bench.work,
            samples=Samples(tuple(seconds.tolist()), iterations=10, tick_s=1e-9, mode="events"),
            invalid="another process used the device" if rng.random() < INVALID else "",
            ranks=_ranks(plan.gpus, place) if bench.kind == "collectives" else None,
        )
        lines += [
            encode_line(measurement),
            encode_line(Outcome(measurement.test_id, "passed", ("PASSED",))),
        ]
    lines.append(encode_line(Footer(stamp, 0, len(benches))))
    return "".join(lines)


def _ranks(gpus: int, place: int) -> Ranks:
    return Ranks(gpus, "local", "nccl", hosts=(f"node{place:03d}",) * gpus)


def _environment(plan: Plan, where: tuple[int, int, int]) -> Environment:
    place, gpu, night = where
    updated = any(fault.name == "step" and night >= fault.from_night for fault in plan.faults)
    driver = NEW_DRIVER if updated else OLD_DRIVER
    uuid = f"GPU-{place:08x}-{gpu:04x}"
    return Environment(
        DeviceFacts(
            "cuda", "NVIDIA H200", index=gpu, uuid=uuid, driver=driver, memory_bytes=150_000_000_000
        ),
        HostFacts(
            f"node{place:03d}",
            "INTEL(R) XEON(R) PLATINUM 8558",
            96,
            96,
            2**41,
            2**41,
            kernel="6.8.0-60",
        ),
        {"python": "3.12.3", "torch": "2.9.0+cu130"},
    )
