import json
from importlib import resources

import pytest

from pytest_roofline.core.facts import DeviceFacts, HostFacts
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.work import Work
from pytest_roofline.judging.hardware import above_peak, datasheet_ceiling, family_of, key_of, products
from pytest_roofline.judging.storage import check_name

SPECS = json.loads((resources.files("pytest_roofline.judging") / "specs.json").read_text(encoding="utf-8"))["products"]
NAMES = [name for spec in SPECS for name in spec["names"]]
MIB = 2**20
LINK = Work(payload_bytes=64 * MIB, wire_bytes=64 * MIB)
COPY = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, payload_bytes=64 * MIB)


def test_every_name_that_a_driver_prints_belongs_to_one_product():
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['product']}-{spec['memory']}")
def test_every_name_resolves_to_its_own_product(spec):
    found = {(products()[name].product, products()[name].memory, products()[name].family) for name in spec["names"]}
    assert found == {(spec["product"], spec["memory"], spec["family"])}


def test_no_two_products_share_a_hardware_key():
    keys = [(spec["product"], spec["memory"]) for spec in SPECS]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['product']}-{spec['memory']}")
def test_every_peak_has_a_source_and_a_confidence(spec):
    assert all(
        peak["value"] > 0 and peak["source"] and peak["confidence"] in ("high", "medium", "low", "recalled")
        for peak in spec["peaks"].values()
    )


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['product']}-{spec['memory']}")
def test_every_family_can_be_a_file(spec):
    assert check_name(spec["family"], "family") == spec["family"]


@pytest.mark.parametrize(
    "name", ["NVIDIA H20", "NVIDIA H2", "NVIDIA H200 ", "nvidia h200", "H200", "NVIDIA H200 NVL", ""]
)
def test_a_name_is_never_found_by_a_part_of_it(make, name):
    device = DeviceFacts("cuda", name, memory_bytes=141 * 2**30)
    assert name not in products()
    assert key_of(make.environment(product=name)) != key_of(make.environment())
    assert datasheet_ceiling(device, COPY, "traffic_GBps") is None


def test_an_unknown_device_has_a_family_and_a_key_of_its_own(make):
    environment = make.environment(product="NVIDIA H20")
    assert family_of(environment.device) == "nvidia-h20"
    assert key_of(environment) == make.hardware(product="nvidia-h20", memory="unknown")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "\x00", "-"])
def test_the_family_of_a_device_with_a_hostile_name_stays_a_file_name(name):
    family = family_of(DeviceFacts("cuda", name))
    assert check_name(family, "family") == family


def test_a_known_device_is_keyed_by_its_rated_facts(make):
    spec = products()["NVIDIA H200"]
    key = key_of(make.environment(), devices=2, link="nvlink")
    assert key == make.hardware(product=spec.product, memory=spec.memory, devices=2, link="nvlink")


def test_the_memory_of_an_unknown_device_is_in_whole_gibibytes(make):
    environment = make.environment()
    device = DeviceFacts("cuda", "NVIDIA H20", memory_bytes=96 * 2**30 - 2**20)
    assert key_of(type(environment)(device, environment.host, {})).memory == "96gib"


def test_what_a_device_runs_at_selects_no_other_key(make):
    environment = make.environment()
    slow = DeviceFacts("cuda", "NVIDIA H200", power_limit_w=350.0, pcie_generation=3, clock_mhz=900.0, driver="1")
    assert key_of(type(environment)(slow, environment.host, {})) == key_of(environment)


def test_a_partition_selects_another_key(make):
    environment = make.environment()
    device = DeviceFacts("cuda", "NVIDIA H200", partition="1g.18gb")
    assert key_of(type(environment)(device, environment.host, {})).partition == "1g.18gb"


@pytest.mark.parametrize(
    ("quota", "partition"), [(None, "4-cores"), (1.5, "4-cores-quota-1.5"), (2.0, "4-cores-quota-2")]
)
def test_a_cpu_is_keyed_by_what_this_process_may_use(make, quota, partition):
    host = HostFacts("node", "AMD EPYC", 64, 4, 2**40, 24 * 2**30 - 2**20, kernel="6", cgroup_cpus=quota)
    key = key_of(type(make.environment())(DeviceFacts("cpu", "AMD EPYC", architecture="f26m2"), host, {}))
    assert key == make.hardware(product="amd-epyc-f26m2", memory="24gib", partition=partition)


def test_every_cpu_is_of_the_cpu_family():
    assert family_of(DeviceFacts("cpu", "NVIDIA H200")) == "cpu"


def test_traffic_is_held_against_the_memorys_bandwidth():
    peak = products()["NVIDIA H200"].peaks["memory_GBps"]
    found = datasheet_ceiling(DeviceFacts("cuda", "NVIDIA H200"), COPY, "triton_traffic_GBps")
    assert found == Ceiling("traffic_GBps", peak.value * 1e9, "datasheet", peak.source)


def test_a_payload_across_the_hosts_link_is_held_against_pcie():
    name = next(name for name, product in products().items() if "pcie_GBps" in product.peaks)
    found = datasheet_ceiling(DeviceFacts("cuda", name), LINK, "payload_GBps")
    assert found.value == products()[name].peaks["pcie_GBps"].value * 1e9


@pytest.mark.parametrize(("work", "metric"), [(COPY, "payload_GBps"), (Work(flops=1), "TFLOPS"), (COPY, "time_s")])
def test_what_no_datasheet_bounds_has_no_roofline(work, metric):
    assert datasheet_ceiling(DeviceFacts("cuda", "NVIDIA H200"), work, metric) is None


PEAK = Ceiling("traffic_GBps", 1e12, "datasheet", "vendor")


def test_more_than_the_datasheet_allows_cannot_be_true():
    assert above_peak(PEAK, COPY, 1.03, ()).startswith("103% of the datasheet's peak (1000 GB/s)")


@pytest.mark.parametrize("share", [1.02, 1.0, 0.1])
def test_two_percent_above_the_datasheet_are_believed(share):
    assert above_peak(PEAK, COPY, share, ()) == ""


@pytest.mark.parametrize(("size_bytes", "bounded"), [(16 * MIB - 1, False), (16 * MIB, True)])
@pytest.mark.parametrize("wire_bytes", [0, 1])
def test_the_bound_holds_from_16_mib_up(size_bytes, bounded, wire_bytes):
    work = Work(payload_bytes=size_bytes, wire_bytes=wire_bytes)
    assert bounded == bool(above_peak(PEAK, work, 9.0, ()))


def test_a_copy_is_as_large_as_what_it_copies_not_as_its_traffic():
    assert above_peak(PEAK, Work(read_bytes=16 * MIB - 2, write_bytes=16 * MIB - 2), 9.0, ()) == ""


def test_a_result_from_the_cache_is_not_bounded():
    assert above_peak(PEAK, COPY, 9.0, ("cache_resident",)) == ""


def test_a_measured_roofline_invalidates_nothing():
    assert above_peak(Ceiling("traffic_GBps", 1e9, "measured", "triad"), COPY, 9.0, ()) == ""


@pytest.mark.parametrize(("ceiling", "share"), [(None, 9.0), (PEAK, None)])
def test_without_a_roofline_nothing_is_bounded(ceiling, share):
    assert above_peak(ceiling, COPY, share, ()) == ""


@pytest.mark.parametrize(("memory_bytes", "partition"), [(206_141_652_992, "none"), (25_752_502_272, "24gib")])
def test_a_partition_that_no_driver_names_is_seen_by_its_memory(make, memory_bytes, partition):
    # An MI300X in CPX mode is eight devices of the same name, each with an eighth of the memory.
    environment = make.environment()
    device = DeviceFacts("cuda", "AMD Instinct MI300X", memory_bytes=memory_bytes)
    assert key_of(type(environment)(device, environment.host, {})).partition == partition
