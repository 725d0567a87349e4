import json

import pytest

from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile, BadInput, OtherHardware
from pytest_roofline.judging.baselines import read_baseline, write_baseline
from pytest_roofline.judging.proposals import approve, changes, propose


def runs_of(make, folder, *records_of_each):
    return [make.run(folder / f"run-{number}.jsonl", *records) for number, records in enumerate(records_of_each)]


def labels(proposal):
    return [entry.label for entry in proposal.baseline.entries]


def test_every_run_becomes_a_session_of_its_own(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(1.0)], [make.measurement(2.0)])
    (entry,) = propose(runs).baseline.entries
    assert [(s.run_id, s.process_medians) for s in entry.sessions] == [("run-0", (1.0,)), ("run-1", (2.0,))]


def test_every_process_of_a_run_has_its_median_in_the_session(make, tmp_path):
    runs = runs_of(make, tmp_path, [make.measurement(1.0), make.measurement(2.0, process="process-2", round=2)])
    (entry,) = propose(runs).baseline.entries
    assert [session.process_medians for session in entry.sessions] == [(1.0, 2.0)]


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
    with pytest.raises(BadInput, match=r"no measurement in .*run-0\.jsonl is fit for a baseline: .*: wrong data"):
        propose(runs)


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


def test_an_approval_makes_the_file_of_the_family(make, tmp_path):
    path = approve(Baseline("h200", (make.measured(),)), tmp_path / "baselines")
    assert path == tmp_path / "baselines" / "h200.json"
    assert read_baseline(path) == Baseline("h200", (make.measured(),))


def test_an_approval_touches_only_the_entries_that_it_names(make, tmp_path):
    kept = (make.measured(7.0, key=make.key("other"), tolerance=0.2), make.published())
    write_baseline(tmp_path / "h200.json", Baseline("h200", (*kept, make.measured(1.0))))
    before = (tmp_path / "h200.json").read_text()
    approve(Baseline("h200", (make.measured(2.0),)), tmp_path)
    after = (tmp_path / "h200.json").read_text()
    changed = [(old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]
    assert [(old.strip(), new.strip()) for old, new in changed] == [("1.0", "2.0")]


@pytest.mark.parametrize(("own", "kept"), [(None, 0.2), (0.1, 0.1)])
def test_a_persons_tolerance_survives_a_renewal_that_names_none(make, tmp_path, own, kept):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1.0, tolerance=0.2),)))
    approve(Baseline("h200", (make.measured(2.0, tolerance=own),)), tmp_path)
    (entry,) = read_baseline(tmp_path / "h200.json").entries
    assert (entry.medians, entry.tolerance) == ((2.0,), kept)


def test_an_approved_file_is_sorted_and_ends_in_a_newline(make, tmp_path):
    entries = tuple(make.measured(key=make.key(name)) for name in ("c", "a", "b"))
    text = approve(Baseline("h200", entries), tmp_path).read_text()
    assert [entry["benchmark"] for entry in json.loads(text)["entries"]] == ["a", "b", "c"]
    assert text.endswith("}\n")


def test_a_damaged_baseline_is_not_replaced(make, tmp_path):
    (tmp_path / "h200.json").write_text("{")
    with pytest.raises(BadFile):
        approve(Baseline("h200", (make.measured(),)), tmp_path)
    assert (tmp_path / "h200.json").read_text() == "{"


def test_changes_name_what_is_new_and_what_is_renewed(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1.0),)))
    proposal = Baseline("h200", (make.measured(2.0), make.measured(3.0, key=make.key("new"))))
    found = [(change.entry.benchmark, change.before_s, change.after_s) for change in changes(proposal, tmp_path)]
    assert found == [("memcpy_d2d", pytest.approx(1.0), pytest.approx(2.0)), ("new", None, pytest.approx(3.0))]


@pytest.mark.parametrize("tolerance", [None, 0.2])
def test_approving_the_same_proposal_again_changes_nothing(make, tmp_path, tolerance):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1.0, tolerance=tolerance),)))
    proposal = Baseline("h200", (make.measured(2.0),))
    approve(proposal, tmp_path)
    assert changes(proposal, tmp_path) == []


def test_a_proposal_changes_nothing_before_it_is_approved(make, tmp_path):
    changes(Baseline("h200", (make.measured(),)), tmp_path)
    assert list(tmp_path.iterdir()) == []
