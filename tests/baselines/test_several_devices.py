"""Measurements on several devices: the same machine, however many of its devices a test uses, and the links' peaks."""

import pytest

from pytest_roofline.baselines.comparators import BaselineComparator, RunComparator, find_reference
from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import Entries, write_baseline
from pytest_roofline.baselines.picking import hardware_of
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import OtherHardware
from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.hardware import link_ceiling, products

SIZE = {"size_bytes": 64 * 2**20}
PEER = "peer_copy_one_way"
PAYLOAD = "auto_payload_GBps"


@pytest.fixture
def two(make):
    """The key of a copy between two devices."""

    def key(link="nvlink-switch", **changes):
        return make.key(PEER, metric=PAYLOAD, hardware=make.hardware(devices=2, link=link, **changes))

    return key


@pytest.fixture
def shelf(make, tmp_path):
    """A baseline that holds these keys."""

    def shelf(*keys):
        write_baseline(tmp_path / "h200.json", Baseline("h200", tuple(make.measured(key=key) for key in keys)))
        return BaselineComparator(Entries.merged([tmp_path / "h200.json"]))

    return shelf


def test_what_stays_of_a_key_is_a_single_device(make):
    assert make.hardware(devices=8, link="mixed").alone == make.hardware()


def test_a_measurement_on_two_devices_is_found_in_a_baseline(shelf, two):
    assert shelf(two()).reference(two()) is not None


@pytest.mark.parametrize("other", [{"link": "pcie"}, {"devices": 1}])
def test_another_number_or_link_is_another_measurement(make, shelf, two, other):
    key = make.key(PEER, metric=PAYLOAD, hardware=make.hardware(**({"devices": 2, "link": "nvlink-switch"} | other)))
    assert shelf(two()).reference(key) is None


def test_a_measurement_on_two_devices_is_counted_among_those_to_compare(make, shelf, two):
    assert shelf(two()).count(PEER, SIZE, make.hardware()) == 1


def test_one_of_other_hardware_is_not_counted(make, shelf, two):
    assert shelf(two(product="h100-sxm5")).count(PEER, SIZE, make.hardware()) == 0


def test_in_a_saved_run_it_is_found_and_counted_too(make, two, tmp_path):
    comparator = RunComparator([make.run(tmp_path / "one.jsonl", make.measurement(key=two()))])
    assert comparator.reference(two()) is not None
    assert comparator.count(PEER, SIZE, make.hardware()) == 1


def test_a_missing_link_is_named_with_the_nearest(make, shelf, two):
    _, why = find_reference(shelf(two()), two("pcie"), make.copy())
    assert "no entry for this hardware (h200-sxm, 141gb, pcie, 2 devices)" in why
    assert "nearest known: h200-sxm, 141gb, nvlink-switch, 2 devices" in why


def test_runs_with_only_such_measurements_are_of_the_same_hardware(make, two, tmp_path):
    old = make.save(tmp_path / "old.jsonl", make.measurement(key=two()), make.measurement(key=make.key(name="x")))
    new = make.save(tmp_path / "new.jsonl", make.measurement(key=two(), process="process-2"))
    assert len(compare([old], [new]).rows) == 1


def test_runs_that_share_the_machine_but_no_number_of_devices_are_not_called_other_hardware(make, two, tmp_path):
    old = make.save(tmp_path / "old.jsonl", make.measurement(key=make.key()))
    keys = (two(), make.key())
    new = make.save(tmp_path / "new.jsonl", *(make.measurement(key=key, process="process-2") for key in keys))
    assert {row.label for row in compare([old], [new]).rows} >= {make.key().label}


def test_runs_of_other_hardware_are_refused_whatever_they_use(make, two, tmp_path):
    old = make.save(tmp_path / "old.jsonl", make.measurement(key=two(product="h100-sxm5")))
    new = make.save(tmp_path / "new.jsonl", make.measurement(key=two()))
    with pytest.raises(OtherHardware, match="was measured on h200-sxm, 141gb, nvlink-switch, 2 devices"):
        compare([old], [new])


def test_a_baseline_holds_tests_of_one_and_of_two_devices(make, two, tmp_path):
    records = make.measurement(key=make.key()), make.measurement(key=two())
    proposal = propose([make.run(tmp_path / "run.jsonl", *records)])
    assert {entry.hardware.devices for entry in proposal.baseline.entries} == {1, 2}


def test_runs_of_different_hardware_make_no_baseline_even_between_devices_only(make, two, tmp_path):
    runs = [
        make.run(tmp_path / f"{product}.jsonl", make.measurement(key=two(product=product)))
        for product in ("h200-sxm", "h200-nvl")
    ]
    with pytest.raises(OtherHardware, match="of different hardware"):
        propose(runs)


def test_a_run_is_listed_under_its_single_device(make, two, tmp_path):
    assert hardware_of(make.run(tmp_path / "run.jsonl", make.measurement(key=two()))) == make.hardware()


@pytest.mark.parametrize(
    ("product", "link", "peak"),
    [
        ("NVIDIA H200", "nvlink-switch", "nvlink_GBps"),
        ("NVIDIA H200", "pcie", "pcie_GBps"),
        ("AMD Instinct MI300X", "xgmi", "xgmi_GBps"),
    ],
)
def test_a_copy_one_way_is_held_against_its_link(make, product, link, peak):
    known = products()[product].peaks[peak]
    ceiling = link_ceiling(DeviceFacts("cuda", product), make.hardware(devices=2, link=link), PAYLOAD)
    assert (ceiling.value, ceiling.source, ceiling.origin) == (known.value * 1e9, "datasheet", known.source)


@pytest.mark.parametrize(
    ("link", "devices", "metric"),
    [
        ("staged", 2, PAYLOAD),
        ("unknown", 2, PAYLOAD),
        ("mixed", 2, PAYLOAD),
        # From GPU to GPU as many links as the board wires carry it, which the key does not tell.
        ("nvlink", 2, PAYLOAD),
        ("nvlink-switch", 8, PAYLOAD),
        ("nvlink-switch", 2, "traffic_GBps"),
    ],
)
def test_without_a_figure_that_is_meant_there_is_no_roofline(make, link, devices, metric):
    hardware = make.hardware(devices=devices, link=link)
    assert link_ceiling(DeviceFacts("cuda", "NVIDIA H200"), hardware, metric) is None


def test_both_ways_together_have_twice_the_roofline_of_one(make):
    hardware = make.hardware(devices=2, link="nvlink-switch")
    found = link_ceiling(DeviceFacts("cuda", "NVIDIA H200"), hardware, "bidir_sum_auto_payload_GBps")
    assert (found.value, found.origin.split(":")[0]) == (900e9, "both ways added up")


def test_an_unknown_product_has_no_links_peak(make):
    assert link_ceiling(DeviceFacts("cuda", "NVIDIA H20"), make.hardware(devices=2, link="pcie"), PAYLOAD) is None
