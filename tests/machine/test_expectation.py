"""What a good node has, written from one and held against others."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadFile, CannotStore
from pytest_roofline.core.facts import Gpu, HostFacts, Machine, Unexpected
from pytest_roofline.machine.expectation import (
    Expectation,
    ExpectedGpus,
    differences,
    expectation_of,
    rated_by,
    read_expectation,
    write_expectation,
)
from pytest_roofline.machine.health import degradations

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
HOST = HostFacts("node", "AMD EPYC", 64, 64, 512 * GIB, 512 * GIB, kernel="6.8")
GPU = Gpu(
    0, H100, memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0, pcie_generation=5, pcie_generation_rated=5,
    pcie_width=16, pcie_width_rated=16, links=18, ecc=True,
)  # fmt: skip
NODE = Machine(HOST, gpus=tuple(replace(GPU, index=index) for index in range(8)))
EXPECTED = expectation_of(NODE)


def with_gpu(index, **facts):
    """The good node with one GPU changed."""
    return replace(
        NODE, gpus=tuple(replace(gpu, **facts) if gpu.index == index else gpu for gpu in NODE.gpus)
    )


def with_host(**facts):
    """The good node with another host."""
    return replace(NODE, host=replace(HOST, **facts))


def test_an_expectation_holds_on_its_machine_reads_back_and_leaves_open_what_it_omits(tmp_path):
    bare = Gpu(0, "AMD Instinct MI300X", partition="cpx", power_limit_w=750.5)
    for machine in (
        NODE,
        replace(NODE, gpus=()),
        replace(NODE, gpus=(GPU, bare, replace(bare, index=1, ecc=False))),
    ):
        expected, path = expectation_of(machine), tmp_path / "node.json"
        assert differences(expected, machine) == []
        write_expectation(path, expected)
        assert read_expectation(path) == expected
        counts = Counter(gpu.product for gpu in machine.gpus)
        assert (
            differences(
                Expectation(tuple(ExpectedGpus(*counted) for counted in counts.items())), machine
            )
            == []
        )


def test_gpus_of_a_product_are_one_group_whose_facts_are_those_that_all_share():
    assert EXPECTED == Expectation(
        (ExpectedGpus(H100, 8, 80 * GIB, 5, 16, 700.0, True, 18, "none"),),
        driver="570.86",
        cpu_model="AMD EPYC",
        usable_cores=64,
        memory_bytes=512 * GIB,
    )
    gpus = (*NODE.gpus, replace(GPU, index=8, product="NVIDIA T4"))
    groups = expectation_of(replace(NODE, gpus=gpus)).gpus
    assert [(group.product, group.count) for group in groups] == [(H100, 8), ("NVIDIA T4", 1)]
    for fact, value in [("memory_bytes", 79 * GIB), ("power_limit_w", 500.0), ("ecc", False), ("links", 12),
                        ("partition", "mig"), ("pcie_width", 8), ("pcie_generation", 4)]:  # fmt: skip
        odd = with_gpu(3, **{fact: value})
        assert (
            getattr(expectation_of(odd).gpus[0], fact),
            differences(expectation_of(odd), odd),
        ) == (None, []), fact
    for driver in (None, "amdgpu 6.12"):
        assert expectation_of(with_gpu(3, driver=driver)).driver is None
    # A cgroup's limit is what the host's memory is held against.
    assert (
        expectation_of(
            with_host(usable_memory_bytes=64 * GIB, cgroup_memory_bytes=64 * GIB)
        ).memory_bytes
        == 64 * GIB
    )


def test_every_fact_that_is_not_as_expected_is_a_difference_and_what_is_withheld_or_better_is_one_too():
    label = f"GPU 3 ({H100})"
    for machine, found in [
        *((with_gpu(3, **{fact: value}), [Unexpected(label, fact, expected, observed)])
          for fact, value, expected, observed in [
            ("pcie_generation", 4, "5", "4"), ("pcie_width", 8, "16", "8"), ("power_limit_w", 500.0, "700", "500"),
            ("ecc", False, "True", "False"), ("links", 17, "18", "17"), ("pcie_generation", None, "5", "unknown"),
            ("pcie_width", None, "16", "unknown"), ("power_limit_w", None, "700", "unknown"),
            ("ecc", None, "True", "unknown"), ("links", None, "18", "unknown"), ("pcie_generation", 6, "5", "6"),
            ("links", 20, "18", "20"), ("power_limit_w", 1000.0, "700", "1000"), ("partition", "mig", "none", "mig")]),
        (with_host(cpu_model="Intel Xeon"), [Unexpected("host", "cpu_model", "AMD EPYC", "Intel Xeon")]),
        (with_host(usable_cores=32), [Unexpected("host", "usable_cores", "64", "32")]),
        (replace(NODE, gpus=NODE.gpus[1:]), [Unexpected("GPUs", H100, "8", "7")]),
        (replace(NODE, gpus=(*NODE.gpus, replace(GPU, index=8))), [Unexpected("GPUs", H100, "8", "9")]),
        (with_gpu(3, product="NVIDIA T4"),
         [Unexpected("GPUs", H100, "8", "7"), Unexpected("GPUs", "NVIDIA T4", "0", "1")]),
        (replace(NODE, gpus=tuple(replace(gpu, driver="550.54") for gpu in NODE.gpus)),
         [Unexpected("driver", "version", "570.86", "550.54")]),
    ]:  # fmt: skip
        assert differences(EXPECTED, machine) == found, found
    for share, differs in [
        (0.979, True),
        (0.981, False),
        (1.0, False),
        (1.019, False),
        (1.021, True),
    ]:
        for machine, subject in [
            (with_gpu(3, memory_bytes=int(share * 80 * GIB)), label),
            (with_host(usable_memory_bytes=int(share * 512 * GIB)), "host"),
        ]:
            found = [(each.subject, each.fact) for each in differences(EXPECTED, machine)]
            assert found == [(subject, "memory_bytes")] * differs, (share, subject)
    (untold,) = differences(EXPECTED, with_gpu(3, memory_bytes=None))
    assert untold.observed == "unknown"


def test_an_expectation_of_other_gpus_drivers_and_partitions_is_held_against_what_is_there():
    assert differences(Expectation((ExpectedGpus(H100, 0),)), NODE) == [
        Unexpected("GPUs", H100, "0", "8")
    ]
    shorter = replace(NODE, gpus=tuple(replace(gpu, product="NVIDIA H100") for gpu in NODE.gpus))
    assert differences(EXPECTED, shorter) != []
    for gpus in [(), (replace(GPU, driver=None),)]:
        expected = Expectation(tuple(ExpectedGpus(gpu.product, 1) for gpu in gpus), driver="570.86")
        found = differences(expected, replace(NODE, gpus=gpus))
        assert found == [Unexpected("driver", "version", "570.86", "unknown")], gpus
    for seen in [None, "cpx"]:
        expected = Expectation((ExpectedGpus(H100, 1, partition="mig"),))
        found = differences(expected, replace(NODE, gpus=(replace(GPU, partition=seen),)))
        assert [difference.fact for difference in found] == ["partition"], seen


def test_the_file_is_short_json_for_people_who_write_whole_watts_without_a_point(tmp_path):
    path = tmp_path / "node.json"
    write_expectation(path, Expectation((ExpectedGpus(H100, 8, links=18),), driver="570.86"))
    gpus = [{"product": H100, "count": 8, "links": 18}]
    assert json.loads(path.read_text()) == {"schema": 1, "gpus": gpus, "driver": "570.86"}
    path.write_text(json.dumps({"schema": 1, "gpus": [gpus[0] | {"power_limit_w": 700}]}))
    assert differences(read_expectation(path), NODE) == []


GPUS = {"product": H100, "count": 8}
BAD = (
    ("", "is empty; expected JSON"),
    ("{", "is not JSON"),
    ("[]", "is a list; expected an object"),
    (
        '{"schema": 1, "gpus": [{"product": "A", "count": 1, "power_limit_w": NaN}]}',
        "holds NaN (byte ",
    ),
    ({"schema": 2}, "has schema version 2"),
    ({"schema": None, "gpus": []}, "schema"),
    ({}, "gpus"),
    ({"gpus": [], "gpu_count": 8}, "gpu_count"),
    ({"gpus": [GPUS | {"lanes": 16}]}, "lanes"),
    ({"gpus": [{"product": H100}]}, "count"),
    ({"gpus": [GPUS, GPUS]}, "twice"),
    ({"gpus": [GPUS | {"count": -1}]}, "count is -1"),
    ({"gpus": [GPUS | {"memory_bytes": 0}]}, "memory_bytes is 0"),
    ({"gpus": [GPUS | {"links": -1}]}, "links is -1"),
)


def test_a_file_that_cannot_be_an_expectation_is_refused_with_its_path_and_the_reason(tmp_path):
    path = tmp_path / "node.json"
    for content, reason in BAD:
        path.write_text(
            content if isinstance(content, str) else json.dumps({"schema": 1} | content)
        )
        with pytest.raises(BadFile) as refused:
            read_expectation(path)
        assert (str(path) in str(refused.value), reason in str(refused.value)) == (True, True), (
            reason
        )
    with pytest.raises(CannotStore, match=r"node\.json cannot be written"):
        write_expectation(path / "node.json", EXPECTED)


def test_a_card_is_rated_by_what_its_site_expects_of_it_and_else_keeps_its_rating():
    slot = Gpu(
        0,
        "H100",
        pcie_generation=4,
        pcie_generation_rated=5,
        power_limit_w=400,
        power_default_w=700,
    )
    rated = rated_by(
        Expectation((ExpectedGpus("H100", 8, pcie_generation=4, power_limit_w=400),)), slot
    )
    assert (rated.pcie_generation_rated, rated.power_default_w) == (4, 400)
    assert (degradations(slot, slot, []) != [], degradations(rated, rated, [])) == (True, [])
    for expected in (ExpectedGpus("A100", 8, pcie_generation=4), ExpectedGpus("H100", 8)):
        assert rated_by(Expectation((expected,)), slot) == slot
