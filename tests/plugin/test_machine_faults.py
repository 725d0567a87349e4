"""What fails below a run, as a disk, memory, a clock: what is read of it, and that nothing measured is lost."""

import resource

import pytest

THREE = """
import os, resource, signal, time
from pytest_roofline import Work
from pytest_roofline.plugin.current import session_key
WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_first(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_second(roofline, busy, fake, pytestconfig, monkeypatch):
    state, calls = pytestconfig.stash[session_key], []
    def fn():
        calls.append(1)
        # A millisecond a call: some blocks are taken by then, and the end is far.
        if len(calls) == 200:
            happen()
        busy(1e-3)
    def happen():
        {event}
    roofline.measure(fn, work=WORK)

def test_third(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
# The stamps before and behind a moment are so far apart, by a clock that jumped meanwhile.
JUMPS = (
    "at, whole = fake.clock_s, fake.elapsed_s; "
    "fake.elapsed_s = lambda start, end: whole(start, end) + {} * (start <= at < end)"
)
BACK = "the time stamps of fake run backwards (-3600 s), so its times are invalid"
CROWDED = "{0} of 22 blocks of samples were spoiled: {0} × another process on the device"
FAULTS = [
    # Where something happened, the lines that are read of it, and of the second test why it counts for nothing.
    (
        "[][0]",
        ["RED: 1 FAILED, 0 of 3 fast enough, 2 undecided (2 NO BASELINE)"],
        "raised IndexError: list index out of range",
    ),
    (
        "bytearray(2**62)",
        [
            "E       MemoryError",
            "out of memory: second: 80.0 GiB free, during the calls, 0 B allocated by torch",
        ],
        "raised MemoryError",
    ),
    # Ctrl-Z and fg, or a stop by a scheduler: what was timed over it does not count, and the measurement goes on.
    (
        "os.kill(os.getpid(), signal.SIGCONT); fake.pass_time(5.0)",
        ["blocks excluded: second (1 of 6 by a stop of the process)"],
        "",
    ),
    # Only the clock on the wall was set.
    ("monkeypatch.setattr(time, 'time', lambda: 4e9)", ["3 measured"], ""),
    ("fake.pass_time(3600.0)", ["blocks excluded: second (1 of 2 by host gap)"], ""),
    (JUMPS.format(3600), ["blocks excluded: second (1 of 6 by a jump of the clock)"], ""),
    (
        JUMPS.format(-3600),
        [f"FAILED test_suite.py::test_second - {BACK}"],
        f"raised DeviceError: {BACK}",
    ),
    # Another pytest has begun to measure on this GPU.
    (
        "fake._use_by_others = 2**30, 0.5",
        [f"INVALID third: {CROWDED.format(22)}"],
        CROWDED.format(21),
    ),
]


def test_what_happens_in_one_test_is_read_in_a_sentence_and_costs_no_other_its_numbers(desk):
    for event, lines, invalid in FAULTS:
        desk.suite(THREE.format(event=event))
        result = desk.run("--roofline-save=r")
        assert [line for line in lines if line not in result.stdout.lines] == [], event
        run = desk.saved("r")
        found = {one.label: one for one in run.measurements}
        assert (found.keys(), run.cut, run.footer is None) == (
            {"first", "second", "third"},
            False,
            False,
        ), event
        assert [one.median_s for one in run.measurements] == pytest.approx([1e-3] * 3), event
        assert found["first"].invalid == "", event
        assert found["second"].invalid == invalid, event
        desk.run_path("r").unlink()


def test_a_disk_that_fills_up_costs_nothing_that_was_measured_before(desk):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = "state.writer.path.stat().st_size"
    desk.suite(
        THREE.format(
            event=f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size} + 300, {limits[1]}))"
        )
    )
    try:
        result = desk.run("--roofline-save=full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (said,) = [line for line in result.stdout.lines if line.startswith("WARNING: ")]
    assert said == (
        f"WARNING: the run could not be saved as {desk.run_path('full')}: File too large; that file holds the "
        "measurements until then; later measurements are only printed here; choose another folder with --roofline-dir"
    )
    result.stdout.fnmatch_lines(
        ["first * NO BASELINE", "second * NO BASELINE", "third * NO BASELINE"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    ended = "GREY: nothing was compared (3 NO BASELINE); but pytest ended with status 1 (the run could not be saved)"
    assert ended in result.stdout.lines
    run = desk.saved("full")
    assert ([one.label for one in run.measurements], run.cut) == (["first"], True)
