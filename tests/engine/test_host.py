"""The host: facts read from machines that are folders, neighbours on its cores, software, and a limit on memory."""

import json
import os
import platform
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine import host
from pytest_roofline.engine.devices import cpu
from pytest_roofline.engine.devices.cpu import CpuDevice, Neighbours, too_busy
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.quiet import CoreWatch, most_cores_taken
from pytest_roofline.engine.sizing.peers import ALONE, UNKNOWN

from .. import warm

GIB, MIB = 2**30, 2**20
CPU, CACHE, INNER = (
    "sys/devices/system/cpu",
    "sys/devices/system/cpu/cpu0/cache",
    "sys/fs/cgroup/outer/inner",
)
# Of version 1, with a tree for each controller.
MEMORY_1, CPU_1 = "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu/outer/inner"
PERIOD = {f"{CPU_1}/cpu.cfs_period_us": "100000\n"}
CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
cpu MHz\t\t: 2700.5
processor\t: 1
cpu MHz\t\t: 1200.0
"""
# A process in a cgroup of version 2, of version 1, and at the root of a container.
V2 = {"proc/self/cgroup": "0::/outer/inner\n"}
V1 = {
    "proc/self/cgroup": "11:memory:/outer/inner\n4:cpu,cpuacct:/outer/inner\n1:name=systemd:/outer/inner\n"
}
ROOT = {"proc/self/cgroup": "0::/\n"}


def level_3_of_two_dies():
    """A threaded copy spreads over both; rotating through one die's share would leave it cached."""
    files = {}
    for core, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for level, size, cores in ((2, "1024K", str(core)), (3, "32768K", shared)):
            folder = f"{CPU}/cpu{core}/cache/index{level}"
            files |= {
                f"{folder}/level": str(level),
                f"{folder}/size": size,
                f"{folder}/shared_cpu_list": cores,
            }
    return files


def limits_1(folder, limit):
    return V1 | {f"{MEMORY_1}{folder}/memory.limit_in_bytes": str(limit)}


def limits_2(inner, outer=()):
    """Of the inner and the outer cgroup: what memory.max, memory.current and memory.stat hold."""
    folders = {INNER: inner, INNER.removesuffix("/inner"): outer}
    names = ("memory.max", "memory.current", "memory.stat")
    return V2 | {
        f"{folder}/{name}": str(value)
        for folder, values in folders.items()
        for name, value in zip(names, values, strict=False)
    }


# By question: the files, and the answer; a machine has 64 GiB, all free.
CASES = {
    host.cpu_model: [
        ({"proc/cpuinfo": CPUINFO}, "AMD EPYC"),
        ({}, "aarch64"),
    ],
    host.cpu_family: [
        ({"proc/cpuinfo": CPUINFO}, "f26m2"),
        ({"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\n"}, None),
    ],
    host.clock_mhz: [
        ({"proc/cpuinfo": CPUINFO}, 2700.5),
        ({}, None),
    ],
    host.last_level_cache_bytes: [
        (
            {f"{CACHE}/index{at}/size": f"{size}K\n" for at, size in enumerate((48, 1024, 32768))},
            32 * MIB,
        ),
        (level_3_of_two_dies(), 64 * MIB),
        *(
            ({f"{CACHE}/index3/size": text}, size)
            for text, size in (("4096", 4096), ("32M", 32 * MIB), ("1G", GIB))
        ),
        # One that is kept secret is assumed large.
        *(({f"{CACHE}/index0/size": text}, 64 * MIB) for text in ("much", "0K")),
        ({}, 64 * MIB),
    ],
    host.memory_bytes: [({}, 64 * GIB)],
    host.cgroup_memory_bytes: [
        (limits_2([4 * GIB]), 4 * GIB),
        (limits_1("/outer/inner", 4 * GIB), 4 * GIB),
        (limits_2([4 * GIB], [2 * GIB]), 2 * GIB),
        (ROOT | {"sys/fs/cgroup/memory.max": f"{4 * GIB}\n"}, 4 * GIB),
        (limits_2(["max"]), None),
        (limits_1("/outer/inner", 9223372036854771712), None),
        # Above the machine's memory, and a path that leaves the tree.
        (limits_2([128 * GIB]), None),
        ({"proc/self/cgroup": "0::/../../sibling\n"}, None),
    ],
    host.cgroup_cpus: [
        (V2 | {f"{INNER}/cpu.max": "150000 100000\n"}, 1.5),
        (V1 | PERIOD | {f"{CPU_1}/cpu.cfs_quota_us": "250000\n"}, 2.5),
        (V2 | {f"{INNER}/cpu.max": "max 100000\n"}, None),
        (V1 | PERIOD | {f"{CPU_1}/cpu.cfs_quota_us": "-1\n"}, None),
        (
            V2
            | {
                "sys/fs/cgroup/outer/cpu.max": "100000 100000\n",
                f"{INNER}/cpu.max": "400000 100000\n",
            },
            1.0,
        ),
        ({}, None),
    ],
    host.free_memory_bytes: [
        ({}, 64 * GIB),
        (limits_2([4 * GIB, 3 * GIB]), GIB),
        # File cache is given back, of version 1 that of the whole subtree.
        (limits_2([4 * GIB, 3 * GIB, f"anon 9\ninactive_file {GIB}\n"]), 2 * GIB),
        (
            limits_1("/outer", 4 * GIB)
            | {
                f"{MEMORY_1}/outer/memory.usage_in_bytes": str(3 * GIB),
                f"{MEMORY_1}/outer/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        (limits_2([4 * GIB, GIB], [8 * GIB, 7 * GIB]), GIB),
        (limits_2([GIB, 2 * GIB]), 0),
    ],
    lambda: host.host_facts().usable_memory_bytes: [(limits_2([4 * GIB]), 4 * GIB), (V2, 64 * GIB)],
    lambda: host.host_facts().numa_nodes: [
        ({f"sys/devices/system/node/node{node}/cpulist": "0\n" for node in range(3)}, 3),
    ],
}


@pytest.fixture
def on_linux(monkeypatch):
    """These trees are Linux's, whatever runs the tests."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def test_a_fact_is_read_from_the_files_of_the_machine(on_linux, monkeypatch, tmp_path, machine):
    for number, (ask, files, answer) in enumerate(
        (ask, *case) for ask, cases in CASES.items() for case in cases
    ):
        machine.root = tmp_path / str(number)
        monkeypatch.setattr(host, "ROOT", machine.root)
        host.host_facts.cache_clear()
        machine.memory(64 * GIB, 64 * GIB)
        for path, text in files.items():
            machine.write(path, text)
        assert ask() == answer, (number, ask, files)


def test_free_memory_is_what_machine_and_cgroup_leave(on_linux, machine):
    for available, free in [(20 * GIB, 20 * GIB), (None, 64 * GIB)]:
        machine.memory(64 * GIB, available)
        assert host.free_memory_bytes() == free
    machine.memory(64 * GIB, 2 * GIB)
    for path, text in limits_2([32 * GIB, 0]).items():
        machine.write(path, text)
    assert host.free_memory_bytes() == 2 * GIB


def test_usable_cores_are_those_of_the_affinity_or_all(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 4, 5}, raising=False)
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    assert (host.usable_cores(), host.affinity(), host.numbers_of("0,3-5")) == (
        4,
        "0,3-5",
        {0, 3, 4, 5},
    )
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert host.usable_cores() == 6


def test_a_mac_is_asked_by_sysctl_if_it_has_one(machine, monkeypatch):
    answers = {
        "machdep.cpu.brand_string": "Apple M4\n",
        "hw.l3cachesize": "",
        "hw.perflevel0.l2cachesize": "16777216\n",
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(
        host.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command[-1]])
    )
    assert (host.cpu_model(), host.last_level_cache_bytes()) == ("Apple M4", 16 * MIB)
    monkeypatch.setattr(
        host.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError("sysctl"))
    )
    assert host.last_level_cache_bytes() == 64 * MIB


# Neighbours on the cores: a machine that is kept busy by others is not a slow machine.

HERE, THERE = 1.0, 2.0


@pytest.fixture
def watched(machine, monkeypatch):
    """Time and processor time as scripted: wall seconds, own seconds, busy seconds of both cores."""
    clock = {"wall": 0.0, "own": 0.0, "children": 0.0}
    monkeypatch.setattr(host, "usable_cpus", lambda: {0, 1})
    monkeypatch.setattr(time, "perf_counter", lambda: clock["wall"])
    monkeypatch.setattr(time, "process_time", lambda: clock["own"])
    monkeypatch.setattr(
        os, "times", lambda: os.times_result((9.0, 9.0, clock["children"], 0.0, 9.0))
    )

    def at(wall, own, busy, children=0.0):
        clock.update(wall=wall, own=own, children=children)
        ticks = round(busy * os.sysconf("SC_CLK_TCK"))
        text = f"cpu  9 9 9 9 9 9 9 9\ncpu0 {ticks} 0 0 9 9 0 0 9\ncpu1 0 0 0 9 9 0 0 9\ncpu2 999 0 0 0 0 0 0 0\n"
        machine.write("proc/stat", text)

    return at


def test_what_others_worked_on_our_cores_is_counted_without_this_process_and_its_compilers(
    watched, machine
):
    for wall, own, busy, children, taken in [
        (1.0, 2.0, 2.0, 0.0, 0.0),
        (2.0, 2.0, 3.5, 0.0, 0.75),
        # g++ under torch.compile made every compiled measurement on a CPU INVALID.
        (2.0, 1.0, 2.5, 1.0, 0.25),
        # Too short for the kernel's hundredths.
        (0.01, 0.01, 0.02, 0.0, None),
    ]:
        watched(0.0, 0.0, 0.0)
        watch = Neighbours()
        watched(wall, own, busy, children)
        assert watch.cores_taken() == (None if taken is None else pytest.approx(taken)), (
            wall,
            own,
            busy,
        )
    watched(0.0, 2.0, 12.5)
    assert cpu.others_core_s() == 10.5
    (machine.root / "proc/stat").unlink()
    assert (Neighbours().cores_taken(), cpu.others_core_s()) == (None, None)


def test_a_quarter_of_a_core_is_the_most_that_others_may_take_of_two(monkeypatch):
    said = "other processes kept {} of 2 cores busy during the measurement; run the test on a quiet machine"
    monkeypatch.setattr(host, "usable_cpus", lambda: {0, 1})
    for taken, why in [
        (None, ""),
        (0.0, ""),
        (0.25, ""),
        (0.4, said.format(0.4)),
        (1.0, said.format(1.0)),
    ]:
        assert too_busy(taken) == why
    # Of many cores a twentieth.
    monkeypatch.setattr(host, "usable_cpus", lambda: set(range(20)))
    assert (too_busy(1.0), too_busy(1.1) != "") == ("", True)


def test_only_what_is_not_of_this_world_is_a_neighbour():
    for rows, expected in [
        # Each sees the other at work, and nobody else.
        ([(0.9, 1.0, HERE), (1.0, 0.9, HERE)], 0.0),
        ([(1.9, 1.0, HERE), (2.0, 0.9, HERE)], 1.0),
        # A rank on another host takes nothing here.
        ([(0.9, 1.0, HERE), (0.0, 0.9, THERE)], 0.9),
        ([(UNKNOWN, 1.0, HERE), (1.5, 0.5, HERE)], 0.5),
        ([(UNKNOWN, 1.0, HERE), (UNKNOWN, 1.0, HERE)], None),
        ([(0.25, 1.0, HERE)], 0.25),
    ]:
        assert most_cores_taken(rows) == (
            expected if expected is None else pytest.approx(expected)
        ), rows


def test_busy_processors_disturb_only_what_is_timed_on_them(monkeypatch):
    monkeypatch.setattr(Neighbours, "cores_taken", lambda self: host.usable_cores() + 1.0)
    for measured in (True, False):
        assert (
            "other processes kept" in CoreWatch(ALONE, on_processors=measured).disturbance()
        ) == measured


# What surrounds a number, and the warning about an accelerator that stands idle.


def test_an_accelerator_that_torch_cannot_use_is_a_warning_that_says_what_to_do(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    present = tmp_path / "nvidiactl"
    present.touch()
    monkeypatch.setattr(host, "ACCELERATOR_NODES", (present, tmp_path / "kfd"))
    warning = host.unused_accelerator(CpuDevice())
    assert warning.startswith(f"this machine has an accelerator ({present}), but torch")
    assert warning.endswith(
        "so the CPU is measured. Install a torch that supports the accelerator, or pass --roofline-device=cpu"
    )
    assert host.unused_accelerator(FakeDevice()) == ""
    present.unlink()
    assert host.unused_accelerator(CpuDevice()) == ""


def test_software_is_what_is_installed_and_how_torch_keeps_memory(monkeypatch):
    for name in host._ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    for name, value in (("cuda", "12.8"), ("hip", None)):
        monkeypatch.setattr(torch.version, name, value, raising=False)

    def version(distribution):
        if distribution == "pytorch-triton-rocm":
            return "3.5"
        raise host.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(host.metadata, "version", version)
    versions = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": "12.8",
    }
    expected = versions | {"allocator": "default", "pytorch-triton-rocm": "3.5"}
    environment = host.gather(FakeDevice(product="NVIDIA A100-SXM4-80GB"))
    assert (environment.software, environment.device.product) == (expected, "NVIDIA A100-SXM4-80GB")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert host.software()["allocator"] == "expandable_segments:True"


# The limit on a process's memory: what cannot fit fails by itself, and everything is as before when it is over.

needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux, which limits what malloc maps"
)
# In a process of its own: a limit that is not lifted would end the tests.
LIMITED = """
import json, resource, subprocess, sys, torch
from pytest_roofline.engine import host

def soft(): return resource.getrlimit(resource.RLIMIT_DATA)[0]
def fails(call):
    try:
        call()
    except (RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""

told, size = {"before": soft()}, host.free_memory_bytes() + 8 * 2**30
with host.limit_memory():
    told["torch"] = fails(lambda: torch.empty(size, dtype=torch.uint8))
    told["python"] = fails(lambda: bytearray(size))
    told["works"] = torch.ones(1000).sum().item()
try:
    with host.limit_memory():
        told["during"] = soft()
        raise ValueError
except ValueError:
    told["after"] = soft()
child = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
told["child"] = int(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
for hard in (False, True):
    low = host.data_bytes() + 512 * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (low, low if hard else resource.RLIM_INFINITY))
    with host.limit_memory() as limit:
        error = fails(lambda: torch.empty(2**30, dtype=torch.uint8))
    told[f"lower {hard}"] = [limit <= low, soft() == low, host.free_memory_bytes() <= 512 * 2**20, error]
print(json.dumps(told | {"size": size}))
"""


@needs_linux
def test_one_allocation_beyond_what_is_free_fails_and_the_process_lives_as_before():
    done = warm.run(["-c", LIMITED], timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert f"you tried to allocate {told['size']} bytes" in told["torch"]
    assert (told["python"].startswith("MemoryError"), told["works"]) == (True, 1000)
    assert told["before"] == told["after"] == told["child"] != told["during"]
    for hard in (False, True):
        # A lower limit that is there stays.
        *facts, error = told[f"lower {hard}"]
        assert (facts, "tried to allocate 1073741824 bytes" in error) == ([True] * 3, True), hard


@needs_linux
def test_a_twentieth_of_what_is_free_is_left_or_a_quarter_of_a_gibibyte_but_no_more_than_half(
    monkeypatch, machine
):
    import resource

    infinite = resource.RLIM_INFINITY
    machine.memory(64 * GIB, 32 * GIB)
    state = {"limits": (infinite, infinite)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: state["limits"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: pytest.fail("a limit was set"))
    # Nobody tells what the process holds.
    with host.limit_memory() as limit:
        assert limit is None
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: state.update(limits=limits))
    machine.write("proc/self/status", f"Name:\tpython\nVmData:\t {2 * GIB // 1024} kB\n")
    for free, margin in (
        (32 * GIB, int(0.05 * 32 * GIB)),
        (GIB, 256 * MIB),
        (256 * MIB, 128 * MIB),
    ):
        machine.memory(64 * GIB, free)
        with host.limit_memory() as limit:
            assert limit == 2 * GIB + free - margin
        assert state["limits"] == (infinite, infinite)
    # A hard limit that was lowered meanwhile is no trouble.
    with host.limit_memory() as limit:
        state["limits"] = (limit, limit)
    assert state["limits"] == (limit, limit)
    # Under a limit, what is free is what it still allows.
    machine.memory(64 * GIB, 32 * GIB)
    for soft, free in ((5 * GIB, 3 * GIB), (GIB, 0)):
        state["limits"] = (soft, 9 * GIB)
        assert host.free_memory_bytes() == free
    state["limits"] = (infinite, infinite)
    for path, text in limits_2([8 * GIB, 4 * GIB]).items():
        machine.write(path, text)
    with host.limit_memory() as limit:
        assert limit == 2 * GIB + 4 * GIB - 256 * MIB
