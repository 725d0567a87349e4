"""Made-up fleets for the tests of `history` and `fleet`, in memory: runs as they are once their files were read."""

import dataclasses
import datetime
import itertools
import math
import sys

import numpy as np
import pytest

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from pytest_roofline.core.keys import Key
from pytest_roofline.core.records import Header, Measurement, Outcome
from pytest_roofline.core.samples import Ranks, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.many.files import parse_run
from pytest_roofline.many.reading import tables_of

ONE = HardwareKey("h200-sxm", "141gb", "none", 1, "none")
GIB = 2**30
DAY = datetime.timedelta(days=1)
FIRST = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

COPY = Key("memcpy_d2d", {"size_bytes": GIB}, "traffic_GBps", ONE, "rotate", "device")
STREAM = Key("stream", {"operation": "triad"}, "traffic_GBps", ONE, "rotate", "device")
UPLOAD = Key("memcpy_h2d", {"size_bytes": GIB}, "payload_GBps", ONE, "rotate", "device")
MATMUL = Key("matmul", {"width": 8192}, "bf16_TFLOPS", ONE, "rotate", "device")
WORK = {
    "memcpy_d2d": Work(read_bytes=GIB, write_bytes=GIB),
    "stream": Work(read_bytes=GIB, write_bytes=GIB),
    "memcpy_h2d": Work(payload_bytes=GIB, wire_bytes=GIB),
    "matmul": Work(flops=10**12),
    "peer": Work(payload_bytes=GIB, wire_bytes=GIB),
    "all_reduce": Work(algbw_bytes=GIB, busbw_bytes=GIB),
}


@pytest.fixture(scope="session")
def made():
    """Everything here, by name."""
    return sys.modules[__name__]


def peer(source, target, size_bytes=GIB):
    """A copy from one GPU of a node to another."""
    facts = {"source": source, "target": target, "size_bytes": size_bytes}
    return Key(
        "peer",
        facts,
        "payload_GBps",
        dataclasses.replace(ONE, devices=2, link="nvlink-switch"),
        "rotate",
        "device",
    )


def all_reduce(gpus=4):
    hardware = dataclasses.replace(ONE, devices=gpus, link="nvlink-switch")
    return Key("all_reduce", {"world_size": gpus}, "busbw_GBps", hardware, "warm", "pipelined")


def measured(key, seconds, hosts=(), **changes):
    ranks = Ranks(len(hosts), "local", "nccl", hosts=tuple(hosts)) if hosts else None
    label = key.label
    samples = Samples((seconds,), iterations=10, tick_s=1e-9)
    facts = {
        "test_id": f"t.py::test_{label}",
        "label": label,
        "process": "p",
        "work": WORK[key.benchmark],
    }
    return Measurement(key, samples=samples, ranks=ranks, **(facts | changes))


class Runs:
    """Runs, taken in one by one."""

    def __init__(self):
        self.files = []

    def add(
        self,
        *measurements,
        day=0.0,
        node="node0",
        uuid="GPU-0",
        index=0,
        driver="570.86",
        kind="cuda",
        started=None,
    ):
        product = "NVIDIA H200" if kind == "cuda" else "AMD EPYC"
        device = DeviceFacts(
            kind, product, index=index, uuid=uuid, driver=driver, memory_bytes=150_000_000_000
        )
        host = HostFacts(node, "Xeon", 96, 96, 2**41, 2**41, kernel="6.8")
        started = (FIRST + day * DAY).strftime("%Y-%m-%dT%H:%M:%SZ") if started is None else started
        number = len(self.files)
        header = Header(
            f"run-{number}", started, ("pytest",), "pytest-roofline", Environment(device, host, {})
        )
        outcomes = tuple(Outcome(one.test_id, "passed") for one in measurements)
        content = "".join(map(encode_line, (header, *measurements, *outcomes)))
        self.files.append(parse_run(content.encode(), f"{number:06}.jsonl"))

    @property
    def many(self):
        return tables_of(self.files)


def night_by_night(seconds, key=COPY, **changes):
    """One device, one run a day, each with one measurement of so many seconds."""
    runs = Runs()
    for day, value in enumerate(seconds):
        runs.add(measured(key, float(value)), day=day, **changes)
    return runs.many


def a_fleet(
    nodes=8,
    gpus=4,
    nights=6,
    keys=(COPY, STREAM, UPLOAD, MATMUL),
    links=False,
    effect=None,
    uuid=True,
):
    """1 % between runs, 3 % between devices; `effect(key, node, gpu, night)` is added in log seconds."""
    rng = np.random.default_rng(1)
    effect = effect or (lambda *where: 0.0)
    device = rng.normal(0, 0.03, (nodes, gpus, len(keys)))

    def taken(key, seconds, node, gpu, night):
        return measured(
            key, seconds * math.exp(rng.normal(0, 0.01) + effect(key, node, gpu, night))
        )

    pairs = [peer(a, b) for a in range(gpus) for b in range(gpus) if a != b] if links else []
    runs = Runs()
    for night, node, gpu in itertools.product(range(nights), range(nodes), range(gpus)):
        own = zip(keys, device[node, gpu], strict=True)
        mine = [taken(key, 1e-3 * math.exp(log), node, gpu, night) for key, log in own]
        mine += [taken(key, 2e-3, node, None, night) for key in pairs if gpu == 0]
        identity = f"GPU-{node}-{gpu}" if uuid else None
        runs.add(
            *mine, day=night + node / 100 + gpu / 1000, node=f"node{node}", index=gpu, uuid=identity
        )
    return runs.many


def a_cpu_fleet(nodes=40, nights=10, effect=None):
    """2 % between runs, 4 % between nodes; `effect(node, night)` is added in log seconds."""
    rng = np.random.default_rng(4)
    own = rng.normal(0, 0.04, nodes)
    runs = Runs()
    for night, node in itertools.product(range(nights), range(nodes)):
        seconds = 1e-3 * math.exp(own[node] + rng.normal(0, 0.02) + effect(node, night))
        runs.add(
            measured(COPY, seconds),
            day=night + node / 1000,
            node=f"node{node}",
            uuid=None,
            kind="cpu",
        )
    return runs.many
