"""Devices but CUDA: the CPU, Apple's and Intel's GPUs with stand-ins for torch; opening one; whose memory is whose."""

import json
import os
import threading
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.errors import BadInput, DeviceError
from pytest_roofline.engine import host, quiet
from pytest_roofline.engine.devices import base, check_device_name, cpu, open_device, xpu
from pytest_roofline.engine.devices.base import (
    OWN_CONTEXT_BYTES,
    Counters,
    RealDevice,
    others_bytes,
    started_by,
)
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.devices.mps import MpsDevice
from pytest_roofline.engine.devices.xpu import CYCLES_PER_LINK, XpuDevice
from pytest_roofline.engine.quiet import FORGOTTEN_S, busy_text, siblings_of
from pytest_roofline.plugin import round_child

MIB, GIB = 2**20, 2**30

needs_no_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="needs a machine without a GPU, found one"
)


# The CPU.


def test_the_cpu_times_by_a_clock_of_known_tick_and_has_done_its_work_when_a_call_returns(
    monkeypatch,
):
    device = CpuDevice()
    assert (device.name, device.traits.queues, device.elapsed_s(10**9, 25 * 10**8)) == (
        "cpu",
        False,
        1.5,
    )
    assert device.elapsed_s(device.stamp(), device.stamp()) >= 0
    readings = iter(range(10_000_000))
    monkeypatch.setattr(cpu.time, "perf_counter_ns", lambda: next(readings) // 3 * 100)
    assert cpu._tick_s.__wrapped__() == pytest.approx(100e-9)


def test_facts_of_the_cpu_are_the_hosts(machine, monkeypatch):
    monkeypatch.setattr(host, "usable_cpus", lambda: {0, 1, 2})
    machine.memory(64 * GIB, 20 * GIB)
    machine.write("proc/cpuinfo", "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n")
    facts = CpuDevice().facts()
    assert (facts.type, facts.product, facts.architecture, facts.units) == (
        "cpu",
        "AMD EPYC",
        "f26m2",
        3,
    )
    assert (facts.memory_bytes, CpuDevice().free_bytes()) == (64 * GIB, 20 * GIB)


def mebibytes(count):
    """A tensor of so many MiB."""
    return torch.empty(count * MIB, dtype=torch.uint8)


def one_within_another():
    """A temporary that comes and goes beside one that stays."""
    _first = mebibytes(2)
    mebibytes(3)
    mebibytes(1)


def test_the_peak_of_the_cpu_is_the_most_that_one_call_held_at_once():
    kept, before, calls, left = [], mebibytes(8), [], torch.ones(512, 512)
    for name, call, peak in [
        ("nothing", lambda: calls.append(1), 0),
        ("one", lambda: mebibytes(1), MIB),
        ("one after the other", lambda: (mebibytes(1) is None, mebibytes(2) is None), 2 * MIB),
        ("within another", one_within_another, 5 * MIB),
        ("left behind", lambda: kept.append(mebibytes(1)), MIB),
        ("within an operation", lambda: left + left + left, 2 * left.nbytes),
        ("there before", before.zero_, 0),
    ]:
        assert CpuDevice().peak_bytes(call) == peak, name
    assert calls == [1]
    with pytest.raises(ZeroDivisionError):
        CpuDevice().peak_bytes(lambda: 1 / 0)
    assert CpuDevice().peak_bytes(one_within_another) == 5 * MIB
    assert CpuDevice().held_bytes(lambda: (mebibytes(2), one_within_another())) == 2 * MIB


def test_a_flush_writes_then_reads_a_buffer_of_its_own_on_its_device(monkeypatch):
    made, done = [], []

    def empty(size, *, dtype, device):
        made.append((size * dtype.itemsize, device))
        return SimpleNamespace(zero_=lambda: done.append("write"), sum=lambda: done.append("read"))

    monkeypatch.setattr(torch, "empty", empty)
    device = RealDevice()
    device.name = "xpu:3"
    flush = device.flusher(8192)
    flush(), flush()
    assert (made, done) == ([(8192, "xpu:3")], ["write", "read"] * 2)


# Apple's GPU, and Intel's.


class Event:
    """An event of torch's, in whose log waiting and reading stand."""

    log: list
    happened = False

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.waited = False

    def record(self):
        self.log.append("record")

    def query(self):
        return self.happened

    def synchronize(self):
        self.waited = True
        self.log.append("wait for the event")

    def elapsed_time(self, end):
        self.log.append("read")
        return 1500.0


@pytest.fixture
def log(monkeypatch):
    """What is asked of torch, in order."""
    monkeypatch.setattr(Event, "log", [], raising=False)
    for library in (torch.mps, torch.xpu):
        monkeypatch.setattr(library, "Event", Event)
        monkeypatch.setattr(
            library, "synchronize", lambda *index: Event.log.append("wait for the device")
        )
        monkeypatch.setattr(library, "empty_cache", lambda: Event.log.append("release"))
    return Event.log


def test_apples_gpu_is_waited_for_and_its_events_are_never_read(log):
    # Waiting for an event first makes reading hang (pytorch 162872).
    device = MpsDevice()
    assert 0 <= device.elapsed_s(device.stamp(), device.stamp()) < 10
    device.synchronize(), device.release()
    assert log == ["wait for the device"] * 3 + ["release"]


def test_apples_gpu_can_what_it_can_and_its_state_is_unknown(machine, monkeypatch):
    device = MpsDevice()
    traits = device.traits
    assert (traits.queues, traits.spins, traits.graphs, traits.shortest_span_s) == (
        True,
        False,
        False,
        5e-3,
    )
    assert not traits.stamps
    assert (device.counters(), device.peak_bytes(lambda: 1 / 0)) == (Counters(), None)
    for recommended, allocated, free in [(10, 4, 6), (4, 10, 0)]:
        monkeypatch.setattr(
            torch.mps, "recommended_max_memory", lambda value=recommended: value * GIB
        )
        monkeypatch.setattr(
            torch.mps, "driver_allocated_memory", lambda value=allocated: value * GIB
        )
        assert device.free_bytes() == free * GIB
    machine.memory(16 * GIB, 8 * GIB)
    machine.write("proc/cpuinfo", "model name\t: Apple M4\n")
    facts = MpsDevice().facts()
    assert (facts.type, facts.product, facts.memory_bytes) == ("mps", "Apple M4", 16 * GIB)


@pytest.fixture
def intel(log, monkeypatch):
    """What torch says of a GPU: a Max 1550, to be changed."""
    properties = SimpleNamespace(
        name="Intel(R) Data Center GPU Max 1550", total_memory=64 * GIB, gpu_eu_count=512,
        last_level_cache_size=204 * MIB, driver_version="1.3.29735",
    )  # fmt: skip
    monkeypatch.setattr(torch.xpu, "set_device", lambda index: None)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: properties)
    return properties


def test_a_spin_of_intels_is_a_chain_of_products_that_allocates_once_and_never_writes_what_it_reads(
    intel, monkeypatch
):
    products, full = [], torch.full
    monkeypatch.setattr(xpu, "SPIN_SIZE", 4)
    monkeypatch.setattr(torch, "full", lambda *size, device: full(*size))
    monkeypatch.setattr(torch, "mm", lambda *factors, out: products.append((factors, out)))
    device = XpuDevice(0)
    for cycles, links in [
        (0, 1),
        (CYCLES_PER_LINK - 1, 1),
        (CYCLES_PER_LINK, 1),
        (30 * CYCLES_PER_LINK, 30),
    ]:
        products.clear()
        device.spin(cycles)
        assert len(products) == links, cycles
    assert len({tensor.data_ptr() for factors, out in products for tensor in (*factors, out)}) == 2
    assert all(out is not factor for factors, out in products for factor in factors)


def test_intels_events_are_in_seconds_and_one_that_torch_cannot_time_says_what_is_needed(
    intel, log, monkeypatch
):
    device = XpuDevice(1)
    stamp = device.stamp()
    assert (device.reached(stamp), log) == (False, ["record"])
    assert device.elapsed_s(stamp, device.stamp()) == 1.5
    device.synchronize(), device.release()
    assert log == [
        "record",
        "record",
        "wait for the event",
        "read",
        "wait for the device",
        "release",
    ]
    monkeypatch.setattr(Event, "happened", True)
    assert device.reached(stamp)

    def elapsed_time(self, end):
        raise NotImplementedError("elapsed_time is not supported by XPUEvent")

    monkeypatch.setattr(Event, "elapsed_time", elapsed_time)
    with pytest.raises(
        DeviceError, match=r"^xpu:1 cannot time its events.*built with oneAPI 2025 or newer"
    ):
        device.elapsed_s(device.stamp(), device.stamp())


def test_intels_facts_are_torchs_and_an_unknown_cache_is_assumed_large(intel, monkeypatch):
    monkeypatch.setattr(torch.xpu, "memory_allocated", lambda index: 24 * GIB)
    device = XpuDevice(1)
    traits, facts = device.traits, device.facts()
    assert (traits.queues, traits.spins, traits.spin_is_clock, traits.graphs) == (
        True,
        True,
        False,
        False,
    )
    assert (facts.type, facts.index, facts.memory_bytes, facts.units) == ("xpu", 1, 64 * GIB, 512)
    assert (facts.last_level_cache_bytes, facts.driver) == (204 * MIB, "1.3.29735")
    assert (device.free_bytes(), device.counters()) == (40 * GIB, Counters())
    # An older torch.
    del intel.gpu_eu_count, intel.driver_version, intel.last_level_cache_size
    facts = device.facts()
    assert (facts.last_level_cache_bytes, facts.units, facts.driver) == (64 * MIB, None, None)


# Opening one.


def test_a_name_opens_its_device_and_without_one_the_best_there_is(intel, monkeypatch):
    chosen = []
    # A build with CUDA would ask a driver which GPU it has.
    monkeypatch.setattr(torch.cuda, "get_arch_list", list)
    for library, best in [(torch.cuda, "cuda:0"), (torch.xpu, "xpu:0")]:
        monkeypatch.setattr(library, "is_available", lambda: True)
        monkeypatch.setattr(library, "device_count", lambda: 2)
        monkeypatch.setattr(library, "set_device", chosen.append)
        assert open_device(None).name == best
        monkeypatch.setattr(library, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (open_device(None).name, open_device("mps").name, open_device("cpu").name) == (
        "mps",
        "mps",
        "cpu",
    )
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert open_device(None).name == "cpu"
    for library in (torch.cuda, torch.xpu):
        monkeypatch.setattr(library, "is_available", lambda: True)
    assert ([open_device(name).name for name in ("cuda", "xpu:1")], chosen) == (
        ["cuda:0", "xpu:1"],
        [0, 0, 0, 1],
    )


@needs_no_gpu
def test_a_device_that_is_not_there_is_named_with_what_was_found(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    for built, name, said in [
        (True, "cuda:7", "--roofline-device asks for cuda:7, found no CUDA or ROCm device$"),
        (False, "cuda", "this torch supports the CPU only$"),
        (True, "mps", "--roofline-device asks for mps, found none$"),
        (False, "mps", "found none; this torch is built without mps$"),
        (True, "xpu:1", "--roofline-device asks for xpu:1, found 0 xpu devices"),
    ]:
        monkeypatch.setattr(torch.version, "cuda", "12.8" if built else None)
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda built=built: built)
        with pytest.raises(DeviceError, match=said):
            open_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DeviceError, match="found 1 device, cuda:0 to cuda:0"):
        open_device("cuda:7")


def test_names_of_devices_are_accepted_as_they_are_and_others_refused_with_those_expected():
    for name in ["cpu", "mps", "cuda", "cuda:0", "cuda:15", "xpu", "xpu:3"]:
        assert check_device_name(name) == name
    for name in ["gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:0 ", "fake"]:
        with pytest.raises(BadInput, match="expected cpu, cuda, cuda:N, mps, xpu or xpu:N"):
            open_device(name)


# Siblings at work: what this process just did is no neighbour.


class Card(FakeDevice):
    """One of several, whose others answer what is scripted, once each time they are asked."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def siblings(self):
        return ("cuda:0", "cuda:1")

    def current(self):
        raise NotImplementedError

    def busy_siblings(self):
        return self.answers.pop(0)


def test_siblings_that_are_busy_twice_are_told_with_their_share(monkeypatch):
    for answers, said, waited in [
        ([{"GPU 1 (b)": 0.0, "GPU 2 (c)": 0.05}], "", []),
        (
            [{"GPU 1 (b)": 1.0}, {"GPU 1 (b)": 0.87, "GPU 2 (c)": 0.0}],
            "GPU 1 (b) was 87 % busy",
            [FORGOTTEN_S],
        ),
        # It was this process that kept it busy, a moment ago.
        ([{"GPU 1 (b)": 1.0}, {"GPU 1 (b)": 0.0}], "", [FORGOTTEN_S]),
    ]:
        waits = []
        monkeypatch.setattr(quiet.time, "sleep", waits.append)
        assert (busy_text(Card(*answers)), waits) == (said, waited)
    assert (siblings_of(FakeDevice()), busy_text(FakeDevice())) == ((), "")


# Whose memory is whose: no process that works for the same run is a neighbour.

CONTEXT = 600_000_000
ME, PARENT, BROTHER, CHILD, STRANGER = os.getpid(), 7_000_001, 7_000_002, 7_000_003, 7_000_004


@pytest.fixture
def family(monkeypatch):
    """This process has a child; the rest of the family counts once it was told who started it."""
    monkeypatch.setattr(base, "_parent", {ME: PARENT, BROTHER: PARENT, CHILD: ME, STRANGER: 1}.get)
    monkeypatch.setattr(base, "_starters", set())


def test_the_memory_of_the_family_is_that_of_no_neighbour_once_it_is_known(family):
    # Whoever started this process may be a shell, which may have started a neighbour too.
    holders = {ME: CONTEXT, PARENT: CONTEXT, BROTHER: GIB, CHILD: GIB, STRANGER: 2 * GIB}
    assert others_bytes(2 * CONTEXT + 4 * GIB, 0, holders) == CONTEXT + 3 * GIB
    started_by(PARENT)
    assert others_bytes(2 * CONTEXT + 4 * GIB, 0, holders) == 2 * GIB
    # Where the list is blind, a round is alone beside its parent, and sees a neighbour.
    assert others_bytes(2 * CONTEXT + 3 * GIB, 3 * GIB, {}, before_bytes=CONTEXT) == 0
    assert others_bytes(2 * CONTEXT + 5 * GIB, 3 * GIB, {}, before_bytes=CONTEXT + 2 * GIB) > GIB


def test_neither_buffers_of_nccl_nor_what_has_gone_are_a_neighbour(family, monkeypatch):
    assert others_bytes(5 * GIB, GIB, {}) == 4 * GIB - OWN_CONTEXT_BYTES
    assert others_bytes(CONTEXT + GIB, GIB, {}, before_bytes=20 * GIB) == 0
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    used = CONTEXT + 9 * GIB
    assert (others_bytes(used, 3 * GIB, {}, before_bytes=0), others_bytes(used, 3 * GIB, {})) == (
        0,
        None,
    )


def test_a_round_works_for_the_run_that_started_it(family, monkeypatch, tmp_path):
    monkeypatch.setattr(threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(round_child.os, "getppid", lambda: PARENT)
    asked = {
        "round": 2,
        "ids": [],
        "folder": "",
        "parent": PARENT,
        "deadline": None,
        "status": "",
        "own_process": True,
    }
    (tmp_path / "round.json").write_text(json.dumps(asked), encoding="utf-8")
    monkeypatch.setenv(round_child.VARIABLE, str(tmp_path / "round.json"))
    plugins = SimpleNamespace(hasplugin=lambda name: False, register=lambda *_: None)
    round_child.begin(
        SimpleNamespace(
            stash=pytest.Stash(),
            option=SimpleNamespace(),
            pluginmanager=plugins,
            rootpath=tmp_path,
            args=[],
        )
    )
    assert base._starters == {PARENT}


@pytest.mark.feature("ranks")
def test_a_rank_works_for_whoever_started_it(family, monkeypatch):
    from pytest_roofline.ranks import worker

    def nobody(*_):
        raise ConnectionError("nobody there")

    for name, answer in {"pop_controller": lambda: None, "connect": nobody}.items():
        monkeypatch.setattr(worker, name, answer)
    # A guard would watch this very process.
    for name in ("die_with_parent", "guard_group"):
        monkeypatch.setattr(worker, name, lambda: None)
    monkeypatch.setattr(worker.faulthandler, "enable", lambda: None)
    assert (worker.main(), base._starters) == (1, {os.getppid()})
