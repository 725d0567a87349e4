"""Named and parametrised as the shipped suite is; rates are those that are foreseen of an H100, not measured ones."""

from itertools import product

import pytest
from hardware.faithful import BACKWARD, CAUSAL, FORWARD

from pytest_roofline import Work

MIB = 2**20
SIZES = {"4KiB": 4096, "4MiB": 4 * MIB, "512MiB": 512 * MIB}
EXECUTIONS = {"eager": 1.0, "compile": 0.8, "cuda_graph": 0.75}


@pytest.mark.roofline(gate=True)
@pytest.mark.parametrize("size_bytes", SIZES.values(), ids=SIZES)
def test_memcpy_d2d(roofline, busy, size_bytes):
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    seconds = 2.5e-6 + 2 * size_bytes / 2.8e12
    roofline.measure(
        lambda: busy(seconds),
        make_args=tuple,
        work=work,
        cache="rotate",
        metric="auto_traffic_GBps",
    )


@pytest.mark.parametrize("operation", ["copy", "triad"])
def test_stream(roofline, busy, operation):
    size_bytes = (3 if operation == "triad" else 2) * 256 * MIB
    roofline.measure(
        lambda: busy(size_bytes / 2.8e12), work=Work(read_bytes=size_bytes, write_bytes=0)
    )


@pytest.mark.parametrize("dtype", ["bf16"])
@pytest.mark.parametrize("size", [8192])
def test_gemm(roofline, busy, dtype, size):
    roofline.measure(lambda: busy(1.5e-3), work=Work(flops=2 * size**3), metric="bf16_TFLOPS")


@pytest.mark.parametrize(
    ("name", "passes", "causal", "sequence", "head_dim"),
    [
        pytest.param(
            *case,
            id="{}-{}-{}-s{}-d{}".format(*case[:2], "causal" if case[2] else "full", *case[3:]),
        )
        for case in product(FORWARD, ("forward", "backward"), (True, False), (16384,), (64, 128))
        if case[:2] != ("gluon", "backward")
    ],
)
def test_flash_attention(roofline, busy, name, passes, causal, sequence, head_dim):
    rates = FORWARD if passes == "forward" else BACKWARD
    rate = rates[name][head_dim] * 1e12 * (CAUSAL[name] if causal else 1.0)
    flops = (4 if passes == "forward" else 10) * sequence**2 * 2048 // (2 if causal else 1)
    roofline.measure(lambda: busy(flops / rate), work=Work(flops=flops), metric="bf16_TFLOPS")


@pytest.mark.parametrize("name", ["triton", "sdpa_flash"])
def test_flash_attention_leaderboard(roofline, busy, name):
    flops = 14 * 16384**2 * 1024 // 2
    for cache, called in (("flush", "like do_bench"), ("warm", "steady")):
        roofline.measure(
            lambda: busy(flops / 250e12),
            work=Work(flops=flops),
            metric="bf16_TFLOPS",
            name=called,
            cache=cache,
        )


@pytest.mark.parametrize("size", ["small"])
@pytest.mark.parametrize("passes", ["step"])
@pytest.mark.parametrize("context", [512], ids=["c512"])
@pytest.mark.parametrize("precision", ["bf16_autocast"])
@pytest.mark.parametrize("attention", ["sdpa"])
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_transformer(roofline, busy, size, passes, context, precision, attention, execution):
    seconds = 2e-3 * EXECUTIONS[execution]
    roofline.measure(
        lambda: busy(seconds), work=Work(flops=3 * 10**11, tokens=512), metric="bf16_TFLOPS"
    )
