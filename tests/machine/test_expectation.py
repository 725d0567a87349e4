"""What a good node has, written from one and held against others."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadFile, BadInput, CannotStore
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
from pytest_roofline.machine.health import degraded

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
    return replace(NODE, gpus=tuple(replace(gpu, **facts) if gpu.index == index else gpu for gpu in NODE.gpus))


def with_host(**facts):
    """The good node with another host."""
    return replace(NODE, host=replace(HOST, **facts))


maybe = st.none() | st.integers(0, 20)
words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
partitions = st.none() | st.sampled_from(["mig", "cpx"])


@st.composite
def machines(draw):
    """Machines with up to five GPUs of up to two products, whose links run as they are rated."""
    driver, count = draw(st.none() | words), draw(st.integers(0, 5))
    products = draw(st.lists(words, min_size=2, max_size=2))
    gpus = []
    for index in range(count):
        generation, width = draw(maybe), draw(maybe)
        gpus.append(
            Gpu(
                index, draw(st.sampled_from(products)), driver=driver,
                memory_bytes=draw(st.none() | st.integers(1, 2**40)),
                power_limit_w=draw(st.none() | st.floats(50, 2000)), pcie_generation=generation, pcie_width=width,
                pcie_generation_rated=draw(st.sampled_from([None, generation])),
                pcie_width_rated=draw(st.sampled_from([None, width])), links=draw(maybe),
                ecc=draw(st.sampled_from([None, True, False])), partition=draw(partitions),
            )
        )  # fmt: skip
    memory = draw(st.integers(1, 2**50))
    return Machine(
        HostFacts("node", draw(words), 64, draw(st.integers(1, 64)), memory, memory, kernel="6.8"), tuple(gpus)
    )


@given(machines())
def test_an_expectation_holds_on_the_machine_that_it_was_written_from(machine):
    assert differences(expectation_of(machine), machine) == []


def test_an_expectation_holds_on_an_odd_machine_that_it_was_written_from():
    for machine in [
        with_gpu(3, pcie_width=8),
        with_gpu(3, pcie_generation=4),
        replace(NODE, gpus=(replace(GPU, pcie_generation=4),)),
        with_gpu(3, driver=None),
        with_gpu(3, driver="amdgpu 6.12"),
    ]:
        assert differences(expectation_of(machine), machine) == [], machine


@given(machines())
def test_a_written_expectation_reads_back_the_same(tmp_path_factory, machine):
    path = tmp_path_factory.getbasetemp() / "node.json"
    write_expectation(path, expectation_of(machine))
    assert read_expectation(path) == expectation_of(machine)


def test_gpus_of_a_product_are_one_group_with_their_count():
    gpus = (*NODE.gpus, replace(GPU, index=8, product="NVIDIA T4"))
    groups = expectation_of(replace(NODE, gpus=gpus)).gpus
    assert [(H100, 8), ("NVIDIA T4", 1)] == [(group.product, group.count) for group in groups]


def test_a_fact_in_which_gpus_of_a_product_differ_may_be_anything():
    for fact, value in [
        ("memory_bytes", 79 * GIB),
        ("power_limit_w", 500.0),
        ("ecc", False),
        ("links", 12),
        ("partition", "mig"),
    ]:
        (group,) = expectation_of(with_gpu(3, **{fact: value})).gpus
        assert getattr(group, fact) is None, (fact, value)


def test_a_fact_that_all_gpus_share_is_expected():
    assert EXPECTED == Expectation(
        (ExpectedGpus(H100, 8, 80 * GIB, 5, 16, 700.0, True, 18, "none"),),
        driver="570.86",
        cpu_model="AMD EPYC",
        usable_cores=64,
        memory_bytes=512 * GIB,
    )


CHANGED = {
    "pcie_generation": (4, "5", "4"),
    "pcie_width": (8, "16", "8"),
    "power_limit_w": (500.0, "700", "500"),
    "ecc": (False, "True", "False"),
    "links": (17, "18", "17"),
}


def test_a_changed_fact_of_a_gpu_is_exactly_its_difference():
    for fact in CHANGED:
        value, expected, observed = CHANGED[fact]
        machine = with_gpu(3, **{fact: value})
        assert [Unexpected(f"GPU 3 ({H100})", fact, expected, observed)] == differences(EXPECTED, machine), fact


def test_an_expected_fact_that_is_withheld_is_a_difference_and_never_fine():
    for fact in CHANGED:
        expected = CHANGED[fact][1]
        machine = with_gpu(3, **{fact: None})
        assert [Unexpected(f"GPU 3 ({H100})", fact, expected, "unknown")] == differences(EXPECTED, machine), fact


def test_other_memory_of_a_gpu_is_one_difference():
    for memory_bytes in [40 * GIB, None]:
        (found,) = differences(EXPECTED, with_gpu(3, memory_bytes=memory_bytes))
        assert (f"GPU 3 ({H100})", "memory_bytes") == (found.subject, found.fact), memory_bytes


def test_other_memory_of_the_host_is_one_difference():
    (found,) = differences(EXPECTED, with_host(usable_memory_bytes=64 * GIB))
    assert ("host", "memory_bytes") == (found.subject, found.fact)


def test_what_is_better_than_expected_is_a_difference_too():
    for fact, value in [("pcie_generation", 6), ("links", 20), ("power_limit_w", 1000.0)]:
        assert [fact] == [found.fact for found in differences(EXPECTED, with_gpu(3, **{fact: value}))]


def test_a_changed_fact_of_the_host_is_exactly_its_difference():
    for facts, found in [
        ({"cpu_model": "Intel Xeon"}, Unexpected("host", "cpu_model", "AMD EPYC", "Intel Xeon")),
        ({"usable_cores": 32}, Unexpected("host", "usable_cores", "64", "32")),
    ]:
        assert [found] == differences(EXPECTED, with_host(**facts)), (facts, found)


def test_a_missing_gpu_is_one_difference():
    assert [Unexpected("GPUs", H100, "8", "7")] == differences(EXPECTED, replace(NODE, gpus=NODE.gpus[1:]))


def test_an_additional_gpu_is_one_difference():
    machine = replace(NODE, gpus=(*NODE.gpus, replace(GPU, index=8)))
    assert [Unexpected("GPUs", H100, "8", "9")] == differences(EXPECTED, machine)


def test_gpus_of_an_additional_product_are_one_difference():
    others = tuple(replace(GPU, index=index, product="NVIDIA T4") for index in (8, 9))
    assert [Unexpected("GPUs", "NVIDIA T4", "0", "2")] == differences(
        EXPECTED, replace(NODE, gpus=(*NODE.gpus, *others))
    )


def test_a_gpu_of_another_product_is_one_too_few_and_one_too_many():
    machine = with_gpu(3, product="NVIDIA T4")
    assert [
        Unexpected("GPUs", H100, "8", "7"),
        Unexpected("GPUs", "NVIDIA T4", "0", "1"),
    ] == differences(EXPECTED, machine)


def test_a_product_is_expected_by_its_whole_name():
    for product, differing in [("NVIDIA H100", True), (H100, False)]:
        machine = replace(NODE, gpus=tuple(replace(gpu, product=product) for gpu in NODE.gpus))
        assert differing == bool(differences(EXPECTED, machine)), (product, differing)


def test_a_count_of_zero_refuses_a_product():
    expected = Expectation((ExpectedGpus(H100, 0),))
    assert [Unexpected("GPUs", H100, "0", "8")] == differences(expected, NODE)


def test_another_driver_is_one_difference_however_many_gpus():
    machine = replace(NODE, gpus=tuple(replace(gpu, driver="550.54") for gpu in NODE.gpus))
    assert [Unexpected("driver", "version", "570.86", "550.54")] == differences(EXPECTED, machine)


def test_a_driver_that_nobody_tells_is_a_difference():
    for gpus in [(), (replace(GPU, driver=None),)]:
        expected = Expectation(tuple(ExpectedGpus(gpu.product, 1) for gpu in gpus), driver="570.86")
        machine = replace(NODE, gpus=gpus)
        assert [Unexpected("driver", "version", "570.86", "unknown")] == differences(expected, machine), gpus


def test_a_gpu_that_was_partitioned_since_is_a_difference():
    assert ["partition"] == [found.fact for found in differences(EXPECTED, with_gpu(3, partition="mig"))]


def test_another_partition_than_expected_is_a_difference():
    for seen in [None, "cpx"]:
        expected = Expectation((ExpectedGpus(H100, 1, partition="mig"),))
        found = differences(expected, replace(NODE, gpus=(replace(GPU, partition=seen),)))
        assert ["partition"] == [difference.fact for difference in found], seen


@given(machines())
def test_what_is_omitted_may_be_anything(machine):
    counts = {}
    for gpu in machine.gpus:
        counts[gpu.product] = counts.get(gpu.product, 0) + 1
    expected = Expectation(tuple(ExpectedGpus(product, count) for product, count in counts.items()))
    assert differences(expected, machine) == []


SHARES = [(0.979, True), (0.981, False), (1.0, False), (1.019, False), (1.021, True)]


def test_memory_of_a_gpu_within_two_percent_is_the_same():
    for share, differs in SHARES:
        assert differs == bool(differences(EXPECTED, with_gpu(3, memory_bytes=int(share * 80 * GIB))))


def test_memory_of_the_host_within_two_percent_is_the_same():
    for share, differs in SHARES:
        assert differs == bool(differences(EXPECTED, with_host(usable_memory_bytes=int(share * 512 * GIB))))


def test_a_cgroup_limit_is_what_the_host_s_memory_is_held_against():
    machine = with_host(usable_memory_bytes=64 * GIB, cgroup_memory_bytes=64 * GIB)
    assert expectation_of(machine).memory_bytes == 64 * GIB


def test_the_file_is_short_json_for_people(tmp_path):
    write_expectation(tmp_path / "node.json", Expectation((ExpectedGpus(H100, 8, links=18),), driver="570.86"))
    assert json.loads((tmp_path / "node.json").read_text()) == {
        "schema": 1,
        "gpus": [{"product": H100, "count": 8, "links": 18}],
        "driver": "570.86",
    }


def test_whole_watts_may_be_written_without_a_point(tmp_path):
    group = {"product": H100, "count": 8, "power_limit_w": 700}
    (tmp_path / "node.json").write_text(json.dumps({"schema": 1, "gpus": [group]}))
    assert differences(read_expectation(tmp_path / "node.json"), NODE) == []


GOOD = {"schema": 1, "gpus": [{"product": H100, "count": 8}]}
BAD = {
    "empty": ("", "is empty; expected JSON"),
    "no JSON": ("{", "is not JSON"),
    "a list": ("[]", "is a list; expected an object"),
    "another schema": (json.dumps(GOOD | {"schema": 2}), "has schema version 2"),
    "no schema": (json.dumps({"gpus": []}), "has no schema version"),
    "no GPUs": (json.dumps({"schema": 1}), "gpus"),
    "an unknown field": (json.dumps(GOOD | {"gpu_count": 8}), "gpu_count"),
    "an unknown fact": (json.dumps({"schema": 1, "gpus": [{"product": H100, "count": 8, "lanes": 16}]}), "lanes"),
    "a product without a count": (json.dumps({"schema": 1, "gpus": [{"product": H100}]}), "count"),
    "the same product twice": (json.dumps({"schema": 1, "gpus": 2 * GOOD["gpus"]}), "twice"),
    "a negative count": (json.dumps({"schema": 1, "gpus": [{"product": H100, "count": -1}]}), "count is -1"),
    "a count in words": (json.dumps({"schema": 1, "gpus": [{"product": H100, "count": "8"}]}), "count"),
    "no memory in a GPU": (
        json.dumps({"schema": 1, "gpus": [{"product": H100, "count": 8, "memory_bytes": 0}]}),
        "memory_bytes",
    ),
    "no memory in a host": (json.dumps(GOOD | {"memory_bytes": 0}), "memory_bytes"),
    "NaN watts": ('{"schema": 1, "gpus": [{"product": "A", "count": 1, "power_limit_w": NaN}]}', "NaN"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_file_that_cannot_be_used_says_which_and_why(tmp_path, fault):
    text, reason = BAD[fault]
    path = tmp_path / "node.json"
    path.write_text(text)
    with pytest.raises(BadFile) as refused:
        read_expectation(path)
    assert str(path) in str(refused.value)
    assert reason in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadFile, match=r"node\.json does not exist"):
        read_expectation(tmp_path / "node.json")


def test_a_file_where_none_can_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStore, match=r"node\.json cannot be written"):
        write_expectation(tmp_path / "file" / "node.json", EXPECTED)


def test_an_impossible_expectation_is_refused():
    for record, sentence in [
        (lambda: ExpectedGpus(H100, -1), "count is -1; expected 0 or more"),
        (lambda: Expectation((ExpectedGpus(H100, 1), ExpectedGpus(H100, 2))), "twice"),
    ]:
        with pytest.raises(BadInput, match=sentence):
            record()


def test_a_card_is_rated_by_what_its_site_expects_of_it():
    slot = Gpu(0, "H100", pcie_generation=4, pcie_generation_rated=5, power_limit_w=400, power_default_w=700)
    site = Expectation((ExpectedGpus("H100", 8, pcie_generation=4, power_limit_w=400),))
    rated = rated_by(site, slot)
    assert (rated.pcie_generation_rated, rated.power_default_w) == (4, 400)
    assert degraded(slot, slot, []) != []
    assert degraded(rated, rated, []) == []


def test_a_card_of_which_the_site_says_nothing_keeps_its_rating():
    card = Gpu(0, "H100", pcie_generation=4, pcie_generation_rated=5, pcie_width_rated=16)
    assert rated_by(Expectation((ExpectedGpus("A100", 8, pcie_generation=4),)), card) == card
    assert rated_by(Expectation((ExpectedGpus("H100", 8),)), card) == card
