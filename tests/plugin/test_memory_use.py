"""`roofline.memory` and `--roofline-memory-snapshot`: what a run keeps, shows, and never judges."""

import json
import re
from pathlib import Path

import pytest

# An inner run would import them, and forget them again.
import torch._dynamo
import torch.optim.optimizer  # noqa: F401

import pytest_roofline.observe.memory_use
import pytest_roofline.observe.tracker  # noqa: F401
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.runs import read_run

from .conftest import ONE

SUITE = """
import pytest
import torch
from torch import nn
from pytest_roofline import Work

def test_step(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU()), torch.ones(64, 8)
    use = roofline.memory(model, args=(x,), model=model)
    assert use.phase == "forward"
    assert use.categories == {"activations": 2 * 64 * 16 * 4, "other": x.nbytes, "parameters": 8 * 16 * 4}
    roofline.memory(lambda x: x + 1, make_args=lambda: (x,), name="sum")
"""
# On a GPU as far as a fixture can make one: its name, and torch's memory history.
HISTORY = """
import pytest
import torch
from pytest_roofline import Work

def told():
    return "snapshot"

@pytest.fixture(autouse=True)
def history(monkeypatch, fake):
    fake.name, seen = "cuda:0", []
    def dump(path):
        if {fails}:
            raise RuntimeError("no room for a snapshot")
        open(path, "w").write(told())
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda enabled="all", **_: seen.append(enabled))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    yield seen
    assert seen == ["all", None]

@pytest.mark.parametrize("size", [1, 2])
def test_copy(roofline, busy, history, size):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, payload_bytes=size))
"""
RUNS_OUT = """
import torch
import weakref

TIMES, HELD = [], []

class Buffer: pass

def told():
    return f"run out {len(TIMES)} times, alive: {sum(one() is not None for one in HELD)}"

def make():
    return ()

def run_out(*_):
    held = Buffer()
    HELD.append(weakref.ref(held))
    TIMES.append(1)
    raise torch.OutOfMemoryError(f"CUDA out of memory. Time {len(TIMES)}")
"""
# Refused before any rank is started.
OVER_RANKS = """
import pytest
from pytest_roofline import Work

@pytest.mark.parametrize("measure", ["measure_ranks", "measure_job"])
def test_ranks(roofline, distributed, measure):
    getattr(roofline, measure)(distributed, lambda rank: None, work=Work(read_bytes=8), world_size=2)
"""
REFUSED = """
import torch

def test_twice(roofline):
    x = torch.ones(10)
    roofline.memory(lambda: x + 1)
    roofline.memory(lambda: x + 1)

def test_no_function(roofline):
    roofline.memory(3)

def test_no_name(roofline):
    roofline.memory(lambda: 3, name=7)

def test_both(roofline):
    roofline.memory(lambda: 3, args=(), make_args=lambda: ())
"""
SENTENCES = (
    "this test follows memory twice under no name; give each call a name of its own",
    "memory was given 3; expected a function to call",
    "name is 7; expected text, or None for the only call whose memory is followed",
    "both args and make_args",
)
NO_HISTORY = "no memory snapshot: fake keeps no history of its memory; torch has that on CUDA and ROCm devices"
NO_RANKS = "--roofline-memory-snapshot: of ranks there are no snapshots, only of what `measure` times in this process"
OUT_OF_MEMORY = """
import pytest
import torch
from pytest_roofline import Work

SIZE = 2**50

@pytest.mark.roofline(oom="record")
def test_large(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="big")
    roofline.memory(lambda: torch.empty(SIZE), name="big")
"""
FAILS = """
import weakref
import torch

HELD, RELEASED = [], []

def make():
    x = torch.ones(10, 10)
    HELD.append(weakref.ref(x))
    return (x,)

def test_fails(roofline, fake):
    fake.release = lambda: RELEASED.append(True)
    roofline.memory(lambda x: (x * 2) @ x[:3], make_args=make)

def test_next(roofline):
    assert RELEASED and [reference() for reference in HELD] == [None]
"""


def test_a_calls_memory_is_recorded_at_once_shown_after_the_results_and_in_no_baseline(desk):
    desk.suite(SUITE)
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(passed=1)
    run = desk.saved("it")
    assert [(use.label, use.name, use.device) for use in run.memory_uses] == [
        ("step", "", "fake"),
        ("step.sum", "sum", "fake"),
    ]
    text = result.stdout.str()
    assert text.index("verdict") < text.index("memory of step: peak 10.5 KiB in forward")
    assert "activations 8.00 KiB (76 %), other 2.00 KiB (19 %), parameters 512 B (5 %)" in text
    lines = run.path.read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds.index("memory_use") < kinds.index("outcome")
    bare = desk.path / "bare.jsonl"
    kept = [line for line, kind in zip(lines, kinds, strict=True) if kind != "memory_use"]
    bare.write_text("\n".join(kept) + "\n")
    with_memory, without = (propose([read_run(path)]).baseline.entries for path in (run.path, bare))
    assert with_memory == without
    compared = [desk.cli("compare", str(path), str(path)).output for path in (run.path, bare)]
    assert compared[0].replace("it", "") == compared[1].replace("bare", "")


def test_what_cannot_be_used_is_told(desk, sentence):
    desk.suite(REFUSED)
    result = desk.run()
    result.assert_outcomes(failed=4)
    for told in SENTENCES:
        assert told in result.stdout.str()
    (desk.path / "shots").touch()
    sentence(desk.run("--roofline-memory-snapshot=shots"), "--roofline-memory-snapshot=shots", "is no directory")


def test_running_out_of_memory_is_recorded_as_anywhere_else(desk):
    desk.suite(OUT_OF_MEMORY.replace("2**50", "2"))
    desk.run("--roofline-save=before").assert_outcomes(passed=1)
    desk.suite(OUT_OF_MEMORY)
    result = desk.run("--roofline-save=it", "--roofline-against=before")
    result.assert_outcomes(passed=1)
    (found,) = desk.saved("it").out_of_memory
    assert (found.asked_bytes, found.label, found.phase) == (2**52, "large.big", "memory")
    # A baseline has times by name, and of this call it has none: no time is lost.
    assert found.name is None
    assert "REGRESSED" not in result.stdout.str()
    assert "out of memory: large.big: asked for 4096 TiB" in result.stdout.str()
    assert "while its memory was followed" in result.stdout.str()
    assert desk.saved("it").memory_uses == ()
    # A call that fails keeps neither its arguments nor what the device caches.
    desk.suite(FAILS)
    desk.run().assert_outcomes(failed=1, passed=1)


def warnings(result):
    return [line for line in result.outlines if line.startswith("WARNING")]


def test_every_measurement_gets_a_snapshot_and_a_second_run_overwrites_none(desk):
    desk.suite(HISTORY.format(fails=False))
    result = desk.run("--roofline-memory-snapshot=shots")
    result.assert_outcomes(passed=2)
    shots = desk.path / "shots"
    assert sorted(path.name for path in shots.iterdir()) == ["copy-1.pickle", "copy-2.pickle"]
    lines = ("memory snapshots, to open at https://pytorch.org/memory_viz:", *(
        f"  copy[{number}]: {shots / f'copy-{number}.pickle'}" for number in (1, 2)
    ))  # fmt: skip
    assert "\n".join(lines) in result.stdout.str()
    desk.run("--roofline-memory-snapshot=shots", "-k", "copy[1]").assert_outcomes(passed=1, deselected=1)
    assert sorted(path.name for path in shots.iterdir()) == ["copy-1.pickle", "copy-1~2.pickle", "copy-2.pickle"]


@pytest.mark.parametrize("where", ["arguments", "calls"])
def test_what_runs_out_of_memory_leaves_a_snapshot_of_the_same_once_more(desk, where):
    given = {"arguments": "busy, make_args=run_out", "calls": "run_out, make_args=make"}[where]
    desk.suite(HISTORY.format(fails=False).replace("lambda: busy(1e-3)", given) + RUNS_OUT)
    result = desk.run("--roofline-memory-snapshot=shots", "--roofline-save=it", "-k", "copy[1]")
    result.assert_outcomes(failed=1, deselected=1)
    assert "CUDA out of memory" in result.stdout.str()
    shot = desk.path / "shots" / "copy-1.pickle"
    assert f"  copy[1]: {shot}" in result.stdout.str()
    # Of the second time: the first was over before anything was recorded, and held nothing any more.
    assert shot.read_text() == "run out 2 times, alive: 1"
    (found,) = desk.saved("it").out_of_memory
    assert (found.phase, found.message) == (where, "CUDA out of memory. Time 1")


def test_a_snapshot_that_cannot_be_is_a_warning_and_the_measurement_stands(desk):
    desk.suite(HISTORY.format(fails=True))
    result = desk.run("--roofline-memory-snapshot=shots", "--roofline-save=it", "-k", "copy[1]")
    result.assert_outcomes(passed=1, deselected=1)
    assert "WARNING: no memory snapshot of copy[1]: RuntimeError: no room for a snapshot" in result.stdout.str()
    (measurement,) = desk.saved("it").measurements
    assert measurement.invalid == ""
    assert list((desk.path / "shots").iterdir()) == []
    # A device without a memory history is named once, and so are ranks.
    for text, outcomes, told in (
        (SUITE + ONE.format(marks=""), {"passed": 2}, NO_HISTORY),
        (OVER_RANKS, {"failed": 2}, NO_RANKS),
    ):
        desk.suite(text)
        result = desk.run("--roofline-memory-snapshot=others")
        result.assert_outcomes(**outcomes)
        assert warnings(result) == [f"WARNING: {told}"]
        assert not (desk.path / "others").exists()
    assert warnings(desk.run()) == []


def test_the_example_of_the_documentation_passes(desk):
    page = (Path(__file__).parents[2] / "docs" / "writing-tests.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"## Where memory goes\n\n```python\n(.*?)```", page, re.DOTALL)
    desk.suite("import torch\n\n" + example)
    result = desk.run()
    result.assert_outcomes(passed=1)
    assert "memory of " in result.stdout.str()
