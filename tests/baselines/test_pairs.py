"""Two values of one parameter within a run: simulated, so that the truth is known, and the words for what lacks."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from pytest_roofline.baselines.pairs import compare_by
from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.baselines.runs import Run
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.records import Measurement
from pytest_roofline.report.comparison import contrast_text

# Of log seconds: what a process does to both sides, which pairs take out.
TOGETHER = 0.2


@pytest.fixture
def simulated(make):
    """A run of tests, eager and compiled, whose true effects are known, by number of the test; else none."""

    def run(
        seed,
        *,
        tests=25,
        processes=5,
        noise=0.01,
        effects=None,
        tail=math.inf,
        values=("eager", "compiled"),
        **facts,
    ):
        random, measured = np.random.default_rng(seed), []
        for process in range(processes):
            shared = random.normal(0, TOGETHER)
            for test in range(tests):
                for value in values:
                    slower = 0.0 if value == "eager" else math.log1p((effects or {}).get(test, 0.0))
                    own = (
                        random.normal()
                        if math.isinf(tail)
                        else random.standard_t(tail) / math.sqrt(tail / (tail - 2))
                    )
                    key = make.key(f"step{test}", parameters={"execution": value})
                    seconds = math.exp(shared + slower + noise * own) * 1e-3
                    measured.append(
                        make.measurement(seconds, key=key, process=f"{seed}-{process}", **facts)
                    )
        return Run(
            Path("a.jsonl"),
            make.header(f"run{seed}"),
            (*measured, *map(make.outcome, measured)),
        )

    return run


def verdicts(*runs, base="eager", **options):
    return {row.label: row for _, row in compare_by(runs, "execution", base, **options).rows}


def counted(found, word):
    return sum(row.verdict == word for rows in found for row in rows.values())


def test_the_interval_is_that_of_the_t_test_of_pairs_and_what_a_process_does_to_both_goes_out(
    simulated,
):
    run = simulated(1, tests=1, effects={0: 0.2}, processes=6)
    (row,) = verdicts(run).values()
    by_value = {value: [one.median_s for one in run.measurements if one.key.parameters["execution"] == value]
                for value in ("eager", "compiled")}  # fmt: skip
    logs = np.log(by_value["compiled"]), np.log(by_value["eager"])
    told = scipy_stats.ttest_rel(*logs)
    assert np.log1p(row.interval) == pytest.approx(tuple(told.confidence_interval(0.99)))
    assert (row.label, row.verdict, row.processes, row.baseline_processes) == (
        "step0",
        "REGRESSED",
        6,
        6,
    )
    assert (row.time_s, row.baseline_time_s) == pytest.approx(
        tuple(np.exp(side.mean()) for side in logs)
    )
    # The table of the run has the same times.
    alone = {one.parameters["execution"]: one.time_s for one in rows_of_run(run)}
    assert alone == pytest.approx({"compiled": row.time_s, "eager": row.baseline_time_s})
    # Against the other base it is the same difference, and the other word.
    (back,) = verdicts(run, base="compiled").values()
    assert (back.verdict, 1 + back.change) == ("IMPROVED", pytest.approx(1 / (1 + row.change)))


def test_unchanged_code_hardly_ever_gets_a_word_and_intervals_hold_the_truth(simulated):
    told = missed = 0
    for tests, suites in ((1, 12), (25, 2)):
        for processes in (5, 8):
            for noise, tail in ((0.002, math.inf), (0.01, 3), (0.03, math.inf)):
                asked = {"tests": tests, "processes": processes, "noise": noise, "tail": tail}
                found = [verdicts(simulated(seed, **asked)) for seed in range(suites)]
                told += counted(found, "REGRESSED") + counted(found, "IMPROVED")
                missed += sum(
                    not row.change_low < 0 < row.change_high
                    for rows in found
                    for row in rows.values()
                )
    # Of 372: of 99 % intervals about four miss, and 0.2 % are called slower where they are not.
    assert (told, missed <= 8) == (0, True)


def test_differences_are_found_by_five_pairs_and_what_is_as_slow_as_the_tolerance_hardly_passes(
    simulated,
):
    slower, faster, edge = {0: 0.1}, {0: -0.15}, dict.fromkeys(range(25), 0.05)
    for effects, word, of in ((slower, "REGRESSED", "step0"), (faster, "IMPROVED", "step0")):
        found = [verdicts(simulated(seed, effects=effects))[of].verdict for seed in range(10)]
        assert found.count(word) >= 9
    found = [verdicts(simulated(seed, effects=edge)) for seed in range(4)]
    assert counted(found, "PASSED") <= 8  # 4 % of 100, and what chance adds to that.
    # Calm pairs of one test alone show 3 % to be within the tolerance.
    assert (
        verdicts(simulated(1, tests=1, noise=0.001, effects={0: 0.03}))["step0"].verdict == "PASSED"
    )


def test_fewer_than_five_pairs_decide_nothing_and_say_what_would(simulated):
    for processes, words in (
        (1, "1 process timed both values"),
        (4, "4 processes timed both values"),
    ):
        (row,) = verdicts(simulated(1, tests=1, processes=processes, effects={0: 1.0})).values()
        assert (row.verdict, row.change > 0.8) == ("INCONCLUSIVE", True)
        assert f"{words}; expected at least 5; measure with --roofline-rounds=5" in row.reason
    # Several runs of one process each are as many pairs.
    several = [simulated(seed, tests=1, processes=1, effects={0: 1.0}) for seed in range(5)]
    assert verdicts(*several)["step0"].verdict == "REGRESSED"
    (noisy,) = verdicts(simulated(4, tests=1, noise=0.05)).values()
    assert "; a verdict needs about " in noisy.reason
    (near,) = verdicts(simulated(2, tests=1, noise=0.02, effects={0: 0.05})).values()
    assert near.verdict == "INCONCLUSIVE"


def test_processes_that_do_not_count_are_told_with_their_reason_and_the_rounds_that_make_up_for_them(
    simulated,
):
    run = simulated(1, tests=1)
    first, *rest = run.measurements
    (row,) = verdicts(
        run.with_lines(Measurement, (replace(first, invalid="busy neighbours"), *rest))
    ).values()
    assert (row.verdict, row.reason.partition(" --roofline-save")[0]) == (
        "INCONCLUSIVE",
        "4 processes timed both values (1 not counted: busy neighbours); expected at least 5; measure with "
        "--roofline-rounds=6",
    )


def test_a_side_without_a_sound_time_is_invalid_with_the_reason_and_other_modes_are_named(
    simulated,
):
    run = simulated(1, tests=2)
    spoiled = tuple(
        replace(one, invalid="busy neighbours" * (one.label == "step0[compiled]"),
                samples=replace(one.samples, labels=("graph",) * (one.label == "step1[eager]")))
        for one in run.measurements
    )  # fmt: skip
    found = verdicts(run.with_lines(Measurement, spoiled))
    assert (found["step0"].verdict, found["step0"].reason) == (
        "INVALID",
        "compiled: busy neighbours",
    )
    assert found["step1"].reason == "eager timed by replaying a graph, compiled timed as asked"
    text = contrast_text(
        compare_by([simulated(1, tests=1, invalid="busy")], "execution", "eager"), 80, colour=False
    )
    assert text.endswith(
        "INVALID step0: compiled and eager: busy\ncompiled against eager: 1 INVALID"
    )


def test_more_values_than_two_have_a_column_and_a_sentence_each(simulated):
    run = simulated(3, tests=1, effects={0: 1.0}, values=("eager", "compiled", "traced"))
    lines = contrast_text(compare_by([run], "execution", "eager"), 80, colour=False).splitlines()
    assert lines[0] == "tolerance 5 %"
    assert lines[1].split()[:4] == ["test", "execution", "eager", "other"]
    assert [line.split()[1] for line in lines[3:5]] in (
        ["compiled", "traced"],
        ["traced", "compiled"],
    )
    assert lines[-2].startswith("compiled against eager: 1 REGRESSED; 0.5")
    assert lines[-1].startswith("traced against eager: 1 REGRESSED; 0.5")


def test_tests_keep_their_own_names_less_the_value(make):
    labels = {
        ("step[2ranks-eager-fp32]", "step[2ranks-compiled-fp32]"): "step[2ranks-fp32]",
        ("step[eager]", "step[compiled]"): "step",
        ("step[a-b-1KiB]", "step[c-1KiB]"): "step[1KiB]",
        ("step[small-eager].forward", "step[small-compiled].forward"): "step[small].forward",
    }
    for (base, other), expected in labels.items():
        name = base.partition("].")[2]
        measured = tuple(
            make.measurement(
                key=make.key("step", parameters={"mode": label}, name=name),
                label=label,
                process="1",
            )
            for label in (base, other)
        )
        run = Run(Path("a.jsonl"), make.header(), (*measured, *map(make.outcome, measured)))
        assert [row.label for _, row in compare_by([run], "mode", base).rows] == [expected]


def test_what_cannot_be_compared_names_what_there_is(simulated, make):
    run = simulated(1, tests=1)
    cases = {
        (
            "execution",
            None,
        ): "--base is missing; give the value of execution to compare with; expected one of eager, comp",
        ("execution", "jitted"): "no test has execution=jitted; expected one of eager, compiled",
        ("precision", "fp32"): "no test has a parameter 'precision'; expected one of execution",
    }
    alone = run.with_lines(Measurement, run.measurements[::2])
    for (parameter, base), sentence in cases.items():
        with pytest.raises(BadInput, match=sentence):
            compare_by([run], parameter, base)
    with pytest.raises(
        BadInput, match="every test has execution=eager; expected a second value to compare"
    ):
        compare_by([alone], "execution", "eager")
    other = make.key("copy", parameters={"execution": "compiled"})
    apart = replace(alone, lines=(*alone.lines, make.measurement(key=other)))
    with pytest.raises(
        BadInput,
        match="no test with execution=eager has a counterpart that differs only in execution",
    ):
        compare_by([apart], "execution", "eager")
