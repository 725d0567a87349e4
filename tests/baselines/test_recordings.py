"""A run that goes into baselines: its canaries, other hardware, and sessions of one afternoon."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.fit import fewest_of, fit_of
from pytest_roofline.baselines.foresight import foresee
from pytest_roofline.baselines.recordings import record
from pytest_roofline.core.keys import CANARY_BENCHMARK
from pytest_roofline.core.samples import CANARY

MORNING, NOON, EVENING = (f"2026-03-01T{hour:02}:00:00Z" for hour in (8, 12, 20))


def processes(make, count=5, seconds=1e-3, **changes):
    """Return the measurements of one test in so many processes."""
    return [make.measurement(seconds, process=f"p{number}", **changes) for number in range(count)]


def test_an_entry_needs_half_of_the_rounds_and_five_processes():
    assert [fewest_of(rounds) for rounds in (5, 10, 11, 20)] == [5, 5, 6, 10]


def test_canaries_go_along_and_are_no_tests(make, tmp_path):
    key = make.key(benchmark=CANARY_BENCHMARK, name="copy")
    samples = replace(make.measurement(2e-3).samples, labels=(CANARY,))
    canaries = processes(make, key=key, samples=samples)
    run = make.run(tmp_path / "r.jsonl", *processes(make), *canaries)
    recording = record(run, 5, tmp_path / "baselines")
    assert [entry.is_canary for entry in recording.entries] == [False]
    (path,) = recording.paths
    assert sorted(entry.is_canary for entry in read_baseline(path).entries) == [False, True]
    # Alone they are nothing to record.
    alone = make.run(tmp_path / "alone.jsonl", *canaries)
    assert fit_of(alone, 5)[:2] == ({}, ())


def test_what_was_measured_on_other_hardware_goes_into_its_own_file(make, tmp_path):
    other = make.key("other", hardware=make.hardware(product="a100-sxm4", memory="80gb"))
    run = make.run(tmp_path / "r.jsonl", *processes(make), *processes(make, key=other))
    recording = record(run, 5, tmp_path / "baselines")
    assert sorted(path.name for path in recording.paths) == ["a100.json", "h200.json"]


def test_one_test_that_cannot_be_proposed_costs_no_other_its_entry(make, tmp_path):
    good, odd = processes(make), processes(make, key=make.key("odd"), test_id="t.py::test_odd")
    odd[0] = replace(odd[0], work=make.copy(2**20))
    run = make.run(tmp_path / "r.jsonl", *good, *odd)
    entries, _, (refusal,) = fit_of(run, 5)
    assert [entry.benchmark for entry in entries["h200"]] == ["memcpy_d2d"]
    assert (refusal.test_id, "did different work" in refusal.why) == ("t.py::test_odd", True)


@pytest.mark.parametrize(
    ("started", "counts"), [(NOON, [10]), (EVENING, [5, 5]), ("2026-02-28T20:00:00Z", [5, 5])]
)
def test_processes_within_six_hours_belong_to_a_session_and_keep_what_both_tell_of_the_machine(
    make, tmp_path, started, counts
):
    folder = tmp_path / "baselines"
    for name, begun, driver in (("first", MORNING, "550.54"), ("second", started, "570.86")):
        run = make.run(tmp_path / f"{name}.jsonl", *processes(make))
        environment = make.environment(driver=driver)
        header = replace(run.header, started=begun, environment=environment)
        recording = record(replace(run, header=header), 5, folder)
    (entry,) = recording.entries
    assert [len(session.process_medians) for session in entry.sessions] == counts
    drivers = {session.environment.get("driver") for session in entry.sessions}
    assert drivers == ({None} if counts == [10] else {"550.54", "570.86"})


def test_more_days_let_a_gate_find_less_and_a_wide_tolerance_lets_it_find_more(make):
    def entry(days):
        sessions = tuple(
            make.session(*(1e-3,) * 5, run_id=str(day), started=f"2026-03-0{day}T08:00:00Z")
            for day in range(1, days + 1)
        )
        return make.measured(sessions=sessions)

    one_day, shrinks = foresee([entry(1)], lambda _: None, None)
    three_days, shrinks_further = foresee([entry(3)], lambda _: None, None)
    assert (shrinks, shrinks_further) == (True, False)
    assert three_days < one_day
    wide, _ = foresee([entry(3)], lambda _: 0.3, None)
    assert wide > 0.3
    # The test's own tolerance stands before the one of the run.
    assert foresee([entry(3)], lambda _: 0.3, 0.01) == (wide, False)
