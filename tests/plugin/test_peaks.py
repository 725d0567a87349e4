"""The most memory that a call holds, compared with its baseline: red where it is more, whatever the time says."""

import json

import pytest

from pytest_roofline.baselines.files import read_baseline

GIB = 2**30
# A call that holds what `peak.json` says, in GiB; None does not ask for it.
SUITE = """
import json
from pathlib import Path
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
PEAK = json.loads((Path(__file__).parent / "peak.json").read_text())

def test_step(roofline, busy, fake):
    size = int((PEAK or 1) * 2**30)
    def step():
        fake.allocate(size)
        busy(1e-3)
        fake.allocate(-size)
    roofline.measure(step, work=WORK, peak_bytes=PEAK is not None)
"""
ENTRY = "baselines/h100.json"


class Steps:
    """A desk with the one test, whose peak is told before each run."""

    def __init__(self, desk):
        self.desk = desk
        desk.suite(SUITE)

    def run(self, gib, *arguments):
        (self.desk.path / "peak.json").write_text(json.dumps(gib))
        return self.desk.run(*arguments)

    def approve(self, gib, *arguments, name="before", run=("-q",)):
        """Run, propose that run, and approve it; what `approve` printed."""
        self.run(gib, *run, f"--roofline-save={name}")
        proposal = f"{name}.json"
        proposed = self.desk.cli("baseline", "propose", name, "-o", proposal, "--accept-slower")
        assert proposed.exit_code == 0, proposed.output
        return self.desk.cli("baseline", "approve", proposal, *arguments)

    @property
    def entry(self):
        (entry,) = read_baseline(self.desk.path / ENTRY).entries
        return entry

    @property
    def peak(self):
        """The verdict of the newest run on its peak."""
        return self.desk.last_run().verdicts[0].peak


@pytest.fixture
def steps(desk):
    return Steps(desk)


@pytest.fixture
def known(steps):
    """The same, with a baseline of one GiB."""
    assert steps.approve(1.0).exit_code == 0
    assert steps.entry.peak_bytes == GIB
    return steps


def test_a_hundredth_more_and_anything_less_is_green_and_less_an_improvement(known):
    for gib, word in ((1.01, "PASSED"), (1.0, "PASSED"), (0.99, "PASSED"), (0.9, "IMPROVED")):
        result = known.run(gib)
        result.assert_outcomes(passed=1)
        assert known.peak.verdict == word
    result.stdout.fnmatch_lines(
        ["peak IMPROVED step: peak memory -10.0 % (922 MiB, baseline 1.00 GiB)*"]
    )


def test_a_baseline_of_before_peaks_were_kept_turns_nothing_red_and_takes_its_first_from_the_run_that_it_has(
    known,
):
    path = known.desk.path / ENTRY
    raw = json.loads(path.read_text())
    del raw["entries"][0]["peak_bytes"]
    path.write_text(json.dumps(raw))
    for gate in ("--roofline-fail-on=+no-baseline", "--roofline-ci"):
        result = known.run(2.0, gate)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            ["the baseline holds no peak memory yet, so the peak memory is not compared: step"]
        )
        assert known.desk.last_run().verdicts[0].kind == "PASSED"
    approved = known.desk.cli("baseline", "approve", "before.json")
    assert "peak none → 1.00 GiB" in " ".join(approved.output.split())
    assert known.entry.peak_bytes == GIB


def test_a_peak_that_is_not_taken_any_more_is_not_green_in_silence(known):
    result = known.run(None)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "peak INVALID step: the baseline has a peak memory of 1.00 GiB, but this run measured no peak*"
        ]
    )
    known.run(None, "--roofline-fail-on=regressed,invalid").assert_outcomes(failed=1)


def test_of_rounds_the_process_in_the_middle_stands(known):
    known.desk.suite(SUITE.replace("2**30)", "2**30 * (1.5 if ROUND == 2 else 1))").replace(
        "def test_step(roofline, busy, fake):",
        "def test_step(roofline, busy, fake, pytestconfig):\n"
        "    from pytest_roofline.settings.round import in_round\n"
        "    ROUND = in_round(pytestconfig).number if in_round(pytestconfig) else 1",
    ))  # fmt: skip
    known.desk.script(slow=[1.06, 1.0])
    known.run(1.0, "-q", "--roofline-rounds=12")
    run = known.desk.last_run()
    peaks = [one.peak_bytes for one in run.tested]
    assert peaks == [GIB, int(1.5 * GIB), GIB, GIB, GIB]
    assert known.peak.value == GIB


def test_a_larger_peak_is_accepted_twice_and_then_the_measure(known):
    refused = known.desk.cli
    known.run(1.1, "-q", "--roofline-save=more")
    without = refused("baseline", "propose", "more", "-o", "no.json")
    assert (without.exit_code, "peak memory +10.0 %" in without.output) == (2, True)
    assert (
        refused("baseline", "propose", "more", "-o", "more.json", "--accept-slower").exit_code == 0
    )
    unwanted = refused("baseline", "approve", "more.json")
    assert unwanted.exit_code == 2
    assert (
        "step takes peak memory +10.0 % (1.10 GiB, baseline 1.00 GiB); expected at most the tolerance"
        in unwanted.output
    )
    assert known.entry.peak_bytes == GIB
    approved = refused("baseline", "approve", "more.json", "--accept-slower")
    assert "peak 1.00 GiB → 1.10 GiB" in " ".join(approved.output.split())
    assert known.entry.peak_bytes == int(1.1 * GIB)
    known.run(1.1, "-q").assert_outcomes(passed=1)


def test_a_smaller_peak_is_the_new_measure(known):
    assert known.approve(0.8, name="less").exit_code == 0
    assert known.entry.peak_bytes == int(0.8 * GIB)
    known.run(0.9, "-q").assert_outcomes(failed=1)


def test_replace_alone_takes_a_peak_out(known):
    assert known.approve(None, name="kept").exit_code == 0
    assert known.entry.peak_bytes == GIB
    assert known.approve(None, "--replace", name="gone").exit_code == 0
    assert known.entry.peak_bytes is None
