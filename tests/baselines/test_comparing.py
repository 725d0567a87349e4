import math
from statistics import fmean

import pytest

from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.samples import Samples
from pytest_roofline.stats.verdicts import Kind


def kinds(rows):
    return [(row.label.partition("[")[0], row.verdict) for row in rows]


def pair(make, folder, old, new):
    return [make.save(folder / "old.jsonl", *old)], [make.save(folder / "new.jsonl", *new)]


def timed(make, rounds=1, **seconds):
    return [
        make.measurement(value, key=make.key(name), process=f"process-{number}")
        for name, value in seconds.items()
        for number in range(rounds)
    ]


def test_a_run_held_against_itself_has_not_changed(make, tmp_path):
    paths = [make.save(tmp_path / "r.jsonl", *timed(make, a=1.0, b=2.0))]
    assert kinds(compare(paths, paths).rows) == [("a", Kind.PASSED), ("b", Kind.PASSED)]


def test_rows_stand_worst_first(make, tmp_path):
    old = timed(make, 5, same=1.0, bad=1.0, better=1.0, worse=1.0, unsure=1.0)
    new = timed(make, 3, same=1.0, bad=1.2, better=0.5, worse=2.0, unsure=1.03, unknown=1.0)
    rows = compare(*pair(make, tmp_path, old, new)).rows
    assert kinds(rows) == [
        ("worse", Kind.REGRESSED),
        ("bad", Kind.REGRESSED),
        ("unsure", Kind.INCONCLUSIVE),
        ("unknown", Kind.NO_BASELINE),
        ("better", Kind.IMPROVED),
        ("same", Kind.PASSED),
    ]


def test_old_and_new_times_stand_beside_the_verdict(make, tmp_path):
    (row,) = compare(*pair(make, tmp_path, timed(make, a=1.0), timed(make, a=2.0))).rows
    assert (row.baseline_time_s, row.time_s) == (pytest.approx(1.0), pytest.approx(2.0))
    assert row.change == pytest.approx(1.0)


def test_the_tolerance_of_the_caller_counts(make, tmp_path):
    (row,) = compare(*pair(make, tmp_path, timed(make, a=1.0), timed(make, a=1.2)), tolerance=0.5).rows
    assert (row.verdict, row.tolerance) == (Kind.PASSED, 0.5)


def test_the_tolerance_of_an_entry_comes_before_the_callers(make, tmp_path):
    old = tmp_path / "h200.json"
    write_baseline(old, Baseline("h200", (make.measured(1.0, tolerance=0.5),)))
    new = make.save(tmp_path / "new.jsonl", make.measurement(1.2))
    (row,) = compare([old], [new], tolerance=0.01).rows
    assert (row.verdict, row.tolerance) == (Kind.PASSED, 0.5)


def test_two_baselines_can_be_compared(make, tmp_path):
    for name, seconds in (("old.json", 1.0), ("new.json", 2.0)):
        write_baseline(tmp_path / name, Baseline("h200", (make.measured(seconds), make.published())))
    assert kinds(compare([tmp_path / "old.json"], [tmp_path / "new.json"]).rows) == [("memcpy_d2d", Kind.REGRESSED)]


def test_other_hardware_is_refused_with_both_names(make, tmp_path):
    other = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm", memory="80gb")))
    old, new = pair(make, tmp_path, [other], [make.measurement()])
    with pytest.raises(OtherHardware) as error:
        compare(old, new)
    assert str(error.value) == (
        f"{new[0]} was measured on h200-sxm, 141gb, but {old[0]} knows only h100-sxm, 80gb; "
        "a comparison across hardware would mean nothing"
    )


def test_runs_without_a_shared_measurement_are_refused(make, tmp_path):
    old, new = pair(make, tmp_path, timed(make, a=1.0), timed(make, b=1.0))
    with pytest.raises(BadInput, match="share no measurement; expected runs of the same tests"):
        compare(old, new)


def test_shared_measurements_of_which_none_is_fit_are_told_with_the_reason(make, tmp_path):
    spoiled = [make.measurement(1.0, key=make.key(name), invalid="neighbours") for name in ("a", "b")]
    old, new = pair(make, tmp_path, timed(make, a=1.0, b=1.0), spoiled)
    with pytest.raises(BadInput, match=r"fit on both sides: of 2 that they share, the first is not, since neighbours$"):
        compare(old, new)


@pytest.mark.parametrize("empty", ["old", "new"])
def test_a_run_without_measurements_is_refused(make, tmp_path, empty):
    sides = {"old": timed(make, a=1.0), "new": timed(make, a=1.0)} | {empty: []}
    with pytest.raises(BadInput, match="share no measurement"):
        compare(*pair(make, tmp_path, sides["old"], sides["new"]))


def test_changed_work_is_not_compared_and_says_so(make, tmp_path):
    changed = make.measurement(2.0, key=make.key("b"), work=make.copy(2**27))
    rows = compare(*pair(make, tmp_path, timed(make, a=1.0, b=1.0), [*timed(make, a=1.0), changed])).rows
    assert kinds(rows) == [("b", Kind.NO_BASELINE), ("a", Kind.PASSED)]
    assert "the test's work changed" in rows[0].reason


def test_an_invalid_measurement_of_the_new_run_is_shown_as_such(make, tmp_path):
    bad = make.measurement(1.0, key=make.key("b"), invalid="wrong data")
    rows = compare(*pair(make, tmp_path, timed(make, a=1.0, b=1.0), [*timed(make, a=1.0), bad])).rows
    assert ("b", Kind.INVALID) in kinds(rows)


def test_every_comparison_has_its_share_of_the_false_alarms(make, tmp_path):
    """The same difference decides alone, and not among three hundred."""
    slow, others = timed(make, 3, a=1.12), {f"b{number}": 1.0 for number in range(300)}
    alone = compare(*pair(make, tmp_path, timed(make, 5, a=1.0), slow)).rows
    among = compare(*pair(make, tmp_path, timed(make, 5, a=1.0, **others), [*slow, *timed(make, 3, **others)])).rows
    assert [alone[0].verdict, among[0].verdict] == [Kind.REGRESSED, Kind.INCONCLUSIVE]


def test_a_cpu_of_one_process_is_given_the_spread_of_a_cpu(make, tmp_path):
    cpu = make.key(hardware=HardwareKey("amd-epyc", "24gib", "2-cores", 1, "none"))
    old, new = ([make.measurement(value, key=cpu)] for value in (1.0, 1.3))
    (row,) = compare(*pair(make, tmp_path, old, new)).rows
    assert row.verdict == Kind.INCONCLUSIVE


def test_processes_of_the_new_run_are_judged_together(make, tmp_path):
    new = [make.measurement(value, process=f"process-{value}") for value in (1.0, 4.0)]
    (row,) = compare(*pair(make, tmp_path, [make.measurement(1.0)], new)).rows
    assert row.time_s == pytest.approx(2.0)


def test_what_only_the_old_side_knows_is_named(make, tmp_path):
    compared = compare(*pair(make, tmp_path, timed(make, a=1.0, b=1.0), timed(make, a=1.0)))
    assert compared.only_old == ("b[64MiB]",)


OLD_DAYS, NEW_DAYS = ("2026-01-02", "2026-01-03", "2026-01-04"), ("2026-02-01", "2026-02-02")


def nights(make, folder, side, days, *process_percents, **environment):
    """A run a day, whose processes are slower than a second by these."""
    return [
        make.save(
            folder / f"{side}-{day}.jsonl",
            *(
                make.measurement(1 + percent / 100, process=f"{side}-{day}-{number}")
                for number, percent in enumerate(process_percents)
            ),
            started=f"{day}T03:00:00Z",
            **environment,
        )
        for day in days
    ]


def test_sets_of_runs_are_compared_by_all_their_processes_each_run_a_session(make, tmp_path):
    old = nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1)
    new = nights(make, tmp_path, "new", NEW_DAYS, 9, 11)
    compared = compare(old, new)
    (row,) = compared.rows
    assert (row.verdict, row.processes) == (Kind.REGRESSED, 4)
    assert (row.baseline_processes, row.baseline_sessions) == (9, 3)
    assert len(compared.runs) == 5


def test_the_centre_of_a_set_of_runs_is_that_of_all_its_processes(make, tmp_path):
    old, new = nights(make, tmp_path, "old", OLD_DAYS, 0, 4), nights(make, tmp_path, "new", NEW_DAYS, 2, 9)
    (row,) = compare(old, new).rows
    centres = [fmean(map(math.log, side)) for side in ((1.0, 1.04), (1.02, 1.09))]
    assert (math.log(row.baseline_time_s), math.log(row.time_s)) == pytest.approx(centres)
    assert row.judgement.estimate == pytest.approx(centres[1] - centres[0])


def test_more_nights_on_either_side_know_more(make, tmp_path):
    """What lies between sessions is averaged over them, and no number of processes of one night replaces that."""
    few, many = (
        compare(
            nights(make, tmp_path / name, "old", OLD_DAYS[:count], -1, 0, 1),
            nights(make, tmp_path / name, "new", NEW_DAYS[:count], -1, 0, 1),
        ).rows[0]
        for name, count in (("few", 1), ("many", 2))
    )
    assert many.judgement.error < few.judgement.error
    # Twice the least that is believed, as four degrees of freedom; two nights that agree add one of their own.
    expected = 0.01, 0.01 * math.sqrt(4 / 5)
    assert [one.judgement.session_spread.value for one in (few, many)] == pytest.approx(expected)


@pytest.mark.parametrize("percents", [((0, 1), (9, 10)), ((0, 3, 6), (1, 2)), ((5,), (0,))])
def test_old_and_new_changed_over_give_the_opposite_sign(make, tmp_path, percents):
    old, new = (
        nights(make, tmp_path, side, days, *those)
        for side, days, those in zip(("old", "new"), (OLD_DAYS, NEW_DAYS), percents, strict=True)
    )
    there, back = (compare(*sides).rows[0].judgement for sides in ((old, new), (new, old)))
    assert there.estimate == pytest.approx(-back.estimate)
    assert {there.processes, len(there.baseline_medians_s)} == {back.processes, len(back.baseline_medians_s)}


@pytest.mark.parametrize(("uuid", "kind"), [("GPU-1", Kind.REGRESSED), ("GPU-2", Kind.INCONCLUSIVE)])
def test_the_same_device_is_compared_paired_and_another_one_with_what_lies_between_devices(make, tmp_path, uuid, kind):
    old = nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1)
    new = nights(make, tmp_path, "new", NEW_DAYS, 8, 9, 10, uuid=uuid)
    judged = compare(old, new).rows[0].judgement
    assert (judged.verdict, judged.paired) == (kind, uuid == "GPU-1")
    assert (judged.device_spread is None) == (uuid == "GPU-1")


def test_all_rows_are_held_against_each_other(make, tmp_path):
    old, new = timed(make, a=1.0, b=1.0, c=1.0), timed(make, a=1.3, b=1.0, c=1.3)
    rows = compare(*pair(make, tmp_path, old, new)).rows
    assert all(row.judgement.p_adjusted >= row.judgement.p for row in rows)
    assert any(row.judgement.p_adjusted > row.judgement.p for row in rows)


def test_a_baseline_of_three_nights_and_a_run_are_compared_as_two_sides(make, tmp_path):
    sessions = tuple(make.session(0.99, 1.0, 1.01, run_id=day, started=day, device_uuid="GPU-1") for day in OLD_DAYS)
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(sessions=sessions),)))
    row = compare([tmp_path / "h200.json"], nights(make, tmp_path, "new", NEW_DAYS, 9, 10)).rows[0]
    assert (row.verdict, row.processes, row.baseline_processes, row.baseline_sessions) == (Kind.REGRESSED, 4, 9, 3)


def test_a_run_of_another_mode_among_the_new_ones_makes_the_row_invalid(make, tmp_path):
    """One host-bound night may not hide among others that were timed as asked."""
    old, new = nights(make, tmp_path, "old", OLD_DAYS, 0), nights(make, tmp_path, "new", NEW_DAYS, 0)
    bound = make.measurement(samples=Samples((1.0,), 1, 1e-9, labels=("host_bound",)), process="bound")
    other = make.save(tmp_path / "bound.jsonl", bound)
    (row,) = compare(old, [*new, other]).rows
    assert row.verdict == Kind.INVALID


def test_a_slow_process_cannot_be_rerun_into_green_offline_either(make, tmp_path):
    """As in the run itself: of the attempts of a process the slowest sound one stands."""
    old = nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1)
    slow = [make.measurement(1.3, process=name) for name in "abc"]
    reruns = [make.measurement(1.0, process=name) for name in "abc" for _ in range(3)]
    new = make.save(tmp_path / "new.jsonl", *slow, *reruns)
    (row,) = compare(old, [new]).rows
    assert (row.verdict, row.change) == (Kind.REGRESSED, pytest.approx(0.3, rel=0.01))
