"""What is printed of a call's memory, and of memory snapshots."""

from dataclasses import replace
from pathlib import Path

from pytest_roofline.core.memory_use import Allocation, MemoryUse, OutputBytes
from pytest_roofline.reporting.memory_use import memory_lines, snapshot_lines, use_lines, where

MIB = 2**20
SOFTMAX = Allocation(
    48 * MIB, "activations", "forward", (4, 12, 512, 512), "float32", "aten._softmax", "blocks.0.attention.core.softmax"
)
WEIGHT = Allocation(30 * MIB, "parameters", "before", (10000, 768), "float32", "", "embedding.weight")
USE = MemoryUse(
    test_id="test_transformer.py::test_transformer[small-512]",
    label="transformer[small-512]",
    process="process-1",
    device="cuda:0",
    name="",
    peak_bytes=1024 * MIB,
    phase="backward",
    categories={"parameters": 300 * MIB, "activations": 720 * MIB, "buffers": 4 * MIB},
    largest=(SOFTMAX, WEIGHT),
    largest_made=(SOFTMAX,),
    before_bytes=304 * MIB,
    phase_peaks={"forward": 1000 * MIB, "backward": 1024 * MIB},
    outputs=(OutputBytes("blocks.0", 6 * MIB, 6 * MIB), OutputBytes("blocks.1", 6 * MIB)),
    device_peak_bytes=1100 * MIB,
    device_before_bytes=310 * MIB,
    missing=("the moon",),
)


def test_a_call_is_told_from_its_peak_down_to_its_largest_allocations():
    assert use_lines(USE) == [
        "memory of transformer[small-512]: peak 1.00 GiB in backward",
        "  activations 720 MiB (70 %), parameters 300 MiB (29 %), buffers 4.00 MiB (<1 %)",
        "  peaks: forward 1000 MiB, backward 1.00 GiB",
        "  largest that the call made, at the peak:",
        "    48.0 MiB  activations  float32[4, 12, 512, 512]  aten._softmax  blocks.0.attention.core.softmax",
        "  largest of all at the peak: 48.0 MiB activations blocks.0.attention.core.softmax, "
        "30.0 MiB parameters embedding.weight",
        "  output of blocks.0: 6.00 MiB, predicted 6.00 MiB (+0.0 %)",
        "  output of blocks.1: predicted 6.00 MiB, not called",
        "  by the device's own counter 1.07 GiB, of which 70.0 MiB not seen by operators, "
        "6.00 MiB there before and not used",
        "  missing: the moon",
    ]


def test_an_output_that_is_not_as_predicted_shows():
    use = replace(USE, outputs=(OutputBytes("blocks.0", 4 * MIB, 6 * MIB), OutputBytes("", 0, 6 * MIB)))
    lines = use_lines(use)
    assert "  output of blocks.0: 6.00 MiB, predicted 4.00 MiB (+50.0 %)" in lines
    assert "  output of the model: 6.00 MiB, predicted 0 B" in lines


def test_a_device_that_counts_the_same_is_told_so_and_one_that_counts_less_with_a_sign():
    same = replace(USE, device_before_bytes=None, device_peak_bytes=USE.peak_bytes)
    assert "  by the device's own counter 1.00 GiB, the same" in use_lines(same)
    less = replace(same, device_peak_bytes=USE.peak_bytes - MIB)
    assert any(line.endswith("of which -1.00 MiB not seen by operators") for line in use_lines(less))


def test_one_phase_alone_has_no_line_of_its_own():
    use = replace(USE, phase_peaks={"backward": USE.peak_bytes}, device_peak_bytes=None, missing=())
    assert [line for line in use_lines(use) if "peaks:" in line or "counter" in line or "missing" in line] == []


def test_weights_are_no_news_where_the_call_made_the_largest_itself_or_nothing():
    alone = replace(USE, largest=(SOFTMAX,))
    assert [line for line in use_lines(alone) if "largest" in line] == ["  largest that the call made, at the peak:"]
    nothing = replace(USE, largest=(replace(WEIGHT, place=""),), largest_made=())
    assert [line for line in use_lines(nothing) if "largest" in line] == [
        "  largest of all at the peak: 30.0 MiB parameters"
    ]


def test_where_no_submodule_is_known_the_phase_stands_for_it():
    assert where(replace(SOFTMAX, place="")) == "forward"
    assert where(replace(SOFTMAX, place="", made="backward")) == "backward"
    assert where(replace(WEIGHT, place="")) == ""
    assert where(replace(SOFTMAX, made="backward")) == "blocks.0.attention.core.softmax (backward)"
    # A gradient is named after its parameter, which is no place that a backward runs in.
    assert where(replace(WEIGHT, category="gradients", made="backward")) == "embedding.weight"


def test_a_rerun_takes_the_place_of_the_attempt_before():
    again = replace(USE, phase="forward")
    assert [line for line in memory_lines([USE, again]) if line.startswith("memory")] == [
        "memory of transformer[small-512]: peak 1.00 GiB in forward"
    ]


def test_of_very_many_the_first_are_shown():
    uses = [replace(USE, name=f"{number}") for number in range(5)]
    lines = memory_lines(uses, at_most=3)
    assert sum(line.startswith("memory of") for line in lines) == 3
    assert lines[-1] == "… and the memory of 2 more calls in the run file"
    assert memory_lines([]) == []


def test_names_cannot_steer_a_terminal():
    lines = memory_lines([replace(USE, label="a\x1b[2Jb")])
    assert "\x1b" not in "".join(lines)


def test_every_snapshot_is_named_with_what_was_called_and_their_viewer_once():
    folder = Path("out")
    assert snapshot_lines([]) == []
    shots = [(f"copy[{number}]", folder / f"copy-{number}.pickle") for number in (1, 2, 3)]
    assert snapshot_lines(shots, at_most=2) == [
        "memory snapshots, to open at https://pytorch.org/memory_viz:",
        "  copy[1]: out/copy-1.pickle",
        "  copy[2]: out/copy-2.pickle",
        "  … and 1 more in out",
    ]
    assert snapshot_lines([("a\x1b[2J", folder / "a.pickle")])[1] == "  a\\x1b[2J: out/a.pickle"
