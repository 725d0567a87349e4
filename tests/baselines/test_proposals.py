"""Whole runs become a proposal: what is fit is taken, everything else is left out with its reason, or refused."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.proposals import NothingFit, propose
from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.keys import CANARIES, CANARY_BENCHMARK
from pytest_roofline.core.samples import CANARY, SIBLINGS


def runs_of(make, folder, *records_of_each):
    """A run a day."""
    return [
        make.run(
            folder / f"run-{number}.jsonl", *records, started=f"2026-01-{1 + number:02d}T03:04:05Z"
        )
        for number, records in enumerate(records_of_each)
    ]


def labels(proposal):
    return [entry.label for entry in proposal.baseline.entries]


def taken(make, folder, *records_of_each, **how):
    """The labels of a proposal, and what was left out."""
    proposal = propose(runs_of(make, folder, *records_of_each), **how)
    return labels(proposal), list(proposal.left_out)


def test_a_run_is_a_session_and_each_of_its_processes_a_median(make, tmp_path):
    """Each session numbers its processes anew, so the same name in two runs is two processes."""
    rounds = [
        [
            make.measurement(value, process=f"process-{number}", round=number)
            for number, value in enumerate(values, 1)
        ]
        for values in ((1.0, 1.01), (1.005, 1.015, 0.995))
    ]
    proposal = propose(runs_of(make, tmp_path, *rounds))
    (entry,) = proposal.baseline.entries
    assert [(session.run_id, session.process_medians) for session in entry.sessions] == [
        ("run-0", (1.0, 1.01)),
        ("run-1", (1.005, 1.015, 0.995)),
    ]
    assert (proposal.baseline.family, entry.matches(make.key()), entry.work) == (
        "h200",
        True,
        make.copy(),
    )
    assert (entry.sessions[0].device_uuid, entry.sessions[0].environment["driver"]) == (
        "GPU-1",
        "570.86",
    )


def test_only_what_is_marked_as_a_gate_is_taken_where_something_is(make, tmp_path):
    gate, other = make.measurement(gate=True), make.measurement(key=make.key("other"))
    mine, both = ["memcpy_d2d[64MiB]"], ["memcpy_d2d[64MiB]", "other[64MiB]"]
    told = ["other[64MiB] of run-0: the test is not marked gate=True; include the test with --all"]
    assert taken(make, tmp_path, [gate, other]) == (mine, told)
    assert taken(make, tmp_path, [gate, other], everything=True) == (both, [])
    assert taken(make, tmp_path, [make.measurement(), other]) == (both, [])
    # A mark on what siblings measured leaves nothing out.
    among = make.measurement(
        gate=True, samples=replace(make.measurement().samples, labels=(SIBLINGS,))
    )
    assert taken(make, tmp_path, [among, other])[0] == ["other[64MiB]"]


def test_what_is_not_fit_is_left_out_and_named(make, tmp_path):
    bad, good = make.measurement(), make.measurement(key=make.key("other"))
    failed, slower = (
        make.outcome(bad, "failed", reason="wrong data at 7"),
        make.outcome(bad, "failed", by_verdict=True),
    )
    why = ["memcpy_d2d[64MiB] of run-0: the test failed: wrong data at 7"]
    for accept_slower in (True, False):
        assert taken(make, tmp_path, [bad, good, failed], accept_slower=accept_slower) == (
            ["other[64MiB]"],
            why,
        )
        # A slowdown becomes a baseline only where a person accepts it.
        count = len(taken(make, tmp_path, [bad, good, slower], accept_slower=accept_slower)[0])
        assert count == 1 + accept_slower
    invalid = make.measurement(invalid="unresolved")
    # The good half of a process with an invalid attempt is not selected.
    assert taken(make, tmp_path, [invalid, bad, good]) == (
        ["other[64MiB]"], ["memcpy_d2d[64MiB] of run-0: unresolved"],
    )  # fmt: skip
    # A canary keeps its sound attempts, and is not told of.
    key = make.key(CANARY_BENCHMARK, name=CANARIES[0])
    canary = make.measurement(2.0, key=key, samples=replace(bad.samples, labels=(CANARY,)))
    found, told = taken(make, tmp_path, [replace(canary, invalid="busy"), canary, good])
    assert (len(found), key.label in found, told) == (2, True, [])
    hostile = make.measurement(label="x\x1b[31m\n", invalid="no\nway")
    assert taken(make, tmp_path, [hostile, good])[1] == ["x\\x1b[31m\\n of run-0: no\\nway"]
    # Another run with a good attempt stays in.
    (entry,) = propose(runs_of(make, tmp_path, [invalid], [make.measurement(2.0)])).baseline.entries
    assert entry.medians == (2.0,)


def test_where_nothing_is_fit_the_sentence_stays_short_and_the_reasons_are_kept(make, tmp_path):
    """Two hundred reasons in one sentence once filled the screen."""
    records = [
        [make.measurement(key=make.key(f"t{i}"), invalid="wrong data") for i in range(100)]
    ] * 2
    with pytest.raises(NothingFit) as error:
        propose(runs_of(make, tmp_path, *records))
    assert str(error.value) == (
        "no measurement in 2 runs is fit for a baseline: all measurements were left out"
    )
    assert len(error.value.left_out) == 200
    with pytest.raises(
        NothingFit,
        match=r"no measurement in .*run-0\.jsonl is fit for a baseline: nothing was measured",
    ):
        propose(runs_of(make, tmp_path, []))
    with pytest.raises(
        NothingFit, match=r"is fit for a baseline: t0\[64MiB\] of run-0: wrong data$"
    ) as error:
        propose(runs_of(make, tmp_path, records[0][:1]))
    assert error.value.left_out == ()


def test_runs_of_nothing_the_same_or_other_hardware_are_refused(make, tmp_path):
    with pytest.raises(BadInput, match="no run is given"):
        propose([])
    same = [
        make.run(tmp_path / name, make.measurement(), run_id="same")
        for name in ("a.jsonl", "b.jsonl")
    ]
    with pytest.raises(BadInput) as error:
        propose(same)
    paths = f"{tmp_path / 'b.jsonl'} and {tmp_path / 'a.jsonl'}"
    assert str(error.value) == f"{paths} are the same run (same); name this run once"
    h100 = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm", memory="80gb")))
    part = make.measurement(key=make.key(hardware=make.hardware(partition="1g.18gb")))
    one = make.run(tmp_path / "a.jsonl", make.measurement())
    for other, words in [
        (
            make.run(tmp_path / "b.jsonl", h100, product="NVIDIA H100 80GB HBM3"),
            "h200-sxm, 141gb.*h100-sxm, 80gb",
        ),
        (make.run(tmp_path / "c.jsonl", part), r"1g\.18gb"),
        (
            make.run(tmp_path / "fake.jsonl", make.measurement(), device_type="fake"),
            r"fake\.jsonl was measured on a fake device and .*a\.jsonl on a real one",
        ),
    ]:
        with pytest.raises(OtherHardware, match=words):
            propose([one, other])


def test_times_of_different_work_never_become_one_entry(make, tmp_path):
    with pytest.raises(
        BadInput,
        match=r"did different work in .*run-0.jsonl and .*run-1.jsonl, so these times cannot",
    ):
        propose(
            runs_of(
                make,
                tmp_path,
                [make.measurement(1.0)],
                [make.measurement(9.0, work=make.copy(2**27))],
            )
        )


def suite(make, factor, tests=6, processes=1):
    """The measurements of a run, all slower or faster by a factor."""
    return [
        make.measurement(
            1e-3 * (1 + test) * factor, key=make.key(f"test{test}"), process=f"process-{process}"
        )
        for test in range(tests)
        for process in range(processes)
    ]


def refusal(make, folder, *factors, **shape):
    with pytest.raises(BadInput) as error:
        propose(runs_of(make, folder, *[suite(make, factor, **shape) for factor in factors]))
    return str(error.value)


def test_runs_that_disagree_with_the_others_are_named_by_how_much_and_over_how_many_tests(
    make, tmp_path
):
    sentence = refusal(make, tmp_path, 1.0, 1.002, 1.2)
    assert sentence.startswith(f"{tmp_path / 'run-2.jsonl'} is 19.9 % slower than the others (")
    assert "standard errors, median of 6 tests); runs of unchanged code differ less" in sentence
    assert sentence.endswith("propose only the other runs")
    several = refusal(make, tmp_path, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.3)
    assert several.index("run-5.jsonl is 100.0 % slower than the others (") < several.index(
        "run-6.jsonl is 30.0 %"
    )
    assert several.endswith("propose only the other runs")
    assert "standard errors)" in refusal(make, tmp_path, 1.0, 1.001, 0.999, 1.5, tests=1)
    # Of two, or where half are off, nobody can tell which are right.
    two = refusal(make, tmp_path, 1.0, 1.25)
    assert f"{tmp_path / 'run-0.jsonl'} is 20.0 % faster than {tmp_path / 'run-1.jsonl'} (" in two
    for sentence in (two, refusal(make, tmp_path, 1.0, 1.3, 2.0, processes=5)):
        assert (
            "none is a clear outlier; choose runs of one kind (--driver, --before, --after)"
            in sentence
        )


def test_what_is_measured_alone_or_left_out_for_itself_disagrees_with_nothing(make, tmp_path):
    records = [
        [make.measurement(1.0)],
        [make.measurement(1.0)],
        [make.measurement(9.0, key=make.key("other"))],
    ]
    assert taken(make, tmp_path, *records)[0] == ["memcpy_d2d[64MiB]", "other[64MiB]"]
    slow = [
        make.measurement(9.0, key=make.key(f"test{test}"), invalid="neighbours")
        for test in range(5)
    ]
    records = [
        suite(make, 1.0),
        suite(make, 1.0),
        [*slow, make.measurement(6e-3, key=make.key("test5"))],
    ]
    assert len(taken(make, tmp_path, *records)[1]) == 5


def night_of(make, slow=1.0):
    """The measurements of a night on which the first five tests took so many times as long."""
    return [
        make.measurement(slow if number < 5 else 1.0, key=make.key(f"t{number}"))
        for number in range(12)
    ]


def sessions_of(proposal):
    return {entry.benchmark: len(entry.sessions) for entry in proposal.baseline.entries}


def test_a_night_that_is_strange_in_many_tests_is_left_out_of_these_and_may_be_kept(make, tmp_path):
    runs = runs_of(make, tmp_path, night_of(make), night_of(make, 1.2), night_of(make))
    proposal = propose(runs)
    assert sessions_of(proposal) == {f"t{number}": 2 if number < 5 else 3 for number in range(12)}
    (line,) = proposal.left_out
    day = line.partition("session of ")[2].partition(":")[0]
    assert day.startswith("2 Jan")
    assert line == (
        f"{tmp_path}/run-1.jsonl, session of {day}: 5 of 12 tests are 20 % slower; "
        "add --accept-slower to keep the run"
    )
    kept = propose(runs, accept_slower=True)
    assert (set(sessions_of(kept).values()), kept.left_out) == ({3}, ())
    faster = runs_of(make, tmp_path, night_of(make), night_of(make, 0.8), night_of(make))
    for accept_slower in (False, True):
        (line,) = propose(faster, accept_slower=accept_slower).left_out
        assert line.endswith("5 of 12 tests are 20 % faster; propose the run alone to keep it")
