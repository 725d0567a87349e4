"""FlashAttention's benchmarks and compile gate as a user starts them: what gates, and one short real run."""

import re

import pytest

from .benchmarks import load, short_run_of

# One short run times kernels and compiles them.
pytestmark = pytest.mark.feature("kernel_gate")

TIMED, COMPILED = "perf_tests/test_flash_attention.py", "perf_tests/test_flash_resources.py"

# A short run on a CPU: interpreted before compiled.
FP32 = f"{TIMED}::test_flash_attention_fp32"
MEASURED = ("sdpa_flash-forward-causal-s512", "eager-both-full-s512")
WITHOUT_BACK_END = f"{FP32}[sdpa_cudnn-forward-causal-s512]"
OURS = (
    f"{FP32}[triton-forward-causal-s512]",
    f"{TIMED}::test_flash_attention[triton-both-causal-s16384-d64]",
    f"{TIMED}::test_flash_attention_tile[forward-64-16]",
    f"{TIMED}::test_flash_attention_leaderboard[triton]",
)
INTERPRETED = f"{TIMED}::test_flash_attention_interpreted[bf16-64]"
BINARIES = ("forward-sm_80-bf16-d64-causal", "d_queries-gfx942-bf16-d64-causal")
REFUSED = f"{COMPILED}::test_flash_attention_refused[sm_70]"
RUN = (
    "-v", *(f"{FP32}[{name}]" for name in MEASURED), WITHOUT_BACK_END, *OURS, INTERPRETED,
    *(f"{COMPILED}::test_flash_resources[{name}]" for name in BINARIES), REFUSED,
)  # fmt: skip


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """What a run of these printed, and the run; no kernel was compiled before."""
    folder = tmp_path_factory.mktemp("runs")
    variables = {"TRITON_CACHE_DIR": str(folder / "triton"), "OMP_NUM_THREADS": "2"}
    done, run = short_run_of(folder, *RUN, statuses=(0, 1), **variables)
    # Only binaries of another Triton than that of the baseline may be red.
    assert done.returncode == 0 or re.search(r"triton\s+\S+\s+→", done.stdout), done.stdout
    return done.stdout, run


# What gates


def marks_of(module, test):
    """The roofline mark of each case of a test, by id."""
    marks = [mark for mark in getattr(load(module), test).pytestmark if mark.name == "parametrize"]
    return {param.id: param.marks[0].kwargs for mark in marks for param in mark.args[1]}


def test_the_gate_is_what_quick_runs_out_of_memory_is_a_result_and_our_kernels_need_an_accelerator():
    for test in ("test_flash_attention", "test_flash_attention_fp32"):
        for name, mark in marks_of("flash_attention", test).items():
            assert bool(mark.get("gate")) == (mark["tier"] == "quick"), name
            assert mark["oom"] == "record", name
            assert not name.startswith("triton-") or mark["needs"] == "accelerator", name


def test_whatever_a_night_compiles_gates():
    marks = marks_of("flash_resources", "test_flash_resources").values()
    assert [mark for mark in marks if mark["tier"] != "full" and not mark["gate"]] == []


# A short run on a CPU


def lines_of(printed, word):
    """The ids of the tests of which the run says a word."""
    return re.findall(rf"^(perf_tests/\S+) {word}", printed, re.MULTILINE)


def test_a_cpu_times_pytorch_and_the_formula(run):
    assert [m.label for m in run.measurements] == [
        f"flash_attention_fp32[{name}]" for name in MEASURED
    ]
    assert [m.verified for m in run.measurements] == [True] * 2


def test_flops_are_four_for_each_pair_and_column_half_under_a_mask_and_three_and_a_half_times_as_many_for_both(
    run,
):
    forward = 4 * 8 * 512**2 * 64
    assert [m.work.flops for m in run.measurements] == [forward // 2, forward * 7 // 2]
    assert {m.key.metric for m in run.measurements} == {"fp32_TFLOPS"}


def test_the_compile_gate_records_what_binaries_ask_for(run):
    assert [(one.label, one.target) for one in run.resources] == [
        (f"flash_resources[{BINARIES[0]}]", "sm_80"),
        (f"flash_resources[{BINARIES[1]}]", "gfx942"),
    ]
    assert [(one.spills, one.matrix_instructions > 0, one.invalid) for one in run.resources] == [
        (0, True, "")
    ] * 2


def test_kernels_are_checked_in_the_interpreter_and_refused_where_they_are_of_no_use(printed):
    assert {INTERPRETED, REFUSED} <= set(lines_of(printed, "PASSED"))


def test_nothing_of_the_interpreter_is_a_measurement(printed, run):
    recorded = [one.label for one in (*run.measurements, *run.resources)] + [
        one.benchmark for one in run.out_of_memory
    ]
    assert [label for label in recorded if "interpreted" in label or "triton" in label] == []
    assert re.search(r"^2 measured, 2 compiled", printed, re.MULTILINE), printed


def test_our_kernels_say_that_they_need_an_accelerator(printed):
    assert set(lines_of(printed, "SKIPPED")) == {*OURS, WITHOUT_BACK_END}
    reasons = re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", printed, re.MULTILINE)
    assert sum(int(count) for count, reason in reasons if "needs an accelerator" in reason) == len(
        OURS
    )


def test_a_back_end_that_is_not_there_is_skipped_in_words(printed):
    assert re.search(r"^SKIPPED .*(No viable backend|No available kernel)", printed, re.MULTILINE)


def test_nothing_fails_but_by_a_verdict(run):
    # What the binaries ask for is held against a baseline elsewhere.
    assert [
        one.test_id for one in run.outcomes if one.outcome == "failed" and not one.by_verdict
    ] == []
