from dataclasses import replace

import pytest

from pytest_roofline.baselines.proposals import NothingFit, propose
from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.samples import SIBLINGS
from pytest_roofline.core.work import Work


def runs_of(make, folder, *records_of_each):
    """A run a day."""
    return [
        make.run(folder / f"run-{number}.jsonl", *records, started=f"2026-01-{1 + number:02d}T03:04:05Z")
        for number, records in enumerate(records_of_each)
    ]


def labels(proposal):
    return [entry.label for entry in proposal.baseline.entries]


def test_every_run_becomes_a_session_of_its_own(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(1.0)], [make.measurement(1.01)])
    (entry,) = propose(runs).baseline.entries
    assert [(s.run_id, s.process_medians) for s in entry.sessions] == [("run-0", (1.0,)), ("run-1", (1.01,))]


def test_every_process_of_a_run_has_its_median_in_the_session(make, tmp_path):
    rounds = [make.measurement(1.0), make.measurement(2.0, process="process-2", round=2)]
    (entry,) = propose(runs_of(make, tmp_path, rounds)).baseline.entries
    assert [session.process_medians for session in entry.sessions] == [(1.0, 2.0)]


def test_the_rounds_of_every_run_stay_in_its_own_session(make, tmp_path):
    """Each session numbers its processes anew, so the same name in two runs is two processes."""
    rounds = [
        [make.measurement(value, process=f"process-{number}", round=number) for number, value in enumerate(values, 1)]
        for values in ((1.0, 1.01), (1.005, 1.015, 0.995))
    ]
    (entry,) = propose(runs_of(make, tmp_path, *rounds)).baseline.entries
    assert [session.process_medians for session in entry.sessions] == [(1.0, 1.01), (1.005, 1.015, 0.995)]


def test_attempts_of_one_process_are_pooled(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(5.0, 5.0, 5.0), make.measurement(1.0, 1.0)])
    (entry,) = propose(runs).baseline.entries
    assert entry.medians == (5.0,)


def test_an_entry_keeps_key_work_device_and_environment(make, tmp_path):
    (entry,) = propose(runs_of(make, tmp_path, [make.measurement()])).baseline.entries
    assert entry.matches(make.key())
    assert entry.work == make.copy()
    assert entry.sessions[0].device_uuid == "GPU-1"
    assert entry.sessions[0].environment["driver"] == "570.86"


def test_a_proposal_is_for_the_family_of_the_hardware(make, tmp_path):
    assert propose(runs_of(make, tmp_path, [make.measurement()])).baseline.family == "h200"


def test_only_what_is_marked_as_a_gate_is_taken_where_something_is(make, tmp_path):
    gate, other = make.measurement(gate=True), make.measurement(key=make.key("other"))
    proposal = propose(runs_of(make, tmp_path, [gate, other]))
    assert labels(proposal) == ["memcpy_d2d[64MiB]"]
    assert proposal.left_out == ("other[64MiB] of run-0: not marked gate=True (take it with --all)",)


def test_a_mark_on_what_siblings_measured_leaves_nothing_out(make, tmp_path):
    among = make.measurement(gate=True, samples=replace(make.measurement().samples, labels=(SIBLINGS,)))
    proposal = propose(runs_of(make, tmp_path, [among, make.measurement(key=make.key("other"))]))
    assert "other[64MiB]" in labels(proposal)


def test_everything_is_taken_on_request(make, tmp_path):
    gate, other = make.measurement(gate=True), make.measurement(key=make.key("other"))
    proposal = propose(runs_of(make, tmp_path, [gate, other]), everything=True)
    assert (labels(proposal), proposal.left_out) == (["memcpy_d2d[64MiB]", "other[64MiB]"], ())


def test_everything_is_taken_where_nothing_is_marked(make, tmp_path):
    measurements = [make.measurement(), make.measurement(key=make.key("other"))]
    assert len(propose(runs_of(make, tmp_path, measurements)).baseline.entries) == 2


@pytest.mark.parametrize("accept_slower", [True, False])
def test_a_test_that_failed_for_itself_is_left_out_and_named(make, tmp_path, accept_slower):
    bad, good = make.measurement(), make.measurement(key=make.key("other"))
    failed = make.outcome(bad, "failed", reason="wrong data at 7")
    proposal = propose(runs_of(make, tmp_path, [bad, good, failed]), accept_slower=accept_slower)
    assert labels(proposal) == ["other[64MiB]"]
    assert proposal.left_out == ("memcpy_d2d[64MiB] of run-0: its test failed: wrong data at 7",)


def test_an_invalid_measurement_is_left_out_and_named(make, tmp_path):
    bad, good = make.measurement(invalid="unresolved"), make.measurement(key=make.key("other"))
    proposal = propose(runs_of(make, tmp_path, [bad, good]))
    assert proposal.left_out == ("memcpy_d2d[64MiB] of run-0: unresolved",)


@pytest.mark.parametrize(("accept_slower", "count"), [(False, 1), (True, 2)])
def test_a_slowdown_becomes_a_baseline_only_where_a_person_accepts_it(make, tmp_path, accept_slower, count):
    slow, good = make.measurement(), make.measurement(key=make.key("other"))
    failed = make.outcome(slow, "failed", by_verdict=True)
    proposal = propose(runs_of(make, tmp_path, [slow, good, failed]), accept_slower=accept_slower)
    assert len(proposal.baseline.entries) == count


def test_the_good_half_of_a_process_with_an_invalid_attempt_is_not_selected(make, tmp_path):
    attempts = [make.measurement(invalid="wrong data"), make.measurement(), make.measurement(key=make.key("other"))]
    assert labels(propose(runs_of(make, tmp_path, attempts))) == ["other[64MiB]"]


def test_a_run_with_a_bad_attempt_leaves_the_other_runs_in(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(1.0, invalid="wrong data")], [make.measurement(2.0)])
    (entry,) = propose(runs).baseline.entries
    assert entry.medians == (2.0,)


def test_nothing_fit_is_refused_with_the_reasons(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(invalid="wrong data")])
    with pytest.raises(NothingFit, match=r"no measurement in .*run-0\.jsonl is fit for a baseline: .*: wrong data"):
        propose(runs)


def test_where_nothing_is_fit_the_sentence_stays_short_and_the_reasons_are_kept(make, tmp_path):
    """Two hundred reasons in one sentence once filled the screen."""
    records = [[make.measurement(key=make.key(f"t{i}"), invalid="wrong data") for i in range(100)]] * 2
    with pytest.raises(NothingFit) as error:
        propose(runs_of(make, tmp_path, *records))
    assert str(error.value) == (
        "no measurement in 2 runs is fit for a baseline: t0[64MiB] of run-0: wrong data; and 199 more"
    )
    assert len(error.value.left_out) == 200


def test_a_run_without_measurements_is_refused(make, tmp_path):
    with pytest.raises(BadInput, match="is fit for a baseline: none there"):
        propose(runs_of(make, tmp_path, []))


def test_the_same_run_twice_is_refused_with_both_paths(make, tmp_path):
    runs = [make.run(tmp_path / name, make.measurement(), run_id="same") for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(BadInput) as error:
        propose(runs)
    paths = f"{tmp_path / 'b.jsonl'} and {tmp_path / 'a.jsonl'}"
    assert str(error.value) == f"{paths} are the same run (same); a run counts once"


def test_runs_of_other_hardware_are_refused_with_both_keys(make, tmp_path):
    other = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm", memory="80gb")))
    runs = [
        make.run(tmp_path / "a.jsonl", make.measurement()),
        make.run(tmp_path / "b.jsonl", other, product="NVIDIA H100 80GB HBM3"),
    ]
    with pytest.raises(OtherHardware) as error:
        propose(runs)
    assert "h200-sxm, 141gb" in str(error.value)
    assert "h100-sxm, 80gb" in str(error.value)


def test_runs_of_another_partition_are_refused(make, tmp_path):
    other = make.measurement(key=make.key(hardware=make.hardware(partition="1g.18gb")))
    runs = runs_of(make, tmp_path, [make.measurement()], [other])
    with pytest.raises(OtherHardware, match=r"1g\.18gb"):
        propose(runs)


def test_times_of_different_work_never_become_one_entry(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(1.0)], [make.measurement(9.0, work=make.copy(2**27))])
    try:
        entries = propose(runs).baseline.entries
    except BadInput:
        return
    assert all(len(entry.medians) == 1 for entry in entries)


def test_hostile_text_is_spelled_out_in_what_was_left_out(make, tmp_path):
    bad, good = make.measurement(label="x\x1b[31m\n", invalid="no\nway"), make.measurement(key=make.key("other"))
    (line,) = propose(runs_of(make, tmp_path, [bad, good])).left_out
    assert line == "x\\x1b[31m\\n of run-0: no\\nway"


def suite(make, factor, tests=6, processes=1):
    """The measurements of a run, all slower or faster by a factor."""
    return [
        make.measurement(1e-3 * (1 + test) * factor, key=make.key(f"test{test}"), process=f"process-{process}")
        for test in range(tests)
        for process in range(processes)
    ]


def refusal(make, folder, *factors, **shape):
    with pytest.raises(BadInput) as error:
        propose(runs_of(make, folder, *[suite(make, factor, **shape) for factor in factors]))
    return str(error.value)


@pytest.mark.parametrize("processes", [1, 4])
def test_the_run_that_disagrees_with_the_others_is_named_by_how_much_and_over_how_many_tests(make, tmp_path, processes):
    sentence = refusal(make, tmp_path, 1.0, 1.002, 1.2, processes=processes)
    assert sentence.startswith(f"{tmp_path / 'run-2.jsonl'} is 19.9 % slower than the others (")
    assert "standard errors, in the middle of 6 tests): more than runs of unchanged code differ" in sentence
    assert sentence.endswith("propose the runs without it")


def test_of_two_runs_that_disagree_nobody_can_tell_which_is_right(make, tmp_path):
    sentence = refusal(make, tmp_path, 1.0, 1.25)
    assert f"{tmp_path / 'run-0.jsonl'} is 20.0 % faster than {tmp_path / 'run-1.jsonl'} (" in sentence
    assert sentence.endswith("two runs cannot tell which is right; record a third, and propose all of them")


def test_where_all_disagree_none_is_blamed(make, tmp_path):
    sentence = refusal(make, tmp_path, 1.0, 1.3, 2.0, processes=5)
    assert sentence.startswith("the 3 runs disagree, so that nobody can tell which are right: ")
    assert "--driver, --before, --after" in sentence


def test_several_odd_runs_are_all_named(make, tmp_path):
    sentence = refusal(make, tmp_path, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.3)
    assert sentence.index("run-5.jsonl is 100.0 % slower than the others (") < sentence.index("run-6.jsonl is 30.0 %")
    assert sentence.endswith("propose the runs without them")


def test_a_single_disagreement_is_said_without_a_middle(make, tmp_path):
    assert "standard errors)" in refusal(make, tmp_path, 1.0, 1.001, 0.999, 1.5, tests=1)


def test_an_entry_with_one_session_far_out_is_left_out_and_named(make, tmp_path):
    odd = make.key("odd")
    records = [[*suite(make, 1.0), make.measurement(value, key=odd)] for value in (1.0, 1.01, 0.99, 1.4)]
    proposal = propose(runs_of(make, tmp_path, *records))
    assert "odd[64MiB]" not in labels(proposal)
    assert len(labels(proposal)) == 6
    (line,) = proposal.left_out
    assert line.startswith("odd[64MiB]: run-3 is 40.0 % slower than its 3 other sessions (")
    assert line.endswith("find out why, or propose without that run")


def test_an_entry_of_two_sessions_that_disagree_blames_neither(make, tmp_path):
    odd = make.key("odd")
    records = [[*suite(make, 1.0), make.measurement(value, key=odd)] for value in (1.0, 3.0)]
    (line,) = propose(runs_of(make, tmp_path, *records)).left_out
    assert "run-0 is 66.7 % faster than run-1 (" in line
    assert line.endswith("two sessions cannot tell which is right")


def test_where_every_entry_disagrees_with_itself_nothing_is_fit(make, tmp_path):
    """Half of the tests are three times slower in one run, the other half in the other: no run is the odd one."""
    halves = [
        [make.measurement(3.0 if test % 2 == run else 1.0, key=make.key(f"t{test}")) for test in range(8)]
        for run in range(2)
    ]
    with pytest.raises(NothingFit) as error:
        propose(runs_of(make, tmp_path, *halves))
    assert len(error.value.left_out) == 8


def test_a_run_that_shares_no_test_with_the_others_is_taken(make, tmp_path):
    records = [[make.measurement(1.0)], [make.measurement(1.0)], [make.measurement(9.0, key=make.key("other"))]]
    assert labels(propose(runs_of(make, tmp_path, *records))) == ["memcpy_d2d[64MiB]", "other[64MiB]"]


def test_what_is_left_out_for_itself_does_not_count_against_its_run(make, tmp_path):
    slow = [make.measurement(9.0, key=make.key(f"test{test}"), invalid="neighbours") for test in range(5)]
    records = [suite(make, 1.0), suite(make, 1.0), [*slow, make.measurement(6e-3, key=make.key("test5"))]]
    assert len(propose(runs_of(make, tmp_path, *records)).left_out) == 5


def test_no_run_at_all_is_refused():
    with pytest.raises(BadInput, match="no run is given"):
        propose([])


def test_runs_of_a_fake_device_never_stand_beside_real_ones(make, tmp_path):
    runs = [
        make.run(tmp_path / "fake.jsonl", make.measurement(), device_type="fake"),
        make.run(tmp_path / "real.jsonl", make.measurement()),
    ]
    with pytest.raises(OtherHardware, match=r"fake\.jsonl is of a fake device and .*real\.jsonl of a real one"):
        propose(runs)


def test_runs_from_before_tokens_were_stated_make_one_entry_with_those_after(make, tmp_path):
    before, after = Work(flops=8), Work(flops=8, tokens=5)
    runs = runs_of(make, tmp_path, [make.measurement(1.0, work=before)], [make.measurement(1.0, work=after)])
    (entry,) = propose(runs).baseline.entries
    assert len(entry.sessions) == 2
