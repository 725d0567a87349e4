"""The sweep over naive attention as a user starts it: what each tier has, a short run, and a run without memory."""

import functools
import os
import re
import sys
from itertools import product
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import read_run

from . import warm

ROOT = Path(__file__).resolve().parent.parent
SUITE = "perf_tests/test_attention.py"
GIB, MIB = 2**30, 2**20
# More than torch needs, and less than the first matrix of scores at a sequence of 8192, which takes 2 GiB.
SMALL_BYTES = 3 * GIB // 2


def pytest_on_sweep(*arguments, limit=None):
    """A run of pytest on the sweep in a process of its own, which may have so many bytes of memory."""
    return warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        # Few threads: their stacks count as memory too.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"OMP_NUM_THREADS": "2"},
        limit_bytes=limit,
    )


@functools.cache
def of_tier(tier):
    """The ids of a tier."""
    done = pytest_on_sweep("--collect-only", "-q", SUITE, f"--roofline-tier={tier}")
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"::test_attention\[(\S+)\]$", done.stdout, re.MULTILINE))


def ids(implementations=("eager", "compiled"), widths=(16, 32, 64, 128), sequences=(256, 1024, 4096, 8192, 16384)):
    return {
        f"{implementation}-{passes}-d{width}-s{sequence}"
        for implementation, passes, width, sequence in product(
            implementations, ("forward", "backward"), widths, sequences
        )
    }


def test_quick_runs_two_short_sequences_of_one_width():
    assert of_tier("quick") == ids(("eager",), (64,), (256, 1024))


def test_nightly_adds_everything_up_to_4096():
    assert of_tier("nightly") == ids(sequences=(256, 1024, 4096))


def test_full_is_the_whole_sweep():
    assert of_tier("full") == ids()


def run(folder, *names, limit=None):
    """A short run of some of the tests: the finished process and its run."""
    done = pytest_on_sweep(
        *(f"{SUITE}::test_attention[{name}]" for name in names),
        "-v",
        "--roofline-device=cpu",
        "--roofline-budget=0.05",
        f"--roofline-dir={folder}",
        limit=limit,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / "runs").glob("*.jsonl")
    return done, read_run(path)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """Both passes of the smallest test of the gate."""
    return run(tmp_path_factory.mktemp("runs"), "eager-forward-d64-s256", "eager-backward-d64-s256")[1]


def test_a_short_run_verifies_both_passes_in_float64(short_run):
    assert [m.label for m in short_run.measurements] == [
        "attention[eager-forward-d64-s256]",
        "attention[eager-backward-d64-s256]",
    ]
    assert [m.verified for m in short_run.measurements] == [True, True]


def test_a_short_run_belongs_to_the_gate_and_counts_flops(short_run):
    forward, backward = short_run.measurements
    # Forward 4·B·S²·D, half of it causal; backward two and a half times as much.
    assert forward.work.flops == 2 * 8 * 256**2 * 64
    assert backward.work.flops == 5 * 8 * 256**2 * 64
    assert (forward.key.metric, forward.gate) == ("fp32_TFLOPS", True)
    parameters = {"implementation": "eager", "passes": "forward", "d_model": 64, "sequence": 256}
    assert forward.key.parameters == parameters


def test_a_short_run_tells_the_memory_before_the_backward_pass_and_both_peaks(short_run):
    forward, backward = short_run.measurements
    # At least one matrix of probabilities, [8, 256, 256], and the output are kept for the backward pass.
    scores, output = 8 * 256 * 256 * 4, 8 * 256 * 64 * 4
    assert scores + output <= forward.held_bytes <= forward.peak_bytes
    assert 3 * output <= backward.peak_bytes
    assert backward.held_bytes is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which limits what malloc maps")
def test_without_memory_it_is_recorded_and_the_run_goes_on(tmp_path):
    done, found = run(
        tmp_path,
        "eager-forward-d16-s8192",
        "eager-backward-d16-s8192",
        "eager-forward-d64-s256",
        limit=SMALL_BYTES,
    )
    first, second = found.out_of_memory
    assert (first.asked_bytes, first.phase, first.recorded) == (2 * GIB, "calls", True)
    assert (second.asked_bytes, second.phase) == (2 * GIB, "arguments")
    assert first.free_bytes < SMALL_BYTES
    assert [m.label for m in found.measurements] == ["attention[eager-forward-d64-s256]"]
    assert [outcome.outcome for outcome in found.outcomes] == ["passed"] * 3
    assert "PASSED OUT OF MEMORY asked for 2.00 GiB" in done.stdout
    assert found.footer.not_measured == {"out of memory": 2}
