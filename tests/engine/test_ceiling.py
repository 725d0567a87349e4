"""The measured rooflines of a device without a datasheet."""

import pytest
import torch

from pytest_roofline.core.units import MIB
from pytest_roofline.core.work import Work
from pytest_roofline.engine import ceiling as ceilings
from pytest_roofline.engine.ceiling import (
    LONGEST_PRODUCT_S,
    SMALLEST_PRODUCT,
    MeasuredProduct,
    float32_settings,
    measure_product,
    measure_triad,
)
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.hardware import above_peak
from pytest_roofline.plugin.device_under_test import DeviceUnderTest


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


class Products:
    """A device that multiplies as fast as a script says: the products that were asked of it, by rows and type."""

    def __init__(self, monkeypatch, seconds, **keywords):
        self.device = FakeDevice(tick_s=2.0**-30, **keywords)
        self.seen = []

        def mm(left, right, *, out):
            assert left.shape == right.shape == out.shape
            assert (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == (False, False)
            self.seen.append((left.shape[0], left.dtype))
            self.device.work(seconds(left.shape[0], len(self.seen)))

        monkeypatch.setattr(torch, "mm", mm)

    @property
    def rows(self):
        """The sizes that were tried, in order, and each once."""
        return list(dict.fromkeys(rows for rows, _ in self.seen))


@pytest.fixture
def products(monkeypatch):
    """By default a product of n rows takes as long as 2n³ FLOPs at a TFLOP/s."""
    # What the largest hold is of no interest here, and takes long to fill.
    monkeypatch.setattr(ceilings, "LARGEST_PRODUCT", 512)
    return lambda seconds=lambda rows, _: 2 * rows**3 / 1e12, **keywords: Products(monkeypatch, seconds, **keywords)


def test_a_product_counts_two_flops_for_each_of_its_steps(products):
    made = products(lambda *_: 2.0**-8)
    ceiling = measure_product(made.device, "cpu", "fp32_TFLOPS").ceiling
    assert ceiling.value == 2 * 512**3 / 2.0**-8
    assert (ceiling.source, ceiling.metric) == ("measured", "fp32_TFLOPS")
    assert ceiling.origin.startswith("product of two 512 x 512 matrices, best of ")


def test_the_ceiling_of_arithmetic_is_the_best_sample(products):
    made = products(lambda _, number: 2.0**-8 * (1 + number % 3))
    assert measure_product(made.device, "cpu", "fp32_TFLOPS").ceiling.value == 2 * 512**3 / 2.0**-8


@pytest.mark.parametrize(
    ("metric", "dtype"),
    [("fp32_TFLOPS", torch.float32), ("bf16_TFLOPS", torch.bfloat16), ("fp16_TFLOPS", torch.float16)],
)
def test_the_product_is_in_the_type_that_the_metric_names(products, metric, dtype):
    made = products()
    measure_product(made.device, "cpu", metric)
    assert {seen for _, seen in made.seen} == {dtype}


@pytest.mark.parametrize("metric", ["TFLOPS", "x_fp32_TFLOPS", "fp8_TFLOPS", "traffic_GBps", "tf32_TFLOPS", "fp32"])
def test_no_other_metric_has_a_product_and_a_processor_none_in_tf32(products, metric):
    made = products()
    assert measure_product(made.device, "cpu", metric) == MeasuredProduct(None)
    assert made.seen == []


def test_a_product_grows_until_the_next_takes_too_long(products):
    made = products(lambda rows, _: LONGEST_PRODUCT_S * (rows / 256) ** 3)
    ceiling = measure_product(made.device, "cpu", "fp16_TFLOPS").ceiling
    assert made.rows == [256, 512] or made.rows == [256, 512, 256]
    assert "256 x 256" in ceiling.origin
    # The one that was too slow is called as often as patience allows, and no more.
    assert sum(rows == 512 for rows, _ in made.seen) == 1


def test_the_smallest_product_is_the_ceiling_of_a_device_that_is_slow_beyond_measure(products):
    made = products(lambda rows, _: (rows / SMALLEST_PRODUCT) ** 3)
    ceiling = measure_product(made.device, "cpu", "fp16_TFLOPS").ceiling
    assert ceiling.value == 2 * SMALLEST_PRODUCT**3
    assert len(made.seen) <= 4


def test_one_slow_call_ends_no_growth(products):
    """Others may have the cores of a machine for a while."""
    made = products(lambda rows, number: 0.05 if number == 2 else 2 * rows**3 / 1e12)
    assert "512 x 512" in measure_product(made.device, "cpu", "fp32_TFLOPS").ceiling.origin


def test_a_product_takes_a_quarter_of_free_memory_at_most(products, monkeypatch):
    monkeypatch.setattr(ceilings, "FAIR_PRODUCT", 256)
    made = products(memory_bytes=4 * 3 * 256**2 * 4)
    found = measure_product(made.device, "cpu", "fp32_TFLOPS")
    assert "256 x 256" in found.ceiling.origin
    assert (max(made.rows), found.settled) == (256, False)


def test_a_product_that_memory_kept_small_is_no_ceiling(products):
    made = products(memory_bytes=4 * 3 * 256**2 * 4)
    assert measure_product(made.device, "cpu", "fp32_TFLOPS") == MeasuredProduct(None, settled=False)


FULL = "DefaultCPUAllocator: can't allocate memory"


def test_a_product_grows_to_what_a_limit_of_the_process_leaves(products, monkeypatch):
    """A test that records running out of memory runs under a limit that free memory does not show."""
    monkeypatch.setattr(ceilings, "FAIR_PRODUCT", 256)
    matrices = ceilings.square_matrices

    def limited(rows, *how):
        if rows > 256:
            raise RuntimeError(FULL)
        return matrices(rows, *how)

    monkeypatch.setattr(ceilings, "square_matrices", limited)
    found = measure_product(products().device, "cpu", "fp32_TFLOPS")
    assert ("256 x 256" in found.ceiling.origin, found.settled) == (True, False)


@pytest.mark.parametrize(("message", "settled"), [("not implemented for 'Half'", True), (FULL, False)])
def test_a_type_that_cannot_be_multiplied_has_no_ceiling(products, message, settled):
    def refuse(*_):
        raise RuntimeError(message)

    assert measure_product(products(refuse).device, "cpu", "fp16_TFLOPS") == MeasuredProduct(None, settled)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_what_a_test_set_for_itself_is_neither_used_nor_changed(products, precision):
    seen = set()

    def look(rows, _):
        seen.update(setting.fp32_precision for setting in float32_settings())
        return 2 * rows**3 / 1e12

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    settings = [setting.fp32_precision for setting in float32_settings()]
    try:
        with torch.autocast("cpu"):
            measure_product(products(look).device, "cpu", "fp32_TFLOPS")
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == precision
        assert [setting.fp32_precision for setting in float32_settings()] == settings
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == {"ieee"}
    assert torch.is_grad_enabled()


FLOPS = Work(flops=8, read_bytes=8)


@pytest.fixture
def under_test(make):
    """What is known of a device of some type that no hardware table has; it may multiply as `products` says."""

    def build(device, kind="cpu", product="Some Processor"):
        environment = make.environment(product=product, device_type=kind)
        return DeviceUnderTest(device, environment, make.hardware(), comparator=None, entries=None, comparisons=1)

    return build


def test_a_product_is_measured_once_a_type_and_only_where_a_metric_asks(products, under_test):
    made = products()
    made.device.name = "cpu"
    known = under_test(made.device)
    assert known.ceiling(FLOPS, "TFLOPS") is None
    assert made.seen == []
    first = known.ceiling(FLOPS, "fp32_TFLOPS")
    calls = len(made.seen)
    assert known.ceiling(Work(flops=9), "fp32_TFLOPS") is first
    assert len(made.seen) == calls > 0
    assert known.ceiling(FLOPS, "bf16_TFLOPS").metric == "bf16_TFLOPS"


def test_a_type_that_cannot_be_multiplied_is_tried_once(products, under_test):
    def refuse(*_):
        raise RuntimeError("not implemented for 'Half'")

    made = products(refuse)
    made.device.name = "cpu"
    known = under_test(made.device)
    assert [known.ceiling(FLOPS, "fp16_TFLOPS") for _ in range(2)] == [None, None]
    assert len(made.seen) == 1


def test_a_product_for_which_memory_was_too_full_is_measured_again(products, under_test):
    full = [True]

    def multiply(rows, _):
        if full:
            raise RuntimeError(FULL)
        return 2 * rows**3 / 1e12

    made = products(multiply)
    made.device.name = "cpu"
    known = under_test(made.device)
    assert known.ceiling(FLOPS, "fp32_TFLOPS") is None
    full.clear()
    assert "512 x 512" in known.ceiling(FLOPS, "fp32_TFLOPS").origin


def test_a_datasheets_peak_goes_before_a_product(products, under_test):
    made = products()
    ceiling = under_test(made.device, "cuda", "NVIDIA H200").ceiling(FLOPS, "bf16_TFLOPS")
    assert (ceiling.source, made.seen) == ("datasheet", [])


def test_a_scripted_device_multiplies_nothing(products, under_test):
    made = products()
    assert under_test(made.device, "fake").ceiling(FLOPS, "fp32_TFLOPS") is None
    assert made.seen == []


def test_a_rate_above_a_measured_ceiling_is_no_lie(products):
    ceiling = measure_product(products().device, "cpu", "fp32_TFLOPS").ceiling
    assert above_peak(ceiling, Work(flops=10**12), 5.0, ()) == ""


def test_a_processor_multiplies_within_a_time_that_nobody_notices(make):
    from pytest_roofline.engine.devices.cpu import CpuDevice

    ceiling = measure_product(CpuDevice(), "cpu", "fp32_TFLOPS").ceiling
    # Any processor of this century, beside any neighbours.
    assert 1e6 < ceiling.value < 1e15
