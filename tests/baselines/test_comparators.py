from dataclasses import replace

import pytest

from pytest_roofline.baselines.comparators import (
    BaselineComparator,
    RunComparator,
    class_of_key,
    find_reference,
    open_comparator,
    pooled_median,
    prior_of,
    typical_clock,
)
from pytest_roofline.baselines.files import Entries, write_baseline
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import identity_of
from pytest_roofline.stats.spread import priors


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


def on_clock(make, clock_hz, process):
    samples = Samples((1.0,), 1, 1e-9, blocks=(Block(1, clock_hz=clock_hz),))
    return make.measurement(samples=samples, process=process)


def test_a_baselines_sessions_keep_their_processes_device_and_hour(make, tmp_path):
    first = make.session(1.0, 2.0, device_uuid="GPU-1", clock_hz=1e9)
    second = replace(make.session(3.0, run_id="run-2", device_uuid="GPU-2", clock_hz=2e9), started="2026-02-01")
    third = make.session(4.0, run_id="run-3")
    reference = shelf(make, tmp_path / "h200.json", make.measured(sessions=(first, second, third))).reference(
        make.key()
    )
    assert [(group.medians_s, group.device, group.started) for group in reference.groups] == [
        ((1.0, 2.0), "GPU-1", "2026-01-02T03:04:05Z"),
        ((3.0,), "GPU-2", "2026-02-01"),
        ((4.0,), "", "2026-01-02T03:04:05Z"),
    ]
    assert reference.clock_hz == 1.5e9


def test_the_typical_clock_is_the_median_of_those_that_were_probed():
    for clocks_hz, typical in [((1e9, None, 3e9, 2e9), 2e9), ((None, None), None), ((), None), ((1.5e9,), 1.5e9)]:
        assert typical_clock(clocks_hz) == typical, (clocks_hz, typical)


def test_every_run_is_a_session_of_its_own_with_all_its_rounds(make, tmp_path):
    """A session is one invocation of pytest: its processes share a boot, an hour and a temperature."""
    one = make.run(tmp_path / "one.jsonl", *(make.measurement(1.0 + n, process=f"one-{n}") for n in range(3)))
    two = make.run(tmp_path / "two.jsonl", make.measurement(9.0, process="two-0"), uuid="GPU-2")
    reference = RunComparator([one, two]).reference(make.key())
    assert [(group.medians_s, group.device) for group in reference.groups] == [
        ((1.0, 2.0, 3.0), "GPU-1"),
        ((9.0,), "GPU-2"),
    ]
    assert {group.started for group in reference.groups} == {one.header.started}


def test_runs_of_one_name_are_sessions_of_their_own_on_each_device_and_night(make, tmp_path):
    nights = [("GPU-0", "2026-01-01T00:00:00Z"), ("GPU-1", "2026-01-01T00:00:00Z"), ("GPU-1", "2026-01-02T00:00:00Z")]
    paths = [
        make.save(tmp_path / f"{number}.jsonl", make.measurement(1.0 + number), run_id="nightly", uuid=uuid)
        for number, (uuid, _) in enumerate(nights)
    ]
    runs = [read_run(path) for path in paths]
    runs = [
        replace(run, header=replace(run.header, started=began)) for run, (_, began) in zip(runs, nights, strict=True)
    ]
    groups = RunComparator(runs).reference(make.key()).groups
    assert [(group.device, group.started, group.medians_s) for group in groups] == [
        (*night, (1.0 + number,)) for number, night in enumerate(nights)
    ]


def test_runs_know_the_clock_that_they_had(make, tmp_path):
    run = make.run(tmp_path / "r.jsonl", *(on_clock(make, hz, f"{hz}") for hz in (1e9, 1.2e9, 1.9e9)))
    assert RunComparator([run]).reference(make.key()).clock_hz == 1.2e9


@pytest.mark.parametrize(
    ("facts", "identity"),
    [
        ({"uuid": "GPU-7"}, "GPU-7"),
        ({"device_type": "cpu", "uuid": None}, ""),
        ({"device_type": "mps", "uuid": None}, "node:0"),
    ],
)
def test_a_device_is_known_by_its_uuid_or_by_its_host_and_a_cpu_is_none(make, facts, identity):
    """Hosts of a CPU come and go under new names; another host's accelerator is another device."""
    assert identity_of(make.environment(**facts)) == identity


@pytest.mark.parametrize(
    ("hardware", "metric", "kind"),
    [
        ({}, "traffic_GBps", "device"),
        ({}, "pageable_payload_GBps", "host"),
        ({"product": "amd-epyc", "partition": "2-cores"}, "traffic_GBps", "host"),
        ({"product": "amd-epyc", "partition": "8-cores-quota-2"}, "traffic_GBps", "host"),
        ({"partition": "1g.18gb"}, "traffic_GBps", "device"),
    ],
)
def test_the_class_of_a_key_is_a_hosts_where_the_cpu_does_the_work(make, hardware, metric, kind):
    assert class_of_key(make.key(hardware=make.hardware(**hardware), metric=metric)) == kind


def test_many_references_of_a_class_tell_its_spread_and_another_class_keeps_its_own(make):
    known = [
        (make.key(f"b{number}"), make.reference(*make.groups(3, process=0.04, session=0.1))) for number in range(20)
    ]
    assert prior_of(known, "device").process == pytest.approx(0.04, rel=0.05)
    assert prior_of(known, "device").borrowed
    assert prior_of(known, "host") == priors()["host"]


def test_few_references_leave_the_starting_value(make):
    known = [(make.key(f"b{number}"), make.reference(*make.groups(3, process=0.04))) for number in range(7)]
    assert prior_of(known, "device") == priors()["device"]


def test_references_of_one_process_each_tell_no_spread(make):
    known = [(make.key(f"b{number}"), make.reference(make.group(0.0))) for number in range(50)]
    assert prior_of(known, "device") == priors()["device"]


def test_a_comparator_gives_everything_that_it_knows(make, tmp_path):
    entries = [make.measured(key=make.key(name)) for name in ("a", "b")]
    comparator = shelf(make, tmp_path / "h200.json", *entries, make.published())
    assert [(key.benchmark, reference.medians_s) for key, reference in comparator.references()] == [
        ("a", (1e-3,)),
        ("b", (1e-3,)),
    ]
    assert all(comparator.reference(key) == reference for key, reference in comparator.references())


def test_runs_give_everything_that_they_know(make, tmp_path):
    run = make.run(tmp_path / "r.jsonl", *(make.measurement(1.0, key=make.key(name)) for name in ("a", "b")))
    comparator = RunComparator([run])
    assert [key.benchmark for key, _ in comparator.references()] == ["a", "b"]
    assert all(comparator.reference(key) == reference for key, reference in comparator.references())


def test_a_measurement_that_is_unfit_is_known_with_its_reason(make, tmp_path):
    """Nothing is left out in silence."""
    bad = make.measurement(1.0, invalid="neighbours")
    comparator = RunComparator([make.run(tmp_path / "r.jsonl", bad, make.measurement(2.0, process="process-2"))])
    assert comparator.unfit == [(bad, "neighbours")]
    assert comparator.reference(make.key()).medians_s == (2.0,)


STEP = Work(flops=10**12, tokens=512)


@pytest.mark.parametrize(("then", "now"), [(Work(flops=10**12), STEP), (STEP, Work(flops=10**12)), (STEP, STEP)])
def test_work_that_began_to_state_its_tokens_is_the_same_work(make, tmp_path, then, now):
    comparator = shelf(make, tmp_path / "h200.json", make.measured(work=then))
    reference, why = find_reference(comparator, make.key(), now)
    assert (reference.medians_s, why) == ((1e-3,), "")


def test_another_number_of_tokens_is_other_work(make, tmp_path):
    comparator = shelf(make, tmp_path / "h200.json", make.measured(work=STEP))
    _, why = find_reference(comparator, make.key(), replace(STEP, tokens=1024))
    assert why == (
        "the test's work changed from flops=1000000000000, tokens=512 to flops=1000000000000, tokens=1024, so the "
        "times are not comparable"
    )


def test_runs_from_before_tokens_were_stated_are_pooled_with_those_after(make, tmp_path):
    one = make.run(tmp_path / "one.jsonl", make.measurement(1.0, work=Work(flops=10**12)))
    two = make.run(tmp_path / "two.jsonl", make.measurement(2.0, process="process-2", work=STEP))
    reference, _ = find_reference(RunComparator([one, two]), make.key(), STEP)
    assert reference.medians_s == (1.0, 2.0)
