"""The host's facts, read from machines that are folders."""

import os
import platform
import sys
from types import SimpleNamespace

import pytest

from pytest_roofline.measuring import host

GIB = 2**30
MIB = 2**20
CGROUP = "sys/fs/cgroup"


@pytest.fixture(autouse=True)
def on_linux(monkeypatch):
    """These trees are Linux's, whatever runs the tests."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")


@pytest.fixture
def v2(machine):
    """A machine of 64 GiB, all free, whose process is in the cgroup /outer/inner of version 2."""
    machine.memory(64 * GIB, 64 * GIB)
    machine.write("proc/self/cgroup", "0::/outer/inner\n")
    return machine


@pytest.fixture
def v1(machine):
    """The same with version 1, each controller in a tree of its own."""
    machine.memory(64 * GIB, 64 * GIB)
    machine.write(
        "proc/self/cgroup", "11:memory:/outer/inner\n4:cpu,cpuacct:/outer/inner\n1:name=systemd:/outer/inner\n"
    )
    return machine


CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
cpu MHz\t\t: 2700.5
"""


def test_the_model_is_the_name_that_the_system_prints(machine):
    machine.write("proc/cpuinfo", CPUINFO)
    assert host.cpu_model() == "AMD EPYC"


def test_family_and_model_tell_chips_of_one_name_apart(machine):
    machine.write("proc/cpuinfo", CPUINFO)
    assert host.cpu_family() == "f26m2"


def test_a_processor_without_families_has_none(machine):
    machine.write("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    assert host.cpu_family() is None


def test_a_machine_without_cpuinfo_is_called_by_its_architecture(machine, monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert host.cpu_model() == "aarch64"


def test_an_empty_name_is_not_read_from_the_next_line(machine, monkeypatch):
    monkeypatch.setattr(platform, "processor", lambda: "some processor")
    machine.write("proc/cpuinfo", "model name\t:\nstepping\t: 3\n")
    assert host.cpu_model() == "some processor"


def test_the_clock_is_that_of_the_first_core(machine):
    machine.write("proc/cpuinfo", CPUINFO + "processor\t: 1\ncpu MHz\t\t: 1200.0\n")
    assert host.clock_mhz() == 2700.5


def test_an_unknown_clock_is_none(machine):
    assert host.clock_mhz() is None


def test_a_clock_that_is_no_number_is_none(machine):
    machine.write("proc/cpuinfo", "cpu MHz\t\t: unknown\n")
    assert host.clock_mhz() is None


def test_the_last_level_cache_is_the_largest(machine):
    for index, size in enumerate(("48K", "32K", "1024K", "32768K")):
        machine.write(f"sys/devices/system/cpu/cpu0/cache/index{index}/size", size + "\n")
    assert host.last_level_cache_bytes() == 32 * MIB


def test_the_last_level_caches_of_several_dies_add_up(machine):
    # A threaded copy spreads over both; rotating through one die's share would leave it cached.
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for level, size in ((2, "1024K"), (3, "32768K")):
            folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
            machine.write(f"{folder}/level", f"{level}\n")
            machine.write(f"{folder}/size", f"{size}\n")
            machine.write(f"{folder}/shared_cpu_list", f"{shared if level == 3 else cpu}\n")
    assert host.last_level_cache_bytes() == 64 * MIB


@pytest.mark.parametrize(("text", "size_bytes"), [("4096", 4096), ("512K", 512 * 1024), ("32M", 32 * MIB), ("1G", GIB)])
def test_cache_sizes_come_in_any_unit(machine, text, size_bytes):
    machine.write("sys/devices/system/cpu/cpu0/cache/index3/size", text)
    assert size_bytes == host.last_level_cache_bytes()


@pytest.mark.parametrize("text", [None, "", "much", "0K"])
def test_a_secret_cache_is_assumed_large(machine, text):
    if text is not None:
        machine.write("sys/devices/system/cpu/cpu0/cache/index0/size", text)
    assert host.last_level_cache_bytes() == 64 * MIB


def test_memory_is_the_machines_total(machine):
    machine.memory(64 * GIB, None)
    assert host.memory_bytes() == 64 * GIB


def test_memory_is_known_without_meminfo(machine):
    assert os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") == host.memory_bytes()


def test_a_memory_limit_of_version_2_is_found(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() == 4 * GIB


def test_a_memory_limit_of_version_1_is_found(v1):
    v1.write(f"{CGROUP}/memory/outer/inner/memory.limit_in_bytes", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() == 4 * GIB


@pytest.mark.parametrize(("outer", "inner"), [(2, 4), (4, 2)])
def test_the_tightest_of_nested_memory_limits_wins(v2, outer, inner):
    v2.write(f"{CGROUP}/outer/memory.max", f"{outer * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{inner * GIB}\n")
    assert host.cgroup_memory_bytes() == 2 * GIB


def test_a_limit_at_the_root_of_a_container_is_found(machine):
    machine.memory(64 * GIB, 64 * GIB)
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write(f"{CGROUP}/memory.max", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() == 4 * GIB


def test_a_limit_of_version_1_is_found_where_the_container_does_not_see_its_own_path(v1):
    v1.write(f"{CGROUP}/memory/memory.limit_in_bytes", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() == 4 * GIB


def test_a_memory_limit_of_max_is_none(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", "max\n")
    assert host.cgroup_memory_bytes() is None


def test_the_huge_number_of_version_1_is_no_limit(v1):
    v1.write(f"{CGROUP}/memory/outer/inner/memory.limit_in_bytes", "9223372036854771712\n")
    assert host.cgroup_memory_bytes() is None


def test_a_limit_above_the_machines_memory_is_none(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{128 * GIB}\n")
    assert host.cgroup_memory_bytes() is None


def test_a_machine_without_cgroups_has_no_limits(machine):
    machine.memory(64 * GIB, 64 * GIB)
    assert (host.cgroup_memory_bytes(), host.cgroup_cpus()) == (None, None)


def test_another_controllers_limit_is_not_memorys(v1):
    v1.write(f"{CGROUP}/cpu/outer/inner/memory.limit_in_bytes", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() is None


def test_a_path_that_leaves_the_cgroup_tree_is_no_trap(machine):
    machine.memory(64 * GIB, 64 * GIB)
    machine.write("proc/self/cgroup", "0::/../../sibling\n")
    machine.write(f"{CGROUP}/memory.max", f"{4 * GIB}\n")
    assert host.cgroup_memory_bytes() in (None, 4 * GIB)


def test_a_quota_of_version_2_is_in_cores(v2):
    v2.write(f"{CGROUP}/outer/inner/cpu.max", "150000 100000\n")
    assert host.cgroup_cpus() == 1.5


def test_a_quota_of_version_1_is_in_cores(v1):
    v1.write(f"{CGROUP}/cpu/outer/inner/cpu.cfs_quota_us", "250000\n")
    v1.write(f"{CGROUP}/cpu/outer/inner/cpu.cfs_period_us", "100000\n")
    assert host.cgroup_cpus() == 2.5


def test_a_quota_of_max_is_none(v2):
    v2.write(f"{CGROUP}/outer/inner/cpu.max", "max 100000\n")
    assert host.cgroup_cpus() is None


def test_a_quota_of_minus_one_is_none(v1):
    v1.write(f"{CGROUP}/cpu/outer/inner/cpu.cfs_quota_us", "-1\n")
    v1.write(f"{CGROUP}/cpu/outer/inner/cpu.cfs_period_us", "100000\n")
    assert host.cgroup_cpus() is None


def test_the_tightest_of_nested_quotas_wins(v2):
    v2.write(f"{CGROUP}/outer/cpu.max", "100000 100000\n")
    v2.write(f"{CGROUP}/outer/inner/cpu.max", "400000 100000\n")
    assert host.cgroup_cpus() == 1.0


def test_free_memory_is_what_the_machine_has_available(machine):
    machine.memory(64 * GIB, 20 * GIB)
    assert host.free_memory_bytes() == 20 * GIB


def test_free_memory_is_the_total_where_the_machine_does_not_tell(machine):
    machine.memory(64 * GIB, None)
    assert host.free_memory_bytes() == 64 * GIB


def test_no_available_memory_is_none_free(machine):
    machine.memory(64 * GIB, 0)
    assert host.free_memory_bytes() == 0


def test_free_memory_is_no_more_than_the_cgroups_headroom(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{4 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.current", f"{3 * GIB}\n")
    assert host.free_memory_bytes() == GIB


def test_free_memory_is_no_more_than_the_machines_under_a_wide_limit(v2):
    v2.memory(64 * GIB, 2 * GIB)
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{32 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.current", "0\n")
    assert host.free_memory_bytes() == 2 * GIB


def test_file_cache_counts_as_free_since_it_is_given_back(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{4 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.current", f"{3 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.stat", f"anon {GIB}\nactive_file 7\ninactive_file {GIB}\n")
    assert host.free_memory_bytes() == 2 * GIB


def test_free_memory_of_version_1_counts_the_file_cache_of_the_whole_subtree(v1):
    v1.write(f"{CGROUP}/memory/outer/memory.limit_in_bytes", f"{4 * GIB}\n")
    v1.write(f"{CGROUP}/memory/outer/memory.usage_in_bytes", f"{3 * GIB}\n")
    v1.write(f"{CGROUP}/memory/outer/memory.stat", f"inactive_file 0\ntotal_inactive_file {GIB}\n")
    assert host.free_memory_bytes() == 2 * GIB


def test_the_tightest_headroom_of_nested_cgroups_wins(v2):
    v2.write(f"{CGROUP}/outer/memory.max", f"{8 * GIB}\n")
    v2.write(f"{CGROUP}/outer/memory.current", f"{7 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{4 * GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.current", f"{GIB}\n")
    assert host.free_memory_bytes() == GIB


def test_free_memory_is_never_below_zero(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{GIB}\n")
    v2.write(f"{CGROUP}/outer/inner/memory.current", f"{2 * GIB}\n")
    assert host.free_memory_bytes() == 0


def test_usable_memory_is_the_cgroups_limit(v2):
    v2.write(f"{CGROUP}/outer/inner/memory.max", f"{4 * GIB}\n")
    assert (host.host_facts().memory_bytes, host.host_facts().usable_memory_bytes) == (64 * GIB, 4 * GIB)


def test_usable_memory_is_all_of_it_without_a_limit(v2):
    assert host.host_facts().usable_memory_bytes == 64 * GIB


def test_numa_nodes_are_counted(machine):
    for node in range(3):
        machine.write(f"sys/devices/system/node/node{node}/cpulist", "0\n")
    machine.write("sys/devices/system/node/possible", "0-2\n")
    assert host.host_facts().numa_nodes == 3


def test_unknown_numa_nodes_are_none(machine):
    assert host.host_facts().numa_nodes is None


def test_the_governor_is_read(machine):
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    assert host.host_facts().governor == "performance"


def test_facts_are_read_once(machine):
    before = host.host_facts()
    machine.memory(GIB, GIB)
    assert host.host_facts() is before


def test_usable_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    assert host.usable_cores() == 2


def test_usable_cores_are_all_where_there_is_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert host.usable_cores() == 6


def test_preemptions_are_the_switches_against_the_process_will(monkeypatch):
    usage = SimpleNamespace(ru_nivcsw=7, ru_nvcsw=1000)
    monkeypatch.setitem(sys.modules, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage={0: usage}.get))
    assert host.preemptions() == 7


def test_what_others_had_of_the_cores_leaves_out_this_process(monkeypatch):
    monkeypatch.setattr(host, "_busy_s", lambda: 12.5)
    monkeypatch.setattr(host.time, "process_time", lambda: 2.0)
    assert host.others_core_s() == 10.5
    monkeypatch.setattr(host, "_busy_s", lambda: None)
    assert host.others_core_s() is None


def test_preemptions_are_unknown_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    assert host.preemptions() is None


class Told:
    """What sysctl answers."""

    def __init__(self, stdout):
        self.stdout = stdout


def test_a_mac_is_asked_by_sysctl(machine, monkeypatch):
    answers = {
        "machdep.cpu.brand_string": "Apple M4\n",
        "hw.l3cachesize": "",
        "hw.perflevel0.l2cachesize": "16777216\n",
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(host.subprocess, "run", lambda command, **_: Told(answers[command[-1]]))
    assert (host.cpu_model(), host.last_level_cache_bytes()) == ("Apple M4", 16 * MIB)


def test_a_mac_without_sysctl_is_no_error(machine, monkeypatch):
    def run(*_, **__):
        raise FileNotFoundError("sysctl")

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(host.subprocess, "run", run)
    assert host.last_level_cache_bytes() == 64 * MIB
