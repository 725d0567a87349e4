"""The program that measures the detector: its data, the rules it puts side by side, its counts, its page."""

import functools
import json
import math
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.judging.looks import FALSE_RED
from pytest_roofline.judging.spread import Group, priors
from pytest_roofline.judging.verdicts import Kind, Verdict, settle

PAGE = Path(__file__).parents[2] / "docs/results/detector-quality.md"
RNG = np.random.default_rng
FEW = 60


@pytest.fixture(scope="module")
def lab(program):
    """Everything that the program is made of, by the names of its modules."""
    names = ("suites", "simulated", "ours", "peers", "fixed", "tally", "drawing", "conditions", "criteria", "page",
             "report", "recording", "options")  # fmt: skip
    return SimpleNamespace(main=program("detector_quality"), **{name: program(f"detectors.{name}") for name in names})


def calm(count=20, tests=3, samples=6, seed=1):
    """Recorded processes about 1 % apart, as a data file holds them."""
    rng = RNG(seed)
    return {
        f"bench {number}": [
            (1e-3 * np.exp(rng.normal(0, 0.01) + rng.normal(0, 0.01, samples))).tolist() for _ in range(count)
        ]
        for number in range(tests)
    }


@pytest.fixture
def data_file(tmp_path):
    """Writes a data file."""

    def write(content):
        path = tmp_path / "corpus.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def run(lab, capsys):
    """Runs the program in this process; exit status, standard output and standard error."""

    def call(*arguments):
        status = lab.main.main([str(argument) for argument in (*arguments, "--jobs", 1)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def suite_of(lab):
    """A simulated suite of one kind."""

    def draw(kind="σ_p 1 %", tests=FEW, seed=1, baseline=15, new=12):
        prior = lab.suites.exchangeable(priors()["device"])
        return lab.simulated.Simulated(kind, baseline, new, prior, tests).draw(RNG(seed))

    return draw


# Options and files


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is not JSON"),
        ("", "is empty"),
        ("[]", "holds a list; expected an object"),
        ('{"a": [[1e-3, NaN]]}', "NaN"),
        ('{"a": [[1e-3, 1e999]]}', "1e999"),
        ('{"a": [[1e-3, -1e-3]]}', "process 1 has the sample -0.001"),
        ('{"a": [[1e-3], [0]]}', "process 2 has the sample 0.0"),
        ('{"a": [[1e-3], [4e7]]}', "process 2 has the sample 40000000.0"),
        ('{"a": [[1e-3], []]}', "process 2 has no samples"),
        ('{"a": [1e-3]}', "benchmark 'a': Expected `array`, got `float`"),
        ('{"a": [["1e-3"]]}', "benchmark 'a': Expected `float`, got `str`"),
        ('{"a": [[true]]}', "benchmark 'a': Expected `float`, got `bool`"),
        ('{"a": {"b": [1e-3]}}', "benchmark 'a': Expected `array`, got `object`"),
        ('{"a": [[1e-3]], "a": [[1e-3]]}', "gives 'a' twice"),
        ("{}", "no usable benchmark: none of its 0"),
        ('{"a": [[1e-3], [1e-3]]}', "no usable benchmark: none of its 1 has 18 processes (the most is 2)"),
    ],
)
def test_data_that_cannot_be_used_is_one_sentence_and_exit_status_2(run, data_file, content, told):
    status, out, err = run("--data", data_file(content))
    assert (status, out) == (2, "")
    assert err.startswith("detector_quality: ")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--baseline-processes", "0"], "--baseline-processes is 0; expected 1 or more"),
        (["--new-max", "0"], "--new-max is 0; expected 1 or more"),
        (["--draws", "0"], "--draws is 0; expected 1 or more"),
        (["--seed", "-1"], "--seed is -1; expected 0 or more"),
        (["--tolerance=-3%"], "--tolerance is '-3%'"),
        (["--output", "nowhere/page.md"], "--output is in nowhere, which is no folder"),
        (["--tolerance", "often"], "--tolerance is 'often'"),
        (["--record", "x.json", "--processes", "3"], "--processes is 3; expected 18 or more"),
    ],
)
def test_options_that_cannot_be_are_one_sentence_and_exit_status_2(run, data_file, arguments, told):
    status, out, err = run("--data", data_file(calm()), *arguments)
    assert (status, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_missing_data_file_is_named(run, tmp_path):
    status, _, err = run("--data", tmp_path / "nowhere.json")
    assert status == 2
    assert "nowhere.json does not exist" in err


def test_benchmarks_with_too_few_processes_are_listed_as_unusable(run, data_file):
    data = calm() | {"short": calm(count=17)["bench 0"]}
    path = data_file(data)
    report = json.loads(run("--data", path, "--draws", 2, "--json")[1])
    assert report["unusable"] == {"corpus": ["short"]}
    assert all(row["unusable"] == ["short"] for row in report["rows"])
    assert "Not usable, with fewer than 18 processes: short." in run("--data", path, "--draws", 2)[1]


def test_a_smaller_baseline_makes_a_benchmark_usable(run, data_file):
    path = data_file(calm(count=4))
    assert run("--data", path, "--draws", 2)[0] == 2
    assert run("--data", path, "--draws", 2, "--baseline-processes", 1)[0] == 0


def test_every_row_for_machines_says_what_was_counted_and_how_sure_it_is(run, data_file):
    status, out, _ = run("--data", data_file(calm()), "--draws", 5, "--json", "--seed", 7)
    report = json.loads(out)
    assert status == 0
    assert (report["seed"], report["draws"]) == (7, {"corpus": 5})
    for row in report["rows"]:
        assert (row["data"], row["seed"]) == ("corpus", 7)
        assert sum(row["counts"].values()) == row["tests"]
        for kind, (low, high) in row["bounds"].items():
            assert row["rates"][kind] == row["counts"][kind] / row["tests"]
            assert low <= row["rates"][kind] <= high
        assert 1 <= row["mean_processes"] <= 12


def test_both_settings_of_every_slowdown_are_there_for_both_tolerances(run, data_file):
    rows = json.loads(run("--data", data_file(calm()), "--draws", 5, "--json")[1])["rows"]
    ours = {(r["tolerance"], r["setting"], r["slowdown"]) for r in rows if r["rule"] == "pytest-roofline"}
    slower = {0.03: (0.02, 0.03, 0.05, 0.06, 0.10), 0.05: (0.02, 0.05, 0.10)}
    expected = {(tolerance, how, by) for tolerance in slower for how in ("all", "alone") for by in slower[tolerance]}
    assert expected | {(0.03, "all", 0.0), (0.05, "all", 0.0)} == ours


def test_tolerances_are_as_asked(run, data_file):
    rows = json.loads(run("--data", data_file(calm()), "--draws", 2, "--json", "--tolerance", "8%")[1])["rows"]
    assert {0.08, None} == {row["tolerance"] for row in rows}


def test_the_same_seed_draws_the_same_and_another_does_not(run, data_file):
    # Samples far apart, so that few draws already differ.
    rng = RNG(0)
    path = data_file({"a": np.exp(rng.normal(0, 0.05, (20, 3))).tolist()})
    first, again, other = (run("--data", path, "--draws", 20, "--json", "--seed", seed)[1] for seed in (1, 1, 2))
    rows = [json.loads(text)["rows"] for text in (first, other)]
    assert first == again
    assert [row["counts"] for row in rows[0]] != [row["counts"] for row in rows[1]]


def test_the_counts_do_not_depend_on_how_many_processes_draw(run, data_file):
    path = data_file(calm())
    command = [sys.executable, "-m", "detector_quality", "--data", path, "--draws", "6", "--json", "--jobs", "2"]
    several = subprocess.run(command, cwd=PAGE.parents[2] / "benchmarks", capture_output=True, text=True, check=True)
    key = lambda row: (row["rule"], row["setting"], row["tolerance"] or 0, row["slowdown"])  # noqa: E731
    rows = [json.loads(text)["rows"] for text in (run("--data", path, "--draws", 6, "--json")[1], several.stdout)]
    assert sorted(rows[0], key=key) == sorted(rows[1], key=key)


# Drawing


def test_a_draw_takes_no_process_twice(lab):
    processes = tuple(np.array([value, 3 * value]) for value in range(1, 21))
    source = lab.suites.Recorded("x", {"a": processes}, 15, 12, priors()["device"])
    (case,) = source.draw(RNG(1)).cases
    drawn = [*case.baseline_s, *case.new_s]
    assert (15, 5) == (len(case.baseline_s), len(case.new_s))
    assert {2.0 * value for value in range(1, 21)} == set(drawn)


def test_a_recording_says_how_far_its_processes_lie_apart(lab):
    processes = {
        name: tuple(np.array([0.1, math.exp(log), 9.0]) for log in (-apart, apart) * 10)
        for name, apart in (("calm", 0.01), ("typical", 0.02), ("wild", 0.5))
    }
    told = lab.suites.Recorded("x", processes, 15, 12, priors()["device"]).description
    assert "3 benchmarks of 20 to 20 processes, 2.05 % apart in the median benchmark, 51.3 % in the worst" in told


def test_one_process_a_side_is_one_of_either_side(lab):
    processes = tuple(np.array([float(value)]) for value in range(1, 21))
    (case,) = lab.suites.Recorded("x", {"a": processes}, 15, 12, priors()["device"]).draw(RNG(2)).cases
    assert case.before_s[0] in case.baseline_s
    assert case.after_s[0] in case.new_s


def test_processes_that_are_exchangeable_have_nothing_between_sessions(lab, suite_of):
    assert 0.0 == suite_of().prior.session
    assert suite_of().prior.borrowed


@pytest.mark.parametrize(("kind", "spread"), [("σ_p 0.3 %", 0.003), ("σ_p 2 %", 0.02), ("heavy tails", 0.01)])
def test_the_medians_of_simulated_processes_spread_as_they_say(suite_of, kind, spread):
    logs = np.log([[*case.baseline_s, *case.new_s] for case in suite_of(kind, tests=2000).cases])
    assert spread == pytest.approx(logs.std(), rel=0.05)


def test_the_mix_has_the_percentiles_of_the_corpus(lab):
    spreads = lab.simulated.mixed(lab.simulated.Batch(100_000, 15, 12, RNG(1)))
    found = np.percentile(spreads, [10, 25, 50, 75, 90])
    assert found == pytest.approx([0.002, 0.006, 0.011, 0.030, 0.059], rel=0.03)
    assert (0.0009, 0.094) < (spreads.min(), spreads.max()) < (0.0011, 0.1)


def test_the_slow_mode_holds_its_share_of_processes(suite_of):
    logs = np.log([[*case.baseline_s, *case.new_s] for case in suite_of("two modes", tests=2000).cases])
    assert pytest.approx(0.15, abs=0.01) == (logs > math.log(25.5 / 22.5) / 2).mean()


def test_a_throttling_device_starts_anew_in_every_session_of_the_baseline_only(suite_of):
    logs = np.log([[*case.baseline_s, *case.new_s] for case in suite_of("throttle ramp", tests=4000).cases]).mean(
        axis=0
    )
    ramp = [0, 0.005, 0.01, 0.015, 0.02]
    expected = [*ramp * 3, *ramp, 0.025, *[0.03] * 6]
    assert logs == pytest.approx(expected, abs=0.001)


def test_drift_is_inside_processes(lab):
    kind = lab.simulated.kind_of("drift")
    logs = lab.simulated.logs_of(kind, lab.simulated.Batch(500, 2, 2, RNG(1)))
    rise = (logs[:, :, -5:].mean(axis=2) - logs[:, :, :5].mean(axis=2)).mean()
    assert 0.02 * 15 / 19 == pytest.approx(rise, abs=0.001)


def test_samples_in_a_process_tell_too_little_of_how_far_processes_lie_apart(lab):
    kind = lab.simulated.kind_of("σ_p 1 %")
    logs = lab.simulated.logs_of(kind, lab.simulated.Batch(2000, 3, 3, RNG(1)))
    told = logs.std(axis=2, ddof=1).mean() / math.sqrt(logs.shape[2])
    assert 3.5 == pytest.approx(np.median(logs, axis=2).std() / told, rel=0.1)


# This plugin's rule


def verdicts_from(p, slower):
    """Verdicts that differ in what `settle` looks at."""
    return {
        str(number): Verdict(Kind.INCONCLUSIVE, 0.05, estimate=0.2 if far else 0.0, p=value, p_spent=value)
        for number, (value, far) in enumerate(zip(p, slower, strict=True))
    }


@settings(max_examples=200)
@given(st.lists(st.tuples(st.floats(1e-6, 0.3), st.booleans()), min_size=1, max_size=40))
def test_leaving_large_p_out_changes_no_verdict_of_settle(lab, drawn):
    found = verdicts_from(*zip(*drawn, strict=True))
    whole = settle(found, len(found))
    assert {n: v.kind for n, v in whole.items()} == {n: v.kind for n, v in lab.ours.settled(found, len(found)).items()}


def test_only_tests_that_more_processes_may_decide_get_another(lab, suite_of):
    course = lab.ours.Course(suite_of("mix"), 0.05, 12)
    for verdict in course.everything(0.0):
        assert verdict.decided or verdict.futile or verdict.processes == 12
    assert 1 < len({verdict.processes for verdict in course.everything(0.0)})


def test_a_test_without_more_processes_stays_as_it_is(lab, suite_of):
    course = lab.ours.Course(suite_of("two modes", new=4), 0.03, 12)
    assert 4 == max(verdict.processes for verdict in course.everything(0.0))


@pytest.mark.parametrize("index", [0, 7, 23])
@pytest.mark.parametrize("slowdown", [0.04, 0.08])
def test_one_slower_test_is_judged_as_in_a_suite_where_it_alone_is_slower(lab, suite_of, index, slowdown):
    suite = suite_of("mix", tests=30, seed=3)
    alone = lab.ours.Course(suite, 0.03, 12).each_alone(slowdown)[index]
    slower = suite.cases[index]
    cases = list(suite.cases)
    new_s = tuple(value * (1 + slowdown) for value in slower.new_s)
    cases[index] = lab.suites.Case(slower.baseline, new_s, slower.before_s, slower.after_s)
    whole = lab.ours.Course(lab.suites.Suite(tuple(cases), suite.prior), 0.03, 12).everything(0.0)[index]
    assert (whole.kind, whole.processes) == (alone.kind, alone.processes)


def test_company_makes_red_easier(lab, suite_of):
    course = lab.ours.Course(suite_of("σ_p 2 %", tests=100), 0.03, 12)
    red = [
        sum(verdict.kind is Kind.REGRESSED for verdict in found)
        for found in (course.each_alone(0.05), course.everything(0.05))
    ]
    assert red[0] < red[1]


# Rules of others


def sides(lab, before, after):
    """Two tests alike, so that a rule must answer for each."""
    return np.array([before, before], dtype=float), np.array([after, after], dtype=float)


STEADY = np.linspace(0.995, 1.005, 20)


@pytest.mark.parametrize(
    ("rule", "factor", "answer"),
    [
        ("pytest_benchmark", 1.04, 0),
        ("pytest_benchmark", 1.06, 1),
        ("pytest_benchmark", 0.5, 0),
        ("mann_whitney", 1.0, 0),
        ("mann_whitney", 1.01, 1),
        ("mann_whitney", 0.99, -1),
        ("criterion", 1.0, 0),
        # Surely slower, but within the noise threshold.
        ("criterion", 1.008, 0),
        ("criterion", 1.03, 1),
        ("criterion", 0.97, -1),
        # The relative standard deviation of STEADY is 0.31 %.
        ("nvbench_legacy", 1.003, 0),
        ("nvbench_legacy", 1.0035, 1),
        ("nvbench_legacy", 0.9965, -1),
        # Third quartile 1.0025, minimum 0.995: half a percent between them from 1.0126 on.
        ("nvbench_robust", 1.012, 0),
        ("nvbench_robust", 1.013, 1),
        ("nvbench_robust", 0.987, -1),
    ],
)
def test_a_rule_calls_what_its_description_says(lab, rule, factor, answer):
    calls = getattr(lab.peers, rule)(*sides(lab, STEADY, STEADY * factor))
    assert [answer, answer] == calls.tolist()


@pytest.mark.parametrize("rule", ["mann_whitney", "criterion", "nvbench_legacy"])
def test_a_rule_that_needs_several_samples_calls_nothing_of_one(lab, rule):
    assert [0, 0] == getattr(lab.peers, rule)(*sides(lab, [1.0], [2.0])).tolist()


@pytest.mark.parametrize("rule", ["pytest_benchmark", "mann_whitney", "criterion", "nvbench_legacy", "nvbench_robust"])
def test_samples_that_all_agree_break_no_rule(lab, rule):
    assert [0, 0] == getattr(lab.peers, rule)(*sides(lab, [1.0] * 9, [1.0] * 9)).tolist()


def test_criterion_errs_on_normal_samples_of_one_process_as_often_as_it_says(lab):
    rng = RNG(1)
    before, after = rng.normal(1, 0.2, (2000, 20)), rng.normal(1, 0.2, (2000, 20))
    called = lab.peers.criterion(before, after) != 0
    assert 0.02 < called.mean() < 0.07


def test_tests_of_several_sizes_are_each_held_against_their_own(lab, suite_of):
    cases = [
        lab.suites.Case((Group((1.0,)),), (1.0,), np.ones(size) * STEADY[:size], 1.2 * STEADY[:other])
        for size, other in ((20, 20), (10, 20), (20, 8), (1, 20))
    ]
    suite = lab.suites.Suite(tuple(cases), priors()["device"])
    assert [1, 1, 1, 0] == lab.peers.call(lab.peers.mann_whitney, suite, 0.0).tolist()
    assert [-1, -1, -1, 0] == lab.peers.call(lab.peers.mann_whitney, suite, -0.5).tolist()


def test_every_other_rule_says_where_it_is_from(lab):
    for peer in lab.peers.PEERS:
        assert re.match(r"run: |reimplemented from its published description \(.+\): ", peer.origin)


def test_a_tool_that_is_not_installed_is_left_out(lab, monkeypatch):
    assert lab.peers.PEERS == tuple(lab.peers.available())
    monkeypatch.setattr(lab.peers, "find_spec", lambda name: None)
    assert "pytest-benchmark mean:5%" not in [peer.name for peer in lab.peers.available()]


def test_five_a_side_is_welch_on_log_medians(lab, suite_of):
    suite = suite_of(tests=8)
    found = lab.fixed.FiveASide.of(suite, 0.05, 0.03)
    for index, case in enumerate(suite.cases):
        new, old = np.log(case.new_s[:5]) + math.log(1.03), np.log(case.baseline_s[:5])
        p = stats.ttest_ind(new - math.log(1.02), old, equal_var=False, alternative="greater").pvalue
        assert p == pytest.approx(found.p[index])
        assert new.mean() - old.mean() == pytest.approx(found.estimates[index])


def test_five_a_side_pays_for_its_company(lab, suite_of):
    suite = suite_of("σ_p 2 %", tests=100)
    unchanged, slower = (lab.fixed.FiveASide.of(suite, 0.05, by) for by in (0.0, 0.10))
    assert slower.each_alone(unchanged).sum() < slower.everything().sum()


def test_processes_that_all_agree_are_judged_by_their_difference(lab):
    case = lab.suites.Case((Group((1.0,) * 5),), (1.1,) * 5, np.ones(5), np.ones(5))
    suite = lab.suites.Suite((case, case), priors()["device"])
    assert [1, 1] == lab.fixed.FiveASide.of(suite, 0.05, 0.0).everything().tolist()
    assert [0, 0] == lab.fixed.FiveASide.of(suite, 0.12, 0.0).everything().tolist()


# Counting


def test_the_interval_of_a_share_is_clopper_and_pearsons(lab):
    assert (0.0, 1 - 0.025 ** (1 / 200)) == pytest.approx(lab.tally.Share(0, 200).bounds)
    assert (0.025 ** (1 / 200), 1.0) == pytest.approx(lab.tally.Share(200, 200).bounds)
    assert (0.0023, 0.0518) == pytest.approx(lab.tally.Share(3, 200).bounds, abs=0.01)


def test_a_share_is_printed_with_its_interval(lab):
    assert "0.00 (0.00–1.83)" == str(lab.tally.Share(0, 200))
    assert "50.0 (42.9–57.1)" == str(lab.tally.Share(100, 200))


def test_tallies_of_several_draws_add_up(lab):
    tally = lab.tally.Tally.of_calls([1, 0, -1], 5, suite=True)
    tally.add(lab.tally.Tally.of_calls([0, 0, 0], 5, suite=True))
    assert Counter(REGRESSED=1, IMPROVED=1, PASSED=4) == tally.counts
    assert (2, 1, 6) == (tally.suites, tally.red, tally.tests)
    assert (5.0, 2) == (tally.mean_processes, tally.different.count)


def test_an_undecided_test_without_its_sentence_is_counted(lab):
    verdicts = [Verdict(Kind.INCONCLUSIVE, 0.05, reason=reason, processes=12) for reason in ("more", "")]
    assert 1 == lab.tally.Tally.of_verdicts(verdicts, suite=True).unsaid


def unchanged_tally(lab, red=0, tests=40_000, suites_red=0, passed=None, processes=1):
    passed = tests - red if passed is None else passed
    counts = Counter(REGRESSED=red, PASSED=passed, INCONCLUSIVE=tests - red - passed)
    return lab.tally.Tally(counts, Counter({processes: tests}), 200, suites_red)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"red": 60, "suites_red": 10}, True),
        ({"red": 90, "suites_red": 10}, False),
        ({"red": 0, "tests": 400}, False),
        ({"red": 11, "suites_red": 11}, False),
    ],
)
def test_unchanged_code_is_held_against_all_three_figures(lab, changes, holds):
    cell = lab.tally.Cell("pytest-roofline", "all", 0.05, 0.0)
    others = {
        lab.tally.Cell("pytest-roofline", how, 0.05, by): unchanged_tally(lab, passed=0)
        for how in ("all", "alone")
        for by in (0.05, 0.10)
    }
    found = lab.criteria.findings({"x": {cell: unchanged_tally(lab, **changes)} | others}, set())
    assert [holds] == [finding.holds for finding in found if finding.criterion == "1"]
    assert {True} == {finding.holds for finding in found if finding.criterion == "3"}


@pytest.mark.parametrize(("processes", "passed", "holds"), [(4, 37_000, True), (5, 40_000, False), (1, 36_000, False)])
def test_quick_verdicts_need_both_shares_and_processes(lab, processes, passed, holds):
    cell = lab.tally.Cell("pytest-roofline", "all", 0.05, 0.0)
    slow = {lab.tally.Cell("pytest-roofline", "all", 0.05, by): unchanged_tally(lab) for by in (0.05, 0.10)}
    tally = unchanged_tally(lab, passed=passed, processes=processes)
    found = lab.criteria.findings({"mix": {cell: tally} | slow}, {"mix"})
    assert [holds] == [finding.holds for finding in found if finding.criterion == "4"]


def test_the_worse_setting_counts_for_wrongly_passed(lab):
    cells = {
        lab.tally.Cell("pytest-roofline", how, 0.05, by): unchanged_tally(lab, passed=passed)
        for how, by, passed in (("all", 0.05, 0), ("alone", 0.05, 2100), ("all", 0.10, 0), ("alone", 0.10, 150))
    }
    found = lab.criteria.findings({"x": cells}, set())
    assert [False, True] == [finding.holds for finding in found if finding.criterion == "3"]


# Other devices and sessions


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_on_another_device_carries_the_spread_between_devices(lab, shared):
    condition = lab.conditions.OtherDevices(0.04, shared)
    suites = list(condition.suites(RNG(1), 3))
    assert 20 == len({case.device for suite in suites for case in suite.cases})
    verdict = lab.ours.Course(suites[0], 0.05, 3).verdict(0, 3, 0.0)
    assert (0.04, False) == (verdict.difference.device.value, verdict.difference.paired)


def test_a_factor_for_all_tests_moves_them_together(lab):
    def spread(shared):
        suite = next(lab.conditions.OtherDevices(0.04, shared).suites(RNG(3), 12))
        return np.std([np.log(case.new_s).mean() - np.log(case.baseline_s).mean() for case in suite.cases])

    assert spread(shared=True) < 0.01 < 0.04 < spread(shared=False)


def test_a_run_on_the_same_device_is_compared_with_that_device_alone(lab):
    (suite,) = lab.conditions.SameDevice(0.01).suites(RNG(1), 3)
    difference = lab.ours.Course(suite, 0.03, 3).verdict(0, 3, 0.0).difference
    assert difference.paired
    assert difference.device is None
    own = [group for group in suite.cases[0].baseline if group.device == "GPU-0"]
    assert np.exp(np.log(own[0].medians_s).mean()) == pytest.approx(difference.reference_s)


def test_sessions_are_days_apart_and_their_spread_is_estimated(lab):
    (suite,) = lab.conditions.OtherSession(0.02, 14, 2).suites(RNG(1), 3)
    course = lab.ours.Course(suite, 0.05, 3)
    found = [course.verdict(index, 3, 0.0).difference.session for index in range(len(suite.cases))]
    assert 0.02 == pytest.approx(np.mean([session.value for session in found]), rel=0.1)
    assert {session.origin.partition(", with")[0] for session in found} == {"estimated, 14 sessions"}


# Recording


def test_a_recording_keeps_at_most_twenty_samples_spread_over_the_blocks_that_count(lab):
    samples = Samples(
        tuple(1e-3 * (1 + index) for index in range(90)), iterations=1, tick_s=1e-9,
        blocks=(Block(30), Block(30, excluded="thermal slowdown"), Block(30)),
    )  # fmt: skip
    kept = lab.recording.thinned(samples)
    assert (20, 1e-3, 90e-3) == (len(kept), kept[0], kept[-1])
    assert all(value <= 30e-3 or value > 60e-3 for value in kept)
    assert all(early < late for early, late in pairwise(kept))


def test_few_samples_are_all_kept_to_six_digits(lab):
    samples = Samples((1.23456789e-3, 2e-3), iterations=1, tick_s=1e-9)
    assert [1.23457e-3, 2e-3] == lab.recording.thinned(samples)


def test_what_this_repository_recorded_is_usable(lab):
    source = lab.suites.read_recorded(lab.main.RECORDED, 15, 12, priors()["host"])
    assert () == source.unusable
    assert 20 >= max(len(samples) for processes in source.processes.values() for samples in processes)


# The page


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small_page(lab):
    """The page as the program writes it now, from hardly any draws of hardly any tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.options, "Simulated", functools.partial(lab.simulated.Simulated, tests=4))
        patch.setattr(lab.conditions, "DEVICE_TESTS", 4)
        patch.setattr(lab.conditions, "SESSION_TESTS", 4)
        options = lab.main.parse(["--draws", "1", "--jobs", "1"])
        return lab.main.measure(options).page()


def skeleton(page):
    """What of a page is not a figure: its text as words, and the cells that name the rows of its tables."""
    lines = [line for line in page.splitlines() if not line.startswith(("* ", "**"))]
    words = " ".join(line for line in lines if not line.startswith("|")).split()
    rows = [re.sub(r"\d+\.\d+( \([^)]*\))?|(?<=\| )(?=\|)", "#", line) for line in lines if line.startswith("|")]
    return re.sub(r"(\d+ or )*\d+ suites", "# suites", " ".join(words)), rows


def test_regenerating_the_page_drops_nothing(page, small_page):
    assert skeleton(small_page) == skeleton(page)


def test_the_other_rules_are_named_on_the_page_as_run_or_reimplemented(lab, page):
    for peer in lab.peers.PEERS:
        assert f"* **{peer.name}**: {peer.origin}." in page.splitlines()


def test_a_row_of_the_page_is_what_the_program_counts(lab, page):
    """Of a rule that is quick, on the draws of the page."""
    draws = int(re.search(r"(\d+)(?: or \d+)* suites\s+of", page)[1])
    source = lab.main.simulated(lab.main.parse([]), ("σ_p 1 %",))[0]
    plan = lab.drawing.Plan((0.05,), 12, draws, lab.options.SEED)
    shares = {by: Counter() for by in (0.0, 0.02, 0.05, 0.10)}
    for number in range(plan.slowed):
        suite = source.draw(lab.drawing.generator(plan.seed, source.name, number))
        for by, counts in shares.items():
            counts.update(lab.peers.call(lab.peers.nvbench_legacy, suite, by).tolist())
    figures = [str(lab.tally.Share(counts[1], counts.total())) for counts in shares.values()]
    section = page.split("## σ_p 1 %")[1]
    row = next(line for line in section.splitlines() if line.startswith("| NVBench legacy |")).split(" | ")
    assert figures == [row[1], *(cell.removesuffix(" |") for cell in row[4:])]


@pytest.mark.parametrize("criterion", ["1", "2", "3", "4"])
def test_the_page_ends_with_whether_each_criterion_holds(page, criterion):
    closing = page.split("## What was to be reached")[1]
    assert re.search(rf"^\*\*{criterion}\. .+: (holds|does not hold)\.\*\*$", closing, re.MULTILINE)


def test_the_smallest_chance_that_settle_looks_at_is_the_one_that_the_suites_are_cut_at(lab):
    below, above = (Verdict(Kind.INCONCLUSIVE, 0.05, estimate=0.2, p=p, p_spent=p) for p in (FALSE_RED, 0.0501))
    assert ["below"] == list(lab.ours.telling({"below": below, "above": above}))
