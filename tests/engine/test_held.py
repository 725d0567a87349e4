"""What a call leaves allocated as long as its result is kept, on every kind of device and in the run file."""

import pytest
import torch

from pytest_roofline.engine.devices import Allocated
from pytest_roofline.engine.devices.base import RealDevice
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.devices.mps import MpsDevice
from pytest_roofline.engine.devices.several import SeveralDevices
from pytest_roofline.engine.devices.xpu import XpuDevice

from .test_measure import MIB, body

HOLDS = "lambda *_: (fake.allocate(3 * 2**20), fake.allocate(-2 * 2**20), fake.work(1e-3))"


def mebibytes(count):
    return torch.empty(count * MIB, dtype=torch.uint8)


def test_a_cpu_counts_what_is_not_released():
    for call, held in [
        (lambda: None, 0),
        (lambda: mebibytes(3), 3),
        (lambda: mebibytes(3).sum().item(), 0),
        (lambda: (mebibytes(1), mebibytes(5).numel(), mebibytes(2)), 3),
    ]:
        assert CpuDevice().held_bytes(call) == held * MIB, (call, held)


def test_a_cpu_counts_what_autograd_saves_for_the_backward_pass():
    x = torch.ones(MIB // 4, requires_grad=True)
    # The result of exp is what it saves; sin saves its input, which is such a result; the last is the output.
    assert CpuDevice().held_bytes(lambda: x.exp().sin()) == 2 * MIB
    with torch.no_grad():
        assert CpuDevice().held_bytes(lambda: x.exp().sin()) == MIB


def test_a_cpu_does_not_count_what_was_there_before():
    before = mebibytes(8)
    assert CpuDevice().held_bytes(lambda: before.add_(1)) == 0


def test_a_cpu_says_nothing_inside_a_profiler_of_the_users():
    with torch.autograd.profiler.profile():
        assert CpuDevice().held_bytes(lambda: 1 / 0) is None


class Allocator:
    """torch's allocator of an accelerator: 100 bytes are out, 1000 were."""

    def __init__(self):
        self.now, self.most = 100, 1000

    def reset(self, index):
        self.most = self.now


@pytest.fixture(params=["cuda", "xpu"])
def counted(request, monkeypatch):
    """A device whose memory torch's allocator counts, bare, with that allocator."""
    from pytest_roofline.engine.devices.cuda import CudaDevice

    kind, library = (CudaDevice, torch.cuda) if request.param == "cuda" else (XpuDevice, torch.xpu)
    device, allocator = kind.__new__(kind), Allocator()
    device.name, device.index = f"{request.param}:0", 0
    monkeypatch.setattr(library, "synchronize", lambda index: None)
    monkeypatch.setattr(library, "memory_allocated", lambda index: allocator.now)
    monkeypatch.setattr(library, "max_memory_allocated", lambda index: allocator.most)
    monkeypatch.setattr(library, "reset_peak_memory_stats", allocator.reset)
    return device, allocator


class Freed:
    """A result whose memory goes back when it is let go of."""

    def __init__(self, allocator, size):
        self.allocator, self.size = allocator, size
        allocator.now += size

    def __del__(self):
        self.allocator.now -= self.size


@pytest.mark.parametrize(("size", "held"), [(7, 7), (0, 0), (-50, 0)])
def test_an_allocator_counts_as_long_as_the_result_is_kept(counted, size, held):
    device, allocator = counted
    assert device.held_bytes(lambda: Freed(allocator, size)) == held
    assert allocator.now == 100


def test_the_peak_by_an_allocator_is_that_of_the_call_above_what_was_before(counted):
    device, allocator = counted

    def call():
        allocator.most = 107

    assert device.peak_bytes(call) == 7


def test_an_allocator_tells_what_is_allocated(counted):
    assert counted[0].allocated() == Allocated(100, 1000)


def test_intels_and_apples_devices_tell_what_is_allocated(monkeypatch):
    xpu, mps = XpuDevice.__new__(XpuDevice), MpsDevice.__new__(MpsDevice)
    xpu.index = 0
    monkeypatch.setattr(torch.xpu, "memory_allocated", lambda index: 3)
    monkeypatch.setattr(torch.xpu, "max_memory_allocated", lambda index: 5)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 7)
    assert (xpu.allocated(), mps.allocated()) == (Allocated(3, 5), Allocated(7, None))


def test_a_device_that_tells_nothing_is_not_even_called():
    assert RealDevice().held_bytes(lambda: 1 / 0) is None
    assert RealDevice().allocated() == Allocated(None, None)


def test_a_fake_counts_what_is_left():
    device = FakeDevice()
    device.allocate(8)
    assert device.held_bytes(lambda: [device.allocate(size) for size in (5, -3)]) == 2
    assert device.allocated() == Allocated(10, 13)


def test_several_devices_add_up_and_make_one_call():
    group, calls = SeveralDevices([FakeDevice(), FakeDevice()]), []

    def call():
        calls.append(1)
        for device, size in zip(group.devices, (100, 20), strict=True):
            device.allocate(size)

    assert (group.held_bytes(call), calls) == (120, [1])
    assert group.allocated() == Allocated(120, 120)


def test_several_devices_keep_the_result_until_all_have_counted():
    group = SeveralDevices([FakeDevice(), FakeDevice()])

    class Result:
        def __init__(self):
            for device in group.devices:
                device.allocate(10)

        def __del__(self):
            for device in group.devices:
                device.allocate(-10)

    assert group.held_bytes(Result) == 20
    assert group.allocated().now_bytes == 0


def test_several_devices_know_nothing_where_one_does_not_tell(monkeypatch):
    group = SeveralDevices([FakeDevice(), FakeDevice()])
    monkeypatch.setattr(group.devices[1], "allocated", lambda: Allocated(1, None))
    assert group.allocated() == Allocated(1, None)


def test_it_is_in_what_measure_returns_and_in_the_run_file(suite):
    measure = f"roofline.measure({HOLDS}, work=WORK, held_bytes=True"
    suite.run(body("fake.allocate(8 * 2**20)", f"assert {measure}).held_bytes == 2**20")).assert_outcomes(passed=1)
    assert (suite.saved().measurements[0].held_bytes, suite.lines("measurement")[0]["held_bytes"]) == (MIB, MIB)


def test_it_takes_one_call_that_is_not_timed(suite):
    suite.run(
        body("roofline.measure(lambda: fake.work(1e-3), work=WORK, held_bytes=True)", "print('WORKS', fake.works)"),
        "-s",
    )
    samples = suite.saved().measurements[0].samples
    timed = samples.warmup_iterations + samples.iterations * len(samples.seconds)
    suite.result.stdout.fnmatch_lines([f"*WORKS {timed + 1}"])


def test_it_is_unknown_where_nobody_asked(suite):
    suite.run(body(f"roofline.measure({HOLDS}, work=WORK)"))
    assert suite.saved().measurements[0].held_bytes is None


def test_it_and_the_peak_stand_in_the_table(suite):
    suite.run(body(f"roofline.measure({HOLDS}, work=WORK, held_bytes=True, peak_bytes=True)"))
    suite.result.stdout.re_match_lines([r"test .* peak +held ", r".* 3\.00 MiB +1\.00 MiB "])
