"""The matrix products as a user starts them: what each tier selects, and a short real run on a processor."""

import functools
import re
from itertools import product

import pytest

from pytest_roofline.baselines.runs import read_run
from roofline_kernels.gemm import CUBES, KINDS, PROJECTIONS, TOKENS

from .test_perf_suite import collected, pytest_on_suite

SUITE = "perf_tests/test_gemm.py"


@functools.cache
def ids(tier, test):
    """The ids of one test in a tier, of an accelerator that need not be here."""
    listed = collected(SUITE, f"--roofline-tier={tier}", "--roofline-device=cuda:9")
    return {match[1] for test_id in listed if (match := re.fullmatch(rf"{test}\[(\S+)\]", test_id))}


def test_quick_has_one_cube_of_each_type_and_two_decode_shapes():
    assert ids("quick", "test_gemm") == {f"{name}-8192" for name in KINDS}
    assert ids("quick", "test_gemm_projection") == {"bf16-8b-gate_up-1-cold", "bf16-70b-down-1-cold"}


def test_nightly_has_every_cube_of_every_type():
    assert ids("nightly", "test_gemm") == {f"{name}-{size}" for name, size in product(KINDS, CUBES)}


def test_nightly_has_every_projection_with_cold_and_warm_weights_where_memory_bounds_it():
    found = ids("nightly", "test_gemm_projection")
    stems = {one.removesuffix("-cold").removesuffix("-warm") for one in found}
    assert stems == {f"{name}-{one}-{tokens}" for name, one, tokens in product(KINDS, PROJECTIONS, TOKENS)}
    decodes = {f"{name}-{one}-1" for name, one in product(KINDS, PROJECTIONS)}
    assert {f"{one}-{weights}" for one, weights in product(decodes, ("cold", "warm"))} <= found
    assert {f"{name}-{one}-4096" for name, one in product(KINDS, PROJECTIONS)} <= found


def test_copies_are_selected_without_products():
    assert not [one for one in collected("perf_tests", "-k", "memcpy", "--roofline-device=cuda:9") if "gemm" in one]


@pytest.mark.serial
def test_a_processor_multiplies_one_small_cube_of_two_types(tmp_path):
    done = pytest_on_suite(SUITE, "--roofline-device=cpu", "--roofline-budget=0.05", f"--roofline-dir={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    found = {one.label: (one.key.metric, one.verified) for one in read_run(path).measurements}
    assert found == {"gemm_cpu[fp32]": ("fp32_TFLOPS", True), "gemm_cpu[bf16]": ("bf16_TFLOPS", True)}
