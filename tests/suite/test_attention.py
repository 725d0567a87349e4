"""The sweep over plain attention as a user starts it: a short run, and a run without memory."""

import sys

import pytest

from .benchmarks import short_run_of

GIB = 2**30
# More than torch needs, and less than the first matrix of scores at a sequence of 8192, which takes 2 GiB.
SMALL_BYTES = 3 * GIB // 2


def run(folder, *names, **options):
    """A short run of some of the tests: the finished process and its run."""
    tests = (f"perf_tests/test_attention.py::test_attention[{name}]" for name in names)
    # Few threads: their stacks count as memory too.
    return short_run_of(folder, "-v", *tests, OMP_NUM_THREADS="2", **options)


def test_a_short_run_verifies_counts_and_tells_memory(tmp_path):
    forward, backward = run(tmp_path, "eager-forward-d64-s256", "eager-backward-d64-s256")[
        1
    ].measurements
    assert (forward.label, forward.verified) == ("attention[eager-forward-d64-s256]", True)
    assert (backward.label, backward.verified) == ("attention[eager-backward-d64-s256]", True)
    # Forward 4·B·S²·D, half of it causal; backward two and a half times as much.
    assert (forward.work.flops, backward.work.flops) == (2 * 8 * 256**2 * 64, 5 * 8 * 256**2 * 64)
    assert (forward.key.metric, forward.gate) == ("fp32_TFLOPS", True)
    parameters = {"implementation": "eager", "passes": "forward", "d_model": 64, "sequence": 256}
    assert forward.key.parameters == parameters
    # At least one matrix of probabilities, [8, 256, 256], and the output are kept for the backward pass.
    scores, output = 8 * 256 * 256 * 4, 8 * 256 * 64 * 4
    assert scores + output <= forward.held_bytes <= forward.peak_bytes
    assert (3 * output <= backward.peak_bytes, backward.held_bytes) == (True, None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, which limits what malloc maps")
def test_without_memory_it_is_recorded_and_the_run_goes_on(tmp_path):
    names = ("eager-forward-d16-s8192", "eager-backward-d16-s8192", "eager-forward-d64-s256")
    done, found = run(tmp_path, *names, limit_bytes=SMALL_BYTES)
    first, second = found.out_of_memory
    assert (first.allocation.asked_bytes, first.phase, first.recorded) == (2 * GIB, "calls", True)
    assert (second.allocation.asked_bytes, second.phase) == (2 * GIB, "arguments")
    assert first.allocation.free_bytes < SMALL_BYTES
    assert [m.label for m in found.measurements] == ["attention[eager-forward-d64-s256]"]
    assert [outcome.outcome for outcome in found.outcomes] == ["passed"] * 3
    assert "PASSED OUT OF MEMORY asked for 2.00 GiB" in done.stdout
    assert found.footer.not_measured == {"out of memory": 2}
