"""The measured rooflines of a device without a datasheet, and canaries."""

import math

import pytest
import torch

from pytest_roofline.core.keys import CANARIES
from pytest_roofline.core.samples import CANARY
from pytest_roofline.core.units import MIB
from pytest_roofline.core.work import Work
from pytest_roofline.engine import ceiling as ceilings
from pytest_roofline.engine.ceiling import (
    LONGEST_PRODUCT_S,
    MeasuredProduct,
    float32_settings,
    measure_product,
    measure_triad,
)
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.hardware import above_peak
from pytest_roofline.plugin.rooflines import Rooflines


def test_a_triad_counts_two_reads_and_one_write_and_is_the_best_sample(monkeypatch):
    add = torch.add

    def triad(seconds, cache_bytes=4096, **keywords):
        device = FakeDevice(tick_s=2.0**-30, **keywords)

        def timed_add(*arguments, **how):
            device.work(seconds(device.works))
            return add(*arguments, **how)

        monkeypatch.setattr(torch, "add", timed_add)
        return measure_triad(device, "cpu", cache_bytes=cache_bytes)

    ceiling = triad(lambda number: 2.0**-8 * (1 + number % 3))
    assert (ceiling.value, ceiling.source, ceiling.metric) == (
        3 * 4 * 4096 / 2.0**-8,
        "measured",
        "traffic_GBps",
    )
    # Its arrays are bounded; where they do not fit there is none.
    for cache_bytes, memory_bytes in [(2**40, 6 * 256 * MIB - 1), (4096, 4096)]:
        assert triad(lambda _: 2.0**-8, cache_bytes, memory_bytes=memory_bytes) is None


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
    return lambda seconds=lambda rows, _: 2 * rows**3 / 1e12, **keywords: Products(
        monkeypatch, seconds, **keywords
    )


def test_a_product_counts_two_flops_a_step_and_is_the_best_sample(products):
    made = products(lambda _, number: 2.0**-8 * (1 + number % 3))
    ceiling = measure_product(made.device, "cpu", "fp32_TFLOPS").ceiling
    assert (ceiling.value, ceiling.source) == (2 * 512**3 / 2.0**-8, "measured")
    assert ceiling.origin.startswith("product of two 512 x 512 matrices, best of ")
    # A rate above it is no lie.
    assert above_peak(ceiling, Work(flops=10**12), 5.0, ()) == ""


def test_the_product_is_in_the_type_that_the_metric_names_and_no_other_metric_has_one(products):
    for metric, dtype in [("fp32_TFLOPS", torch.float32), ("bf16_TFLOPS", torch.bfloat16),
                          ("fp16_TFLOPS", torch.float16)]:  # fmt: skip
        made = products()
        assert measure_product(made.device, "cpu", metric).ceiling.metric == metric
        assert {seen for _, seen in made.seen} == {dtype}
    # A processor has none in TF32.
    for metric in ["TFLOPS", "fp8_TFLOPS", "traffic_GBps", "tf32_TFLOPS"]:
        made = products()
        assert (measure_product(made.device, "cpu", metric), made.seen) == (
            MeasuredProduct(None),
            [],
        ), metric


def test_a_product_grows_until_the_next_takes_too_long_and_one_slow_call_ends_no_growth(products):
    made = products(lambda rows, _: LONGEST_PRODUCT_S * (rows / 256) ** 3)
    ceiling = measure_product(made.device, "cpu", "fp16_TFLOPS").ceiling
    assert (made.rows[:2], "256 x 256" in ceiling.origin) == ([256, 512], True)
    # The one that was too slow is called as often as patience allows, and no more.
    assert sum(rows == 512 for rows, _ in made.seen) == 1
    # Others may have the cores of a machine for a while.
    made = products(lambda rows, number: 0.05 if number == 2 else 2 * rows**3 / 1e12)
    assert "512 x 512" in measure_product(made.device, "cpu", "fp32_TFLOPS").ceiling.origin


FULL = "DefaultCPUAllocator: can't allocate memory"


def test_a_product_takes_a_quarter_of_free_memory_or_what_a_limit_leaves_and_a_small_one_is_no_ceiling(
    products, monkeypatch
):
    small = {"memory_bytes": 4 * 3 * 256**2 * 4}
    unsettled = MeasuredProduct(None, settled=False)
    assert measure_product(products(**small).device, "cpu", "fp32_TFLOPS") == unsettled
    monkeypatch.setattr(ceilings, "FAIR_PRODUCT", 256)
    made = products(**small)
    found = measure_product(made.device, "cpu", "fp32_TFLOPS")
    assert ("256 x 256" in found.ceiling.origin, max(made.rows), found.settled) == (
        True,
        256,
        False,
    )
    # A test that records running out of memory runs under a limit that free memory does not show.
    matrices = ceilings.square_matrices

    def limited(rows, *how):
        if rows > 256:
            raise RuntimeError(FULL)
        return matrices(rows, *how)

    monkeypatch.setattr(ceilings, "square_matrices", limited)
    found = measure_product(products().device, "cpu", "fp32_TFLOPS")
    assert ("256 x 256" in found.ceiling.origin, found.settled) == (True, False)


def refusing(message):
    def refuse(*_):
        raise RuntimeError(message)

    return refuse


def test_what_a_test_set_for_itself_is_neither_used_nor_changed(products):
    before = torch.get_float32_matmul_precision()
    for precision in ["highest", "medium"]:
        seen = set()

        def look(rows, _, seen=seen):
            seen.update(setting.fp32_precision for setting in float32_settings())
            return 2 * rows**3 / 1e12

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
        assert (seen, torch.is_grad_enabled()) == ({"ieee"}, True), precision


FLOPS = Work(flops=8, read_bytes=8)


@pytest.fixture
def rooflines(make):
    """The rooflines of a device of some type that no hardware table has; it may multiply as `products` says."""

    def build(device, kind="cpu", product="Some Processor"):
        device.name = kind
        environment = make.environment(product=product, device_type=kind)
        return Rooflines(device, environment)

    return build


def test_a_product_is_measured_once_a_type_where_no_datasheet_tells_and_again_where_memory_was_too_full(
    products, rooflines
):
    made = products()
    known = rooflines(made.device)
    assert (known.ceiling(FLOPS, "TFLOPS"), made.seen) == (None, [])
    first, calls = known.ceiling(FLOPS, "fp32_TFLOPS"), len(made.seen)
    assert (known.ceiling(Work(flops=9), "fp32_TFLOPS") is first, len(made.seen)) == (True, calls)
    assert known.ceiling(FLOPS, "bf16_TFLOPS").metric == "bf16_TFLOPS"
    assert (
        rooflines(made.device, "cuda", "NVIDIA H200").ceiling(FLOPS, "bf16_TFLOPS").source
        == "datasheet"
    )
    made = products(refusing("not implemented for 'Half'"))
    known = rooflines(made.device)
    assert [known.ceiling(FLOPS, "fp16_TFLOPS") for _ in range(2)] == [None, None]
    assert len(made.seen) == 1
    full = [True]
    known = rooflines(
        products(lambda rows, _: refusing(FULL)() if full else 2 * rows**3 / 1e12).device
    )
    assert known.ceiling(FLOPS, "fp32_TFLOPS") is None
    full.clear()
    assert "512 x 512" in known.ceiling(FLOPS, "fp32_TFLOPS").origin


def test_a_processor_multiplies_and_measures_its_canaries_within_a_time_that_nobody_notices(make):
    # Any processor of this century, beside any neighbours.
    assert 1e6 < measure_product(CpuDevice(), "cpu", "fp32_TFLOPS").ceiling.value < 1e15
    found = ceilings.measure_canaries(CpuDevice(), make.hardware(), "process-1")
    assert [one.key.name for one in found] == list(CANARIES)
    assert all(
        one.key.is_canary and CANARY in one.samples.labels and one.median_s > 0 for one in found
    )
    assert math.fsum(one.samples.warmup_s + one.samples.measuring_s for one in found) < 1


def test_a_canary_that_a_device_cannot_do_is_left_out(make, monkeypatch):
    before = ceilings.canary_of

    def without_products(device, name):
        if name == "gemm":
            raise RuntimeError("CUDA out of memory")
        return before(device, name)

    assert ceilings.measure_canaries(FakeDevice(), make.hardware(), "process-1") == []
    monkeypatch.setattr(ceilings, "canary_of", without_products)
    found = ceilings.measure_canaries(CpuDevice(), make.hardware(), "process-1")
    assert [one.key.name for one in found] == ["copy", "launch"]
