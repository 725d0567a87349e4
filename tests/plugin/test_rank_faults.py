"""Ranks that fail in a run, and runs that end while ranks are at work: who is blamed, what is kept, what is left."""

import importlib.util
import os
import re
import shutil
import signal
import socket
import time

import pytest

from ..tools import require_tools
from .rank_runs import PATIENCE_S, RankRuns, by_label

pytestmark = pytest.mark.feature("ranks")

HOST = socket.gethostname()
NAME = rf"rank {{}} \(pid \d+ on {re.escape(HOST)}\)"

FAULTS = """
from pytest_roofline import RanksFailed

CALLS = 250


def dies(rank):
    values, calls = torch.ones(8), [0]

    def call():
        calls[0] += 1
        if rank == 1 and calls[0] > CALLS:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.004)
        dist.all_reduce(values)

    return call


def tagged(rank, tag):
    values = torch.full((64,), float(1000 * tag + rank))
    dist.all_reduce(values)
    return values.unique().tolist()


def skips_alone(rank):
    if rank == 1:
        rank.skip("no such device")
    dist.all_reduce(torch.full((64,), -1.0))


def all_skip(rank):
    rank.skip("no such device")


def raises(rank):
    values, calls = torch.ones(8), [0]

    def call():
        calls[0] += 1
        if rank == 0 and calls[0] > 3:
            raise ValueError("the third call is one too many")
        dist.all_reduce(values)

    return call


def nothing_to_make(rank):
    return lambda: dist.barrier()


def hangs(rank):
    values, calls = torch.ones(8), [0]

    def call():
        calls[0] += 1
        if rank == 1 and calls[0] > 3:
            time.sleep(600)
        dist.all_reduce(values)

    return call


pytestmark = pytest.mark.roofline(ranks=2)


def sums(distributed, tag):
    assert distributed.run(tagged, tag) == [[2000.0 * tag + 1]] * 2


def test_before(distributed):
    sums(distributed, 1)


@pytest.mark.roofline(budget=30)
def test_dies(roofline, distributed):
    roofline.measure_ranks(distributed, dies, work=WORK)


def test_after_a_death(roofline, distributed):
    sums(distributed, 2)
    roofline.measure_ranks(distributed, nap, 0.002, work=WORK)


def test_all_skip(distributed):
    distributed.run(all_skip)


def test_after_all_skipped(distributed):
    sums(distributed, 3)


def test_rotates_without_sets(roofline, distributed):
    roofline.measure_ranks(distributed, nothing_to_make, work=WORK, cache="rotate")


def test_skips_on_one(roofline, distributed):
    roofline.measure_ranks(distributed, skips_alone, work=WORK)


def test_after_a_skip(roofline, distributed):
    sums(distributed, 4)
    # On the ranks too what leads to the function is left out.
    with pytest.raises(RanksFailed, match="in call") as failed:
        roofline.measure_ranks(distributed, raises, work=WORK)
    assert "lockstep" not in str(failed.value)


@pytest.mark.xfail(strict=True, reason="known since 570")
def test_raises(roofline, distributed):
    roofline.measure_ranks(distributed, raises, work=WORK)


def test_hangs(roofline, distributed):
    sums(distributed, 5)
    roofline.measure_ranks(distributed, hangs, work=WORK, timeout=4)
"""
EXPECTED = {
    "test_before": "passed",
    "test_dies": "failed",
    "test_after_a_death": "passed",
    "test_all_skip": "skipped",
    "test_after_all_skipped": "passed",
    "test_rotates_without_sets": "failed",
    "test_skips_on_one": "skipped",
    "test_after_a_skip": "passed",
    "test_raises": "skipped",
    "test_hangs": "failed",
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """One run in which ranks fail in every way that a test can meet."""
    return RankRuns(tmp_path_factory.mktemp("faults"), FAULTS).run(
        "--roofline-save=faults", "-p", "no:cacheprovider"
    )


def reason(faults, name):
    return faults.cases()[name][1].splitlines()[0]


def test_every_fault_costs_its_own_test_only_and_nothing_is_left_of_it(faults):
    # An expected failure counts as skipped in JUnit.
    assert {name: outcome for name, (outcome, _) in faults.cases().items()} == EXPECTED, faults.text
    assert faults.status == 1
    assert "3 failed, 4 passed, 2 skipped, 1 xfailed" in faults.text
    assert faults.left_over() == {}
    assert list(faults.temporary.iterdir()) == []


def test_the_failure_names_the_rank_and_points_to_the_line_of_the_test(faults):
    told = reason(faults, "test_dies")
    # As the kernel does where memory runs out.
    assert re.fullmatch(
        rf".*{NAME.format(1)} was lost: killed by SIGKILL \(maybe out of memory; check dmesg\)",
        told,
    ), told
    _, whole = faults.cases()["test_dies"]
    assert "roofline.measure_ranks(distributed, dies, work=WORK)" in whole
    assert re.findall(r"^\S*pytest_roofline\S*\.py:\d+:", whole, re.MULTILINE) == []
    told = reason(faults, "test_hangs")
    assert re.search(
        rf"{NAME.format(1)} did not answer within 4 s: the rank is at test_suite.py:\d+ in call",
        told,
    ), told
    assert reason(faults, "test_skips_on_one").endswith(f"no such device (rank 1 on {HOST})")
    assert reason(faults, "test_all_skip").endswith("no such device")
    assert (
        "cache='rotate' needs a Timed with make_args"
        in faults.cases()["test_rotates_without_sets"][1]
    )


def test_what_was_measured_before_a_death_is_kept_and_fit_for_nothing(faults):
    run = faults.saved("faults")
    labels = by_label(run)
    found = labels["dies"]
    assert re.search(
        rf"^the ranks failed during the measurement: {NAME.format(1)} was lost: killed by SIGKILL",
        found.invalid,
    )
    assert len(found.samples.seconds) > 0
    assert [max(column) for column in zip(*found.ranks.seconds, strict=True)] == list(
        found.samples.seconds
    )
    assert found.median_s > 0.004
    assert run.unfit(found, accept_slower=True)
    assert re.search(r"^\s*dies .*FAILED", faults.text, re.MULTILINE)
    # The next test has ranks of a new generation.
    assert (labels["after_a_death"].ranks.generation, labels["after_a_death"].invalid) == (2, "")
    # A test of which nothing was measured leaves no measurement.
    assert not labels.keys() & {"skips_on_one", "rotates_without_sets"}
    outcomes = {outcome.test_id.rpartition("::")[2]: outcome.outcome for outcome in run.outcomes}
    assert (outcomes["test_skips_on_one"], outcomes["test_dies"]) == ("skipped", "failed")


HANGS = """
def hangs(rank, place):
    Path(f"pid{int(rank)}").write_text(str(os.getpid()))
    if os.fork() == 0:
        # As a worker of a DataLoader does, it knows nothing of its rank's end.
        time.sleep(600)
        os._exit(0)
    values, calls = torch.ones(8), [0]

    def call():
        calls[0] += 1
        if rank == 0 and calls[0] > 200:
            Path("hanging").touch()
            time.sleep(600)
        time.sleep(0.002)
        dist.all_reduce(values)

    return call


@pytest.mark.roofline(ranks=2, budget=30)
def test_hangs(roofline, distributed):
    Path("controller").write_text(str(os.getpid()))
    roofline.measure_ranks(distributed, hangs, ".", work=WORK)


@pytest.mark.roofline(ranks=2)
def test_never_runs(distributed):
    distributed.run(pid)
"""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def ends_without_a_process_left(path, launcher, number):
    """A run whose pytest gets a signal while one rank waits for another in a collective."""
    require_tools(*(["mpirun"] if launcher == "mpirun" else []))
    runs = RankRuns(path, HANGS)
    starts = {"under": TORCHRUN} if launcher == "attach" else {}
    asked = [] if launcher == "attach" else [f"--roofline-launcher={launcher}"]
    child = runs.start("-p", "no:cacheprovider", *asked, "--roofline-save=cut", **starts)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not (path / "hanging").exists():
            assert child.poll() is None, runs.text
            assert time.monotonic() < until_s, runs.text
            time.sleep(0.05)
        # The other rank comes to the collective, and waits there.
        time.sleep(0.2)
        os.kill(int((path / "controller").read_text()), number)
        status = child.wait(PATIENCE_S)
        # Within 1 s by design; the rest is for the machine.
        assert runs.left_over(10.0) == {}
    finally:
        child.kill()
        child.wait()
        for pid in runs.left_over(0.0):
            os.kill(pid, signal.SIGKILL)
    if number != signal.SIGINT:
        assert status == (1 if launcher == "attach" else -number)
        return
    assert status == pytest.ExitCode.INTERRUPTED, runs.text
    assert "KeyboardInterrupt" in runs.text
    assert re.search(r"^\s*hangs .*INTERRUPTED", runs.text, re.MULTILINE)
    assert list(runs.temporary.iterdir()) == []
    saved = runs.saved("cut")
    (found,) = saved.measurements
    assert (found.invalid, found.ranks.launcher, saved.footer.exit_status) == (
        "interrupted",
        launcher,
        2,
    )


def test_a_run_that_ends_while_a_rank_waits_in_a_collective_leaves_no_process(tmp_path):
    ends_without_a_process_left(tmp_path, "local", signal.SIGINT)


MPI = """
def world(rank):
    from mpi4py import MPI

    return MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank, rank.size, int(rank), MPI.COMM_WORLD.allreduce(int(rank) + 1)


def check(distributed, size):
    assert distributed.run(world) == [(size, rank, size, rank, size * (size + 1) // 2) for rank in range(size)]


@pytest.mark.roofline(ranks=3, mpi=True)
def test_three(distributed, record_property):
    check(distributed, 3)
    record_property("pids", json.dumps(distributed.run(pid)))


@pytest.mark.roofline(ranks=2, mpi=True)
def test_two(roofline, distributed, record_property):
    check(distributed, 2)
    measurement = roofline.measure_ranks(distributed, nap, 0.002, work=WORK)
    assert measurement.ranks.launcher == distributed.launcher == "mpirun"
    record_property("pids", json.dumps(distributed.run(pid)))


@pytest.mark.roofline(ranks=2, mpi=True)
def test_two_again(distributed, record_property):
    check(distributed, 2)
    record_property("pids", json.dumps(distributed.run(pid)))
"""


def test_without_what_mpi_needs_its_tests_are_skipped_with_the_reason(desk, monkeypatch):
    desk.suite(MPI.replace("def check", "import pytest\n\ndef check", 1))
    find_spec = importlib.util.find_spec
    with monkeypatch.context() as patch:
        patch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *_: None if name == "mpi4py" else find_spec(name, *_),
        )
        result = desk.run("-rs", "-k", "again")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*needs mpi4py (the extra `mpi`), found none"])
    monkeypatch.setenv("PATH", str(desk.path))
    assert shutil.which("mpirun") is None
    for options, said in (
        ([], "needs mpirun, found none in PATH"),
        (["--roofline-launcher=srun"], "needs srun, found none in PATH"),
        (["--roofline-launcher=torchrun"], "needs mpirun, found none in PATH"),
    ):
        result = desk.run("-rs", "-k", "three or again", *options)
        result.assert_outcomes(skipped=2)
        result.stdout.fnmatch_lines([f"SKIPPED [[]2[]]*{said}"])
    failed = desk.run("--roofline-fail-on=+no-hardware", "-k", "again", *options)
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [f"*{said}; missing hardware fails a test here (no-hardware in --roofline-fail-on)*"]
    )
