"""`pytest perf_tests -k "memcpy or stream or gemm" --roofline-ci` on day one, before anybody recorded a thing.

Healthy is the median of what was published of healthy machines, as docs/results/floors.md has it.
"""

import importlib
import re

import pytest

from .conftest import ROOT, SUITE
from .standin import Rates

FILES = [str(SUITE / f"test_{name}.py") for name in ("memcpy", "stream", "gemm")]
# The quick tier from 64 MiB on, and no more of the smaller sizes than that they are there: these gate nothing.
ALL = (*FILES, "-k", "(memcpy or stream or gemm) and not KiB and not 4MiB and not 32MiB and not pageable")
MEMORY = (*FILES, "-k", "(d2d and 512MiB) or (stream and not large)")
CI = "--roofline-ci"
FAMILIES = ("h100-sxm5-80gb", "a100-sxm4-80gb", "mi300x-192gb", "v100-sxm2-32gb")
HALVED = (*FAMILIES, "h100-pcie-80gb", "a100-sxm4-40gb", "a100-pcie-40gb", "a100-pcie-80gb", "v100-sxm2-16gb")
# Where nobody published a host link: what a link that gates nothing runs at.
SOME_LINK_GBps, SOME_TFLOPS = 50.0, 5.0


@pytest.fixture(scope="module")
def cells():
    """The floors with their figures, by product and resource."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "baselines" / "published")
        found = importlib.import_module("floors").cells()
    return {(cell.product, cell.resource.name): cell for cell in found}


@pytest.fixture
def machine(cells):
    """The rates of a healthy machine, parts of it slower by a factor."""

    def rates(product, memory=1.0, link=1.0):
        def of(name, otherwise):
            return cells[product, name].typical or otherwise

        copied = of("memory, copied", cells[product, "memory, by kernels"].typical)
        kernels = of("memory, by kernels", copied)
        types = ("bf16", "fp16", "tf32", "fp32", "fp8")
        typical = {name: cells[product, f"GEMM, {name}"].typical for name in types}
        return Rates(
            memory_GBps=kernels,
            kernel_GBps={"copy_engine": copied, "copy": copied, "dot": of("memory, dot product", kernels)},
            h2d_GBps=of("host to device", SOME_LINK_GBps),
            d2h_GBps=of("device to host", SOME_LINK_GBps),
            tflops=SOME_TFLOPS,
            type_tflops={name: rate for name, rate in typical.items() if rate},
            slow_memory=memory,
            slow_link=link,
        )

    return rates


def red(bench):
    """The benchmarks of the newest run of which something is red."""
    return {one.label.partition("[")[0] for one in bench.last.judgements if one.verdict == "REGRESSED"}


@pytest.mark.parametrize("product", FAMILIES)
def test_a_healthy_card_of_each_family_is_green_on_day_one(bench, machine, product):
    result = bench.run(product, machine(product), *ALL, CI)
    assert result.ret == 0, result.stdout.str()
    assert red(bench) == set()
    (line,) = [line for line in result.stdout.lines if " compared with " in line or " compared (" in line]
    compared = int(re.match(r"(\d+) of ", line)[1])
    assert compared >= 8, line


@pytest.mark.parametrize("product", HALVED)
def test_memory_at_half_speed_is_red_on_day_one_from_a_single_process(bench, machine, product):
    result = bench.run(product, machine(product, memory=2.0), *MEMORY, CI)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    assert {"memcpy_d2d", "stream"} & red(bench)
    assert len({one.process for one in bench.last.measurements}) == 1
    floors = [line for line in result.stdout.lines if "beyond its limit" in line and "interval" in line]
    assert floors, result.stdout.str()
    assert all("BELOW FLOOR" in line and "figures of" in line and "roofline doctor" in line for line in floors)


@pytest.mark.parametrize("product", ["h100-sxm5-80gb", "a100-sxm4-80gb", "mi300x-192gb"])
def test_memory_at_four_fifths_is_red_where_its_floor_rests_on_two_sources(bench, cells, machine, product):
    two = {name for name in ("memory, copied", "memory, by kernels") if len(cells[product, name].sources) >= 2}
    assert two
    result = bench.run(product, machine(product, memory=1.25), *MEMORY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    assert red(bench)


def test_a_v100_with_half_its_memory_and_a_slow_link_is_red(bench, machine):
    product = "v100-sxm2-32gb"
    result = bench.run(product, machine(product, memory=2.0, link=1.15), *ALL)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    assert {"memcpy_d2d", "memcpy_d2d_triton", "stream", "stream_large"} <= red(bench)


@pytest.mark.parametrize("product", ["mi300x-192gb", "h100-pcie-80gb", "a100-pcie-40gb", "v100-sxm2-16gb"])
def test_memcpy_alone_gates_something_on_day_one(bench, machine, product):
    result = bench.run(product, machine(product), FILES[0], "-k", "memcpy and 512MiB", CI)
    assert result.ret == 0, result.stdout.str()
    assert not any("GATES NOTHING" in line for line in result.stdout.lines)


@pytest.mark.parametrize(
    ("test", "resource", "slow", "verdict"),
    [
        ("test_stream_large[triad]", "memory, by kernels", 1.15, "INCONCLUSIVE"),
        ("test_stream_large[triad]", "memory, by kernels", 1.20, "REGRESSED"),
        ("test_memcpy_h2d[512MiB-pinned]", "host to device", 1.30, "INCONCLUSIVE"),
        ("test_memcpy_h2d[512MiB-pinned]", "host to device", 1.35, "REGRESSED"),
    ],
)
def test_what_is_a_little_below_its_floor_is_not_passed_and_a_little_more_is_red(
    bench, cells, machine, test, resource, slow, verdict
):
    product = "h100-sxm5-80gb"
    # As the page says in its column `red from`.
    noticed = cells[product, resource].typical / cells[product, resource].rate
    assert 1.005 < slow / noticed < (1.04 if verdict == "INCONCLUSIVE" else 1.08)
    result = bench.run_rounds(3, product, machine(product, memory=slow, link=slow), test)
    assert {one.verdict for one in bench.last.judgements} == {verdict}, result.stdout.str()
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if verdict == "REGRESSED" else 0)


@pytest.mark.parametrize(("rate", "verdict"), [(45.0, "PASSED"), (40.0, "REGRESSED")])
def test_a_link_of_a_slow_virtual_machine_is_green_and_a_slower_one_is_red(bench, rate, verdict):
    # Azure's own limit of its machines is 48 GB/s.
    machine = Rates(h2d_GBps=rate, d2h_GBps=rate)
    result = bench.run_tests("h100-sxm5-80gb", machine, "test_memcpy_h2d[512MiB-pinned]")
    assert [one.verdict for one in bench.last.judgements] == [verdict], result.stdout.str()
    if verdict == "REGRESSED":
        result.stdout.fnmatch_lines(["*BELOW FLOOR*figures of 2 sources*"])


def test_a_link_above_a_lax_floor_is_red_where_more_of_its_peak_was_asked_for(bench):
    # 70 % of the 15.75 GB/s of the link.
    machine = Rates(h2d_GBps=11.0, d2h_GBps=11.0)
    result = bench.run_tests("v100-sxm2-32gb", machine, "test_memcpy_h2d[512MiB-pinned]")
    assert result.ret == 0, result.stdout.str()
    bench.always = ["--roofline-min-percent=75"]
    result = bench.run_tests("v100-sxm2-32gb", machine, "test_memcpy_h2d[512MiB-pinned]")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*BELOW 75 % OF THE ROOFLINE (observed 69.8 %*"])


def test_a_floor_is_no_reason_to_run_more_sizes(bench, machine):
    result = bench.run(
        "h100-sxm5-80gb", machine("h100-sxm5-80gb"), FILES[0], "--collect-only", "-q", "-k", "memcpy_h2d"
    )
    assert sum("-pinned]" in line for line in result.stdout.lines) == 7
