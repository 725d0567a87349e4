"""The measured roofline of a device without a datasheet."""

import pytest
import torch

from pytest_roofline.core.units import MIB
from pytest_roofline.measuring.ceiling import measure_triad
from pytest_roofline.measuring.devices.fake import FakeDevice


@pytest.fixture
def scripted(monkeypatch):
    """A device on which every addition takes as long as the script says."""

    def make(seconds, **keywords):
        device = FakeDevice(tick_s=2.0**-30, **keywords)
        add = torch.add

        def timed_add(*arguments, **how):
            device.work(seconds(device.works))
            return add(*arguments, **how)

        monkeypatch.setattr(torch, "add", timed_add)
        return device

    return make


def test_a_triad_counts_two_reads_and_one_write(scripted):
    device = scripted(lambda _: 2.0**-8)
    ceiling = measure_triad(device, "cpu", cache_bytes=4096)
    assert ceiling.value == 3 * 4 * 4096 / 2.0**-8


def test_a_ceiling_is_the_best_sample(scripted):
    device = scripted(lambda number: 2.0**-8 * (1 + number % 3))
    ceiling = measure_triad(device, "cpu", cache_bytes=4096)
    assert ceiling.value == 3 * 4 * 4096 / 2.0**-8


def test_a_triads_ceiling_is_labelled_measured(scripted):
    ceiling = measure_triad(scripted(lambda _: 2.0**-8), "cpu", cache_bytes=4096)
    assert (ceiling.source, ceiling.metric) == ("measured", "traffic_GBps")


def test_the_arrays_of_a_triad_are_bounded(scripted):
    device = scripted(lambda _: 2.0**-8, memory_bytes=6 * 256 * MIB - 1)
    assert measure_triad(device, "cpu", cache_bytes=2**40) is None


def test_a_triad_that_does_not_fit_gives_no_ceiling(scripted):
    device = scripted(lambda _: 2.0**-8, memory_bytes=4096)
    assert measure_triad(device, "cpu", cache_bytes=4096) is None
