"""FlashAttention's benchmarks and compile gate as a user starts them: what each tier has, and one short real run."""

import importlib.util
import json
import os
import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import read_run
from roofline_kernels.attention.ahead import architectures

from . import warm

ROOT = Path(__file__).resolve().parent.parent
TIMED, COMPILED = "perf_tests/test_flash_attention.py", "perf_tests/test_flash_resources.py"
TIERS = ("quick", "nightly", "full")

FUSED, PLAIN = ("triton", "sdpa_flash", "sdpa_cudnn", "sdpa_efficient"), ("sdpa_math", "eager", "compiled")
IMPLEMENTATIONS = (*FUSED, *PLAIN)
PASSES, MASKS, WIDTHS = ("forward", "backward", "both"), ("causal", "full"), (64, 128, 256)
KERNELS = ("forward", "d_keys", "d_queries")
BY_NIGHT, BEYOND = (512, 1024, 2048, 4096, 8192, 16384), (32768, 65536)
# Of a compiler's 1.8 s each, so that CI has done with them in some minutes.
MOST_COMPILED_BY_NIGHT = 150

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
    "-v", "--roofline-device=cpu", "--roofline-budget=0.05",
    *(f"{FP32}[{name}]" for name in MEASURED), WITHOUT_BACK_END, *OURS, INTERPRETED,
    *(f"{COMPILED}::test_flash_resources[{name}]" for name in BINARIES), REFUSED,
)  # fmt: skip

# All in one process, since most of the time goes into importing torch.
PROGRAM = """
import json
import sys
import pytest

for arguments in json.loads(sys.argv[1]):
    print("==", flush=True)
    print("\\nexit status", int(pytest.main(["-p", "no:cacheprovider", *arguments])), flush=True)
"""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """What pytest printed when it collected each tier of both files, and then ran some of them; and that run."""
    folder = tmp_path_factory.mktemp("runs")
    collecting = [["--collect-only", "-q", f"--roofline-tier={tier}", TIMED, COMPILED] for tier in TIERS]
    done = warm.run(
        ["-c", PROGRAM, json.dumps([*collecting, [*RUN, f"--roofline-dir={folder}"]])],
        cwd=ROOT,
        # No kernel was compiled before.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"TRITON_CACHE_DIR": str(folder / "triton"), "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, *printed = re.split(r"^==$", done.stdout, flags=re.MULTILINE)
    (path,) = (folder / "runs").glob("*.jsonl")
    return printed, read_run(path)


@pytest.fixture(scope="module")
def tiers(sessions):
    """What each tier of both files lists: pairs of test and id, as pytest itself collects them."""
    listed = [re.findall(r"^perf_tests/\S+::(\w+)\[(\S+)\]$", text, re.MULTILINE) for text in sessions[0][: len(TIERS)]]
    return dict(zip(TIERS, listed, strict=True))


@pytest.fixture(scope="module")
def printed(sessions):
    """What the short run printed."""
    return sessions[0][-1]


@pytest.fixture(scope="module")
def run(sessions):
    """The file of the short run."""
    return sessions[1]


def ids(tiers, tier, test):
    return {name for found, name in tiers[tier] if found == test}


def joined(*choices):
    return {"-".join(chosen) for chosen in product(*choices)}


def shapes(sequences, widths=WIDTHS):
    return [f"s{sequence}-d{width}" for sequence, width in product(sequences, widths)]


# What each tier has


def test_by_night_fused_ones_run_each_pass_mask_and_width_up_to_16384_and_plain_ones_the_usual(tiers):
    expected = joined(FUSED, PASSES, MASKS, shapes(BY_NIGHT))
    expected |= joined(PLAIN, ("forward", "both"), MASKS, shapes(BY_NIGHT, (64, 128)))
    assert ids(tiers, "nightly", "test_flash_attention") == expected


def test_full_goes_on_as_long_as_memory_lasts(tiers):
    assert ids(tiers, "full", "test_flash_attention") == joined(
        IMPLEMENTATIONS, PASSES, MASKS, shapes(BY_NIGHT + BEYOND)
    )


def test_quick_is_ours_beside_the_usual_one_at_two_shapes(tiers):
    expected = joined(("triton", "sdpa_flash"), ("forward", "both"), ("causal",), ("s4096-d128", "s16384-d64"))
    assert ids(tiers, "quick", "test_flash_attention") == expected


def test_in_float32_there_are_two_lengths_that_a_cpu_can_do(tiers):
    lengths = ("s512", "s1024")
    assert ids(tiers, "nightly", "test_flash_attention_fp32") == joined(IMPLEMENTATIONS, PASSES, MASKS, lengths)
    quick = joined(("sdpa_flash", "eager"), ("forward", "both"), ("causal",), lengths)
    assert ids(tiers, "quick", "test_flash_attention_fp32") == quick


def test_every_tile_is_swept_by_night(tiers):
    expected = joined(("forward", "both"), map(str, WIDTHS), map(str, (16, 32, 64, 128, 256)))
    assert [ids(tiers, tier, "test_flash_attention_tile") for tier in TIERS] == [set(), expected, expected]


def test_the_leaderboard_is_for_all_that_need_not_be_compiled(tiers):
    expected = set(IMPLEMENTATIONS) - {"compiled"}
    assert [ids(tiers, tier, "test_flash_attention_leaderboard") for tier in TIERS] == [set(), expected, expected]


@pytest.mark.parametrize("tier", TIERS)
def test_our_kernels_are_interpreted_in_every_tier(tiers, tier):
    expected = joined(("fp32", "bf16"), map(str, WIDTHS))
    assert ids(tiers, tier, "test_flash_attention_interpreted") == expected


@pytest.mark.parametrize("tier", TIERS)
def test_every_architecture_that_is_refused_is_so_in_every_tier(tiers, tier):
    assert ids(tiers, tier, "test_flash_attention_refused") == {"sm_70", "sm_75"}


def test_quick_compiles_each_kernel_in_bfloat16_for_every_architecture_that_has_configurations(tiers):
    expected = joined(KERNELS, architectures(), ("bf16",), ("d64", "d128"), ("causal",))
    assert ids(tiers, "quick", "test_flash_resources") == expected


def test_by_night_every_shipped_size_in_two_bytes_is_compiled(tiers):
    found = ids(tiers, "nightly", "test_flash_resources")
    assert found >= joined(KERNELS, architectures(), ("bf16",), [f"d{width}" for width in WIDTHS], ("causal",))


def test_full_compiles_every_shipped_size_of_either_width(tiers):
    found = ids(tiers, "full", "test_flash_resources")
    assert found >= joined(KERNELS, architectures(), ("bf16", "fp32"), [f"d{width}" for width in WIDTHS], ("causal",))


def test_a_night_compiles_at_most_150_kernels(tiers):
    assert 0 < len(ids(tiers, "nightly", "test_flash_resources")) <= MOST_COMPILED_BY_NIGHT


@pytest.mark.parametrize(("smaller", "larger"), [("quick", "nightly"), ("nightly", "full")])
def test_a_larger_tier_has_all_of_the_smaller(tiers, smaller, larger):
    assert set(tiers[smaller]) < set(tiers[larger])


@pytest.mark.parametrize("tier", TIERS)
def test_names_are_unique(tiers, tier):
    assert [name for name, count in Counter(tiers[tier]).items() if count > 1] == []


# What gates


def marks_of(file, test):
    """The roofline mark of each case of a test, by id."""
    spec = importlib.util.spec_from_file_location(f"{Path(file).stem}_looked_at", ROOT / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    marks = [mark for mark in getattr(module, test).pytestmark if mark.name == "parametrize"]
    return {param.id: param.marks[0].kwargs for mark in marks for param in mark.args[1]}


@pytest.mark.parametrize("test", ["test_flash_attention", "test_flash_attention_fp32"])
def test_the_gate_is_what_quick_runs(tiers, test):
    gated = {name for name, mark in marks_of(TIMED, test).items() if mark.get("gate")}
    assert gated == ids(tiers, "quick", test)


def test_whatever_a_night_compiles_gates():
    marks = marks_of(COMPILED, "test_flash_resources").values()
    assert [mark for mark in marks if mark["tier"] != "full" and not mark["gate"]] == []


@pytest.mark.parametrize("test", ["test_flash_attention", "test_flash_attention_fp32"])
def test_out_of_memory_is_a_result(test):
    assert {mark["oom"] for mark in marks_of(TIMED, test).values()} == {"record"}


def test_our_kernels_are_timed_on_an_accelerator_only():
    marks = marks_of(TIMED, "test_flash_attention") | marks_of(TIMED, "test_flash_attention_fp32")
    assert {mark.get("needs") for name, mark in marks.items() if name.startswith("triton-")} == {"accelerator"}


# A short run on a CPU


def lines_of(printed, word):
    """The ids of the tests of which the run says a word."""
    return re.findall(rf"^(perf_tests/\S+) {word}", printed, re.MULTILINE)


def test_a_cpu_times_pytorch_and_the_formula(run):
    assert [m.label for m in run.measurements] == [f"flash_attention_fp32[{name}]" for name in MEASURED]
    assert [m.verified for m in run.measurements] == [True] * 2


def test_flops_are_four_for_each_pair_and_column_half_under_a_mask_and_three_and_a_half_times_as_many_for_both(run):
    forward = 4 * 8 * 512**2 * 64
    assert [m.work.flops for m in run.measurements] == [forward // 2, forward * 7 // 2]
    assert {m.key.metric for m in run.measurements} == {"fp32_TFLOPS"}


def test_the_compile_gate_records_what_binaries_ask_for(run):
    assert [(one.label, one.target) for one in run.resources] == [
        (f"flash_resources[{BINARIES[0]}]", "sm_80"),
        (f"flash_resources[{BINARIES[1]}]", "gfx942"),
    ]
    assert [(one.spills, one.matrix_instructions > 0, one.invalid) for one in run.resources] == [(0, True, "")] * 2


def test_kernels_are_checked_in_the_interpreter_and_refused_where_they_are_of_no_use(printed):
    assert {INTERPRETED, REFUSED} <= set(lines_of(printed, "PASSED"))


def test_nothing_of_the_interpreter_is_a_measurement(printed, run):
    recorded = [one.label for one in (*run.measurements, *run.resources)] + [one.benchmark for one in run.out_of_memory]
    assert [label for label in recorded if "interpreted" in label or "triton" in label] == []
    assert re.search(r"^2 measured, 2 compiled", printed, re.MULTILINE), printed


def test_our_kernels_say_that_they_need_an_accelerator(printed):
    assert set(lines_of(printed, "SKIPPED")) == {*OURS, WITHOUT_BACK_END}
    reasons = re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", printed, re.MULTILINE)
    assert sum(int(count) for count, reason in reasons if "needs an accelerator" in reason) == len(OURS)


def test_a_back_end_that_is_not_there_is_skipped_in_words(printed):
    assert re.search(r"^SKIPPED .*(No viable backend|No available kernel)", printed, re.MULTILINE)


def test_nothing_fails_but_by_a_verdict(run):
    # What the binaries ask for is held against a baseline elsewhere.
    assert [one.test_id for one in run.outcomes if one.outcome == "failed" and not one.by_verdict] == []


def test_collecting_goes_well(sessions):
    assert [re.findall(r"^exit status (\d+)$", text, re.MULTILINE) for text in sessions[0][:-1]] == [["0"]] * len(TIERS)
