"""The whole engine through torch.cuda's own calls, which a fake stream answers: the wiring, without a GPU."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.devices import nvidia
from pytest_roofline.engine.devices.cuda import CudaDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan


@pytest.fixture
def stream(monkeypatch):
    """A fake in-order stream with the launch costs of a GPU, behind torch.cuda."""
    fake = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6, pair_s=1e-6)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.stamp = fake.stamp()

        def query(self):
            return fake.reached(self.stamp)

        def synchronize(self):
            fake.elapsed_s(self.stamp, self.stamp)

        def elapsed_time(self, end):
            return fake.elapsed_s(self.stamp, end.stamp) * 1e3

    class CUDAGraph:
        def replay(self):
            self.run()

    @contextlib.contextmanager
    def graph(captured, pool):
        fake._recording = nodes = []
        yield
        fake._recording = None
        captured.run = lambda: fake._submit_all(nodes)

    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", uuid="1", total_memory=80 * 2**30, major=9, minor=0, multi_processor_count=132,
        L2_cache_size=50 * 2**20,
    )  # fmt: skip
    pieces = {
        "Event": Event, "CUDAGraph": CUDAGraph, "graph": graph, "_sleep": fake.spin,
        "set_device": lambda _: None, "get_device_properties": lambda _: properties,
        "synchronize": lambda _: fake.synchronize(), "memory_reserved": lambda _: 0,
        "graph_pool_handle": lambda: None, "current_stream": lambda _: "default", "set_stream": lambda _: None,
    }  # fmt: skip
    for name, piece in pieces.items():
        monkeypatch.setattr(torch.cuda, name, piece, raising=False)
    # A build for CUDA has it, and asks for the handle of a pool that there is.
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *_: None, raising=False)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    monkeypatch.setattr(CudaDevice, "host_s", lambda _: fake.host_s())
    monkeypatch.setattr(nvidia.Nvml, "counters", lambda *_: fake.counters())
    return fake


def timed(fn, **plan):
    """The samples of a function on a device of torch.cuda."""
    engine = Engine(CudaDevice(0), Plan(fn, sets=[()], budget_s=1.0, **plan))
    engine.run()
    return engine.samples()


def test_short_kernels_are_timed_by_a_graph(stream):
    samples = timed(lambda: [stream.work(2.3e-6) for _ in range(3)])
    assert samples.median_s == pytest.approx(6.9e-6, rel=0.005)
    assert (samples.mode, samples.labels) == ("graph", ())


def test_longer_kernels_are_timed_by_events_behind_a_spin(stream):
    samples = timed(lambda: stream.work(2e-4))
    assert samples.median_s == pytest.approx(2e-4, rel=0.005)
    assert (samples.mode, samples.clock_hz) == ("events", pytest.approx(2e9, rel=0.02))


def test_a_function_that_synchronizes_waits_inside(stream):
    samples = timed(lambda: (stream.work(1e-5), torch.cuda.synchronize(0)))
    assert "waits_inside" in samples.labels
    assert samples.wall_s > 1e-5


def test_a_function_that_no_graph_can_hold_is_timed_by_events(stream, monkeypatch):
    @contextlib.contextmanager
    def refused(_, pool):
        raise RuntimeError("operation not permitted when stream is capturing")
        yield

    monkeypatch.setattr(torch.cuda, "graph", refused)
    samples = timed(lambda: stream.work(6.9e-6))
    assert samples.median_s == pytest.approx(6.9e-6, rel=0.01)
    assert samples.mode == "events"
