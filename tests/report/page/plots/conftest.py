"""Runs for plots: measured sweeps with their verdicts, written to a file and read back as a report reads them."""

import itertools
import json
import math

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.memory import FailedAllocation, MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import ClassTime, Profile
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of

MIB = 2**20
H200 = Ceiling("traffic_GBps", 4.8e12, "datasheet", "the datasheet", "high")


def runs_of(rows):
    """The runs that rows are from."""
    return [read_run(path) for path in dict.fromkeys(row.path for row in rows)]


class Bench:
    """Factories of rows, each through a run file."""

    def __init__(self, make, folder):
        self.make, self.folder, self.runs = make, folder, 0

    def judged(self, seconds, known_s=None, key=None, verdict=None, **changes):
        """A measurement and what was said of it against fifteen processes that took about `known_s`."""
        make = self.make
        reference = (
            make.reference(*make.groups(3, process=0.002, centre=math.log(known_s)))
            if known_s
            else None
        )
        samples = Samples((seconds * 0.999, seconds, seconds * 1.001), iterations=10, tick_s=1e-9)
        facts = {"key": key or make.key(), "samples": samples} | changes
        result = make.result(seconds, known=known_s is not None, reference=reference, **facts)
        return [result.measurement, result.time_verdict]

    def rows(self, *records, run_id=None, failed=(), **environment):
        """What a run of these records says; the tests named in `failed` turned red."""
        self.runs += 1
        flat = [
            each
            for record in records
            for each in (record if isinstance(record, list) else [record])
        ]
        measured = {one.test_id: one for one in flat if hasattr(one, "samples")}
        flat += [
            self.make.outcome(measured[test_id], "failed", by_verdict=True) for test_id in failed
        ]
        path = self.folder / f"{run_id or f'run-{self.runs}'}.jsonl"
        return rows_of_run(self.make.run(path, *flat, **environment))

    def sweep(self, sizes, slower=(), known=True, rate=4e12, ceiling=H200, **changes):
        """Copies of some sizes at a rate that a latency of 2 µs eats into; those in `slower` take a fifth longer."""
        records, failed = [], []
        for size in sizes:
            key = changes.get("key", lambda size: self.make.key(size_bytes=size))(size)
            usual = 2e-6 + 2 * size / rate
            seconds = usual * (1.2 if size in slower else 1.0)
            others = {
                name: value for name, value in changes.items() if name not in ("key", "run_id")
            }
            found = self.judged(
                seconds, usual if known else None, key=key, ceiling=ceiling, **others
            )
            records.append(found)
            failed += [found[0].test_id] * (size in slower)
        return self.rows(*records, failed=failed, run_id=changes.get("run_id"))

    def collectives(self, worlds=(2, 4, 8), sizes=(2**14, 2**22, 2**30), slower=()):
        """all_reduce over NVLink: a latency of 20 µs, and 380 GB/s of bus bandwidth."""
        records = []
        for world, size in itertools.product(worlds, sizes):
            busbw = size * 2 * (world - 1) // world
            hardware = self.make.hardware(devices=world, link="nvlink-switch")
            key = self.make.key("all_reduce", metric="busbw_GBps", hardware=hardware, timing="pipelined",
                                parameters={"world_size": world, "size_bytes": size, "dtype": "fp32"})  # fmt: skip
            usual, work = 20e-6 + busbw / 380e9, Work(algbw_bytes=size, busbw_bytes=busbw)
            ceiling = Ceiling(
                "busbw_GBps", 450e9, "datasheet", "the links of one device", "high", limit=800e9
            )
            late = 1.3 if (world, size) in slower else 1.0
            records.append(self.judged(usual * late, usual, key=key, work=work, ceiling=ceiling))
        return self.rows(*records)

    def peers(self, count=8, size=2**29, slow=(), invalid=()):
        """Copies between every two of `count` devices at 390 GB/s; those of the pairs in `slow` at a quarter less."""
        records = []
        for pair in itertools.permutations(range(count), 2):
            hardware = self.make.hardware(devices=2, link="nvlink-switch")
            key = self.make.key("peer_copy_one_way", metric="auto_payload_GBps", hardware=hardware,
                                parameters={"source": pair[0], "target": pair[1], "size_bytes": size})  # fmt: skip
            seconds = size / (390e9 + 1e9 * pair[0]) * (4 / 3 if pair in slow else 1.0)
            ceiling = Ceiling("payload_GBps", 450e9, "datasheet", "NVLink, one way", "high")
            facts = {"work": Work(payload_bytes=size, wire_bytes=size), "ceiling": ceiling}
            facts["invalid"] = "a neighbour" if pair in invalid else ""
            records.append(self.judged(seconds, size / 390e9, key=key, **facts))
        red = [one.test_id for one, judged in records if judged.kind == "REGRESSED"]
        return self.rows(*records, failed=red)

    def attention(
        self,
        sequences=(512, 1024, 2048),
        back_ends=("triton", "sdpa_flash", "eager"),
        lacking=("eager",),
    ):
        """Attention in bfloat16; the back ends of `lacking` run out of memory at the longest sequence."""
        records = []
        for number, (back_end, sequence) in enumerate(itertools.product(back_ends, sequences)):
            parameters = {
                "name": back_end,
                "passes": "forward",
                "causal": True,
                "sequence": sequence,
                "head_dim": 128,
            }
            key = self.make.key(
                "flash_attention", metric="bf16_TFLOPS", cache="warm", parameters=parameters
            )
            if back_end in lacking and sequence == max(sequences):
                records.append(
                    OutOfMemory(f"test_flash.py::{number}", "flash_attention", parameters, key.label, "cuda:0",
                                FailedAllocation("CUDA out of memory", 2**31, free_bytes=2**30), name="")
                )  # fmt: skip
                continue
            rate = (600e12, 550e12, 60e12, 400e12)[back_ends.index(back_end)] * (1 - 100 / sequence)
            ceiling = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the datasheet", "high")
            work = Work(flops=sequence * 10**9)
            records.append(self.judged(sequence * 1e9 / rate, key=key, work=work, ceiling=ceiling))
        return self.rows(*records)

    def step(self, **changes):
        """A step of a model, where its time goes, and what its memory goes into."""
        samples = Samples((0.14, 0.139, 0.141), iterations=1, tick_s=1e-9)
        parameters = {"size": "small", "passes": "step"}
        key = self.make.key(
            "transformer", metric="bf16_TFLOPS", cache="warm", parameters=parameters
        )
        facts = {"key": key, "samples": samples, "work": Work(flops=10**12, tokens=2048)} | changes
        measured = self.make.measurement(**facts)
        shares = {
            "matrix product": 0.55,
            "elementwise": 0.2,
            "attention fused": 0.1,
            "optimizer": 0.1,
            "idle": 0.05,
        }
        profile = Profile(
            measured.test_id, measured.label, "process-1", "cuda:0", 2, span_s=0.28, busy_s=0.266,
            classes=tuple(ClassTime(name, share * 0.28, share, 40) for name, share in shares.items()),
        )  # fmt: skip
        memory = MemoryUse(
            measured.test_id, measured.label, "process-1", "cuda:0", "", 1024 * MIB,
            categories={"parameters": 300 * MIB, "activations": 720 * MIB, "buffers": 4 * MIB},
        )  # fmt: skip
        return self.rows(measured, profile, memory)

    def ways(self, sizes=("small",), names=("eager", "compiled"), **changes):
        """Steps of a model in two ways, the first of which takes longer, the more so the further down its size."""
        records = []
        for at, size in enumerate(sizes):
            for name, seconds in zip(names, (0.14, (0.09, 0.1, 0.08)[at]), strict=True):
                key = self.make.key(
                    "transformer", metric="TFLOPS", parameters={"size": size, "mode": name}
                )
                records.append(self.judged(seconds, key=key, work=Work(flops=10**12), **changes))
        return self.rows(*records)

    def streams(self, rate=4e12):
        """STREAM on one roofline with a kernel that is bound by arithmetic, and a copy that has no FLOPs."""
        records = []
        for name, (moved, flops) in {"scale": (16, 1), "triad": (24, 2), "copy": (16, 0)}.items():
            key = self.make.key("stream", parameters={"operation": name})
            work = Work(read_bytes=moved * 2**27, write_bytes=8 * 2**27, flops=flops * 2**27)
            seconds = work.traffic_bytes / rate
            records.append(self.judged(seconds, key=key, work=work, ceiling=H200))
        key = self.make.key("product", metric="bf16_TFLOPS", parameters={"n": 8192})
        work = Work(read_bytes=2**28, write_bytes=2**27, flops=2 * 8192**3)
        ceiling = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the datasheet", "high")
        records.append(self.judged(work.flops / 700e12, key=key, work=work, ceiling=ceiling))
        return self.rows(*records)


@pytest.fixture
def bench(make, tmp_path):
    return Bench(make, tmp_path)


def checked(plot):
    """A plot, held against what every plot must be: with a sentence, and data that a page can hold."""
    assert plot.says
    assert plot.title
    if isinstance(plot.figure, dict):
        json.dumps(plot.figure, allow_nan=False)
    return plot


def traces(plot):
    """The traces of a plot by name."""
    return {trace["name"]: trace for trace in checked(plot).figure["data"]}


def of_section(rows, section, runs=()):
    """The plots of a section that a report of these rows has."""
    return [plot for plot in plots_of(rows, runs) if plot.section == section]
