"""From what ranks measured to the record of it."""

from types import SimpleNamespace

import pytest

from pytest_roofline.core.samples import Ranks, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.engine.measure import MeasuredRequest
from pytest_roofline.engine.request import RankOptions, Request
from pytest_roofline.plugin.over_ranks import RankResult, write

STEP = Work(flops=10**12, tokens=512, algbw_bytes=2**20, busbw_bytes=2**20)


@pytest.fixture
def recorded(make):
    """The record of a step of 10 ms on each of two ranks, on devices of some product."""

    def build(product, metric, device_type="cuda"):
        environment = make.environment(product=product, device_type=device_type)
        samples, kept = Samples((0.01,), 1, 1e-9), []
        request = Request(STEP, 1.0, timing="isolated", metric=metric, ranks=RankOptions(2))
        session = SimpleNamespace(
            under_test=SimpleNamespace(
                hardware_of_ranks=lambda *_: make.hardware(devices=2, link="nvlink-switch"),
                environment=environment,
                rooflines=SimpleNamespace(beyond_belief=lambda *_: ""),
            ),
            process="process-1",
            record=lambda measurement, _: kept.append(measurement),
        )
        subject = SimpleNamespace(
            session=session, planned=SimpleNamespace(benchmark="step", parameters={}),
            test_id="t.py::test_step", label=lambda _: "step",
            marks=SimpleNamespace(gate=False, tier="standard"), item=SimpleNamespace(iter_markers=list),
        )  # fmt: skip
        result = RankResult(
            MeasuredRequest(samples),
            Ranks(2, "local", "nccl", hosts=("a", "a")),
            environment=environment,
        )
        write(subject, request, result)
        return kept[0]

    return build


def test_what_a_rank_computes_is_held_against_the_peak_of_its_device(recorded):
    measurement = recorded("NVIDIA H200", "bf16_TFLOPS")
    assert (measurement.ceiling.value, measurement.ceiling.source) == (989e12, "datasheet")
    assert measurement.ceiling.origin.endswith(
        "; the roofline of one rank, from its device and its share of the work"
    )
    assert measurement.mfu == pytest.approx(1e14 / 989e12)


def test_on_processors_and_without_a_type_ranks_have_no_roofline(recorded):
    assert recorded("Some Processor", "fp32_TFLOPS", "cpu").ceiling is None
    assert recorded("NVIDIA H200", "TFLOPS").ceiling is None


def test_what_crosses_the_links_is_held_against_the_links_of_one_device(recorded):
    assert recorded("NVIDIA H200", "busbw_GBps").ceiling.value == 450e9
