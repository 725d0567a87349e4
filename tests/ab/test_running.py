"""Blocks, verdicts, what goes wrong, and what is kept: both sides are scripted, so that what is slower is certain."""

import contextlib
import os
import signal

import pytest
from click.testing import CliRunner

from pytest_roofline.ab import running
from pytest_roofline.ab.cli import running_sides
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.remarks import remarks
from pytest_roofline.cli.main import main
from pytest_roofline.stats.paired import order_of_blocks

from .conftest import verdicts

FIRST, *OTHERS = (f"test_it.py::test_copy[{number}]" for number in range(6))
SEEDED = ("--seed=1", "merge-base", ".", "--", "bench", "-k", "copy")
LABELS = [f"copy[{number}]" for number in range(6)]


def test_what_is_slower_is_red_and_each_test_is_measured_until_it_is_decided(world):
    world.slow = {("B", FIRST): 1.1}
    told = world.ab("--name=one", *SEEDED, status=1)
    assert verdicts(told) == dict.fromkeys(LABELS, "PASSED") | {"copy[0]": "REGRESSED"}
    slower = told["tests"][0]
    assert (slower["change"], slower["control_change"]) == (
        pytest.approx(0.1, abs=0.01),
        pytest.approx(0, abs=0.01),
    )
    assert told["sentence"] == "RED: 1 REGRESSED, 5 of 6 fast enough"
    # The order that the seed draws; the second A runs as A does.
    drawn = [arm for order in order_of_blocks(4, 1) for arm in order]
    assert ["B" if arm == "B" else "A" for arm in drawn][: len(world.calls)] == world.arms
    asked = [len(ids) for _, _, ids, _ in world.calls]
    assert (asked[0], asked) == (6, sorted(asked, reverse=True))
    assert {"A": 1, "B": 1} == world.warmed
    # What they compile goes to a place of each side's own.
    assert (
        len({(side, environ["TORCHINDUCTOR_CACHE_DIR"]) for _, side, _, environ in world.calls})
        == 2
    )


@pytest.fixture
def parents(monkeypatch):
    """Stand-ins for what forks rounds, in the order made."""
    made = []

    class Parent:
        def __init__(self, **_):
            self.closed = False
            made.append(self)

        def next(self, _):
            return self

        def gave_up(self, _):
            return False

        def close(self):
            self.closed = True

    monkeypatch.setattr(running, "RoundParent", Parent)
    return made


def test_on_a_processor_each_arm_forks_its_processes_from_a_parent_of_its_own(world, parents):
    world.device_type = "cpu"
    world.slow = {("B", FIRST): 1.1}
    world.ab("--name=one", *SEEDED, status=1)
    drawn = [arm for order in order_of_blocks(4, 1) for arm in order][: len(world.calls)]
    # The first of a side is fresh: it tells what the side measures.
    fresh = {drawn.index("B"), min(drawn.index("A"), drawn.index("control"))}
    assert {place for place, server in enumerate(world.servers) if server is None} == fresh
    forked = {arm: server for arm, server in zip(drawn, world.servers, strict=True) if server}
    assert len(parents) == len({id(server) for server in forked.values()}) == 3
    assert all(parent.closed for parent in parents)


def test_on_an_accelerator_every_process_is_fresh(world, parents):
    world.ab("--name=one", *SEEDED)
    assert (set(world.servers), parents) == ({None}, [])


def test_a_against_a_is_not_red_and_a_side_that_was_saved_becomes_a_baseline(world):
    world.noise = 0.01
    for seed in range(3):
        told = world.ab(f"--seed={seed}", f"--name=same{seed}", ".", ".", "--", "bench")
        assert "REGRESSED" not in verdicts(told).values()
    base, new = (world.run(f"same2-{side}") for side in "ab")
    assert base.header.command[:4] == ("roofline", "ab", ".", ".")
    # As `explain` and `report` show it: A stands where a baseline would.
    assert {one.subject.label: (one.kind, one.reference.source) for one in new.verdicts} == {
        label: (word, "same2-a") for label, word in verdicts(told).items()
    }
    assert base.verdicts == ()
    assert {one.round for one in new.measurements} == set(range(1, told["processes"]["B"] + 1))
    entries = propose([new]).baseline.entries
    assert {entry.label for entry in entries} == set(LABELS)
    assert {len(entry.sessions[0].process_medians) for entry in entries} <= set(range(4, 9))


def test_a_test_that_fails_or_dies_on_one_side_is_said_and_the_others_go_on(world):
    world.slow = {
        ("B", FIRST): "fail",
        ("B", OTHERS[0]): "die",
        ("A", OTHERS[1]): "fail",
        ("A", OTHERS[2]): "gone",
    }
    world.slow |= {("B", OTHERS[3]): "more"}
    told = world.ab(*SEEDED, status=1)
    rows = {row["label"]: row for row in told["tests"]}
    assert verdicts(told) == {
        "test_copy[0]": "FAILED", "copy[1]": "FAILED", "copy[4]": "INVALID", "copy[5]": "PASSED"
    }  # fmt: skip
    assert rows["test_copy[0]"]["reason"] == "B: wrong data"
    assert "ended early in this test" in rows["copy[1]"]["reason"]
    assert "SIGSEGV" in rows["copy[1]"]["reason"]
    assert (
        rows["copy[4]"]["reason"] == "A and B did different work, so their times are not comparable"
    )
    assert told["notes"] == ["test_copy[2] fails on A: wrong data", "tests on B only: copy[3]"]
    assert told["sentence"] == "RED: 2 FAILED, 1 of 4 fast enough, 1 undecided (1 INVALID)"


def test_where_nothing_can_be_compared_the_status_is_2_and_says_why(world):
    world.slow = {("B", test): "fail" for test in world.tests}
    said = world.ab(*SEEDED, status=2)
    assert "no test was measured on both sides; A (merge-base (" in said
    assert "; B (.): wrong data; select other tests" in said
    world.slow = {"B": "newer"}
    assert "the results of a process on side B cannot be read: " in world.ab(*SEEDED, status=2)
    world.slow = {"A": "busy"}
    told = world.ab(*SEEDED, status=2)
    assert told["sentence"] == "GREY: nothing was compared (6 INVALID)"
    assert {row["reason"] for row in told["tests"]} == {
        "5 of 9 processes: other processes kept 1.8 of 2 cores busy"
    }
    world.slow = {"B": "skip"}
    told = world.ab(*SEEDED, status=2)
    assert told["sentence"] == "GREY: nothing was compared (6 INVALID)"
    assert {row["reason"].partition(" in process ")[0] for row in told["tests"]} == {"B: skipped"}
    world.slow, world.stray = {}, ("/repository/code.py",)
    assert "ran code of the checkout instead of its commit: /repository/code.py" in world.ab(
        *SEEDED, status=2
    )
    world.stray, world.commit = (), lambda cwd: "0" * 40
    assert "ran commit 0000000000; expected" in world.ab(*SEEDED, status=2)


def test_a_spoiled_process_gets_another_block_and_what_is_slower_is_red_all_the_same(world):
    spoiled = [3]
    world.during = lambda number: world.slow.update(
        {("B", FIRST): "busy" if number in spoiled else 1.1}
    )
    told = world.ab(*SEEDED, status=1)
    assert (told["tests"][0]["verdict"], world.calls[-1][2]) == ("REGRESSED", (FIRST,))
    planned = sum(map(len, order_of_blocks(4, 1)))
    assert (len(world.calls), sum(told["processes"].values())) == (planned + 4, planned + 4)
    assert "processes in place of spoiled ones: " in world.said
    # No second one: what a busy machine leaves is judged as it is.
    world.calls, spoiled = [], [3, 9, 16]
    told = world.ab(*SEEDED, status=2)
    assert (told["tests"][0]["verdict"], len(world.calls)) == ("INCONCLUSIVE", planned + 4)
    assert told["sentence"] == "GREY: 5 of 6 fast enough, 1 undecided (copy[0] +10 %)"
    assert (
        ", but a red verdict needs 8 processes a side; the change may be "
        in told["tests"][0]["reason"]
    )


def test_so_few_processes_that_nothing_turns_red_are_told(world):
    told = world.ab("--processes=4", *SEEDED)
    assert told["notes"] == [
        "4 processes a side are too few to turn any test red; use --processes 8, or select at least "
        "25 tests of similar spread"
    ]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_cut_the_clean_up_short(first, second):
    handlers = [signal.getsignal(number) for number in (first, second)]
    cleaned = []

    @contextlib.contextmanager
    def sides():
        try:
            yield
        finally:
            signal.raise_signal(second)
            cleaned.append("sides")

    with pytest.raises(KeyboardInterrupt), running_sides(), sides():
        signal.raise_signal(first)
    assert ["sides"] == cleaned
    assert handlers == [signal.getsignal(number) for number in (first, second)]


def test_a_signal_that_the_caller_ignores_does_not_interrupt():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with running_sides():
            signal.raise_signal(signal.SIGINT)
        assert signal.SIG_IGN == signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_run_keeps_what_it_measured_and_goes_on_to_the_same_verdicts(world):
    world.slow = {("B", FIRST): 1.1}
    whole = verdicts(world.ab("--name=whole", *SEEDED, status=1))
    expected = world.calls
    world.calls = []
    place = world.path / ".roofline" / "ab" / "cut"
    world.during = lambda number: os.kill(os.getpid(), signal.SIGTERM) if number == 7 else None
    told = world.ab("--name=cut", *SEEDED, status=2)
    assert (told["interrupted"], sum(told["processes"].values())) == (True, 7)
    assert "continue with: roofline ab --resume cut" in world.said
    kept = {path: path.read_bytes() for path in place.glob("*.jsonl")}
    world.during = lambda number: None
    told = world.ab("--resume=cut", status=1)
    assert (verdicts(told), sum(told["processes"].values())) == (whole, len(expected))
    # A block in two sessions would take a part of what lies between them for a difference: it runs anew.
    first = len(order_of_blocks(4, 1)[0])
    numbers = [number for number, *_ in world.calls]
    assert numbers == [*range(1, 8), *range(first + 1, len(expected) + 1)]
    assert [ids for _, _, ids, _ in world.calls[7:]] == [ids for _, _, ids, _ in expected[first:]]
    assert (
        f"block 2 was interrupted and runs again; its results so far ({6 - first} processes) do not count"
        in world.said
    )
    assert kept.items() <= {path: path.read_bytes() for path in place.glob("*.jsonl")}.items()
    # One that came to its end runs no more.
    world.calls = []
    assert (verdicts(world.ab("--resume=whole", status=1)), world.calls) == (whole, [])
    for words, why in (
        (("--resume=absent",), ".roofline holds no `roofline ab` run 'absent'"),
        (("--resume=cut", ".", "."), "--resume was given together with sides and arguments;"),
        (
            ("--resume=cut", "--processes=12", "--seed=1"),
            "--resume was given together with --processes, --seed;",
        ),
        (("--name=cut", *SEEDED), "a run named 'cut-a' is already saved"),
        (("--processes=3", ".", "."), "expected an even number"),
        (("merge-base",), "a side is missing; expected two sides, A and B; type, for example"),
    ):
        assert why in world.ab(*words, status=2)
    # Once more, while it warms up: what is saved stays, and nothing is said of tests.
    world.during = lambda number: os.kill(os.getpid(), signal.SIGTERM)
    told = world.ab("--resume=cut", status=2)
    assert (
        told
        == "roofline ab: interrupted before the first process; continue with: roofline ab --resume cut\n"
    )
    told = world.ab("--dir=else where", "--name=cut", *SEEDED, status=2)
    assert told.endswith("; continue with: roofline ab --resume cut --dir 'else where'\n")
    assert len(world.run("cut-b").verdicts) == len(LABELS)
    # What somebody wrote into its state.
    state = world.path / ".roofline" / "ab" / "cut" / "state.json"
    for old, new, why in (
        ('"processes": 8', '"processes": 4000000000', "expected an even number from 2 to 12"),
        ('"arm": "A"', '"arm": "C"', "taken"),
        ('"001-A-0.jsonl"', '"../../runs/absent.jsonl"', "absent.jsonl"),
    ):
        text = state.read_text()
        assert old in text
        state.write_text(text.replace(old, new))
        assert why in world.ab("--resume=cut", status=2)
        state.write_text(text)


def test_a_variable_is_a_side_and_two_values_of_a_parameter_are_two_tests_of_one_list(world):
    world.ab("var:NCCL_ALGO=Ring", ".", "--", "bench")
    assert {("A", "Ring"), ("B", None)} == {
        (side, environ.get("NCCL_ALGO")) for _, side, _, environ in world.calls
    }
    world.calls = []
    world.tests = [
        f"test_it.py::test_step[{size}-{how}]"
        for how in ("eager", "compile")
        for size in ("8", "16")
    ]
    world.slow = {("A", "test_it.py::test_step[8-eager]"): 2.0}
    told = world.ab(
        "--name=both", "param:execution=eager", "param:execution=compile", "--", "bench"
    )
    found = {row["label"]: (row["verdict"], round(row["change"], 1)) for row in told["tests"]}
    assert found == {"copy[8]": ("IMPROVED", -0.5), "copy[16]": ("PASSED", 0.0)}
    assert all(("eager" in one) == (side == "A") for _, side, ids, _ in world.calls for one in ids)


def test_a_run_whose_time_is_spent_ends_behind_a_block(world):
    world.slow = {("B", FIRST): 1.3}
    told = world.ab("--budget=0.000001", *SEEDED, status=2)
    assert (
        told["sentence"]
        == "GREY: 0 of 6 fast enough, 6 undecided (copy[0] +29.8 %, 5 INCONCLUSIVE)"
    )
    assert set(verdicts(told).values()) == {"INCONCLUSIVE"}
    assert (told["processes"]["A"], told["processes"]["B"]) == (2, 2)
    assert "the time of --budget is over after block 1; still undecided: 6 tests" in world.said


def test_words_and_comment_tell_what_json_does(world, tmp_path):
    world.slow = {("B", FIRST): 1.1}
    comment = tmp_path / "comment.md"
    done = CliRunner().invoke(main, ["ab", "--name=one", f"--markdown={comment}", *SEEDED])
    old, new = (world.run(f"one-{side}").header.environment.code[0].commit[:10] for side in "ab")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"A merge-base ({old}), B .: ")
    assert lines[1] == f"changed: code {old} → {new}"
    # Also beside each test, where `explain` and the page look for it.
    assert {remarks(one) for one in world.run("one-b").verdicts} == {(f"code {old} → {new}",)}
    (row,) = [line for line in lines if line.startswith("copy[0]")]
    assert row.endswith("REGRESSED")
    assert "+10." in row
    assert lines[-2:] == ["saved: A as one-a, B as one-b", "RED: 1 REGRESSED, 5 of 6 fast enough"]
    told = comment.read_text().splitlines()
    assert told[:2] == ["<!-- roofline ab -->", f"**`{lines[-1]}`**"]
    # What was the same for both is said of both, in words and in the comment.
    assert [", tolerance 5 %" in text for text in (lines[0], told[3])] == [True, True]
    assert sum(line.startswith("| `copy[") for line in told) == 6


def test_the_tolerance_is_the_same_ahead_of_and_among_pytests_arguments(world):
    world.slow = {("B", FIRST): 1.1}
    for words in (
        ("--tolerance=15%", *SEEDED),
        (*SEEDED, "--roofline-tolerance=15%"),
        (*SEEDED, "--roofline-tolerance", "0.15"),
        (*SEEDED, "-o", "roofline_tolerance=15%"),
        (*SEEDED, "-vo", "roofline_tolerance=15%"),
        (*SEEDED, "-qoroofline_tolerance=15%"),
        ("--tolerance=15%", *SEEDED, "-vn4"),
        (*SEEDED, "-o", "addopts=-v --roofline-tolerance=15%"),
        (*SEEDED, "--override-ini=addopts=-o roofline_tolerance=15%"),
        ("--tolerance=15%", *SEEDED, "--roofline-tolerance=0.15"),
    ):
        told = world.ab(*words)
        expected = dict.fromkeys(LABELS, ("PASSED", 0.15))
        assert expected == {
            row["label"]: (row["verdict"], row["tolerance"]) for row in told["tests"]
        }
    assert world.ab(*SEEDED, status=1)["tests"][0]["tolerance"] == 0.05


def test_two_tolerances_that_differ_are_refused_and_both_are_named(world):
    for words, both in (
        (
            ("--tolerance=5%", *SEEDED, "--roofline-tolerance=15%"),
            "--tolerance=5% and --roofline-tolerance=15%",
        ),
        (
            (*SEEDED, "--roofline-tolerance", "5%", "--roofline-tolerance=15%"),
            "--roofline-tolerance=5% and --roofline-tolerance=15%",
        ),
    ):
        assert f"the tolerances {both} differ; expected one tolerance" in world.ab(*words, status=2)
    assert "--roofline-tolerance is 'wide'" in world.ab(
        *SEEDED, "--roofline-tolerance=wide", status=2
    )
    assert "the arguments after -- cannot be read: argument --roofline-tolerance" in world.ab(
        *SEEDED, "--roofline-tolerance", status=2
    )
    # Where pytest would end with an error, nothing is taken for a tolerance.
    assert "after -- cannot be read: argument -k: expected one argument" in world.ab(
        *SEEDED, "-k", "--roofline-tolerance=45%", status=2
    )
    assert "after -- cannot be read: No closing quotation" in world.ab(
        *SEEDED, "-o", "addopts='--roofline-tolerance=5%", status=2
    )
    assert world.calls == []
