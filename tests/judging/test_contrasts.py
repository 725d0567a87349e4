"""Pairs of tests that differ in one parameter: which are paired, what counts, and what is said where one side lacks."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.work import Work
from pytest_roofline.judging.contrasts import contrasts


@pytest.fixture
def step(make):
    """Makes a measurement of one transformer step in so many seconds."""

    def measure(*seconds, precision="fp32", size="small", context=128, metric="fp32_TFLOPS", **changes):
        parameters = {"size": size, "context": context, "precision": precision}
        key = make.key("transformer", parameters=parameters, metric=metric, **changes.pop("key", {}))
        return make.measurement(*seconds, key=key, work=Work(flops=10**9), **changes)

    return measure


@pytest.fixture
def ran_out(step):
    def record(**changes):
        key = step(1.0, **changes).key
        return OutOfMemory(
            test_id=f"test_transformer.py::test_{key.label}",
            benchmark=key.benchmark,
            parameters=key.parameters,
            label=key.label,
            process="process-1",
            device="cuda:0",
            message="CUDA out of memory",
            recorded=True,
        )

    return record


def pairs(*runs, base="fp32", other="bf16"):
    return contrasts(runs, "precision", base, other)


def test_a_pair_has_both_times_their_difference_and_its_share_of_the_base(make, step, tmp_path):
    run = make.run(tmp_path / "r.jsonl", step(0.200), step(0.150, precision="bf16", metric="bf16_TFLOPS"))
    (pair,) = pairs(run)
    assert (pair.base.seconds, pair.other.seconds) == (0.200, 0.150)
    assert pair.difference_s == pytest.approx(-0.050)
    assert pair.change == pytest.approx(-0.25)
    assert pair.parameters == {"size": "small", "context": 128}


def test_tests_are_paired_by_all_other_parameters_in_the_order_of_the_run(make, step, tmp_path):
    cases = (
        ("small", 128, "fp32", 1.0),
        ("small", 256, "fp32", 2.0),
        ("large", 128, "fp32", 3.0),
        ("large", 128, "bf16", 30.0),
        ("small", 128, "bf16", 10.0),
    )
    records = [step(s, precision=p, size=size, context=c, test_id=f"{size}{c}{p}") for size, c, p, s in cases]
    run = make.run(tmp_path / "r.jsonl", *records)
    assert [(pair.base.seconds, pair.other.seconds) for pair in pairs(run)] == [(1.0, 10.0), (3.0, 30.0)]


@pytest.mark.parametrize("changes", [{"cache": "warm"}, {"timing": "wall"}, {"name": "cold"}])
def test_what_was_measured_in_another_way_is_no_twin(make, step, tmp_path, changes):
    run = make.run(tmp_path / "r.jsonl", step(1.0), step(2.0, precision="bf16", key=changes))
    assert pairs(run) == []


def test_times_of_other_hardware_are_no_twins(make, step, tmp_path):
    other = {"hardware": make.hardware(product="a100-sxm4")}
    assert pairs(make.run(tmp_path / "r.jsonl", step(1.0), step(2.0, precision="bf16", key=other))) == []


def test_of_several_processes_and_runs_the_median_counts(make, step, tmp_path):
    first = make.run(tmp_path / "a.jsonl", step(1.0), step(3.0, process="process-2"), step(0.5, precision="bf16"))
    second = make.run(tmp_path / "b.jsonl", step(2.0))
    (pair,) = pairs(first, second)
    assert pair.base.seconds == 2.0


def test_a_time_that_must_not_be_trusted_does_not_count(make, step, tmp_path):
    bad = step(9.0, precision="bf16", invalid="busy neighbours")
    (pair,) = pairs(make.run(tmp_path / "r.jsonl", step(1.0), bad))
    assert pair.other.seconds is None
    assert pair.other.words == "not sound: busy neighbours"
    assert pair.difference_s is None
    assert pair.change is None


def test_a_side_that_ran_out_of_memory_says_so(make, step, ran_out, tmp_path):
    run = make.run(tmp_path / "r.jsonl", step(1.0, size="xl"), ran_out(size="xl", precision="bf16"))
    (pair,) = pairs(run)
    assert (pair.base.seconds, pair.other.words) == (1.0, "out of memory")


def test_a_pair_of_which_both_sides_ran_out_of_memory_is_told(make, step, ran_out, tmp_path):
    lost = [ran_out(size="xl", precision=precision) for precision in ("fp32", "bf16")]
    records = [step(1.0), step(2.0, precision="bf16"), *lost, ran_out(size="large", precision="bf16")]
    small, xl = pairs(make.run(tmp_path / "r.jsonl", *records))
    assert small.base.seconds == 1.0
    assert (xl.parameters["size"], xl.base.words, xl.other.words) == ("xl", "out of memory", "out of memory")


def test_the_memory_of_another_machine_says_nothing(make, step, ran_out, tmp_path):
    first = make.run(tmp_path / "a.jsonl", ran_out(precision="bf16"))
    other = {"hardware": make.hardware(product="a100-sxm4")}
    second = make.run(tmp_path / "b.jsonl", step(1.0, key=other))
    assert pairs(first, second) == []


def test_the_memory_of_another_size_says_nothing(make, step, ran_out, tmp_path):
    run = make.run(tmp_path / "r.jsonl", step(1.0), ran_out(size="xl", precision="bf16"))
    assert pairs(run) == []


@pytest.mark.parametrize(
    ("parameter", "base", "other", "message"),
    [
        ("precison", "fp32", "bf16", "no test has the parameter 'precison'; expected one of context, precision, size"),
        ("precision", "fp64", "bf16", "no test has precision=fp64; expected one of bf16, fp32"),
        ("precision", "fp32", "fp32", "both sides are precision=fp32; expected two values that differ"),
    ],
)
def test_what_cannot_be_paired_is_refused_with_what_there_is(make, step, tmp_path, parameter, base, other, message):
    run = make.run(tmp_path / "r.jsonl", step(1.0), step(2.0, precision="bf16"))
    with pytest.raises(BadInput) as caught:
        contrasts([run], parameter, base, other)
    assert str(caught.value) == message
