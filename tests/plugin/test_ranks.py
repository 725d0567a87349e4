"""Tests over ranks: what a run over them writes, says and refuses, and the order that they come in."""

import json
import re
import socket

import pytest
from click.testing import CliRunner

import pytest_roofline.engine.devices
import pytest_roofline.ranks.facts
from pytest_roofline.cli.main import main
from pytest_roofline.core.facts import Gpu
from pytest_roofline.plugin.launcher import Launcher
from pytest_roofline.ranks.driving import Boot
from pytest_roofline.ranks.facts import SeenDevice

from .conftest import texts, write_sessions
from .rank_runs import RankRuns, by_label

HOST = socket.gethostname()

STORY = r"""
CAREFUL_S = 0.1
COPY = Work(algbw_bytes=2**20, busbw_bytes=2**20, read_bytes=2**20, write_bytes=2**20)


def reduces(rank, numel):
    values = torch.ones(numel)
    return lambda: dist.all_reduce(values)


def itself(rank):
    dist.barrier()


def late(rank, guilty):
    values = torch.ones(8)

    def call():
        if rank == guilty:
            time.sleep(CAREFUL_S)
        dist.all_reduce(values)

    return call


def copies(rank, wrong):
    def make():
        # Enough to span many ticks of any clock.
        return torch.full((2**18,), float(rank)), torch.zeros(2**18)

    def call(source, target):
        target.copy_(source)

    def verify(source, target):
        assert rank not in wrong, f"{rank} copied nothing"
        assert target.equal(source)

    return Timed(call, make, verify)


def starts(rank):
    left = [1.0] * (rank == 1)
    values = torch.ones(8)

    def call():
        if left:
            time.sleep(left.pop())
        dist.all_reduce(values)

    return call


def hurries(rank, numel):
    values = torch.ones(numel)
    return lambda: dist.all_reduce(values, async_op=True)


def allocates(rank):
    return lambda: torch.ones((rank + 1) * 2**20, dtype=torch.uint8)


def gives(rank, tag, values):
    total = torch.full((3,), float(tag + rank))
    dist.all_reduce(total)
    return {"rank": int(rank), "size": rank.size, "total": total, "values": values * 2, "device": str(rank.device)}


def program(rank, name):
    with open(name, "a") as file:
        file.write(f"{json.dumps([int(rank), os.getpid()])}\n")
    values = torch.ones(1024)

    def call():
        with open(f"{name}-calls", "a") as file:
            file.write(f"{int(rank)}\n")
        dist.all_reduce(values)

    # No call of the work takes as long as the start of a program.
    time.sleep(1)
    return call


# Before the others: of stragglers only three are named, and a busy machine makes more.
@pytest.mark.roofline(ranks=2)
def test_late(roofline, distributed):
    for guilty in (0, 1):
        roofline.measure_ranks(distributed, late, guilty, work=WORK, name=f"rank{guilty}", budget=2)


@pytest.mark.parametrize("numel", [1024])
@pytest.mark.parametrize("world_size", [2], ids=["2ranks"])
def test_all_reduce(roofline, distributed, numel, world_size, record_property):
    measurement = roofline.measure_ranks(distributed, reduces, numel, work=WORK, collective="all_reduce")
    record_property("median", f"{measurement.median_s:.6g}")
    record_property("busbw", f"{measurement.busbw_GBps:.6g}")


@pytest.mark.roofline(ranks=2)
def test_itself(roofline, distributed):
    roofline.measure_ranks(distributed, itself, work=Work(read_bytes=8), timing="pipelined", metric="x_traffic_GBps")


@pytest.mark.roofline(ranks=2, gate=True)
def test_rotates(roofline, distributed):
    measurement = roofline.measure_ranks(distributed, copies, (), work=COPY, cache="rotate", tolerance=0.2)
    assert measurement.verified is True


@pytest.mark.roofline(ranks=2)
def test_allocates(roofline, distributed):
    roofline.measure_ranks(distributed, allocates, work=WORK, peak_bytes=True)


@pytest.mark.roofline(ranks=2)
def test_wrong_on_1(roofline, distributed):
    roofline.measure_ranks(distributed, copies, (1,), work=WORK)


@pytest.mark.roofline(ranks=2)
def test_wrong_on_both(roofline, distributed):
    roofline.measure_ranks(distributed, copies, (0, 1), work=COPY, cache="rotate")


@pytest.mark.roofline(ranks=2)
def test_twice_under_one_name(roofline, distributed):
    roofline.measure_ranks(distributed, copies, (), work=WORK, name="a")
    roofline.measure_ranks(distributed, copies, (), work=WORK, name="a")


@pytest.mark.roofline(ranks=2)
def test_starts(roofline, distributed, record_property):
    before = distributed.run(pid)
    roofline.measure_ranks(distributed, starts, work=WORK, first_calls=2, fresh=True)
    record_property("pids", json.dumps([before, distributed.run(pid)]))


@pytest.mark.roofline(ranks=2)
def test_runs(distributed, record_property):
    first, second = distributed.run(gives, 7, torch.arange(3))
    assert (first["rank"], second["rank"], first["size"]) == (0, 1, 2)
    assert first["total"].tolist() == second["total"].tolist() == [15.0] * 3
    assert first["values"].tolist() == [0, 2, 4]
    assert first["device"] == "cpu"
    record_property("pids", json.dumps(distributed.run(pid)))


@pytest.mark.roofline(ranks=2)
def test_knows(distributed, record_property):
    free, threads = distributed.free_bytes(), distributed.facts
    record_property("known", json.dumps({
        "world_size": distributed.world_size, "launcher": distributed.launcher, "kind": distributed.kind,
        "backends": distributed.backends, "available": distributed.available(1000), "free": free,
        "facts": [[int(fact.rank), fact.host, fact.cores] for fact in distributed.facts],
        "pids": distributed.run(pid),
    }))


@pytest.mark.roofline(ranks=3)
def test_three(roofline, distributed):
    assert [row["total"].tolist() for row in distributed.run(gives, 100, torch.zeros(1))] == [[303.0] * 3] * 3
    measurement = roofline.measure_ranks(distributed, reduces, 1024, work=WORK)
    assert measurement.ranks.size == 3


@pytest.mark.roofline(gate=True)
def test_job(roofline, distributed, record_property):
    assert distributed.world_size is None
    record_property("pids", json.dumps(distributed.run(pid, world_size=2)))
    roofline.measure_ranks(distributed, program, "steady", world_size=2, name="steady")
    roofline.measure_job(distributed, program, "job", world_size=2, budget=0.01)


@pytest.mark.roofline(ranks=2)
def test_hurries(roofline, distributed):
    roofline.measure_ranks(distributed, hurries, 2**20, work=WORK)
"""
FAILED = ["test_wrong_on_1", "test_wrong_on_both", "test_twice_under_one_name", "test_hurries"]
PASSED = [
    "test_all_reduce[2ranks-1024]", *(f"test_{name}" for name in (
        "itself", "rotates", "allocates", "late", "starts", "runs", "knows", "three", "job"
    )),
]  # fmt: skip


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """One run in which everything is measured that ranks can measure."""
    return RankRuns(tmp_path_factory.mktemp("story"), STORY).run(
        "--roofline-save=story", "-p", "no:cacheprovider"
    )


@pytest.fixture(scope="module")
def measured(story):
    """What it measured, by label."""
    return by_label(story.saved("story"))


def test_every_test_ends_as_it_should_and_nothing_is_left_of_the_run(story):
    expected = dict.fromkeys(PASSED, "passed") | dict.fromkeys(FAILED, "failed")
    assert {name: outcome for name, (outcome, _) in story.cases().items()} == expected, story.text
    assert story.status == 1
    assert story.left_over() == {}
    assert list(story.temporary.iterdir()) == []
    assert {path.name for path in story.path.iterdir()} - {"__pycache__"} == {
        ".roofline", "conftest.py", "junit.xml", "output", "pytest.ini", "test_suite.py", "tmp",
        "job", "job-calls", "steady", "steady-calls",
    }  # fmt: skip
    assert [path.name for path in (story.path / ".roofline" / "runs").glob("*.jsonl")] == [
        "story.jsonl"
    ]
    _, hurried = story.cases()["test_hurries"]
    assert (
        "Work, whose work may not be done yet; expected a function that waits for the work. Call .wait() on the Work"
        in hurried
    )
    assert "out of step" not in hurried


def test_the_record_says_who_took_part_and_what_was_asked_for(measured):
    for label in ("all_reduce[2ranks-1024]", "itself", "rotates", "late.rank0", "three"):
        # A sample is the time of the rank that took longest.
        found = measured[label]
        assert len(found.ranks.seconds) == found.ranks.size
        assert [max(column) for column in zip(*found.ranks.seconds, strict=True)] == list(
            found.samples.seconds
        )
    plain = measured["all_reduce[2ranks-1024]"]
    told = plain.ranks
    assert (told.size, told.launcher, told.backend, told.hosts) == (
        2,
        "local",
        "gloo",
        (HOST, HOST),
    )
    assert (told.generation, told.threads, len(told.lag_s), min(told.lag_s) >= 0.0) == (
        1,
        1,
        2,
        True,
    )
    assert (plain.key.benchmark, plain.key.parameters) == (
        "all_reduce",
        {"world_size": 2, "numel": 1024},
    )
    assert (plain.samples.iterations, plain.verified) == (1, None)
    for label, devices in (("all_reduce[2ranks-1024]", 2), ("three", 3)):
        assert (measured[label].key.hardware.devices, measured[label].key.hardware.link) == (
            devices,
            "memory",
        )
    for label, *expected in (
        ("all_reduce[2ranks-1024]", "isolated", "warm", "busbw_GBps"),
        ("itself", "pipelined", "warm", "x_traffic_GBps"),
        ("rotates", "isolated", "rotate", "busbw_GBps"),
        ("job.job", "wall", "warm", "job_wall_s"),
    ):
        key = measured[label].key
        assert [key.timing, key.cache, key.metric] == expected
    rotated = measured["rotates"]
    assert (rotated.verified, rotated.tolerance, rotated.gate) == (True, 0.2, True)
    assert rotated.samples.argument_sets > 1


def test_the_most_memory_is_that_of_the_rank_which_holds_most_and_the_first_calls_of_the_slowest(
    story, measured
):
    assert measured["allocates"].peak_bytes == 2 * 2**20
    peaks = {judged.subject.label: judged.peak for judged in story.saved("story").verdicts}
    assert (peaks["allocates"].verdict, peaks["allocates"].value) == ("NO BASELINE", 2 * 2**20)
    assert (peaks["itself"], measured["itself"].peak_bytes) == (None, None)
    first_s, second_s = measured["starts"].samples.first_calls_s
    assert first_s >= 1.0
    assert second_s < first_s
    assert "\nstarts: call 0 on new ranks took " in story.text


def test_the_straggler_is_named_with_its_lag(story, measured):
    for guilty in (0, 1):
        found = measured[f"late.rank{guilty}"]
        assert found.ranks.straggler == guilty
        # Its nap, to which a busy machine may add more for both.
        assert found.ranks.lag_s[guilty] > max(0.09, found.ranks.lag_s[1 - guilty])
        assert found.median_s > 0.1
        line = rf"^straggler: rank {guilty} on {re.escape(HOST)} takes \S+ m?s longer for its part "
        line += rf"of late\.rank{guilty} than the fastest rank \("
        assert re.search(line, story.text, re.MULTILINE)


def test_the_terminal_and_the_report_tell_of_ranks(story):
    lines = [line for line in story.text.splitlines() if line.startswith("ranks: ")]
    assert lines == [f"ranks: local, gloo, 1 thread a rank, on {HOST}"]
    assert story.text.count("rates of collectives are bus bandwidth") == 1
    told = story.properties("test_all_reduce[2ranks-1024]")
    assert told["roofline.time_s"] == told["median"]
    assert float(told["roofline.rate"]) == pytest.approx(1e9 * float(told["busbw"]), rel=1e-5)
    assert (told["roofline.rate_unit"], told["roofline.verdict"]) == ("B/s", "NO BASELINE")
    known = json.loads(story.properties("test_knows")["known"])
    assert [known[name] for name in ("world_size", "launcher", "kind", "available")] == [
        2,
        "local",
        "cpu",
        "",
    ]
    assert (known["backends"][0], known["facts"][:2]) == ("gloo", [[0, HOST, 2], [1, HOST, 2]])
    assert known["free"] > 2**20


def test_wrong_data_are_named_by_rank_and_fit_for_nothing(story, measured):
    for name, blamed in (("wrong_on_1", [1]), ("wrong_on_both", [0, 1])):
        _, reason = story.cases()[f"test_{name}"]
        found = measured[name]
        assert "WrongData" in reason
        for rank in (0, 1):
            assert (f"rank {rank}: " in found.invalid) == (rank in blamed)
            assert (f"{rank} copied nothing" in found.invalid) == (rank in blamed)
        assert f"{name}: {found.invalid}" in reason
        assert (found.verified, found.ranks.straggler) == (False, None)
    # The second measurement under a name is refused, and the first fit for nothing.
    assert (
        "this test has two measurements with the name 'a'"
        in story.cases()["test_twice_under_one_name"][1]
    )
    first = measured["twice_under_one_name.a"]
    # So short a copy may itself span too few ticks of the clock.
    assert "twice" not in first.invalid
    assert story.saved("story").unfit(first, accept_slower=True) != ""


def test_ranks_are_kept_from_test_to_test_unless_fresh_ones_are_asked_for(story, measured):
    before = json.loads(story.properties("test_runs")["pids"])
    assert json.loads(story.properties("test_knows")["known"])["pids"] == before
    before, after = json.loads(story.properties("test_starts")["pids"])
    assert not set(before) & set(after)
    kinds = [
        (measured[name].ranks.fresh, measured[name].ranks.generation)
        for name in ("late.rank0", "starts")
    ]
    assert kinds == [(False, 1), (True, 2)]


def test_more_ranks_than_cores_get_no_verdict_and_say_why(story, measured):
    assert [
        label for label, found in measured.items() if "oversubscribed" in found.samples.labels
    ] == ["three"]
    assert story.properties("test_three")["roofline.verdict"] == "OVERSUBSCRIBED"
    assert re.search(r"^\s*three .*OVERSUBSCRIBED", story.text, re.MULTILINE)
    assert re.search(
        r"^oversubscribed: a node has more ranks than cores.*never gate: three$",
        story.text,
        re.MULTILINE,
    )


def test_a_job_is_timed_from_start_to_end_with_ranks_of_its_own(story, measured):
    job, steady = measured["job.job"], measured["job.steady"]
    assert 2 <= len(job.samples.seconds) <= 5
    assert (job.ranks.seconds, job.rate, steady.rate, steady.key.metric) == (
        (),
        None,
        None,
        "time_s",
    )
    assert job.median_s > 1 > steady.median_s
    # A program each on processes of its own, in which the function is called once and so is what it gave.
    programs, kept = story.notes("job"), json.loads(story.properties("test_job")["pids"])
    assert sorted(rank for rank, _ in programs) == sorted([0, 1] * len(job.samples.seconds))
    assert len({pid for _, pid in programs} - set(kept)) == len(programs)
    assert sorted(story.notes("job-calls")) == sorted(rank for rank, _ in programs)
    assert job.ranks.generation == steady.ranks.generation + len(job.samples.seconds)
    (line,) = re.findall(r"^job\.job: the whole program takes .*", story.text, re.MULTILINE)
    assert "of which one steady call of its work is" in line
    # What is measured steadily is made once on each rank, and called more often.
    assert sorted(story.notes("steady")) == [[0, kept[0]], [1, kept[1]]]
    calls = story.notes("steady-calls")
    assert calls.count(0) == calls.count(1) > 1


def test_a_proposal_takes_what_gates_and_nothing_oversubscribed_or_wrong(
    story, tmp_path, monkeypatch
):
    path = story.run_path("story")
    write_sessions(path.parent, path.read_text(), (1.0, 1.01))
    proposal = tmp_path / "proposal.json"
    monkeypatch.chdir(story.path)
    answer = CliRunner().invoke(
        main, ["baseline", "propose", "day1", "day2", "--all", "-o", str(proposal)]
    )
    assert answer.exit_code == 0, answer.output
    entries = {
        (e["benchmark"], e.get("name", "")): e for e in json.loads(proposal.read_text())["entries"]
    }
    assert set(entries) == {
        ("all_reduce", ""), ("itself", ""), ("rotates", ""), ("allocates", ""), ("late", "rank0"), ("late", "rank1"),
        ("starts", ""), ("job", "job"), ("job", "steady"),
    }  # fmt: skip
    hardware = entries["all_reduce", ""]["hardware"]
    assert (hardware["devices"], hardware["link"]) == (2, "memory")
    for word in (
        "three of day1: there were more ranks than cores",
        "wrong_on_1 of day1: ",
        "twice_under_one_name.a of day1: ",
    ):
        assert word in answer.output


REFUSED = r"""
import functools
import itertools

import pytest
import torch
from pytest_roofline import Work
from pytest_roofline.core.errors import BadInput

WORK = Work(algbw_bytes=4096, busbw_bytes=4096)


def good(rank, *more): pass


def decorate(fn):
    return functools.wraps(fn)(lambda rank: None)


@decorate
def decorated(rank): pass


class Odd: pass


FUNCTIONS = (
    (lambda rank: None, "<lambda> is not a function at the top of a module"),
    (functools.partial(good, 1), "functools.partial.* is not a function"),
    (decorated.__wrapped__, "a decorator may have replaced the function"),
)
ARGUMENTS = (
    (Odd(), "an argument holds a test_suite.Odd; expected"),
    (torch.empty(1 << 34, dtype=torch.uint8, device="meta"), "an argument holds a torch.Tensor"),
)
OPTIONS = (
    ({"world_size": 0}, "world_size is 0; expected a number of ranks, 1 or more"),
    ({"world_size": True}, "world_size is True"),
    ({"timeout": 0}, "timeout is 0; expected a number above zero"),
    ({"backend": "carrier pigeon"}, "backend is 'carrier pigeon'; expected a back end of this torch: .*gloo"),
)
MEASURING = (
    ({"work": 7}, "work is 7; expected Work"),
    ({"timing": "wall"}, "timing is 'wall'; expected one of isolated, pipelined"),
    ({"cache": "flush"}, "cache is 'flush'; expected one of warm, rotate"),
    ({"metric": "payload_GBps"}, "but the work has no amount that this metric counts"),
    ({"name": 3}, "name is 3; expected text"),
    ({"collective": "all_hands"}, "collective is 'all_hands'; expected one of .*all_reduce"),
)


@pytest.fixture
def calls(roofline, distributed):
    number = itertools.count()

    def over(measure):
        def call(fn, *args, **more):
            # A test measures once under a name.
            known = {"work": WORK, "name": f"call {next(number)}"}
            return getattr(roofline, measure)(distributed, fn, *args, **(known | more))

        return call

    return distributed.run, over("measure_ranks"), over("measure_job")


def test_functions_and_arguments(calls):
    for call in calls:
        for function, said in FUNCTIONS:
            with pytest.raises(BadInput, match=said):
                call(function, world_size=2)
        for argument, said in ARGUMENTS:
            with pytest.raises(BadInput, match=said):
                call(good, 1, argument, world_size=2)


def test_options(calls):
    for call in calls:
        for options, said in OPTIONS:
            with pytest.raises(BadInput, match=said):
                call(good, **({"world_size": 2} | options))
        with pytest.raises(BadInput, match=r"test_options does not say how many ranks it needs; expected @pytest.mark."
                                           r"roofline\(ranks=N\), a parameter world_size, or the argument world_size"):
            call(good)


@pytest.mark.roofline(ranks=2)
def test_measuring(calls, roofline):
    for options, said in MEASURING:
        with pytest.raises(BadInput, match=said):
            calls[1](good, **options)


@pytest.mark.roofline(cache="flush", ranks=2)
def test_cache_of_the_marker(calls):
    for call in calls[1:]:
        with pytest.raises(BadInput, match="cache is 'flush'"):
            call(good)


def test_without_the_fixture(roofline, distributed):
    with pytest.raises(BadInput, match="the first argument is <function good .*expected the fixture `distributed`"):
        roofline.measure_ranks(good, 1, work=WORK, world_size=2)
"""


def test_what_cannot_be_is_refused_before_a_rank_is_started(desk, monkeypatch):
    def refuse(*_):
        raise AssertionError("ranks were started")

    monkeypatch.setattr(Boot, "run", refuse)
    desk.suite(REFUSED)
    desk.run().assert_outcomes(passed=5)
    # Also where a lack of ranks would skip the test: a function or an argument that can never be sent is a mistake.
    monkeypatch.setattr(Launcher, "kind", "cuda")
    monkeypatch.setattr(pytest_roofline.ranks.facts, "device_count", lambda kind: 1)
    desk.run("-k", "functions_and_arguments").assert_outcomes(passed=1)


ORDER = """
import pytest

def test_plain_1(): pass

@pytest.mark.parametrize("world_size", [2, 4, 3], ids=lambda size: f"{size}ranks")
def test_all_reduce(roofline, distributed, world_size): pass

@pytest.mark.roofline(ranks=2, mpi=True)
def test_mpi(distributed): pass

def test_measures(roofline): pass

@pytest.mark.roofline(ranks=3)
def test_three(distributed): assert not distributed.world_size

def test_unsaid(distributed): pass

@pytest.mark.roofline(ranks=4)
@pytest.mark.parametrize("world_size", [2])
def test_marker_wins(distributed, world_size): pass

@pytest.mark.parametrize("world_size", ["many", True, 0], ids=["text", "true", "zero"])
def test_no_number(distributed, world_size): pass

@pytest.mark.roofline(ranks=2)
def test_two(distributed): assert distributed.world_size == 2

def test_plain_2(): pass
"""
ALONE = ["test_plain_1", "test_measures", "test_plain_2"]
TWO = ["test_all_reduce[2ranks]", "test_two"]
FOUR = ["test_all_reduce[4ranks]", "test_marker_wins[2]"]
THREE = ["test_all_reduce[3ranks]", "test_three"]
UNSAID = ["test_unsaid", "test_no_number[text]", "test_no_number[true]", "test_no_number[zero]"]
MPI = ["test_mpi"]


def names(result, begin="test_suite.py::"):
    return [
        line.partition("::")[2].partition(" ")[0]
        for line in result.stdout.lines
        if line.startswith(begin)
    ]


def test_tests_come_by_world_and_within_one_in_the_users_order(desk):
    def collected(*options):
        return names(desk.run("--collect-only", "-q", *options))

    desk.suite(ORDER)
    assert collected() == ALONE + TWO + FOUR + THREE + UNSAID + MPI
    assert collected("-k", "all_reduce and 2ranks") == ["test_all_reduce[2ranks]"]
    stopped = desk.run("-x", "-v")
    stopped.assert_outcomes(passed=8, failed=1)
    assert names(stopped)[-1] == "test_three"
    again = desk.run("--lf", "-v")
    again.assert_outcomes(failed=1)
    assert names(again)[0] == "test_three"


def test_an_option_that_cannot_be_is_a_usage_error(desk, sentence):
    desk.suite("def test_one(distributed): pass")
    for options, words in (
        (
            ["--roofline-launcher=slurm"],
            ["--roofline-launcher is 'slurm'", "local, torchrun, mpirun, srun"],
        ),
        (
            ["--roofline-launcher-args=-N2"],
            ["--roofline-launcher-args is given", "the launcher local takes no arguments"],
        ),
        (
            ["--roofline-launcher=srun", "--roofline-launcher-args='"],
            ["--roofline-launcher-args", "as in a shell"],
        ),
        (["--roofline-rank-timeout=0"], ["--roofline-rank-timeout", "0"]),
    ):
        sentence(desk.run(*options), *words)


def test_ranks_that_cannot_be_there_skip_with_need_and_found_and_fail_where_hardware_is_required(
    desk, monkeypatch
):
    desk.suite("""
import pytest
def one(rank): pass
@pytest.mark.roofline(ranks=2)
def test_two(distributed):
    assert distributed.available(2) == "needs 2 GPUs, found 1"
    assert distributed.available(1) == ""
    distributed.run(one)
""")
    monkeypatch.setattr(Launcher, "kind", "cuda")
    monkeypatch.setattr(pytest_roofline.ranks.facts, "device_count", lambda kind: 1)
    skipped = desk.run("-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["SKIPPED*needs 2 GPUs, found 1"])
    failed = desk.run("--roofline-fail-on=+no-hardware")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(
        [
            "*needs 2 GPUs, found 1; missing hardware fails a test here (no-hardware in --roofline-fail-on)*"
        ]
    )


OVER_RANKS = """
def test_one(roofline, distributed): assert roofline.device.type == "cuda"
def test_two(roofline, distributed): pass
"""


@pytest.fixture
def accelerator(pytester, make, monkeypatch):
    """A machine whose ranks own a GPU in exclusive-process mode; how often this process opened a device itself."""
    gpu = Gpu(index=0, product="NVIDIA H200", compute_mode="exclusive process")
    opened = []

    def open_device(name):
        opened.append(name)
        device = SeenDevice(make.environment())
        monkeypatch.setattr(SeenDevice, "gpu", lambda _: gpu)
        return device

    monkeypatch.setattr(Launcher, "kind", "cuda")
    monkeypatch.setattr(Launcher, "environment", lambda _: make.environment())
    monkeypatch.setattr(SeenDevice, "gpu", lambda _: gpu)
    monkeypatch.setattr(pytest_roofline.engine.devices, "open_device", open_device)
    pytester.makefile(".ini", pytest="[pytest]\n")
    return opened


def inline(pytester, text, *args):
    pytester.makepyfile(test_suite=text)
    return pytester.runpytest_inprocess(
        "-p", "no:hypothesispytest", "-p", "no:cacheprovider", *args
    )


def test_where_every_test_is_over_ranks_this_process_opens_no_accelerator(pytester, accelerator):
    result = inline(pytester, OVER_RANKS, "--roofline-rounds=2")
    # The health of the device is looked at without a context, too.
    result.assert_outcomes(passed=3)
    assert accelerator == []
    result.stdout.fnmatch_lines(["roofline *: cuda* (NVIDIA H200*)*driver 570.86*"])
    # Nobody holds it here, so a fresh process may.
    assert "no further rounds" not in texts(result)


def test_a_device_for_one_process_cannot_serve_this_one_and_ranks_in_one_run(
    pytester, accelerator, sentence
):
    result = inline(
        pytester, OVER_RANKS + "def test_alone(roofline): pass\n", "--roofline-rounds=2"
    )
    sentence(
        result,
        "GPU 0 (NVIDIA H200)",
        "exclusive process",
        "tests with ranks and tests without",
        "nvidia-smi -i 0 -c DEFAULT",
    )


def test_measuring_in_this_process_is_refused_where_the_ranks_have_the_device(
    pytester, accelerator
):
    alone = "roofline.measure(lambda: None, work=Work(read_bytes=8))"
    result = inline(
        pytester, f"from pytest_roofline import Work\ndef test_one(roofline, distributed): {alone}"
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*open in the ranks only*measure_ranks*"])


def test_a_test_may_ask_for_ranks_when_its_run_has_a_file(desk):
    desk.suite(
        "def test_it(roofline, busy, request):\n"
        "    roofline.measure(lambda: busy(1e-3))\n"
        "    assert request.getfixturevalue('distributed').world_size is None\n"
    )
    desk.run("--roofline-save=it").assert_outcomes(passed=1)
