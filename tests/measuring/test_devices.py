"""Devices: the CPU, opening one by name, and the fake one that the other tests stand on."""

import pytest
import torch

from pytest_roofline.core.errors import BadInput, DeviceError
from pytest_roofline.measuring import host
from pytest_roofline.measuring.devices import check_device_name, cpu, open_device
from pytest_roofline.measuring.devices.cpu import CpuDevice
from pytest_roofline.measuring.devices.fake import FakeDevice

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU, found one")


def test_the_tick_of_the_cpu_is_a_positive_part_of_a_millisecond():
    assert 0 < CpuDevice().tick_s < 1e-3


def test_the_tick_of_the_cpu_is_measured_once():
    assert CpuDevice().tick_s == CpuDevice().tick_s


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


@pytest.mark.parametrize("name", ["cpu", "mps", "cuda", "cuda:0", "cuda:15", "xpu", "xpu:3"])
def test_names_of_devices_are_accepted_as_they_are(name):
    assert name == check_device_name(name)


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "cpu:0", "mps:0", "cuda:", "cuda:-1", "cuda:a", "cuda:0 ", "fake"])
def test_other_names_are_refused_with_those_expected(name):
    with pytest.raises(BadInput, match="expected cpu, cuda, cuda:N, mps, xpu or xpu:N"):
        check_device_name(name)


def test_open_device_refuses_other_names_too():
    with pytest.raises(BadInput, match="--roofline-device is 'gpu'"):
        open_device("gpu")


def test_the_fake_clock_moves_by_the_work_alone():
    device = FakeDevice(tick_s=2.0**-20)
    start = device.stamp()
    device.work(0.5)
    assert device.elapsed_s(start, device.stamp()) == 0.5


def test_the_fake_clock_shows_whole_ticks():
    device = FakeDevice(tick_s=0.25)
    start = device.stamp()
    device.work(0.3)
    assert device.elapsed_s(start, device.stamp()) == 0.25


def test_the_fakes_slowdown_is_scripted_by_the_number_of_the_work():
    device = FakeDevice(slowdown=lambda number: 10.0**number)
    for _ in range(3):
        device.work(1.0)
    assert device.host_s() == 111.0


def test_the_fake_vanishes_after_so_many_stamps():
    device = FakeDevice(vanish_after=2)
    device.stamp(), device.stamp()
    with pytest.raises(RuntimeError, match="fell off the bus"):
        device.stamp()
