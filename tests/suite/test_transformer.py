"""The transformer's steps as a user starts them: what each tier has, and a run of a small one, with too large ones."""

import re
import shutil
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.units import format_amount
from roofline_kernels.training.checking import check_memory
from roofline_kernels.training.estimates import bytes_at_least
from roofline_kernels.training.parallel import STRATEGIES
from roofline_kernels.training.precisions import precision_named
from roofline_kernels.transformer import Config

from .benchmarks import SUITE, load, short_run_of, stand_in_config

# One short run times steps and shows their memory by category.
pytestmark = pytest.mark.feature("observe")

FILE = SUITE / "test_transformer.py"
PASSES = ("forward", "forward_backward", "step", "backward", "optimizer")

# The suite's own functions on models that are no suite's: a tiny one, one that cannot fit anywhere, and one of which
# nobody foresees that it does not fit.
MODELS = f"""
import importlib.util

import pytest

from roofline_kernels.transformer import Config

spec = importlib.util.spec_from_file_location("transformer_steps", {str(FILE)!r})
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


@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast", "bf16_autocast_uncached", "fp16_autocast", "bf16"])
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


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """What a run of these models printed, and the run."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "test_models.py").write_text(MODELS)
    file = str(folder / "test_models.py")
    done, run = short_run_of(folder, "-v", "-rs", f"--rootdir={folder}", file, OMP_NUM_THREADS="1")
    return done.stdout, run


@pytest.fixture(scope="module")
def suite():
    """The module itself."""
    return load("transformer")


def cases_of(suite, test, on_accelerator=False):
    """The cases of a test as pytest gets them, for a device."""
    return list(suite.CASES[test][1](suite.Asked(on_accelerator)))


def marks_of(suite, test, on_accelerator=False):
    """The roofline mark of each case of a test, by id."""
    return {case.id: case.marks[0].kwargs for case in cases_of(suite, test, on_accelerator)}


def of_tier(suite, tier, test="test_transformer", on_accelerator=False):
    found = marks_of(suite, test, on_accelerator).items()
    return {name for name, mark in found if mark["tier"] == tier}


# What is run where


def config(device=None, ini=""):
    return stand_in_config(device, ini)


def test_the_device_that_is_measured_decides_and_without_any_accelerator_the_cpu_is(
    suite, monkeypatch
):
    for cuda in [False, True]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        told = (config("cpu"), config(ini="cpu"), config("xpu:1"), config("mps"))
        assert [suite._on_accelerator(one) for one in told] == [False, False, True, True]
        assert not cuda or suite._on_accelerator(config())
    for library in (torch.cuda, torch.xpu, torch.backends.mps):
        monkeypatch.setattr(library, "is_available", lambda: False)
    assert not suite._on_accelerator(config())
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert suite._on_accelerator(config())


def test_another_batch_has_ids_and_parameters_of_its_own(suite):
    for test in suite.CASES:
        usual, others = cases_of(suite, test), list(suite.CASES[test][1](suite.Asked(batch=8)))
        assert {case.id for case in usual}.isdisjoint(case.id for case in others)
        assert {case.values[-1] for case in usual} == {4}
        assert [(*case.values[:-1], 8) for case in usual] == [case.values for case in others]
        assert all("-b8" in case.id for case in others)


def test_options_environment_and_ini_ask_for_a_model_and_its_exact_number_of_parameters_is_printed(
    pytester,
):
    for file in (SUITE / "conftest.py", FILE, SUITE / "test_transformer_ranks.py"):
        shutil.copy(file, pytester.path)
    pytester.makeini(
        "[pytest]\ntransformer_layers = 2\ntransformer_batch = 1\ntransformer_d_model = 32"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_TRANSFORMER_D_MODEL", "96")
        patch.setenv("ROOFLINE_TRANSFORMER_CONTEXT", "16")
        asked = ("--roofline-device=cpu", "--collect-only", "--d-ff=128")
        printed = pytester.runpytest_inprocess(*asked).stdout.str()
        parameters = Config(d_model=96, d_ff=128, layers=2, heads=1).parameters
        assert (
            f"d_model 96, d_ff 128, 2 layers, 1 heads, vocabulary 10,000: {parameters:,} parameters"
            in printed
        )
        assert "<Function test_transformer[d96_ff128_l2_h1-step-c16-b1-fp32-sdpa-eager]>" in printed
        shape = "d96_ff128_l2_h1-2ranks-s16"
        assert f"<Function test_transformer_ranks[ddp-{shape}-fp32]>" in printed
        for strategy in STRATEGIES:
            assert (
                f"<Function test_transformer_ranks[{strategy}-{shape}-b1-bf16_autocast]>" in printed
            )
        assert not re.search(r"small-|tiny-|c128|s128|s512|-b4", printed)
        patch.setenv("ROOFLINE_TRANSFORMER_CONTEXT", "many")
        for arguments, told in (
            ((), "ROOFLINE_TRANSFORMER_CONTEXT is 'many'; expected a whole number above zero"),
            (
                ("--context=8", "--batch=0"),
                "argument --batch: '0'; expected a whole number above zero",
            ),
            (
                ("--context=8", "--d-model=200"),
                "d_model 200 with 3 heads; expected heads that divide it; choose others by --d-model and --heads",
            ),
        ):
            done = pytester.runpytest_inprocess(*asked, *arguments)
            assert done.ret == pytest.ExitCode.USAGE_ERROR
            assert told in done.stderr.str()


def test_the_gate_is_inference_and_the_full_step(suite):
    for on_accelerator in [False, True]:
        gated = {
            name
            for name, mark in marks_of(suite, "test_transformer", on_accelerator).items()
            if mark["gate"]
        }
        quick = {
            name
            for name in of_tier(suite, "quick", on_accelerator=on_accelerator)
            if name.endswith("-eager")
        }
        assert gated == {name for name in quick if name.split("-")[1] in ("forward", "step")}


def test_out_of_memory_is_a_result(suite):
    for test in suite.CASES:
        assert {mark["oom"] for mark in marks_of(suite, test).values()} == {"record"}


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
    assert (optimizer.key.metric, optimizer.work.traffic_bytes) == (
        "traffic_GBps",
        7 * 4 * parameters,
    )


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
    assert (found.label, found.recorded, found.allocation.asked_bytes) == (
        "unforeseen",
        True,
        4 * 2**19 * 2**19,
    )
    assert [one.outcome for one in run.outcomes if one.test_id.endswith("test_unforeseen")] == [
        "passed"
    ]


def test_memory_is_told_by_category_with_the_residual_stream_beside_its_formula(run):
    assert len(run.memory_uses) == 10
    peaks = {use.label.partition("[")[2][:-1]: use.peak_bytes for use in run.memory_uses}
    # A forward pass keeps what autocast has cast only in its cache; a model in bfloat16 has no second copy.
    kept, dropped, half = (
        peaks[f"forward-{name}"] for name in ("bf16_autocast", "bf16_autocast_uncached", "bf16")
    )
    assert kept > dropped > half
    forward, step = (one for one in run.memory_uses if "-fp32" in one.label or "fp32-" in one.label)
    parameters = Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100).parameters
    assert {(one.name, one.value) for one in run.figures if one.test_id == step.test_id} == {
        ("activation of the residual stream", 4 * 4 * 16 * 64),
        ("parameters", parameters),
    }
    weights = 4 * parameters
    assert forward.categories["parameters"] == step.categories["parameters"] == weights
    assert step.categories["optimizer"] >= 2 * weights


def test_memory_is_held_against_what_is_known():
    known = {"weights": 100, "least": 1000, "passes": "step"}
    check_memory({"parameters": 100, "optimizer": 208}, 1000, **known)
    for categories, peak_bytes, told in [
        ({"parameters": 96, "optimizer": 208}, 1000, "parameters take 96 bytes; expected 100"),
        ({"parameters": 100}, 1000, "state takes 0 bytes; expected 200"),
        (
            {"parameters": 100, "optimizer": 208},
            999,
            "the peak is 999 bytes; expected 1000 or more",
        ),
    ]:
        with pytest.raises(AssertionError, match=told):
            check_memory(categories, peak_bytes, **known)


SMALL = Config(d_model=64, d_ff=256, layers=2, heads=2, vocab=100)


def test_what_would_take_for_ever_is_skipped(suite, monkeypatch):
    monkeypatch.setattr(
        suite, "why_too_slow", lambda flops, precision, device: f"needs {flops} FLOPs, in vain"
    )
    with pytest.raises(pytest.skip.Exception, match=r"needs \d+ FLOPs, in vain"):
        suite.measure(SimpleNamespace(), torch.device("cpu"), SMALL, "step", 16, "fp32")


def test_the_warm_up_times_a_pass_that_is_right(suite):
    for passes in ["forward", "forward_backward", "step"]:
        one = suite.stepping(
            SimpleNamespace(device=torch.device("cpu")), "d64_ff256_l2_h2", passes, 16, 4
        )
        one.call()
        assert one.verify() is None
