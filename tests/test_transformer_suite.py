"""The transformer's steps as a user starts them: what each tier has, and a run of a small one, with too large ones."""

import importlib.util
import json
import os
import re
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.units import format_amount
from roofline_kernels.training.estimates import bytes_at_least
from roofline_kernels.training.precisions import precision_named
from roofline_kernels.transformer import Config

from . import warm

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "perf_tests" / "test_transformer.py"
PASSES = ("forward", "forward_backward", "step", "backward", "optimizer")
PRECISIONS = ("fp32", "tf32", "bf16_autocast", "fp16_autocast", "bf16")
CONTEXTS, LONG = ("c128", "c256", "c512", "c1024"), ("c2048", "c4096")
SIZES, LARGEST = ("small", "medium", "large"), ("xl", "2.7B")

# The suite's own functions on models that are no suite's: a tiny one, one that cannot fit anywhere, and one of which
# nobody foresees that it does not fit.
MODELS = f"""
import importlib.util

import pytest

from roofline_kernels.transformer import Config

spec = importlib.util.spec_from_file_location("transformer_steps", {str(SUITE)!r})
suite = importlib.util.module_from_spec(spec)
spec.loader.exec_module(suite)
TINY = Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100)
IMMENSE = Config(d_model=2**19, d_ff=2**21, layers=2, heads=2**12, vocab=100)


@pytest.fixture
def device(roofline):
    return roofline.device


@pytest.mark.parametrize("passes", {PASSES!r})
def test_tiny(roofline, device, passes):
    suite.measure(roofline, device, TINY, passes, 16, "fp32")


@pytest.mark.parametrize(("precision", "execution"), [("tf32", "eager"), ("fp32", "cuda_graph")])
def test_not_here(roofline, device, precision, execution):
    suite.measure(roofline, device, TINY, "forward", 16, precision, execution=execution)


@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast", "fp16_autocast", "bf16"])
@pytest.mark.parametrize("passes", ["forward", "step"])
def test_tiny_memory(roofline, device, passes, precision):
    suite.tell_memory(roofline, device, TINY, 16, precision, passes)


def test_immense(roofline, device):
    suite.measure(roofline, device, IMMENSE, "step", 16, "fp32")


@pytest.mark.roofline(oom="record")
def test_unforeseen(roofline, device, monkeypatch):
    monkeypatch.setattr(suite, "bytes_at_least", lambda *arguments, **more: 0)
    suite.measure(roofline, device, IMMENSE, "step", 16, "fp32")
"""

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
    """What pytest printed, of the quick tier and of the run of models; and that run."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "test_models.py").write_text(MODELS)
    asked = [
        ["--collect-only", "-q", "--roofline-device=cpu", str(SUITE)],
        [
            "-v", "-rs", f"--rootdir={folder}", "--roofline-device=cpu", "--roofline-budget=0.05",
            f"--roofline-dir={folder}", str(folder / "test_models.py"),
        ],
    ]  # fmt: skip
    done = warm.run(
        ["-c", PROGRAM, json.dumps(asked)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ROOFLINE_"))}
        | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    _, *printed = re.split(r"^==$", done.stdout, flags=re.MULTILINE)
    (path,) = (folder / "runs").glob("*.jsonl")
    return printed, read_run(path)


@pytest.fixture(scope="module")
def printed(sessions):
    """What the run of models printed."""
    return sessions[0][-1]


@pytest.fixture(scope="module")
def run(sessions):
    """Its file."""
    return sessions[1]


def loaded():
    spec = importlib.util.spec_from_file_location("test_transformer_looked_at", SUITE)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ROOFLINE_TRANSFORMER_BATCH", raising=False)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def suite():
    """The module itself."""
    return loaded()


def cases_of(suite, test, on_accelerator=False):
    """The cases of a test as pytest gets them, for a device."""
    return list(suite.CASES[test][1](on_accelerator))


def marks_of(suite, test, on_accelerator=False):
    """The roofline mark of each case of a test, by id."""
    return {case.id: case.marks[0].kwargs for case in cases_of(suite, test, on_accelerator)}


def of_tier(suite, tier, test="test_transformer", on_accelerator=False):
    found = marks_of(suite, test, on_accelerator).items()
    return {name for name, mark in found if mark["tier"] == tier}


def joined(*choices):
    return {"-".join(chosen) for chosen in product(*choices)}


# What each tier has


def test_quick_is_every_pass_of_the_small_model(sessions):
    listed = re.findall(r"::test_transformer\[(\S+)\]$", sessions[0][0], re.MULTILINE)
    on_any = joined(("small",), PASSES, ("c128",), ("fp32",), ("sdpa",), ("eager",))
    assert set(listed) >= on_any
    assert len(listed) == len(on_any)


def test_quick_looks_at_the_memory_of_the_small_model(sessions):
    listed = re.findall(r"::test_transformer_memory\[(\S+)\]$", sessions[0][0], re.MULTILINE)
    assert listed == ["small-c128-fp32-forward", "small-c128-fp32-step"]


def test_on_accelerators_quick_has_longer_ones_a_compiled_and_a_captured_one(suite):
    added = of_tier(suite, "quick", on_accelerator=True) - of_tier(suite, "quick")
    eager = joined(("small",), ("forward", "step"), ("c512",), ("fp32", "bf16_autocast"), ("sdpa",), ("eager",))
    assert added == eager | joined(("small-step-c512-bf16_autocast-sdpa",), ("compile", "cuda_graph"))


def config(device=None, ini=""):
    return SimpleNamespace(getoption=lambda name: device, getini=lambda name: ini)


@pytest.mark.parametrize("cuda", [False, True])
def test_the_device_that_is_measured_decides_and_not_the_one_that_is_there(suite, monkeypatch, cuda):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert not suite._on_accelerator(config("cpu"))
    assert not suite._on_accelerator(config(ini="cpu"))
    assert suite._on_accelerator(config("xpu:1"))
    assert suite._on_accelerator(config("mps"))
    if cuda:
        assert suite._on_accelerator(config())


def test_without_any_accelerator_the_cpu_is_measured(suite, monkeypatch):
    for library in (torch.cuda, torch.xpu, torch.backends.mps):
        monkeypatch.setattr(library, "is_available", lambda: False)
    assert not suite._on_accelerator(config())
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert suite._on_accelerator(config())


def test_by_night_three_sizes_run_every_pass_context_and_precision(suite):
    passes = [name for name in PASSES if name != "optimizer"]
    expected = joined(SIZES, passes, CONTEXTS, PRECISIONS, ("sdpa",), ("eager",))
    expected |= joined(SIZES, ("optimizer",), ("c128",), ("fp32", "bf16"), ("sdpa",), ("eager",))
    found = of_tier(suite, "nightly") | of_tier(suite, "quick")
    assert {name for name in found if name.endswith("-sdpa-eager")} == expected


@pytest.mark.parametrize("way", ["naive-eager", "triton-eager", "sdpa-compile", "naive-compile", "sdpa-cuda_graph"])
def test_by_night_three_sizes_run_every_attention_and_execution(suite, way):
    found = {name.partition("-")[0] for name in of_tier(suite, "nightly") if name.endswith(way)}
    assert found == set(SIZES)


def test_full_adds_the_largest_sizes_and_the_longest_contexts(suite):
    names = of_tier(suite, "full")
    assert {name.partition("-")[0] for name in names} == {*SIZES, *LARGEST}
    assert {name for name in names if name.startswith(SIZES) and not set(name.split("-")) & set(LONG)} == set()
    assert joined(LARGEST, ("step",), CONTEXTS + LONG, PRECISIONS, ("sdpa",), ("eager",)) <= names


def test_no_name_comes_twice(suite):
    for test in suite.CASES:
        names = Counter(case.id for case in cases_of(suite, test))
        assert [name for name, count in names.items() if count > 1] == []


def test_another_batch_has_ids_and_parameters_of_its_own(suite, monkeypatch):
    usual = {test: cases_of(suite, test) for test in suite.CASES}
    monkeypatch.setattr(suite, "BATCH", 8)
    for test, before in usual.items():
        others = cases_of(suite, test)
        assert {case.id for case in before}.isdisjoint(case.id for case in others)
        assert {case.values[-1] for case in before} == {4}
        assert [(*case.values[:-1], 8) for case in before] == [case.values for case in others]
        assert all("-b8" in case.id for case in others)


@pytest.mark.parametrize(("text", "batch"), [(None, 4), ("", 4), ("1", 1), ("16", 16)])
def test_the_environment_asks_for_a_batch(suite, text, batch):
    assert suite.asked_batch(text) == batch


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many", " 4", "\u0664"])
def test_what_is_no_batch_is_refused(suite, text):
    with pytest.raises(
        pytest.UsageError, match=r"ROOFLINE_TRANSFORMER_BATCH is .*; expected a whole number above zero"
    ):
        suite.asked_batch(text)


def test_warm_up_is_of_inference_gradients_and_the_full_step_at_the_published_context(suite):
    passes = ("forward", "forward_backward", "step")
    assert {case.id for case in cases_of(suite, "test_transformer_warm_up")} == joined(SIZES, passes)
    assert suite.WARM_UP_CONTEXT == 256


def test_who_asks_for_attention_gets_none_of_these(suite):
    # `-k attention` looks at names of files, functions and cases.
    functions = {name for name in vars(suite) if name.startswith("test_")}
    cases = {case.id for test in suite.CASES for case in cases_of(suite, test)}
    assert {name for name in {SUITE.name} | functions | cases if "attention" in name.lower()} == set()


@pytest.mark.parametrize("on_accelerator", [False, True])
def test_the_gate_is_inference_and_the_full_step(suite, on_accelerator):
    gated = {name for name, mark in marks_of(suite, "test_transformer", on_accelerator).items() if mark["gate"]}
    quick = {name for name in of_tier(suite, "quick", on_accelerator=on_accelerator) if name.endswith("-eager")}
    assert gated == {name for name in quick if name.split("-")[1] in ("forward", "step")}


def test_out_of_memory_is_a_result(suite):
    for test in ("test_transformer", "test_transformer_memory"):
        assert {mark["oom"] for mark in marks_of(suite, test).values()} == {"record"}
    (mark,) = suite.test_transformer_warm_up.pytestmark
    assert mark.kwargs["oom"] == "record"


def test_our_kernels_and_graphs_are_for_accelerators(suite):
    for name, mark in marks_of(suite, "test_transformer").items():
        special = name.endswith(("-triton-eager", "-cuda_graph"))
        assert (name, mark["needs"]) == (name, "accelerator" if special else None)


# A run on a CPU


def test_every_pass_is_measured_and_verified(run):
    assert [m.label for m in run.measurements] == [f"tiny[{passes}]" for passes in PASSES]
    assert [m.verified for m in run.measurements] == [True] * 5


def test_flops_are_those_of_the_matrices_and_tokens_stand_beside(run):
    # 2 for each element of a block's 4·64² + 3·64·256 and of the head's 100·64, and 4·16·64 a layer for the scores.
    forward = 4 * 16 * (2 * (2 * (4 * 64**2 + 3 * 64 * 256) + 100 * 64) + 2 * 4 * 16 * 64)
    flops = {m.key.parameters["passes"]: m.work.flops for m in run.measurements}
    assert flops == {
        "forward": forward,
        "forward_backward": 3 * forward,
        "step": 3 * forward,
        "backward": 2 * forward,
        "optimizer": 0,
    }
    assert {m.work.tokens for m in run.measurements if m.work.flops} == {4 * 16}
    assert {m.key.metric for m in run.measurements if m.work.flops} == {"fp32_TFLOPS"}


def test_the_optimizer_is_shown_as_its_traffic(run):
    optimizer = run.measurements[-1]
    parameters = Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100).parameters
    assert (optimizer.key.metric, optimizer.work.traffic_bytes) == ("traffic_GBps", 7 * 4 * parameters)


def test_peaks_are_measured(run):
    peaks = {m.key.parameters["passes"]: m.peak_bytes for m in run.measurements}
    weights = 4 * Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100).parameters
    assert peaks["forward"] >= 4 * 16 * 100 * 4
    # Gradients are made anew in every call.
    assert min(peaks["forward_backward"], peaks["step"], peaks["backward"]) >= weights


def test_what_this_device_does_not_do_is_told(printed):
    assert "needs TF32, which CUDA and ROCm devices have, found cpu" in printed
    assert "needs a CUDA or ROCm device for a CUDA graph, found cpu" in printed


def test_what_cannot_fit_is_skipped_with_what_it_needs_at_least(printed):
    config = Config(d_model=2**19, d_ff=2**21, layers=2, heads=2**12, vocab=100)
    precision = precision_named("fp32")
    least = bytes_at_least(config, batch=4, context=16, passes="step", precision=precision)
    assert f"needs {format_amount(least)} of device memory, found" in printed
    assert re.search(r"test_immense SKIPPED", printed)


def test_what_runs_out_all_the_same_is_recorded(run):
    (found,) = run.out_of_memory
    # The first matrix behind the embedding, in float32.
    assert (found.label, found.recorded, found.asked_bytes) == ("unforeseen", True, 4 * 2**19 * 2**19)
    assert [one.outcome for one in run.outcomes if one.test_id.endswith("test_unforeseen")] == ["passed"]


def test_memory_is_told_by_category_with_the_residual_stream_beside_its_formula(run):
    assert len(run.memory_uses) == 8
    forward, step = (one for one in run.memory_uses if "-fp32" in one.label or "fp32-" in one.label)
    assert {(one.name, one.value) for one in run.figures if one.test_id == step.test_id} == {
        ("activation of the residual stream", 4 * 4 * 16 * 64)
    }
    weights = 4 * Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100).parameters
    assert forward.categories["parameters"] == step.categories["parameters"] == weights
    assert step.categories["optimizer"] >= 2 * weights


def a_memory_use(**changes):
    facts = {"peak_bytes": 1000}
    facts |= {"categories": {"parameters": 100, "optimizer": 208}}
    return SimpleNamespace(**facts | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"categories": {"parameters": 96, "optimizer": 208}}, "parameters take 96 bytes; expected 100"),
        ({"categories": {"parameters": 100}}, "state takes 0 bytes; expected 200"),
        ({"peak_bytes": 999}, "the peak is 999 bytes; expected 1000 or more"),
    ],
)
def test_memory_is_held_against_what_is_known(suite, changes, told):
    suite.check_memory(a_memory_use(), 100, 1000, "step")
    with pytest.raises(AssertionError, match=told):
        suite.check_memory(a_memory_use(**changes), 100, 1000, "step")


def test_what_would_take_for_ever_is_skipped(suite, monkeypatch):
    monkeypatch.setattr(suite, "why_too_slow", lambda flops, precision, device: f"needs {flops} FLOPs, in vain")
    config, cpu = Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100), torch.device("cpu")
    with pytest.raises(pytest.skip.Exception, match=r"needs \d+ FLOPs, in vain"):
        suite.measure(SimpleNamespace(), cpu, config, "step", 16, "fp32")


@pytest.mark.parametrize("passes", ["forward", "forward_backward", "step"])
def test_the_warm_up_times_a_pass_that_is_right(suite, monkeypatch, passes):
    monkeypatch.setattr(suite, "SIZES", {"tiny": Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100)})
    one = suite.stepping(SimpleNamespace(device=torch.device("cpu")), "tiny", passes, 16, 4)
    one.call()
    assert one.verify() is None
