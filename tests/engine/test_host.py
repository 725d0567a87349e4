"""The host's facts, read from machines that are folders: a table of files and what is read from them."""

import os
import platform
import sys
from types import SimpleNamespace

import pytest

from pytest_roofline.engine import host

GIB, MIB = 2**30, 2**20
CPU, CACHE, INNER = "sys/devices/system/cpu", "sys/devices/system/cpu/cpu0/cache", "sys/fs/cgroup/outer/inner"
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
V1 = {"proc/self/cgroup": "11:memory:/outer/inner\n4:cpu,cpuacct:/outer/inner\n1:name=systemd:/outer/inner\n"}
ROOT = {"proc/self/cgroup": "0::/\n"}


def level_3_of_two_dies():
    """A threaded copy spreads over both; rotating through one die's share would leave it cached."""
    files = {}
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for level, size, cpus in ((2, "1024K", str(cpu)), (3, "32768K", shared)):
            folder = f"{CPU}/cpu{cpu}/cache/index{level}"
            files |= {f"{folder}/level": str(level), f"{folder}/size": size, f"{folder}/shared_cpu_list": cpus}
    return files


def limits_1(folder, limit):
    return V1 | {f"{MEMORY_1}{folder}/memory.limit_in_bytes": str(limit)}


def limits_2(inner, outer=()):
    """Of the inner and the outer cgroup: what memory.max, memory.current and memory.stat hold."""
    held = {"inner": inner, "outer": outer}
    folders = {"inner": INNER, "outer": INNER.removesuffix("/inner")}
    names = ("memory.max", "memory.current", "memory.stat")
    return V2 | {
        f"{folders[where]}/{name}": str(value)
        for where, values in held.items()
        for name, value in zip(names, values, strict=False)
    }


# By question: what it is, the files, the answer; a machine has 64 GiB, all free.
CASES = {
    host.cpu_model: [
        ("the name that the system prints", {"proc/cpuinfo": CPUINFO}, "AMD EPYC"),
        ("the architecture without one", {}, "aarch64"),
        ("an empty name is not read from the next line", {"proc/cpuinfo": "model name\t:\nstepping\t: 3\n"}, "aarch64"),
    ],
    host.cpu_family: [
        ("tells chips of one name apart", {"proc/cpuinfo": CPUINFO}, "f26m2"),
        ("none", {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\n"}, None),
    ],
    host.clock_mhz: [
        ("of the first core", {"proc/cpuinfo": CPUINFO}, 2700.5),
        ("unknown", {}, None),
        ("no number", {"proc/cpuinfo": "cpu MHz\t\t: unknown\n"}, None),
    ],
    host.last_level_cache_bytes: [
        (
            "the largest",
            {f"{CACHE}/index{at}/size": f"{size}K\n" for at, size in enumerate((48, 1024, 32768))},
            32 * MIB,
        ),
        ("several dies add up", level_3_of_two_dies(), 64 * MIB),
        *(
            (text, {f"{CACHE}/index3/size": text}, size)
            for text, size in (("4096", 4096), ("512K", 512 * 1024), ("32M", 32 * MIB), ("1G", GIB))
        ),
        ("a secret cache is assumed large", {}, 64 * MIB),
        *((text or "empty", {f"{CACHE}/index0/size": text}, 64 * MIB) for text in ("", "much", "0K")),
    ],
    host.memory_bytes: [("the machine's total", {}, 64 * GIB)],
    host.cgroup_memory_bytes: [
        ("version 2", limits_2([4 * GIB]), 4 * GIB),
        ("version 1", limits_1("/outer/inner", 4 * GIB), 4 * GIB),
        ("version 1, its own path out of sight", limits_1("", 4 * GIB), 4 * GIB),
        ("the tightest, inside", limits_2([2 * GIB], [4 * GIB]), 2 * GIB),
        ("the tightest, outside", limits_2([4 * GIB], [2 * GIB]), 2 * GIB),
        ("at the root of a container", ROOT | {"sys/fs/cgroup/memory.max": f"{4 * GIB}\n"}, 4 * GIB),
        ("max", limits_2(["max"]), None),
        ("the huge number of version 1", limits_1("/outer/inner", 9223372036854771712), None),
        ("above the machine's memory", limits_2([128 * GIB]), None),
        ("without cgroups", {}, None),
        ("another controller's", V1 | {f"{CPU_1}/memory.limit_in_bytes": str(4 * GIB)}, None),
        ("a path that leaves the tree", {"proc/self/cgroup": "0::/../../sibling\n"}, None),
    ],
    host.cgroup_cpus: [
        ("version 2", V2 | {f"{INNER}/cpu.max": "150000 100000\n"}, 1.5),
        ("version 1", V1 | PERIOD | {f"{CPU_1}/cpu.cfs_quota_us": "250000\n"}, 2.5),
        ("max", V2 | {f"{INNER}/cpu.max": "max 100000\n"}, None),
        ("minus one", V1 | PERIOD | {f"{CPU_1}/cpu.cfs_quota_us": "-1\n"}, None),
        (
            "the tightest",
            V2 | {"sys/fs/cgroup/outer/cpu.max": "100000 100000\n", f"{INNER}/cpu.max": "400000 100000\n"},
            1.0,
        ),
        ("without cgroups", {}, None),
    ],
    host.free_memory_bytes: [
        ("all that is available", {}, 64 * GIB),
        ("the headroom of the cgroup", limits_2([4 * GIB, 3 * GIB]), GIB),
        ("file cache is given back", limits_2([4 * GIB, 3 * GIB, f"anon 9\ninactive_file {GIB}\n"]), 2 * GIB),
        (
            "file cache of the whole subtree",
            V1
            | {
                f"{MEMORY_1}/outer/memory.limit_in_bytes": str(4 * GIB),
                f"{MEMORY_1}/outer/memory.usage_in_bytes": str(3 * GIB),
                f"{MEMORY_1}/outer/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        ("the tightest headroom", limits_2([4 * GIB, GIB], [8 * GIB, 7 * GIB]), GIB),
        ("never below zero", limits_2([GIB, 2 * GIB]), 0),
    ],
    lambda: host.host_facts().usable_memory_bytes: [
        ("the limit of the cgroup", limits_2([4 * GIB]), 4 * GIB),
        ("all of it", V2, 64 * GIB),
    ],
    lambda: host.host_facts().numa_nodes: [
        ("counted", {f"sys/devices/system/node/node{node}/cpulist": "0\n" for node in range(3)}, 3),
        ("unknown", {}, None),
    ],
    lambda: host.host_facts().governor: [
        ("read", {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n"}, "performance"),
    ],
}


@pytest.fixture(autouse=True)
def on_linux(monkeypatch):
    """These trees are Linux's, whatever runs the tests."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.mark.parametrize(
    ("ask", "files", "answer"),
    [pytest.param(ask, *case[1:], id=case[0]) for ask, cases in CASES.items() for case in cases],
)
def test_a_fact_is_read_from_the_files_of_the_machine(machine, ask, files, answer):
    machine.memory(64 * GIB, 64 * GIB)
    for path, text in files.items():
        machine.write(path, text)
    assert ask() == answer


@pytest.mark.parametrize(
    ("available", "limit", "free"),
    [(20 * GIB, None, 20 * GIB), (None, None, 64 * GIB), (0, None, 0), (2 * GIB, 32 * GIB, 2 * GIB)],
)
def test_free_memory_is_what_machine_and_cgroup_leave(machine, available, limit, free):
    machine.memory(64 * GIB, available)
    for path, text in (limits_2([limit, 0]) if limit else {}).items():
        machine.write(path, text)
    assert host.free_memory_bytes() == free


def test_memory_is_known_without_meminfo(machine):
    assert os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") == host.memory_bytes()


def test_facts_are_read_once(machine):
    before = host.host_facts()
    machine.memory(GIB, GIB)
    assert host.host_facts() is before


def test_usable_cores_are_those_of_the_affinity_or_all(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert host.usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert host.usable_cores() == 6


def test_preemptions_are_the_switches_against_the_process_will(monkeypatch):
    usage = SimpleNamespace(ru_nivcsw=7, ru_nvcsw=1000)
    monkeypatch.setitem(sys.modules, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage={0: usage}.get))
    assert host.preemptions() == 7
    monkeypatch.setitem(sys.modules, "resource", None)
    assert host.preemptions() is None


def test_what_others_had_of_the_cores_leaves_out_this_process(monkeypatch):
    monkeypatch.setattr(host, "_busy_s", lambda: 12.5)
    monkeypatch.setattr(host.time, "process_time", lambda: 2.0)
    assert host.others_core_s() == 10.5
    monkeypatch.setattr(host, "_busy_s", lambda: None)
    assert host.others_core_s() is None


def test_a_mac_is_asked_by_sysctl_if_it_has_one(machine, monkeypatch):
    answers = {
        "machdep.cpu.brand_string": "Apple M4\n",
        "hw.l3cachesize": "",
        "hw.perflevel0.l2cachesize": "16777216\n",
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(host.subprocess, "run", lambda command, **_: SimpleNamespace(stdout=answers[command[-1]]))
    assert (host.cpu_model(), host.last_level_cache_bytes()) == ("Apple M4", 16 * MIB)
    monkeypatch.setattr(host.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError("sysctl")))
    assert host.last_level_cache_bytes() == 64 * MIB
