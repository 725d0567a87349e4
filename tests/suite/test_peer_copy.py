"""Which copies between GPUs are measured, on machines with as many GPUs as a test says, and which of them when."""

from collections import Counter
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.inventory import Link
from roofline_kernels.memcpy import LAST_SIZE_BYTES, SIZES_BYTES

from .benchmarks import load

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


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_full_has_every_ordered_pair_at_every_size(monkeypatch, gpus):
    found = cases(benchmarks(monkeypatch, gpus).test_peer_copy_one_way)
    assert sorted(found) == sorted((*pair, size) for pair in permutations(range(gpus), 2) for size in SIZES_BYTES)


def test_the_sweep_goes_from_4096_to_2101346304_bytes():
    assert (min(SIZES_BYTES), max(SIZES_BYTES), LAST_SIZE_BYTES) == (4096, 2_101_346_304, 2_101_346_304)


def test_quick_has_the_whole_matrix_at_two_sizes(monkeypatch):
    found = Counter(pair[:2] for pair in cases(benchmarks(monkeypatch, 8).test_peer_copy_one_way, "quick"))
    assert len(found) == 56
    assert {count for pair, count in found.items() if pair[0] != 0} == {2}


def test_the_pairs_of_gpu_0_are_swept_by_night(monkeypatch):
    found = Counter(pair[:2] for pair in cases(benchmarks(monkeypatch, 8).test_peer_copy_one_way, "nightly"))
    assert {count for pair, count in found.items() if pair[0] == 0} == {len(SIZES_BYTES)}
    assert {count for pair, count in found.items() if pair[0] != 0} == {2}


def test_both_ways_has_every_pair_once(monkeypatch):
    found = {pair[:2] for pair in cases(benchmarks(monkeypatch, 4).test_peer_copy_both_ways)}
    assert found == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}


@pytest.mark.parametrize("test", ["one_to_all", "all_to_one"])
def test_every_gpu_is_measured_with_all_others(monkeypatch, test):
    module = benchmarks(monkeypatch, 4)
    found = cases(getattr(module, f"test_peer_copy_{test}"), "quick")
    assert {index for index, size in found if size == module.LARGE} == {0, 1, 2, 3}


@pytest.mark.parametrize("gpus", [0, 1])
def test_with_fewer_than_two_gpus_what_is_skipped_is_seen(monkeypatch, gpus):
    module = benchmarks(monkeypatch, gpus)
    assert [pair[:2] for pair in cases(module.test_peer_copy_one_way, "quick") if pair[0] == 0] == [(0, 1)]


class Roofline:
    """The fixture, as far as skipping goes."""

    def __init__(self, device):
        self.device = torch.device(device)

    def skip_for_hardware(self, reason):
        pytest.skip(reason)


def need_gpus(module, device):
    return module.need_gpus.__wrapped__(Roofline(device))


@pytest.mark.parametrize("gpus", [0, 1])
def test_fewer_than_two_gpus_is_a_skip_with_need_and_found(monkeypatch, gpus):
    with pytest.raises(pytest.skip.Exception, match=f"needs 2 GPUs, found {gpus}"):
        need_gpus(benchmarks(monkeypatch, gpus), "cpu")(2)


def test_gpus_are_not_measured_while_the_cpu_is(monkeypatch):
    with pytest.raises(pytest.skip.Exception, match="needs 2 GPUs, and cpu is measured"):
        need_gpus(benchmarks(monkeypatch, 4), "cpu")(2)


def test_enough_gpus_are_no_skip(monkeypatch):
    assert need_gpus(benchmarks(monkeypatch, 2), "cuda")(2) is None


# GPU 0 with two neighbours over NVLink and one that it cannot reach.
KINDS = {(0, 1): "nvlink", (0, 2): "nvlink", (0, 3): "staged", (1, 0): "nvlink", (2, 3): "nvlink"}


@pytest.fixture
def sweeps(monkeypatch):
    """Whether a pair is swept at a size, in a tier."""
    module = benchmarks(monkeypatch, 4)
    monkeypatch.setattr(module, "link_between", lambda *pair: Link(KINDS[pair]))

    def sweeps(pair, size_bytes=2**22, tier=None):
        config = SimpleNamespace(getoption=lambda name: tier, getini=lambda name: None)
        try:
            module._leave_to_another_pair(config, pair, size_bytes)
        except pytest.skip.Exception as skipped:
            return str(skipped)
        return True

    return sweeps


@pytest.mark.parametrize("pair", [(0, 1), (0, 3)])
def test_the_first_pair_of_a_link_class_stands_for_it(sweeps, pair):
    assert sweeps(pair) is True


def test_another_pair_of_the_class_is_left_to_it_with_the_reason(sweeps):
    assert sweeps((0, 2)) == "the sweep over nvlink is that of 0 to 1; all pairs at all sizes are in the tier full"


@pytest.mark.parametrize("size_bytes", [2**15, 2**29])
def test_the_sizes_of_the_matrix_are_measured_for_every_pair(sweeps, size_bytes):
    assert [sweeps(pair, size_bytes) for pair in KINDS] == [True] * len(KINDS)


def test_the_tier_full_leaves_nothing_out(sweeps):
    assert [sweeps(pair, tier="full") for pair in KINDS] == [True] * len(KINDS)


class Measuring(Roofline):
    """The fixture, noting what it is to measure."""

    def measure(self, fn, **arguments):
        self.fn, self.arguments = fn, arguments


@pytest.fixture
def eight(monkeypatch):
    """Eight GPUs of which GPU 5 has 10 GB free, and the others 100."""
    module = benchmarks(monkeypatch, 8)
    free = [100 * 10**9] * 8
    free[5] = 10**10
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 0))
    monkeypatch.setattr(module.peer_copy, "AtOnce", lambda ways: ("at once", tuple(ways)))
    return module


def measured(module, ways, size_bytes=2**20):
    roofline = Measuring("cuda")
    module._measure(roofline, ways, size_bytes, "auto_payload_GBps")
    return roofline


def test_one_way_is_torchs_own_copy_timed_on_both_gpus(eight):
    found = measured(eight, [(3, 1)])
    assert (found.fn, found.arguments["devices"]) == (eight.memcpy.copy, ["cuda:3", "cuda:1"])
    assert (found.arguments["work"].payload_bytes, found.arguments["work"].wire_bytes) == (2**20, 2**20)


def test_one_to_all_counts_what_arrives_everywhere(eight):
    found = measured(eight, eight.peer_copy.one_to_all(2, 8))
    assert (found.arguments["work"].payload_bytes, found.arguments["devices"][0]) == (7 * 2**20, "cuda:2")
    assert sorted(found.arguments["devices"]) == [f"cuda:{index}" for index in range(8)]


def test_what_was_timed_is_verified_on_buffers_in_rotation(eight):
    found = measured(eight, [(0, 1)]).arguments
    assert (found["verify"], found["cache"]) == (eight.peer_copy.same, "rotate")


def test_a_gpu_without_room_is_a_skip_that_names_it(eight):
    ways = eight.peer_copy.all_to_one(5, 8)
    with pytest.raises(pytest.skip.Exception, match=r"needs 1\d\.\d GB on cuda:5, found 10\.0 GB"):
        measured(eight, ways, LAST_SIZE_BYTES)


def test_the_ends_of_a_fan_need_room_for_one_buffer_only(eight):
    assert "cuda:5" in measured(eight, eight.peer_copy.all_to_one(0, 8), LAST_SIZE_BYTES).arguments["devices"]


def test_every_link_is_held_against_the_others(eight):
    class Siblings(Measuring):
        def measure_siblings(self, fn, **arguments):
            self.fn, self.arguments = fn, arguments

    roofline = Siblings("cuda")
    eight.test_peer_copy_siblings(roofline)
    pairs = [(f"cuda:{source}", f"cuda:{target}") for source, target in permutations(range(8), 2)]
    assert (roofline.fn, sorted(roofline.arguments["among"])) == (eight.memcpy.copy, sorted(pairs))
    assert (roofline.arguments["work"].wire_bytes, roofline.arguments["metric"]) == (2**29, "auto_payload_GBps")
