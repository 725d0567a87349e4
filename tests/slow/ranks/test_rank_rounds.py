"""Tests over ranks against saved runs: further rounds with ranks of their own, drills, and functions put in place."""

import re

import pytest

from ...plugin.conftest import write_sessions
from ...plugin.rank_runs import SCRIPTED_CLOCK, RankRuns, by_label

SUITE = (
    SCRIPTED_CLOCK
    + """

def runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.fixture
def measure(request, roofline, distributed):
    yield lambda seconds: roofline.measure_ranks(distributed, takes, seconds, work=WORK)
    path = Path("notes")
    known = [rank for line in path.read_text().splitlines() for rank in json.loads(line)[2]] if path.exists() else []
    with path.open("a") as file:
        ours = distributed.run(pid)
        others = [rank for rank in known if runs(rank) and rank not in ours]
        file.write(json.dumps([request.node.name, os.getpid(), ours, others]) + "\\n")


pytestmark = pytest.mark.roofline(ranks=2)


def test_steady(measure):
    measure(0.01)


def test_slow(measure):
    measure(0.01 if "ONCE" in os.environ else 0.02)


def test_open(measure):
    measure(0.01 if "ONCE" in os.environ else 0.0125)
"""
)

# Five days that differ by half a percent.
CALM = (1.0, 1.005, 0.995, 1.0025, 0.9975)


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """A run that takes as many rounds as it likes, against five sessions."""
    runs = RankRuns(tmp_path_factory.mktemp("rounds"), SUITE)
    once = runs.run("-p", "no:cacheprovider", "--roofline-save=once", ONCE="1")
    assert once.status == 0, once.text
    against = write_sessions(runs.run_path("once").parent, runs.run_path("once").read_text(), CALM)
    (runs.path / "notes").unlink()
    return runs.run(*against, "-p", "no:cacheprovider", "--roofline-save=decided")


def test_ranks_are_compared_with_saved_runs(decided):
    assert "against 5 saved runs (day1, day2, day3, day4, day5)" in decided.text
    verdicts = {
        verdict.subject.label: verdict.kind for verdict in decided.saved("decided").verdicts
    }
    assert verdicts == {"steady": "INCONCLUSIVE", "slow": "REGRESSED", "open": "INCONCLUSIVE"}
    sentence = r"RED: 1 REGRESSED, 0 of 3 fast enough, 2 undecided \(open \+\d+ %, 1 INCONCLUSIVE\)"
    assert re.search(sentence, decided.text)
    outcomes = {name: outcome for name, (outcome, _) in decided.cases().items()}
    assert outcomes == {"test_steady": "passed", "test_slow": "failed", "test_open": "passed"}
    assert decided.status == 1


def test_only_what_is_open_has_a_further_round_and_the_report_holds_the_comparison(decided):
    told = decided.properties("test_slow")
    assert told["roofline.verdict"] == "REGRESSED"
    assert float(told["roofline.baseline_time_s"]) == pytest.approx(0.01, rel=0.01)
    assert float(told["roofline.change"]) == pytest.approx(1.0, rel=0.02)
    processes = {
        name: decided.properties(f"test_{name}")["roofline.processes"]
        for name in ("steady", "open")
    }
    assert processes == {"steady": "1", "open": "5"}
    lines = re.findall(
        r"^roofline: round [2-5] of at most 5: .* undecided$", decided.text, re.MULTILINE
    )
    assert [("test_slow" in line, "test_open" in line) for line in lines] == [(True, True)] * 4
    assert "test_steady" not in "".join(lines)
    rounds = {"steady": [], "slow": [], "open": []}
    for measurement in decided.saved("decided").measurements:
        rounds[measurement.label].append(measurement.round)
    assert rounds == {"steady": [1], "slow": [1, 2, 3, 4, 5], "open": [1, 2, 3, 4, 5]}
    # All rounds are in the run file with the times of every rank.
    first, second, *_ = (m for m in decided.saved("decided").measurements if m.label == "open")
    assert first.process != second.process
    assert first.key == second.key
    for found in (first, second):
        assert (found.invalid, len(found.ranks.seconds)) == ("", 2)
        assert found.median_s == pytest.approx(0.0125, rel=1e-3)


def test_a_round_has_ranks_of_its_own_the_parents_are_gone_by_then_and_nothing_is_left(decided):
    parent, ranks = decided.notes()[0][1:3]
    first = [line for line in decided.notes() if line[1] == parent]
    second = [line for line in decided.notes() if line[1] != parent]
    assert [(line[0], line[2]) for line in first] == [
        (f"test_{name}", ranks) for name in ("steady", "slow", "open")
    ]
    assert {line[0] for line in second} == {"test_slow", "test_open"}
    for _, _, own, others in second:
        assert not set(own) & set(ranks)
        assert others == []
    assert decided.left_over() == {}
    assert list(decided.temporary.iterdir()) == []
    names = {path.stem for path in (decided.path / ".roofline" / "runs").glob("*.jsonl")}
    assert names == {"once", "decided", "day1", "day2", "day3", "day4", "day5"}


REPLACED = """
def gentle(rank, seconds):
    Path(f"replaced{int(rank)}").touch()
    return nap(rank, seconds / 4)


@pytest.mark.roofline(ranks=2)
@pytest.mark.parametrize("how", ["as it is", "replaced", "replaced badly"])
def test_nap(roofline, distributed, how):
    roofline.measure_ranks(distributed, nap, 0.02, work=WORK, name="it")
"""
HOOK = """

def pytest_roofline_function(item, name, fn):
    assert name == "it"
    if "badly" in item.name:
        return lambda rank, seconds: None
    return item.module.gentle if "replaced" in item.name else None
"""


def test_a_drill_slows_ranks_down_and_a_hook_puts_a_function_in_place_of_theirs(tmp_path):
    runs = RankRuns(tmp_path, REPLACED, conftest=HOOK).run(
        "-p", "no:cacheprovider", "--roofline-drill=50%", "--roofline-save=drill"
    )
    cases = runs.cases()
    assert [outcome for outcome, _ in cases.values()] == ["passed", "passed", "failed"], runs.text
    assert (
        "<lambda> is not a function at the top of a modul" in cases["test_nap[replaced badly]"][1]
    )
    run = runs.saved("drill")
    found = by_label(run)
    drilled, replaced = found["nap[as it is].it"], found["nap[replaced].it"]
    # A nap of 20 ms takes no less, and half as long again no less than 30; what hook gives is not drilled.
    assert 0.005 < replaced.median_s < drilled.median_s > 0.03
    assert sorted(path.name for path in tmp_path.glob("replaced?")) == ["replaced0", "replaced1"]
    for measurement in (drilled, replaced):
        assert "replaced" in measurement.samples.labels
        assert "replaced on purpose" in run.unfit(measurement, accept_slower=True)
    assert "DRILL: every measured function was slowed down by 50 %" in runs.text
