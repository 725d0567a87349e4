"""Which copies between GPUs are measured, on machines with as many GPUs as a test says, and which of them when."""

from collections import Counter
from itertools import combinations, permutations
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.inventory import Link
from roofline_kernels.memcpy import LAST_SIZE_BYTES, SIZES_BYTES

from .benchmarks import Roofline, load, stand_in_config

pytestmark = pytest.mark.feature("ranks")
TIERS = ("quick", "nightly", "full")


def benchmarks(monkeypatch, gpus):
    """The module of the benchmarks as a machine with so many GPUs imports it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    return load("peer_copy")


def cases(test, tier="full"):
    """The values of every parameter set of a test that runs in a tier."""
    params = next(mark for mark in test.pytestmark if mark.name == "parametrize").args[1]
    runs = TIERS[: TIERS.index(tier) + 1]
    return [param.values for param in params if next(iter(param.marks)).kwargs["tier"] in runs]


def test_full_has_every_ordered_pair_at_every_size_and_both_ways_every_pair_once(monkeypatch):
    assert (min(SIZES_BYTES), max(SIZES_BYTES), LAST_SIZE_BYTES) == (
        4096,
        2_101_346_304,
        2_101_346_304,
    )
    for gpus in [2, 3, 8]:
        module = benchmarks(monkeypatch, gpus)
        found = cases(module.test_peer_copy_one_way)
        assert sorted(found) == sorted(
            (*pair, size) for pair in permutations(range(gpus), 2) for size in SIZES_BYTES
        )
        assert {one[:2] for one in cases(module.test_peer_copy_both_ways)} == set(
            combinations(range(gpus), 2)
        )
        for test in ("one_to_all", "all_to_one"):
            found = cases(getattr(module, f"test_peer_copy_{test}"), "quick")
            assert {index for index, size in found if size == module.LARGE} == set(range(gpus))


def test_quick_has_the_whole_matrix_at_two_sizes_and_the_pairs_of_gpu_0_are_swept_by_night(
    monkeypatch,
):
    test = benchmarks(monkeypatch, 8).test_peer_copy_one_way
    for tier, of_0 in [("quick", None), ("nightly", len(SIZES_BYTES))]:
        found = Counter(pair[:2] for pair in cases(test, tier))
        assert len(found) == 56
        assert {count for pair, count in found.items() if pair[0] != 0} == {2}
        assert of_0 is None or {count for pair, count in found.items() if pair[0] == 0} == {of_0}


def test_fewer_than_two_gpus_or_another_device_is_a_skip_with_need_and_found(monkeypatch):
    for gpus, device, told in [
        (0, "cpu", "needs 2 GPUs, found 0"),
        (1, "cpu", "needs 2 GPUs, found 1"),
        (4, "cpu", "needs 2 GPUs, and cpu is measured"),
    ]:
        module = benchmarks(monkeypatch, gpus)
        with pytest.raises(pytest.skip.Exception, match=told):
            module.need_gpus.__wrapped__(Roofline(device))(2)
        # So that what is skipped is seen.
        assert gpus > 1 or [
            one[:2] for one in cases(module.test_peer_copy_one_way, "quick") if not one[0]
        ] == [(0, 1)]
    assert benchmarks(monkeypatch, 2).need_gpus.__wrapped__(Roofline("cuda"))(2) is None


def test_the_first_pair_of_a_link_class_stands_for_it_but_at_the_sizes_of_the_matrix_and_in_full(
    monkeypatch,
):
    # GPU 0 with two neighbours over NVLink and one that it cannot reach.
    kinds = {
        (0, 1): "nvlink",
        (0, 2): "nvlink",
        (0, 3): "staged",
        (1, 0): "nvlink",
        (2, 3): "nvlink",
    }
    module = benchmarks(monkeypatch, 4)
    monkeypatch.setattr(module, "link_between", lambda *pair: Link(kinds[pair]))

    def left(size_bytes=2**22, tier=None):
        """The pairs that are left out, with the reason."""
        config, found = stand_in_config(tier), {}
        for pair in kinds:
            try:
                module._leave_to_another_pair(config, pair, size_bytes)
            except pytest.skip.Exception as skipped:
                found[pair] = str(skipped)
        return found

    assert (
        left()[0, 2]
        == "the sweep over nvlink measures the pair 0 to 1; the tier full measures all pairs at all sizes"
    )
    assert not {(0, 1), (0, 3)} & left().keys()
    assert [left(2**15), left(2**29), left(tier="full")] == [{}, {}, {}]


@pytest.fixture
def eight(monkeypatch):
    """Eight GPUs of which GPU 5 has 10 GB free, and the others 100."""
    module = benchmarks(monkeypatch, 8)
    free = [100 * 10**9] * 8
    free[5] = 10**10
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 0))
    monkeypatch.setattr(
        module.peer_copy, "AtOnce", lambda ways, copy=None: ("at once", tuple(ways))
    )
    return module


def measured(module, ways, size_bytes=2**20):
    roofline = Roofline("cuda")
    module._measure(roofline, ways, size_bytes, "auto_payload_GBps")
    return roofline.fn, roofline.arguments


def test_one_way_is_torchs_own_copy_timed_on_both_gpus_and_verified_on_buffers_in_rotation(eight):
    fn, found = measured(eight, [(3, 1)])
    assert (fn, found["devices"]) == (eight.memcpy.copy, ["cuda:3", "cuda:1"])
    assert (found["work"].payload_bytes, found["work"].wire_bytes) == (2**20, 2**20)
    assert (found["verify"], found["cache"]) == (eight.peer_copy.same, "rotate")


def test_a_kernel_copies_between_gpus_that_can_address_each_other_and_is_swept_over_one_pair(
    eight, monkeypatch
):
    made, copied = [], []
    monkeypatch.setattr(eight.peer_copy, "AtOnce", lambda ways, copy: made.append(copy))
    monkeypatch.setattr(eight.memcpy, "triton_copy", lambda: "a kernel")
    monkeypatch.setattr(
        eight.memcpy, "CopyBuffers", lambda size, *way, **_: SimpleNamespace(pair=lambda: way)
    )
    monkeypatch.setattr(
        eight.memcpy, "copy", lambda *way: copied.append(tuple(device.index for device in way))
    )
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda source, target: target != 2)
    roofline = Roofline("cuda")
    eight.test_peer_copy_one_way_triton(roofline, lambda count: None, 0, 1, 2**20)
    assert (["a kernel"], [(0, 1), (1, 0)]) == (made, copied)
    assert ("sm_payload_GBps", 2**20) == (
        roofline.arguments["metric"],
        roofline.arguments["work"].payload_bytes,
    )
    with pytest.raises(
        pytest.skip.Exception, match="needs memory of cuda:2 that cuda:0 can address"
    ):
        eight.test_peer_copy_one_way_triton(roofline, lambda count: None, 0, 2, 2**20)
    found = Counter(case[:2] for case in cases(eight.test_peer_copy_one_way_triton))
    assert (56, len(eight.DECADES), {1}) == (len(found), found.pop((0, 1)), set(found.values()))


def test_one_to_all_counts_what_arrives_everywhere(eight):
    _, found = measured(eight, eight.peer_copy.one_to_all(2, 8))
    assert (found["work"].payload_bytes, found["devices"][0]) == (7 * 2**20, "cuda:2")
    assert sorted(found["devices"]) == [f"cuda:{index}" for index in range(8)]


def test_a_gpu_without_room_is_a_skip_that_names_it_and_the_ends_of_a_fan_need_room_for_one_buffer_only(
    eight,
):
    with pytest.raises(pytest.skip.Exception, match=r"needs 1\d\.\d GB on cuda:5, found 10\.0 GB"):
        measured(eight, eight.peer_copy.all_to_one(5, 8), LAST_SIZE_BYTES)
    assert (
        "cuda:5" in measured(eight, eight.peer_copy.all_to_one(0, 8), LAST_SIZE_BYTES)[1]["devices"]
    )


def test_every_link_is_held_against_the_others(eight):
    roofline = Roofline("cuda")
    eight.test_peer_copy_siblings(roofline)
    found = roofline.arguments
    pairs = [(f"cuda:{source}", f"cuda:{target}") for source, target in permutations(range(8), 2)]
    assert (roofline.fn, sorted(found["among"])) == (eight.memcpy.copy, sorted(pairs))
    assert (found["work"].wire_bytes, found["metric"]) == (2**29, "auto_payload_GBps")
