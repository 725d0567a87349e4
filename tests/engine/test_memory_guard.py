"""The limit on a process's memory: what cannot fit fails by itself, and everything is as before when it is over."""

import json
import sys

import pytest

from pytest_roofline.engine import host

from .. import warm

GIB, MIB = 2**30, 2**20
resource = pytest.importorskip("resource", reason="needs Linux or macOS, whose processes have limits")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which limits what malloc maps")

# Every case is a process of its own: a limit that is not lifted would end the tests.
START = """
import json, resource, sys, torch
from pytest_roofline.engine import host

def soft(): return resource.getrlimit(resource.RLIMIT_DATA)[0]
def tell(**facts): print(json.dumps(facts))
def fails(call):
    try:
        call()
    except (RuntimeError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
"""


def told(code, **options):
    """What a fresh process tells in its last line."""
    done = warm.run(["-c", START + code], timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_one_allocation_beyond_what_is_free_raises_and_the_process_lives():
    facts = told(
        """
size = host.free_memory_bytes() + 8 * 2**30
with host.limited():
    error = fails(lambda: torch.empty(size, dtype=torch.uint8))
    after = torch.ones(1000).sum().item()
tell(error=error, size=size, after=after)
"""
    )
    assert f"you tried to allocate {facts['size']} bytes" in facts["error"]
    assert facts["after"] == 1000


def test_pythons_own_buffers_are_limited_too():
    facts = told(
        """
with host.limited():
    error = fails(lambda: bytearray(host.free_memory_bytes() + 2**30))
tell(error=error)
"""
    )
    assert facts["error"].startswith("MemoryError")


@pytest.mark.parametrize("ending", ["pass", "raise ValueError"])
def test_the_limit_is_lifted_however_it_ends(ending):
    facts = told(
        f"""
before = soft()
try:
    with host.limited():
        during = soft()
        {ending}
except ValueError:
    pass
tell(before=before, during=during, after=soft())
"""
    )
    assert facts["after"] == facts["before"] != facts["during"]


@pytest.mark.parametrize("hard", [True, False], ids=["hard", "soft"])
def test_a_lower_limit_that_is_there_stays(hard):
    facts = told(
        f"""
low = host.data_bytes() + 512 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (low, low if {hard} else resource.RLIM_INFINITY))
with host.limited() as limit:
    error = fails(lambda: torch.empty(2**30, dtype=torch.uint8))
tell(low=low, limit=limit, error=error, after=resource.getrlimit(resource.RLIMIT_DATA), free=host.free_memory_bytes())
"""
    )
    assert facts["limit"] <= facts["low"]
    assert facts["after"][0] == facts["low"]
    assert "tried to allocate 1073741824 bytes" in facts["error"]
    assert facts["free"] <= 512 * MIB


def test_a_child_that_is_started_afterwards_inherits_nothing():
    facts = told(
        """
import subprocess
with host.limited():
    pass
child = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
tell(child=int(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout), own=soft())
"""
    )
    assert facts["child"] == facts["own"]


@pytest.fixture
def limits(monkeypatch, machine):
    """A machine of 64 GiB with 32 free, a process of 2 GiB on it, and the limits that it sets."""
    machine.memory(64 * GIB, 32 * GIB)
    machine.write("proc/self/status", f"Name:\tpython\nVmData:\t {2 * GIB // 1024} kB\n")
    state = {"limits": (resource.RLIM_INFINITY, resource.RLIM_INFINITY), "set": []}

    def setrlimit(_, limits):
        state["limits"] = limits
        state["set"].append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: state["limits"])
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    return state


def test_a_twentieth_of_what_is_free_is_left_or_a_quarter_of_a_gibibyte_but_no_more_than_half(limits, machine):
    for free, margin in ((32 * GIB, int(0.05 * 32 * GIB)), (GIB, 256 * MIB), (256 * MIB, 128 * MIB)):
        machine.memory(64 * GIB, free)
        with host.limited() as limit:
            assert limit == 2 * GIB + free - margin
        assert limits["set"][-1] == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    # A hard limit that was lowered meanwhile is no trouble.
    with host.limited() as limit:
        limits["limits"] = (limit, limit)
    assert limits["limits"] == (limit, limit)


def test_what_the_cgroup_allows_counts(limits, machine):
    machine.write("proc/self/cgroup", "0::/box\n")
    machine.write("sys/fs/cgroup/box/memory.max", f"{8 * GIB}")
    machine.write("sys/fs/cgroup/box/memory.current", f"{4 * GIB}")
    with host.limited() as limit:
        assert limit == 2 * GIB + 4 * GIB - 256 * MIB


def test_under_a_limit_what_is_free_is_what_it_still_allows(limits):
    limits["limits"] = (5 * GIB, 9 * GIB)
    assert host.free_memory_bytes() == 3 * GIB


def test_a_process_beyond_its_limit_has_nothing_free(limits):
    limits["limits"] = (GIB, GIB)
    assert host.free_memory_bytes() == 0


def test_a_system_that_does_not_tell_what_a_process_holds_has_no_limit(machine, monkeypatch):
    machine.memory(64 * GIB, 32 * GIB)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("a limit was set"))
    with host.limited() as limit:
        assert limit is None
