"""What goes into a stand-in comes out of the benchmarks: rates by type and by kernel, and no large product computed."""

import pytest
import torch

from roofline_kernels import gemm
from roofline_kernels.gemm import KINDS, Gemm, Operands, Shape

from .conftest import SUITE
from .machine import Machine
from .recorded import facts_of
from .standin import LARGE_BYTES, Clockwork, Rates, StandIn

COPIES, STREAM = str(SUITE / "test_memcpy.py"), str(SUITE / "test_stream.py")
CPU = torch.device("cpu")
LARGE = Shape(2048, 4096, 1024)


@pytest.fixture
def bench(bench, without_floors):
    """Runs whose rates are no machine's, which floors would fail."""
    bench.always = [f"--roofline-baselines={without_floors}"]
    return bench


@pytest.fixture
def device():
    return StandIn(facts_of("h100-sxm5-80gb"), Rates(memory_GBps=1000, tflops=1, type_tflops={"tf32": 4, "fp32": 2}))


@pytest.fixture
def clockwork(device, monkeypatch):
    with Clockwork(device) as clockwork:
        monkeypatch.setattr(gemm, "normal", clockwork.normal)
        yield clockwork


@pytest.mark.parametrize("name", KINDS)
def test_a_large_product_is_right_where_it_is_looked_at(clockwork, name):
    product = Gemm(KINDS[name], LARGE, CPU)
    operands, out = product.make()
    assert not product.check(operands, out)
    product.multiply(operands, out)
    assert product.check(operands, out)


@pytest.mark.parametrize("name", KINDS)
def test_a_large_product_of_other_operands_is_noticed(clockwork, name):
    product = Gemm(KINDS[name], LARGE, CPU)
    (operands, out), (others, _) = product.make(), product.make()
    product.multiply(Operands(operands.left, others.weight, operands.scales), out)
    assert not product.check(operands, out)


@pytest.mark.parametrize("name", ["bf16", "fp8_rowwise"])
def test_what_is_done_with_the_whole_of_a_large_product_finds_it_there(clockwork, name):
    product = Gemm(KINDS[name], Shape(256, 16384, 64), CPU)
    operands, out = product.make()
    product.multiply(operands, out)
    assert out.nbytes >= LARGE_BYTES
    out[:, 128:256].mul_(2)
    assert not product.check(operands, out)
    out[:, 128:256].div_(2)
    assert product.check(operands, out)


@pytest.mark.parametrize(("name", "tflops"), [("bf16", 1), ("tf32", 4), ("fp32", 2)])
@pytest.mark.parametrize("size", [64, 4096])
def test_a_product_takes_the_time_of_its_type(clockwork, device, name, tflops, size):
    product = Gemm(KINDS[name], Shape(size, size, size), CPU)
    arguments = product.make()
    before = device.busy_s
    with gemm.arithmetic(KINDS[name], CPU):
        product.multiply(*arguments)
    assert device.busy_s - before == pytest.approx(max(2e-6, 2 * size**3 / (tflops * 1e12)))


def test_nothing_of_a_large_matrix_is_there_in_vain(clockwork):
    product = Gemm(KINDS["bf16"], Shape(16384, 16384, 16384), CPU)
    operands, out = product.make()
    product.multiply(operands, out)
    assert product.check(operands, out)
    with torch.utils._python_dispatch._disable_current_modes():
        assert not any(bool(matrix[::4096, ::4096].any()) for matrix in (operands.left, operands.weight, out))


def test_what_stands_in_is_gone_after_a_test():
    before = gemm.normal, gemm.why_not
    machine = Machine(StandIn(facts_of("h100-sxm5-80gb"), Rates()))
    with Clockwork(machine.device) as clockwork, machine.standing_in(clockwork):
        assert gemm.normal == clockwork.normal
    assert (gemm.normal, gemm.why_not) == before


GEMM = str(SUITE / "test_gemm.py")
# What published runs of such cards reached is near these; what matters is that what comes out is what went in.
PRODUCTS = {"bf16": 620.0, "fp16": 610.0, "tf32": 340.0, "fp32": 44.0, "fp8": 1150.0}
DECODES = "8b-gate_up-1-cold", "70b-down-1-cold"


@pytest.mark.parametrize("product", ["h100-sxm5-80gb", "mi300x-192gb"])
def test_rates_of_matrix_products_come_out_as_they_went_in(bench, product):
    machine = Rates(memory_GBps=3000, type_tflops=PRODUCTS, kernel_GBps={"gemm": 2500})
    result = bench.run(product, machine, GEMM)
    assert result.ret == 0, result.stdout.str()
    found = {one.label: one for one in bench.last.measurements}
    expected = {f"gemm[{name}-8192]": PRODUCTS[name.partition("_")[0]] for name in KINDS}
    assert {name: found[name].rate / 1e12 for name in expected} == pytest.approx(expected, rel=0.005)
    decodes = {f"gemm_projection[bf16-{name}]": 2500 for name in DECODES}
    assert {name: found[name].rate / 1e9 for name in decodes} == pytest.approx(decodes, rel=0.005)
    assert len(found) == len(expected) + len(decodes)
    assert all(one.verified and not one.invalid and one.ceiling for one in found.values())


@pytest.mark.parametrize(
    ("product", "lacking"),
    [("a100-sxm4-80gb", {"fp8_tensorwise", "fp8_rowwise"}), ("v100-sxm2-32gb", {*KINDS} - {"fp16", "fp32"})],
)
def test_types_that_a_product_has_not_are_skipped_with_a_reason(bench, product, lacking):
    result = bench.run(product, Rates(tflops=10), GEMM, "-k", "8192", "-rs")
    assert result.ret == 0, result.stdout.str()
    assert {one.label for one in bench.last.measurements} == {f"gemm[{name}-8192]" for name in {*KINDS} - lacking}
    for name in lacking:
        result.stdout.fnmatch_lines([f"SKIPPED * needs {name}, found *, which has none"])


@pytest.mark.parametrize(
    "shape", ["fp32-16384", "bf16-70b-qkv-4096", "tf32-8b-o-64-cold", "fp8_rowwise-70b-qkv-64-warm"]
)
def test_nightly_shapes_are_verified_too(bench, shape):
    name = "gemm" if shape == "fp32-16384" else "gemm_projection"
    result = bench.run("h100-sxm5-80gb", Rates(type_tflops=PRODUCTS), f"{GEMM}::test_{name}[{shape}]")
    assert result.ret == 0, result.stdout.str()
    (one,) = bench.last.measurements
    assert (one.label, one.verified) == (f"{name}[{shape}]", True)


def test_copies_stream_and_products_run_whole_each_at_its_kernels_rate(bench):
    kernels = {"copy_engine": 2600.0, "triton": 2700.0, "copy": 2800.0, "scale": 2810.0, "add": 2820.0, "dot": 3000.0}
    machine = Rates(memory_GBps=2900, h2d_GBps=51, d2h_GBps=52, kernel_GBps=kernels)
    result = bench.run("h100-sxm5-80gb", machine, COPIES, STREAM, "-k", "d2d and (512MiB or 2004MiB) or stream")
    assert result.ret == 0, result.stdout.str()
    expected = {f"stream[{name}]": rate for name, rate in kernels.items() if name not in ("copy_engine", "triton")}
    expected |= {"stream[triad]": 2900, "memcpy_d2d[512MiB]": 2600, "memcpy_d2d_triton[512MiB]": 2700}
    found = {one.label: one.rate / 1e9 for one in bench.last.measurements if one.label in expected}
    assert found == pytest.approx(expected, rel=0.005)
    assert all(one.verified for one in bench.last.measurements)
