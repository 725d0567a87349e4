"""Out of memory as a result: recorded where a test says so, red where the baseline has a time, and the run goes on."""

import json

import pytest

from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.remarks import remarks
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.records import Measurement

from .conftest import texts

GIB = 2**30

# On the fake device; `ROOM` says whether the second measurement finds memory, `second` whether it is there at all.
SUITE = """
import json
from pathlib import Path

import pytest
import torch
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
ROOM = json.loads((Path(__file__).parent / "room.json").read_text())
# A round of the fake device has no torch; its error has this name.
OutOfMemoryError = getattr(torch, "OutOfMemoryError", type("OutOfMemoryError", (RuntimeError,), {{}}))

def run_out(*_):
    raise OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.10 GiB is "
        "free. Of the allocated memory 77.20 GiB is allocated by PyTorch.\\nSecond line"
    )

{marks}
def test_one(roofline, busy):
{body}

def test_next(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
RECORD = '@pytest.mark.roofline(oom="record")'
FIRST = 'roofline.measure(lambda: busy(1e-3), work=WORK, name="first")'
SECOND = 'roofline.measure(lambda: busy(2e-3) if ROOM else run_out(), work=WORK, name="second")'


def suite(*body, marks=RECORD):
    """A file whose first test has this body, and whose second measures a millisecond."""
    return SUITE.format(marks=marks, body="\n".join(f"    {line}" for line in body))


@pytest.fixture
def oom(desk):
    """A desk whose suite may find room or not."""

    class Oom:
        path, script, last_run = desk.path, desk.script, desk.last_run

        def room(self, there):
            (desk.path / "room.json").write_text(json.dumps(there))

        def recorded(self, *body):
            """A saved run in which there was room, as the option that compares with it."""
            self.room(True)
            desk.suite(suite(*body))
            result = desk.run("--roofline-save=before")
            assert result.ret == 0, texts(result)
            return "--roofline-against=before"

        def run(self, *arguments, body=(FIRST, SECOND), marks=RECORD):
            """A run without room."""
            self.room(False)
            desk.suite(suite(*body, marks=marks))
            return desk.run(*arguments)

    return Oom()


DEVICE = "fake = roofline._test.session.under_test.device"


def test_the_run_file_tells_what_happened_where_and_how_full_the_device_was(oom):
    result = oom.run("-v", body=(FIRST, DEVICE, "fake.allocate(77 * 2**20)", SECOND))
    result.stdout.fnmatch_lines(
        ["*::test_one PASSED 2000 GB/s NO BASELINE; OUT OF MEMORY asked for 2.00 GiB *"]
    )
    (record,) = oom.last_run().out_of_memory
    assert (record.test_id, record.benchmark, record.label) == (
        "test_suite.py::test_one",
        "one",
        "one.second",
    )
    assert (record.name, record.phase, record.recorded, record.round) == (
        "second",
        "calls",
        True,
        1,
    )
    assert (record.allocation.asked_bytes, record.allocation.free_bytes, record.device) == (
        2 * GIB,
        round(1.1 * GIB),
        "fake",
    )
    allocation = record.allocation
    assert (allocation.allocated_bytes, allocation.peak_bytes) == (77 * 2**20, 77 * 2**20)
    assert allocation.message.startswith("CUDA out of memory. Tried to allocate 2.00 GiB")
    assert "Second line" not in allocation.message
    # A proposal has no entry for it and all that was measured before.
    entries = propose([oom.last_run()], everything=True).baseline.entries
    assert {(entry.benchmark, entry.name) for entry in entries} == {("one", "first"), ("next", "")}


def test_it_is_told_what_was_going_on(oom):
    measure = "roofline.measure(lambda: busy(1e-3), work=WORK, {})"
    for body, name, phase in (
        (("run_out()",), None, None),
        ((measure.format("make_args=run_out"),), "", "arguments"),
        ((measure.format("verify=run_out"),), "", "verify"),
        (
            (DEVICE, "fake.held_bytes = run_out", measure.format("held_bytes=True")),
            "",
            "held_bytes",
        ),
    ):
        oom.run("-v", "--roofline-fail-on=regressed,invalid", body=body).assert_outcomes(passed=2)
        (record,) = oom.last_run().out_of_memory
        assert (record.name, record.phase) == (name, phase)
        if phase == "verify":
            # What was timed before memory ran out in the same measurement is no result.
            partial, _ = oom.last_run().measurements
            assert partial.invalid.startswith("raised OutOfMemoryError: CUDA out of memory")
            only = oom.last_run().with_lines(Measurement, [partial])
            with pytest.raises(BadInput, match=r"one of .*: raised OutOfMemoryError"):
                propose([only], everything=True)


def test_it_is_red_where_the_baseline_has_a_time(oom, desk):
    against = oom.recorded(FIRST, SECOND)
    result = oom.run("-v", against, "--roofline-save=after")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*one.second: ran out of memory (asked for 2.00 GiB, 1.10 GiB free), where the baseline has 2.00 ms "
            "REGRESSED",
            "*CUDA out of memory. Tried to allocate 2.00 GiB*",
        ]
    )
    run = desk.saved("after")
    outcome = next(one for one in run.outcomes if one.test_id.endswith("test_one"))
    assert (outcome.outcome, outcome.by_verdict) == ("failed", True)
    assert {"OUT OF MEMORY", "REGRESSED"} < set(outcome.verdicts)
    assert run.out_of_memory[0].lost.times == {"second": pytest.approx(2e-3, rel=0.01)}
    # Two saved runs that are compared say the same; the other way round there is nothing to miss.
    done = desk.cli("compare", "before", "after")
    assert done.exit_code == 1
    line = "REGRESSED one.second: ran out of memory (asked for 2.00 GiB, 1.10 GiB free), but took 2.00 ms before"
    assert line in done.stdout
    assert "only in" not in done.stderr
    rows = json.loads(desk.cli("compare", "before", "after", "--json").stdout)
    (lost,) = (row for row in rows if row["value"] is None)
    assert (lost["label"], lost["verdict"], lost["asked_bytes"]) == (
        "one.second",
        "REGRESSED",
        2 * GIB,
    )
    assert desk.cli("compare", "after", "before").exit_code == 0
    # It stays red in a rerun, is an expected failure under xfail, and stops a run that stops at the first failure.
    again = oom.run("-v", against, "--reruns=1")
    assert again.parseoutcomes() == {"failed": 1, "passed": 1, "rerun": 1}
    assert len(oom.last_run().out_of_memory) == 2
    oom.run("-v", against, marks=f"@pytest.mark.xfail\n{RECORD}").assert_outcomes(
        xfailed=1, passed=1
    )
    oom.run("-x", against).assert_outcomes(failed=1)
    # A baseline of other work is no time for it; memory that ran out outside of measure misses everything.
    more = SECOND.replace("work=WORK", "work=Work(read_bytes=10**10)")
    oom.run("-v", against, body=(FIRST, more)).assert_outcomes(passed=2)
    everything = oom.run("-v", against, body=("run_out()", FIRST, SECOND))
    everything.assert_outcomes(failed=1, passed=1)
    assert "where the baseline has 1.00 ms for first, 2.00 ms for second REGRESSED" in texts(
        everything
    )


def test_a_baseline_that_cannot_be_recorded_is_not_required(oom):
    """No run can give it an entry, so nobody could ever satisfy the gate."""
    strict = "--roofline-fail-on=+no-baseline"
    for gate, failed in (((strict,), 1), (("--roofline-ci", strict), 2)):
        result = oom.run("-v", *gate, "--roofline-rounds=1", body=(SECOND,))
        # A gate has compared nothing as well, and says that by an item of its own.
        result.assert_outcomes(passed=1, failed=failed)
        assert "test_next FAILED" in texts(result)


def test_only_an_error_of_memory_in_the_body_of_a_marked_test_is_recorded(oom, desk, sentence):
    for marks in ("", f"{RECORD}\n@pytest.mark.roofline(oom=None)"):
        result = oom.run("-v", marks=marks)
        result.assert_outcomes(failed=1, passed=1)
        assert "OutOfMemoryError: CUDA out of memory" in texts(result)
        (record,) = oom.last_run().out_of_memory
        assert (record.recorded, record.allocation.asked_bytes) == (False, 2 * GIB)
    for error in (
        "RuntimeError('shape mismatch')",
        "AssertionError('out of memory')",
        "ValueError('CUDA out of')",
    ):
        oom.run("-v", body=(FIRST, f"raise {error}")).assert_outcomes(failed=1, passed=1)
        assert oom.last_run().out_of_memory == ()
    caught = ("with pytest.raises(OutOfMemoryError):", f"    {SECOND}", FIRST)
    oom.run("-v", body=caught).assert_outcomes(passed=2)
    assert oom.last_run().out_of_memory == ()
    broken = f"@pytest.fixture\ndef full(): run_out()\n\n@pytest.mark.usefixtures('full')\n{RECORD}"
    oom.run("-v", marks=broken).assert_outcomes(errors=1, passed=1)
    for value in ("yes", True, ""):
        desk.one(f"@pytest.mark.roofline(oom={value!r})")
        sentence(desk.run(), "test_one", f"oom={value!r}", "'record'")


HOLDS = """
import weakref
HELD = []

class Buffer: pass

@pytest.fixture(autouse=True)
def nothing_is_left(request):
    assert [one for one in HELD if one() is not None] == []
    yield
"""


def test_everything_that_the_test_held_is_let_go_of_before_the_next(oom):
    plain = (
        "mine = Buffer()",
        "HELD.append(weakref.ref(mine))",
        "def make():",
        "    HELD.append(weakref.ref(buffer := Buffer()))",
        "    return buffer, mine",
        "roofline.measure(run_out, work=WORK, make_args=make)",
    )
    group = (
        "errors = []",
        "def step():",
        "    mine = Buffer()",
        "    HELD.append(weakref.ref(mine))",
        "    run_out()",
        "try:",
        "    step()",
        "except OutOfMemoryError as error:",
        "    errors.append(error)",
        "raise ExceptionGroup('steps', errors)",
    )
    for body in (plain, group):
        oom.run("-v", body=body, marks=f"{HOLDS}\n{RECORD}").assert_outcomes(passed=2)
    # The device gives back what it caches.
    out = texts(
        oom.run(
            "-s",
            body=(DEVICE, "fake.release = lambda: print('RELEASED')", "print('BODY')", "run_out()"),
        )
    )
    assert out.index("BODY") < out.index("RELEASED")


# Rounds: the first process finds room, which is the child's own to find or not.
IN_ROUNDS = """
import json
from pathlib import Path
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

class OutOfMemoryError(RuntimeError):
    pass

{marks}
def test_one(roofline, busy, pytestconfig):
    from pytest_roofline.settings.round import in_round

    if in_round(pytestconfig):
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""


def test_a_round_whose_room_ends_after_timing_makes_nothing_invalid(desk):
    """The child writes what it had timed as unsound; to the parent it is a round without a number, and no fault."""
    raising = '        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")\n'
    body = IN_ROUNDS.format(marks=RECORD)
    later = body.replace(
        f"    if in_round(pytestconfig):\n{raising}    roofline.measure(lambda: busy(1e-3), work=WORK)\n",
        f"    def verify():\n        if not in_round(pytestconfig):\n            return True\n{raising}\n"
        '    roofline.measure(lambda: pytestconfig.fake.work(1e-3), work=WORK, name="other")\n'
        '    roofline.measure(lambda: busy(1e-3), work=WORK, name="copy", verify=verify)\n',
    )
    assert later != body
    against = desk.sessions(later)
    desk.script(slow=1.06)
    result = desk.run("-v", "--roofline-rounds=6", "--roofline-fail-on=regressed,invalid", *against)
    result.assert_outcomes(passed=1)
    run = desk.last_run()
    assert [(record.round, record.phase) for record in run.out_of_memory] == [
        (number, "verify") for number in (2, 3, 4, 5)
    ]
    assert [(one.key.name, one.invalid) for one in run.measurements] == [
        ("other", ""),
        ("copy", ""),
        *[("other", "")] * 4,
    ]
    told = {
        one.subject.name: (one.kind, one.processes, "; ".join(remarks(one))) for one in run.verdicts
    }
    verdict, processes, texts = told["copy"]
    assert (verdict, processes) == ("INCONCLUSIVE", 1)
    assert "4 processes left out: the test ran out of memory in round 5" in texts
    assert told["other"][1] == 5
    assert "left out" not in told["other"][2]


SMALL_FIRST = f"""
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

def run_out():
    raise MemoryError

{RECORD}
def test_one(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""


@pytest.mark.parametrize(
    "end", ["run_out()", "roofline.measure(lambda: 0, work=WORK, name='big', make_args=run_out)"]
)
def test_memory_that_ends_behind_a_slow_measurement_does_not_excuse_it(desk, end):
    desk.baseline(text=SMALL_FIRST)
    desk.script(slow=1.3)
    desk.suite(f"{SMALL_FIRST}    {end}\n")
    result = desk.run("--roofline-ci")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["one: +30.0 % time * REGRESSED, *, 5 against 5 processes"])
