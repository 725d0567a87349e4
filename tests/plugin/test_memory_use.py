"""`roofline.memory`: what a run keeps, shows, and never judges."""

import json
import re
from pathlib import Path

import pytest

from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.runs import read_run

pytestmark = pytest.mark.feature("observe")

SUITE = """
import pytest
import torch
from torch import nn
from pytest_roofline import Work

def test_step(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU()), torch.ones(64, 8)
    use = roofline.memory(model, x, model=model)
    assert use.phase == "forward"
    assert use.categories == {"activations": 2 * 64 * 16 * 4, "other": x.nbytes, "parameters": 8 * 16 * 4}
    roofline.memory(lambda x: x + 1, make_args=lambda: (x,), name="sum")
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
    roofline.memory(lambda: 3, 4, make_args=lambda: ())
"""
SENTENCES = (
    "this test has two memory uses with no name. Give each a different name, as in name='cold'",
    "roofline.memory got 3; expected a function",
    "name is 7; expected text, or None for the only memory use of a test",
    "both args and make_args",
)
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
    desk.run("--roofline-save=other")
    compared = [desk.cli("compare", str(path), "other").output for path in (run.path, bare)]
    assert compared[0] == compared[1]


def test_what_cannot_be_used_is_told(desk):
    desk.suite(REFUSED)
    result = desk.run()
    result.assert_outcomes(failed=4)
    for told in SENTENCES:
        assert told in result.stdout.str()


def test_running_out_of_memory_is_recorded_as_anywhere_else(desk):
    desk.suite(OUT_OF_MEMORY.replace("2**50", "2"))
    desk.run("--roofline-save=before").assert_outcomes(passed=1)
    desk.suite(OUT_OF_MEMORY)
    result = desk.run("--roofline-save=it", "--roofline-against=before")
    result.assert_outcomes(passed=1)
    (found,) = desk.saved("it").out_of_memory
    assert (found.allocation.asked_bytes, found.label, found.phase) == (
        2**52,
        "large.big",
        "memory",
    )
    # A baseline has times by name, and of this call it has none: no time is lost.
    assert found.name is None
    assert "REGRESSED" not in result.stdout.str()
    assert "out of memory: large.big: asked for 4096 TiB" in result.stdout.str()
    assert "while the memory of a call was recorded" in result.stdout.str()
    assert desk.saved("it").memory_uses == ()
    # A call that fails keeps neither its arguments nor what the device caches.
    desk.suite(FAILS)
    desk.run().assert_outcomes(failed=1, passed=1)


def test_the_example_of_the_documentation_passes(desk):
    page = (Path(__file__).parents[2] / "docs/reference/measuring.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"## Where memory goes\n\n```python\n(.*?)```", page, re.DOTALL)
    desk.suite("import torch\n\n" + example)
    result = desk.run()
    result.assert_outcomes(passed=1)
    assert "memory of " in result.stdout.str()
