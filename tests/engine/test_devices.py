"""Devices: the CPU, what all real ones share, and opening one by name."""

import pytest
import torch

from pytest_roofline.core.errors import BadInput, DeviceError
from pytest_roofline.engine import host
from pytest_roofline.engine.devices import check_device_name, cpu, open_device
from pytest_roofline.engine.devices.base import Counters, RealDevice
from pytest_roofline.engine.devices.cpu import CpuDevice

MIB = 2**20

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU, found one")


def test_the_tick_of_the_cpu_is_a_positive_part_of_a_millisecond():
    assert 0 < CpuDevice().traits.tick_s < 1e-3


def test_the_tick_of_the_cpu_is_measured_once():
    assert CpuDevice().traits.tick_s == CpuDevice().traits.tick_s


def test_a_coarse_clock_has_a_coarse_tick(monkeypatch):
    readings = iter(range(10_000_000))
    monkeypatch.setattr(cpu.time, "perf_counter_ns", lambda: next(readings) // 3 * 100)
    assert pytest.approx(cpu._tick_s.__wrapped__()) == 100e-9


def test_elapsed_on_the_cpu_is_the_difference_of_stamps_in_seconds():
    assert CpuDevice().elapsed_s(1_000_000_000, 2_500_000_000) == 1.5


def test_stamps_of_the_cpu_never_go_back():
    device = CpuDevice()
    first, second = device.stamp(), device.stamp()
    assert device.elapsed_s(first, second) >= 0


def test_the_cpu_calls_itself_cpu():
    assert CpuDevice().name == "cpu"


def test_free_memory_of_the_cpu_is_the_hosts(machine):
    machine.memory(64 * 2**30, 20 * 2**30)
    assert CpuDevice().free_bytes() == 20 * 2**30


def test_facts_of_the_cpu_carry_its_family(machine):
    machine.write("proc/cpuinfo", "cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n")
    facts = CpuDevice().facts()
    assert (facts.type, facts.product, facts.architecture) == ("cpu", "AMD EPYC", "f26m2")


def test_facts_of_the_cpu_count_the_cores_that_may_be_used(monkeypatch):
    monkeypatch.setattr(host, "usable_cores", lambda: 3)
    host.host_facts.cache_clear()
    units = CpuDevice().facts().units
    host.host_facts.cache_clear()
    assert units == 3


def test_work_on_the_cpu_is_done_when_the_call_returns():
    assert not CpuDevice().traits.queues


def test_the_cpu_tells_how_often_it_was_preempted_and_nothing_else(monkeypatch):
    monkeypatch.setattr(host, "preemptions", lambda: 7)
    monkeypatch.setattr(host, "others_core_s", lambda: 1.5)
    assert CpuDevice().counters() == Counters(preemptions=7, others_core_s=1.5)


def mebibytes(count):
    """A tensor of so many MiB."""
    return torch.empty(count * MIB, dtype=torch.uint8)


def one_after_the_other():
    """Two temporaries, the first gone before the second."""
    mebibytes(1)
    mebibytes(2)


def both_at_once():
    """Two temporaries side by side."""
    _first, _second = mebibytes(1), mebibytes(2)


def one_within_another():
    """A temporary that comes and goes beside one that stays."""
    _first = mebibytes(2)
    mebibytes(3)
    mebibytes(1)


def test_the_peak_of_the_cpu_is_the_most_that_was_held_at_once():
    for call, peak in [
        (lambda: None, 0),
        (lambda: mebibytes(1), 1),
        (one_after_the_other, 2),
        (both_at_once, 3),
        (one_within_another, 5),
    ]:
        assert CpuDevice().peak_bytes(call) == peak * MIB, (call, peak)


def test_the_peak_of_the_cpu_counts_what_the_call_leaves_behind():
    kept = []
    assert CpuDevice().peak_bytes(lambda: kept.append(mebibytes(1))) == MIB


def test_the_peak_of_the_cpu_counts_temporaries_within_an_operation():
    left = torch.ones(512, 512)
    assert CpuDevice().peak_bytes(lambda: left + left + left) == 2 * left.nbytes


def test_the_peak_of_the_cpu_does_not_count_what_was_there_before():
    before = mebibytes(8)
    assert CpuDevice().peak_bytes(lambda: before.zero_()) == 0


def test_the_peak_of_the_cpu_calls_once():
    calls = []
    CpuDevice().peak_bytes(lambda: calls.append(1))
    assert calls == [1]


def test_a_peak_after_a_call_that_raised_is_right():
    with pytest.raises(ZeroDivisionError):
        CpuDevice().peak_bytes(lambda: 1 / 0)
    assert CpuDevice().peak_bytes(both_at_once) == 3 * MIB


class Buffer:
    """What a flush allocates: notes what is done to it."""

    def __init__(self):
        self.done = []

    def zero_(self):
        self.done.append("write")

    def sum(self):
        self.done.append("read")


def test_a_flush_writes_then_reads_so_many_bytes(monkeypatch):
    buffer, asked = Buffer(), []
    monkeypatch.setattr(torch, "empty", lambda size, **how: asked.append(size * how["dtype"].itemsize) or buffer)
    CpuDevice().flusher(8192)()
    assert (asked, buffer.done) == ([8192], ["write", "read"])


def test_a_flush_allocates_once_for_all_calls(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "empty", lambda *_, **__: made.append(1) or Buffer())
    flush = CpuDevice().flusher(8192)
    flush(), flush()
    assert made == [1]


def test_a_flush_lies_on_its_device(monkeypatch):
    where = []
    monkeypatch.setattr(torch, "empty", lambda *_, device, **__: where.append(device) or Buffer())
    device = RealDevice()
    device.name = "xpu:3"
    device.flusher(4096)
    assert where == ["xpu:3"]


def test_the_smallest_flush_is_no_error():
    for size_bytes in [0, 1, 3]:
        assert CpuDevice().flusher(size_bytes)() is None, size_bytes


def test_a_device_that_tells_nothing_is_unknown_throughout():
    assert RealDevice().counters() == Counters(active=None, others_bytes=None, others_busy=None, preemptions=None)


def test_a_device_that_does_not_tell_its_peak_calls_nothing():
    assert RealDevice().peak_bytes(lambda: 1 / 0) is None


def test_cpu_opens_the_cpu():
    assert isinstance(open_device("cpu"), CpuDevice)


@needs_no_gpu
def test_without_a_name_and_an_accelerator_the_cpu_is_the_best_there_is(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert open_device(None).name == "cpu"


@needs_no_gpu
def test_a_gpu_that_is_not_there_is_named_with_what_was_found():
    with pytest.raises(DeviceError, match="--roofline-device asks for cuda:7, found no CUDA or ROCm device"):
        open_device("cuda:7")


@pytest.mark.parametrize(
    ("count", "found"), [(1, "found 1 device, cuda:0 to cuda:0"), (4, "found 4 devices, cuda:0 to cuda:3")]
)
def test_an_index_beyond_the_last_gpu_is_named_with_those_found(monkeypatch, count, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(DeviceError, match=found):
        open_device("cuda:7")


def test_a_torch_without_gpus_is_said_to_be_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    with pytest.raises(DeviceError, match="this torch is built for the CPU only"):
        open_device("cuda")


def test_cuda_without_an_index_is_the_first_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert open_device("cuda").name == "cuda:0"
    assert chosen == [0]


@needs_no_gpu
def test_mps_and_xpu_that_are_not_there_are_named(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("mps", "xpu:1"):
        with pytest.raises(DeviceError, match=f"--roofline-device asks for {name}, found"):
            open_device(name)


def test_names_of_devices_are_accepted_as_they_are():
    for name in ["cpu", "mps", "cuda", "cuda:0", "cuda:15", "xpu", "xpu:3"]:
        assert name == check_device_name(name), name


def test_other_names_are_refused_with_those_expected():
    for name in ["", "gpu", "CPU", "cpu:0", "mps:0", "cuda:", "cuda:-1", "cuda:a", "cuda:0 ", "fake"]:
        with pytest.raises(BadInput, match="expected cpu, cuda, cuda:N, mps, xpu or xpu:N"):
            check_device_name(name)


def test_open_device_refuses_other_names_too():
    with pytest.raises(BadInput, match="--roofline-device is 'gpu'"):
        open_device("gpu")
