"""The record of what a call's memory went into: its sums hold, and what cannot be is refused."""

from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.memory_use import Allocation, MemoryUse, OutputBytes
from pytest_roofline.judging.runs import encode_line, read_run

BLOCK = Allocation(600, "activations", "forward", (10, 15), "float32", "aten.mm", "up")
USE = MemoryUse(
    test_id="test_step.py::test_step",
    label="step",
    process="process-1",
    device="cuda:0",
    name="",
    peak_bytes=1000,
    phase="backward",
    categories={"activations": 700, "parameters": 300},
    largest=(BLOCK, replace(BLOCK, size_bytes=100)),
    largest_made=(BLOCK,),
    before_bytes=300,
    phase_peaks={"forward": 900, "backward": 1000},
    outputs=(OutputBytes("up", 600, 600), OutputBytes("down", 600)),
)


def test_memory_from_before_is_no_memory_that_operators_did_not_show():
    use = replace(USE, device_before_bytes=350, device_peak_bytes=1130)
    assert (use.outside_bytes, use.unseen_bytes) == (50, 80)
    # The device's peak is made of nothing else.
    assert use.peak_bytes + 50 + 80 == 1130


def test_a_counter_of_changes_alone_starts_at_what_was_seen_to_be_there():
    use = replace(USE, device_peak_bytes=1040)
    assert (use.outside_bytes, use.unseen_bytes) == (None, 40)


def test_without_a_counter_nothing_is_known_to_be_unseen():
    assert (USE.outside_bytes, USE.unseen_bytes) == (None, None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"categories": {"activations": 700}}, "the categories add up to 700 bytes; expected the peak, 1000"),
        ({"categories": {"weights": 1000}}, "memory use names weights; expected some of parameters, buffers"),
        ({"phase": "backwards"}, "memory use names backwards"),
        ({"phase_peaks": {"forward": 900}}, "the highest peak of a phase is 900 bytes; expected the peak, 1000"),
        ({"largest": (replace(BLOCK, size_bytes=1), BLOCK)}, "expected them in order"),
        ({"largest": (BLOCK, BLOCK)}, "together at most the peak"),
        ({"largest_made": (BLOCK, BLOCK)}, "together at most the peak"),
        ({"largest_made": (replace(BLOCK, made="before"),)}, "is from before the call; expected one of its phases"),
        ({"before_bytes": -1}, "before_bytes is -1 bytes; expected zero or more"),
        ({"outputs": (OutputBytes("up", 1, -2),)}, r"outputs\[0\] is -2 bytes"),
    ],
)
def test_what_cannot_be_is_refused(changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        replace(USE, **changes)


def test_a_run_file_gives_back_what_was_written(make, tmp_path):
    use = replace(USE, device_before_bytes=350, device_peak_bytes=1130, missing=("the weather",))
    path = make.save(tmp_path / "run.jsonl", USE, use)
    assert read_run(path).memory_uses == (USE, use)
    assert '"type": "memory_use"' in encode_line(use)
