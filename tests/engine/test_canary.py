"""Canaries: what they measure on a real device, and that a failure of one is nobody's error."""

import math

from pytest_roofline.core.keys import CANARIES
from pytest_roofline.core.samples import CANARY
from pytest_roofline.engine import ceiling
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice


def test_the_canaries_of_a_cpu_take_less_than_a_second(make):
    found = ceiling.measure_canaries(CpuDevice(), make.hardware(), "process-1")
    assert [one.key.name for one in found] == list(CANARIES)
    assert all(one.key.is_canary and CANARY in one.samples.labels and one.median_s > 0 for one in found)
    assert math.fsum(one.samples.warmup_s + one.samples.measuring_s for one in found) < 1


def test_what_a_device_cannot_do_is_left_out(make, monkeypatch):
    before = ceiling.canary_of

    def without_products(device, name):
        if name == "gemm":
            raise RuntimeError("CUDA out of memory")
        return before(device, name)

    monkeypatch.setattr(ceiling, "canary_of", without_products)
    found = ceiling.measure_canaries(CpuDevice(), make.hardware(), "process-1")
    assert [one.key.name for one in found] == ["copy", "launch"]


def test_a_device_with_a_scripted_clock_has_none(make):
    assert ceiling.measure_canaries(FakeDevice(), make.hardware(), "process-1") == []
