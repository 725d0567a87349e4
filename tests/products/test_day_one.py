"""`pytest perf_tests -k "memcpy or stream or gemm" --roofline-ci` on day one, before anybody recorded a thing.

Healthy is the median of what was published of healthy machines, as docs/floors.md has it.
"""

import importlib

import pytest

from .conftest import ROOT, SUITE
from .standin import Rates

FILES = [str(SUITE / f"test_{name}.py") for name in ("memcpy", "stream", "gemm")]
ALL = (*FILES, "-k", "memcpy or stream or gemm")
MEMCPY = (FILES[0], "-k", "memcpy")
# By what the stand-ins are called; the recorded facts have the same names as the surveys but for AMD's and H200's.
SURVEYED = ("h100-sxm5-80gb", "h100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb",
            "mi300x-192gb", "v100-sxm2-16gb", "v100-sxm2-32gb")  # fmt: skip
# Where the one source of a floor on memory leaves out what a kernel reaches, a copy's rate stands for both.
LINK_OF_ANY = 60.0


@pytest.fixture(scope="module")
def typical():
    """By product and resource, the median of the healthy figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "baselines" / "published")
        cells = importlib.import_module("floors").cells()
    return {(cell.product, cell.resource.name): cell.typical for cell in cells}


@pytest.fixture
def healthy(typical):
    """The rates of a healthy machine, some of them slower by a factor."""

    def rates(product, memory=1.0, link=1.0, gemm=1.0):
        def of(name, otherwise):
            return typical[product, name] or otherwise

        copied = of("memory, copied", typical[product, "memory, by kernels"])
        kernels = of("memory, by kernels", copied)
        types = {name: typical.get((product, f"GEMM, {name}")) for name in ("bf16", "fp16", "tf32", "fp32", "fp8")}
        return Rates(
            memory_GBps=kernels,
            kernel_GBps={"copy_engine": copied, "copy": copied, "dot": of("memory, dot product", kernels)},
            h2d_GBps=of("host to device", LINK_OF_ANY),
            d2h_GBps=of("device to host", LINK_OF_ANY),
            tflops=30.0 / gemm,
            type_tflops={name: rate / gemm for name, rate in types.items() if rate},
            slow_memory=memory,
            slow_link=link,
        )

    return rates


def red(bench):
    """The tests that turned red in the newest run."""
    return {one.label for one in bench.last.judgements if one.verdict == "REGRESSED"}


def test_show(bench, healthy):
    result = bench.run("h100-sxm5-80gb", healthy("h100-sxm5-80gb"), *ALL)
    print(result.stdout.str())
    assert 0
