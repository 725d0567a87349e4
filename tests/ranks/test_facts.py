"""What ranks say of themselves, which accelerator each gets, and which ranks do not fit together."""

import itertools
import os
import socket
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_roofline.core.errors import RanksFailed, RanksSkipped
from pytest_roofline.engine.devices import open_device
from pytest_roofline.ranks.facts import (
    RankFacts,
    assign,
    check,
    check_products,
    cores_of,
    gather,
    threads,
    unwanted_cpu,
    visible_devices,
)


def facts(rank=0, **changes):
    """A rank whose number on its host is its number, unless told otherwise."""
    known = {"rank": rank, "local_rank": rank, "host": "n1", "pid": 4711 + rank, "devices": (), "versions": {}}
    return RankFacts(**(known | {"affinity": "0-7", "cores": 8} | changes))


def seen(*devices, hosts=None, local=None):
    """Ranks that see these devices, given as text: `ab` sees a and b."""
    hosts, local = hosts or ["n1"] * len(devices), local or range(len(devices))
    return [
        facts(rank, devices=tuple(own), host=hosts[rank], local_rank=local[rank]) for rank, own in enumerate(devices)
    ]


def test_every_rank_gets_an_accelerator_of_its_own_by_its_local_number_where_that_is_free():
    for ranks, expected in (
        (seen("abcd", "abcd", "abcd", "abcd"), "abcd"),
        (seen("abcdefgh", "abcdefgh"), "ab"),
        (seen("abcd", "abcd", local=[2, 3]), "cd"),
        (seen("ab", "ab", local=[1, 0]), "ba"),
        # Each sees its own; all see a part, in another order, or under numbers beyond it.
        (seen("c", "a", "b"), "cab"),
        (seen("gh", "gh"), "gh"),
        (seen("ba", "ba"), "ba"),
        (seen("cd", "cd", local=[4, 5]), "cd"),
        # Who has no choice comes first.
        (seen("ab", "a"), "ba"),
        (seen("ab", "ab", "ab", "ab", hosts=["n1", "n1", "n2", "n2"], local=[0, 1, 0, 1]), "abab"),
        (seen("a", "a", hosts=["n1", "n2"], local=[0, 0]), "aa"),
    ):
        owned = assign(ranks)
        assert "".join(one.devices[owned[one.rank]] for one in ranks) == expected


@example(visible=["ab", "ac", "ca"])
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=4, unique=True), min_size=1, max_size=4))
def test_devices_are_found_for_all_ranks_wherever_that_is_possible(visible):
    ranks = seen(*visible)
    if not any(len(set(chosen)) == len(visible) for chosen in itertools.product(*visible)):
        enough = len(set().union(*visible)) >= len(visible)
        with pytest.raises(RanksFailed if enough else RanksSkipped):
            assign(ranks)
        return
    found = assign(ranks)
    assert len({one.devices[found[one.rank]] for one in ranks}) == len(ranks)


def test_ranks_that_cannot_have_one_each_are_told_by_rank_and_host():
    three = ["n1", "n2", "n2", "n2"]
    for error, ranks, why in (
        (RanksFailed, seen("a", "a", "bc"), r"rank 1 on n1 has no accelerator of its own.*a is rank 0's"),
        (RanksFailed, seen("ab", ""), r"rank 1 on n1 sees no accelerator"),
        (RanksFailed, seen("a", "b", "b", "bcd", hosts=three, local=[0, 0, 1, 2]), r"rank 2 on n2 .*b is rank 1's"),
        # Fewer than ranks are no failure.
        (RanksSkipped, seen("a", "a"), "^needs 2 GPUs, found 1 on n1$"),
        (RanksSkipped, seen("ab", "ab", "ab"), "^needs 3 GPUs, found 2 on n1$"),
        (RanksSkipped, seen(""), "^needs 1 GPUs, found 0 on n1$"),
        (RanksSkipped, seen("abc", "b", "b", hosts=three[:3], local=[0, 0, 1]), "^needs 2 GPUs, found 1 on n2$"),
    ):
        with pytest.raises(error, match=why):
            assign(ranks)


def test_different_versions_or_products_are_refused_by_the_names_of_the_nodes():
    same = {"torch": "2.13.0", "python": "3.11.9"}
    check([facts(0, versions=same), facts(1, versions=dict(same), host="n2")], dict(same))
    check_products({0: ("n1", "H100"), 1: ("n2", "H100")})
    for versions, own, why in (
        ([{"torch": "2.4"}, {"torch": "2.5"}], None, r"torch: 2\.4 on n0 \(ranks 0\); 2\.5 on n1 \(ranks 1\)"),
        ([{"torch": "2.4"}] * 2 + [{"torch": "2.5"}], None, r"2\.4 on n0, n1 \(ranks 0, 1\); 2\.5 on n2"),
        ([{"nccl": "2.2"}, {}], None, r"versions of nccl: 2\.2 on n0 .*none on n1"),
        ([{}, {"nccl": "2.2"}], None, r"versions of nccl: none on n0 .*2\.2 on n1"),
        ([{"torch": "2.5"}] * 2, {"torch": "2.4"}, r"pytest and its ranks .* 2\.5 on n0, n1 .*; 2\.4 in pytest on "),
        ([{"torch": "2.5"}] * 2, {}, r"none in pytest on "),
    ):
        with pytest.raises(RanksFailed, match=why):
            check([facts(rank, versions=one, host=f"n{rank}") for rank, one in enumerate(versions)], own)
    with pytest.raises(RanksFailed, match=r"^rank 0 on n1 has A100, rank 8 on n2 has H100; expected one product"):
        check_products({0: ("n1", "A100"), 1: ("n1", "A100"), 9: ("n2", "H100"), 8: ("n2", "H100")})


def test_the_cpu_of_a_host_with_an_accelerator_is_unwanted(monkeypatch, tmp_path):
    for module in ("ranks.facts", "engine.host"):
        monkeypatch.setattr(f"pytest_roofline.{module}.ACCELERATOR_NODES", (tmp_path / "kfd",))
    cpu = open_device("cpu")
    assert unwanted_cpu(cpu) == ""
    (tmp_path / "kfd").touch()
    for usable, told in ((True, "pytest's own host has none"), (False, "cannot use it")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda usable=usable: usable)
        assert told in unwanted_cpu(cpu)


def test_ranks_share_the_cores_of_their_host_within_their_quota():
    for ranks, expected in (
        ([facts(0)], [8]),
        ([facts(0), facts(1), facts(2)], [2, 2, 2]),
        ([facts(rank, affinity="0-1", cores=2) for rank in range(6)], [1] * 6),
        ([facts(rank, affinity=str(rank), cores=1) for rank in range(2)], [1, 1]),
        ([facts(0, affinity="0-3", cores=4), facts(1, affinity="4-7", cores=4)], [4, 4]),
        ([facts(0), facts(1, host="n2", cores=4, affinity="0-3")], [8, 4]),
        ([facts(0, affinity=""), facts(1, affinity="")], [4, 4]),
        ([facts(0, affinity="0,2,4-5", cores=4), facts(1, affinity="0,2,4-5", cores=4)], [2, 2]),
    ):
        assert list(threads(ranks).values()) == expected
    for ranks, cores in (
        ([facts(0, affinity="0-3", cores=4), facts(1, affinity="2-5", cores=4)], 6),
        ([facts(0, quota=2.5), facts(1, quota=2.5)], 2),
        ([facts(0, quota=0.5)], 1),
        ([facts(0, affinity="")], 8),
        ([facts(0, quota=16.0)], 8),
    ):
        assert cores_of(ranks) == cores


def test_a_rank_tells_who_and_where_it_is_and_which_devices_it_sees(monkeypatch):
    told = gather(3, 1, "cpu")
    assert (told.rank, told.local_rank, told.host, told.pid) == (3, 1, socket.gethostname(), os.getpid())
    assert told.devices == ()
    assert told.versions["torch"] == torch.__version__
    assert {"python", "pytest-roofline"} <= told.versions.keys()
    assert told.cores >= 1
    assert told.threads == torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert visible_devices("cuda") == ()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    # By the UUID, else by the place on the bus, of which partitions share one.
    zeros = "00000000-0000-0000-0000-000000000000"
    for known, expected in (
        ({"uuid": "4fe2"}, ("4fe2", "4fe2")),
        ({"uuid": "", "pci_bus_id": 27}, ("PCI 0000:1b:00", "PCI 0000:1b:00 part 1")),
        ({"pci_bus_id": 0}, ("PCI 0000:00:00", "PCI 0000:00:00 part 1")),
        ({"uuid": zeros, "pci_bus_id": 5, "pci_domain_id": 1}, ("PCI 0001:05:00", "PCI 0001:05:00 part 1")),
        ({}, ("#0", "#1")),
    ):
        properties = SimpleNamespace(**known)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, properties=properties: properties)
        assert visible_devices("cuda") == expected
