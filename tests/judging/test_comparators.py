import pytest

from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.samples import Samples
from pytest_roofline.judging.baselines import Entries, write_baseline
from pytest_roofline.judging.comparators import (
    BaselineComparator,
    RunComparator,
    find_reference,
    open_comparator,
    pooled_median,
)


def shelf(make, path, *entries):
    write_baseline(path, Baseline("h200", entries))
    return BaselineComparator(Entries.merged([path]))


def test_a_baseline_answers_with_every_process_of_every_session(make, tmp_path):
    sessions = (make.session(1.0, 2.0), make.session(3.0, run_id="run-2", environment={"driver": "550"}))
    comparator = shelf(make, tmp_path / "h200.json", make.measured(sessions=sessions, tolerance=0.1))
    reference = comparator.reference(make.key())
    assert reference.medians_s == (1.0, 2.0, 3.0)
    assert reference.environments == ({}, {"driver": "550"})
    assert (reference.tolerance, reference.source) == (0.1, str(tmp_path / "h200.json"))


def test_a_baseline_has_nothing_for_a_key_that_it_does_not_hold(make, tmp_path):
    assert shelf(make, tmp_path / "h200.json", make.measured()).reference(make.key(size_bytes=1)) is None


def test_a_published_figure_is_never_what_a_time_is_compared_with(make, tmp_path):
    published = (make.published(), make.published("reference"))
    comparator = shelf(make, tmp_path / "h200.json", *published)
    assert (comparator.reference(make.key()), comparator.hardware()) == (None, [])


def test_the_measurements_of_a_test_are_counted_under_every_name(make, tmp_path):
    entries = [make.measured(key=make.key(name=name)) for name in ("", "second")]
    other = make.measured(key=make.key(size_bytes=1))
    comparator = shelf(make, tmp_path / "h200.json", *entries, other)
    assert comparator.count("memcpy_d2d", {"size_bytes": 64 * 2**20}, make.hardware()) == 2


def test_each_process_of_several_runs_counts_once(make, tmp_path):
    one = make.run(tmp_path / "one.jsonl", make.measurement(1.0))
    two = make.run(tmp_path / "two.jsonl", make.measurement(3.0, process="process-2"), driver="550.54")
    reference = RunComparator([one, two]).reference(make.key())
    assert reference.medians_s == (1.0, 3.0)
    assert [facts["driver"] for facts in reference.environments] == ["570.86", "550.54"]


def test_a_run_named_twice_counts_its_process_once(make, tmp_path):
    run = make.run(tmp_path / "one.jsonl", make.measurement(1.0))
    assert RunComparator([run, run]).reference(make.key()).medians_s == (1.0,)


def test_a_rerun_in_the_same_process_cannot_replace_the_first_attempt(make):
    assert pooled_median([make.measurement(5.0, 5.0, 5.0), make.measurement(1.0, 1.0)]) == 5.0


@pytest.mark.parametrize("by_verdict", [True, False])
def test_a_run_whose_test_failed_stands_only_where_it_was_merely_slower(make, tmp_path, by_verdict):
    measurement = make.measurement(1.0)
    failed = make.outcome(measurement, "failed", by_verdict=by_verdict)
    comparator = RunComparator([make.run(tmp_path / "r.jsonl", measurement, failed)])
    assert by_verdict == (comparator.reference(make.key()) is not None)


def test_an_invalid_measurement_is_nothing_to_compare_with(make, tmp_path):
    run = make.run(tmp_path / "r.jsonl", make.measurement(1.0, invalid="wrong data"))
    assert RunComparator([run]).keys() == []


def test_times_of_changed_work_are_not_compared_and_both_are_named(make, tmp_path):
    comparator = shelf(make, tmp_path / "h200.json", make.measured())
    reference, why = find_reference(comparator, make.key(), make.copy(5))
    assert reference is None
    assert "the test's work changed from read_bytes=67108864, write_bytes=67108864, payload_bytes=67108864" in why
    assert "to read_bytes=5, write_bytes=5, payload_bytes=5" in why


def test_runs_of_different_work_under_one_key_are_not_pooled(make, tmp_path):
    one = make.run(tmp_path / "one.jsonl", make.measurement(1.0))
    two = make.run(tmp_path / "two.jsonl", make.measurement(2.0, process="process-2", work=make.copy(2**27)))
    reference, _ = find_reference(RunComparator([one, two]), make.key(), make.copy())
    assert reference is None or reference.medians_s == (1.0,)


def test_a_missing_entry_names_this_hardware_and_the_nearest_known(make, tmp_path):
    other = make.measured(key=make.key(hardware=make.hardware(product="h100-sxm")))
    _, why = find_reference(shelf(make, tmp_path / "h.json", other), make.key(), make.copy())
    assert why == "no entry for this hardware (h200-sxm, 141gb); nearest known: h100-sxm, 141gb"


def test_a_missing_measurement_on_known_hardware_names_the_file(make, tmp_path):
    _, why = find_reference(shelf(make, tmp_path / "h.json", make.measured()), make.key("another"), make.copy())
    assert why == f"{tmp_path / 'h.json'} has no such measurement"


def test_without_any_file_no_baseline_is_recorded(make):
    _, why = find_reference(BaselineComparator(Entries.merged([])), make.key(), make.copy())
    assert why == "no baseline recorded"


def test_runs_and_baselines_are_told_apart_by_their_suffix(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(),)))
    make.save(tmp_path / "r.jsonl", make.measurement())
    kinds = [type(open_comparator([tmp_path / name])) for name in ("h200.json", "r.jsonl")]
    assert kinds == [BaselineComparator, RunComparator]


def test_runs_and_baselines_are_not_mixed(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(),)))
    make.save(tmp_path / "r.jsonl", make.measurement())
    with pytest.raises(BadFile, match=r"is a run and .* a baseline; expected all of one kind"):
        open_comparator([tmp_path / "r.jsonl", tmp_path / "h200.json"])


def test_the_median_of_a_process_is_over_all_its_samples(make):
    attempts = [make.measurement(samples=Samples(values, 1, 1e-9)) for values in ((1.0, 9.0), (2.0, 3.0))]
    assert pooled_median(attempts) == 2.5
