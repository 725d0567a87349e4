"""What a measurement is compared with: entries of baseline files or saved runs, on one device or several."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.comparators import (
    BaselineComparator,
    RunComparator,
    find_reference,
    open_comparator,
)
from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import Entries, write_baseline
from pytest_roofline.baselines.picking import hardware_of
from pytest_roofline.baselines.references import class_of_key, pooled_median, typical_clock
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile, OtherHardware
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work

SIZE = {"size_bytes": 64 * 2**20}
STEP = Work(flops=10**12, tokens=512)


@pytest.fixture
def baseline(make, tmp_path):
    """A comparator with a file of these entries."""

    def write(*entries):
        write_baseline(tmp_path / "h200.json", Baseline("h200", entries))
        return BaselineComparator(Entries.from_files([tmp_path / "h200.json"]))

    return write


def test_a_baseline_answers_with_every_process_of_every_session(make, baseline, tmp_path):
    first = make.session(1.0, 2.0, device_uuid="GPU-1", clock_hz=1e9)
    second = replace(
        make.session(3.0, run_id="run-2", device_uuid="GPU-2", clock_hz=2e9), started="2026-02-01"
    )
    third = make.session(4.0, run_id="run-3", environment={"driver": "550"})
    comparator = baseline(make.measured(sessions=(first, second, third), tolerance=0.1))
    reference = comparator.reference(make.key())
    assert [(group.medians_s, group.device, group.started) for group in reference.groups] == [
        ((1.0, 2.0), "GPU-1", "2026-01-02T03:04:05Z"),
        ((3.0,), "GPU-2", "2026-02-01"),
        ((4.0,), "", "2026-01-02T03:04:05Z"),
    ]
    assert (reference.clock_hz, comparator.environments(make.key())[2]) == (
        1.5e9,
        {"driver": "550"},
    )
    assert (reference.tolerance, reference.source) == (0.1, str(tmp_path / "h200.json"))
    assert comparator.reference(make.key(size_bytes=1)) is None
    published = baseline(make.published(), make.published("reference"))
    assert (published.reference(make.key()), published.hardware()) == (None, [])


def test_a_comparator_gives_and_counts_everything_that_it_knows(make, baseline, tmp_path):
    names = [make.key(name=name) for name in ("", "second")]
    other = make.key("b", size_bytes=1)
    stored = baseline(*(make.measured(1.0, key=key) for key in (*names, other)), make.published())
    run = make.run(
        tmp_path / "r.jsonl", *(make.measurement(1.0, key=key) for key in (*names, other))
    )
    for comparator in (stored, RunComparator([run])):
        references = comparator.references()
        assert {key.label: reference.medians_s for key, reference in references} == {
            key.label: (1.0,) for key in (*names, other)
        }
        assert all(comparator.reference(key) == reference for key, reference in references)
        assert comparator.count([("memcpy_d2d", SIZE)], (), make.hardware()) == 2
        assert comparator.count([("memcpy_d2d", SIZE)], (), make.hardware(product="h100-sxm")) == 0


def test_every_run_is_a_session_of_its_own_with_each_process_once(make, tmp_path):
    """A session is one invocation of pytest: its processes share a boot, an hour and a temperature."""
    one = make.run(
        tmp_path / "one.jsonl", *(make.measurement(1.0 + n, process=f"one-{n}") for n in range(3))
    )
    two = make.run(
        tmp_path / "two.jsonl",
        make.measurement(9.0, process="two-0"),
        uuid="GPU-2",
        driver="550.54",
    )
    comparator = RunComparator([one, two, one])
    reference, environments = comparator.reference(make.key()), comparator.environments(make.key())
    groups = [(group.medians_s, group.device, group.started) for group in reference.groups]
    began = one.header.started
    assert groups == [((1.0, 2.0, 3.0), "GPU-1", began), ((9.0,), "GPU-2", began)]
    assert [facts["driver"] for facts in environments] == ["570.86"] * 3 + ["550.54"]
    # Runs of one name are others on each device and night.
    nights = [
        ("GPU-0", "2026-01-01T00:00:00Z"),
        ("GPU-1", "2026-01-01T00:00:00Z"),
        ("GPU-1", "2026-01-02T00:00:00Z"),
    ]
    runs = []
    for number, (uuid, began) in enumerate(nights):
        path = make.save(
            tmp_path / f"{number}.jsonl",
            make.measurement(1.0 + number),
            run_id="nightly",
            uuid=uuid,
        )
        run = read_run(path)
        runs.append(replace(run, header=replace(run.header, started=began)))
    groups = RunComparator(runs).reference(make.key()).groups
    assert [(one.device, one.started, one.medians_s) for one in groups] == [
        (*night, (1.0 + number,)) for number, night in enumerate(nights)
    ]


def test_attempts_of_a_process_are_pooled_and_clocks_are_those_that_were_probed(make, tmp_path):
    assert pooled_median([make.measurement(5.0, 5.0, 5.0), make.measurement(1.0, 1.0)]) == 5.0
    attempts = [
        make.measurement(samples=Samples(values, 1, 1e-9)) for values in ((1.0, 9.0), (2.0, 3.0))
    ]
    assert pooled_median(attempts) == 2.5
    for clocks_hz, typical in [
        ((1e9, None, 3e9, 2e9), 2e9),
        ((None, None), None),
        ((), None),
        ((1.5e9,), 1.5e9),
    ]:
        assert typical_clock(clocks_hz) == typical, clocks_hz
    probed = [
        make.measurement(
            samples=Samples((1.0,), 1, 1e-9, blocks=(Block(1, clock_hz=hz),)), process=f"{hz}"
        )
        for hz in (1e9, 1.2e9, 1.9e9)
    ]
    assert (
        RunComparator([make.run(tmp_path / "r.jsonl", *probed)]).reference(make.key()).clock_hz
        == 1.2e9
    )


def test_what_is_unfit_is_known_with_its_reason_and_compared_with_nothing(make, tmp_path):
    """Nothing is left out in silence."""
    bad = make.measurement(1.0, invalid="neighbours")
    comparator = RunComparator(
        [make.run(tmp_path / "r.jsonl", bad, make.measurement(2.0, process="process-2"))]
    )
    assert comparator.unfit == [(bad, "neighbours")]
    assert comparator.reference(make.key()).medians_s == (2.0,)
    assert RunComparator([make.run(tmp_path / "bad.jsonl", bad)]).keys() == []
    for by_verdict in (True, False):
        one = make.measurement(1.0)
        run = make.run(
            tmp_path / f"{by_verdict}.jsonl",
            one,
            make.outcome(one, "failed", by_verdict=by_verdict),
        )
        assert (RunComparator([run]).reference(make.key()) is not None) == by_verdict


def test_times_of_other_work_are_not_compared(make, baseline, tmp_path):
    reference, why = find_reference(baseline(make.measured()), make.key(), make.copy(5))
    assert reference is None
    assert (
        "the test's work changed from read_bytes=67108864, write_bytes=67108864, payload_bytes=67108864"
        in why
    )
    assert "to read_bytes=5, write_bytes=5, payload_bytes=5" in why
    one = make.run(tmp_path / "one.jsonl", make.measurement(1.0))
    two = make.run(
        tmp_path / "two.jsonl", make.measurement(2.0, process="process-2", work=make.copy(2**27))
    )
    assert find_reference(RunComparator([one, two]), make.key(), make.copy())[0].medians_s == (1.0,)
    # Tokens are a part of the work.
    _, why = find_reference(
        baseline(make.measured(work=STEP)), make.key(), replace(STEP, tokens=1024)
    )
    assert why == (
        "the test's work changed from flops=1000000000000, tokens=512 to flops=1000000000000, tokens=1024, so the "
        "times are not comparable"
    )


def test_what_is_missing_names_the_nearest_hardware_or_the_file(make, baseline, tmp_path):
    other = make.measured(key=make.key(hardware=make.hardware(product="h100-sxm")))
    for entries, key, told in [
        (
            (other,),
            make.key(),
            "no entry for this hardware (h200-sxm, 141gb); nearest entries: h100-sxm, 141gb",
        ),
        (
            (make.measured(),),
            make.key("another"),
            f"{tmp_path / 'h200.json'} has no measurement of this test",
        ),
    ]:
        assert find_reference(baseline(*entries), key, make.copy()) == (None, told)
    none = BaselineComparator(Entries.from_files([]))
    assert find_reference(none, make.key(), make.copy()) == (None, "no baseline recorded")


def test_runs_and_baselines_are_told_apart_by_their_suffix_and_never_mixed(
    make, baseline, tmp_path
):
    baseline(make.measured())
    make.save(tmp_path / "r.jsonl", make.measurement())
    kinds = [type(open_comparator([tmp_path / name])) for name in ("h200.json", "r.jsonl")]
    assert kinds == [BaselineComparator, RunComparator]
    with pytest.raises(
        BadFile, match=r"is a run and .* is a baseline; expected only runs or only baselines"
    ):
        open_comparator([tmp_path / "r.jsonl", tmp_path / "h200.json"])


def test_the_class_of_a_key_is_told_by_who_does_the_work(make):
    for hardware, metric, kind in [
        *(({}, "traffic_GBps", "device"), ({}, "pageable_payload_GBps", "host")),
        ({"product": "amd-epyc", "partition": "8-cores-quota-2"}, "traffic_GBps", "host"),
        ({"partition": "1g.18gb"}, "traffic_GBps", "device"),
    ]:
        assert class_of_key(make.key(hardware=make.hardware(**hardware), metric=metric)) == kind, (
            hardware,
            metric,
        )


@pytest.fixture
def two(make):
    """The key of a copy between two devices."""

    def key(link="nvlink-switch", **changes):
        hardware = make.hardware(**({"devices": 2, "link": link} | changes))
        return make.key("peer_copy_one_way", metric="auto_payload_GBps", hardware=hardware)

    return key


def test_a_measurement_on_two_devices_is_found_and_counted_and_another_link_is_another(
    make, baseline, two, tmp_path
):
    assert make.hardware(devices=8, link="mixed").alone == make.hardware()
    run = make.run(tmp_path / "one.jsonl", make.measurement(key=two()))
    for comparator in (baseline(make.measured(key=two())), RunComparator([run])):
        assert comparator.reference(two()) is not None
        assert comparator.count([("peer_copy_one_way", SIZE)], (), make.hardware()) == 1
        assert (comparator.reference(two("pcie")), comparator.reference(two(devices=1))) == (
            None,
            None,
        )
    other = baseline(make.measured(key=two(product="h100-sxm5")))
    assert other.count([("peer_copy_one_way", SIZE)], (), make.hardware()) == 0
    _, why = find_reference(baseline(make.measured(key=two())), two("pcie"), make.copy())
    assert "no entry for this hardware (h200-sxm, 141gb, pcie, 2 devices)" in why
    assert "nearest entries: h200-sxm, 141gb, nvlink-switch, 2 devices" in why
    assert hardware_of(run) == make.hardware()


def test_the_number_of_devices_makes_no_other_hardware_and_another_product_does(
    make, two, tmp_path
):
    def saved(name, *keys):
        return make.save(
            tmp_path / f"{name}.jsonl", *(make.measurement(key=key, process=name) for key in keys)
        )

    alone, pair = saved("alone", make.key()), saved("pair", two(), make.key())
    assert {row.label for row in compare([alone], [pair]).rows} >= {make.key().label}
    assert (
        len(compare([saved("two", two(), make.key(name="x"))], [saved("again", two())]).rows) == 1
    )
    with pytest.raises(
        OtherHardware, match="was measured on h200-sxm, 141gb, nvlink-switch, 2 devices"
    ):
        compare([saved("h100", two(product="h100-sxm5"))], [saved("h200", two())])
