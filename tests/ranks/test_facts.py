"""What ranks say of themselves, which accelerator each gets, and which ranks do not fit together."""

import os
import socket
from types import SimpleNamespace

import pytest
import torch

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
    known = {
        "rank": rank,
        "local_rank": rank,
        "host": "n1",
        "pid": 4711 + rank,
        "devices": (),
        "versions": {},
    }
    return RankFacts(**(known | {"affinity": "0-7", "cores": 8} | changes))


def seen(*devices, hosts=None, local=None):
    """Ranks that see these devices, given as text: `ab` sees a and b."""
    hosts, local = hosts or ["n1"] * len(devices), local or range(len(devices))
    return [
        facts(rank, devices=tuple(own), host=hosts[rank], local_rank=local[rank])
        for rank, own in enumerate(devices)
    ]


def test_every_rank_gets_an_accelerator_of_its_own_by_its_local_number_where_that_is_free():
    for ranks, expected in (
        (seen("abcdefgh", "abcdefgh"), "ab"),
        (seen("abcd", "abcd", local=[2, 3]), "cd"),
        (seen("ab", "ab", local=[1, 0]), "ba"),
        # Launchers that tell no local number; each sees its own, a part, or under numbers beyond it.
        (seen("abc", "abc", "abc", local=[0, 0, 0]), "abc"),
        (seen("c", "a", "b"), "cab"),
        (seen("ab", "ab", "cd", "cd"), "abcd"),
        (seen("cd", "cd", local=[4, 5]), "cd"),
        # Who has no choice comes first.
        (seen("ab", "a"), "ba"),
        (seen("ab", "ab", "ab", "ab", hosts=["n1", "n1", "n2", "n2"], local=[0, 1, 0, 1]), "abab"),
    ):
        owned = assign(ranks)
        assert "".join(one.devices[owned[one.rank]] for one in ranks) == expected
    three = ["n1", "n2", "n2", "n2"]
    for error, ranks, why in (
        (
            RanksFailed,
            seen("a", "a", "bc"),
            r"rank 1 on n1 has no accelerator of its own; visible accelerators: 1 \(a belongs to rank 0\)",
        ),
        (
            RanksFailed,
            seen("ab", ""),
            r"rank 1 on n1 has no accelerator of its own; visible accelerators: 0",
        ),
        (
            RanksFailed,
            seen("a", "b", "b", "bcd", hosts=three, local=[0, 0, 1, 2]),
            r"rank 2 on n2 .*b belongs to rank 1",
        ),
        # Fewer than ranks are no failure.
        (RanksSkipped, seen("ab", "ab", "ab"), "^needs 3 GPUs, found 2 on n1$"),
        (RanksSkipped, seen(""), "^needs 1 GPUs, found 0 on n1$"),
        (
            RanksSkipped,
            seen("abc", "b", "b", hosts=three[:3], local=[0, 0, 1]),
            "^needs 2 GPUs, found 1 on n2$",
        ),
    ):
        with pytest.raises(error, match=why):
            assign(ranks)


def test_ranks_with_different_versions_or_products_are_refused_by_name():
    same = {"torch": "2.9.0", "nccl": "2.27"}
    check([facts(0, versions=same), facts(1, versions=same)], same)
    for others, told in (
        (
            same | {"nccl": "2.26"},
            r"versions of nccl \(2\.27: pytest on \S+, rank 0 on n1; 2\.26: rank 1 on n2\)",
        ),
        ({"torch": "2.9.0"}, r"versions of nccl \(2\.27: .*; none: rank 1 on n2\)"),
        (
            same | {"cuda or hip": "13.0"},
            r"versions of cuda or hip \(none: pytest .*13\.0: rank 1 on n2\)",
        ),
    ):
        with pytest.raises(RanksFailed, match=told):
            check([facts(0, versions=same), facts(1, host="n2", versions=others)], same)
    check_products({0: ("n1", "NVIDIA H100"), 1: ("n2", "NVIDIA H100")})
    with pytest.raises(
        RanksFailed,
        match=r"^rank 0 on n1 has NVIDIA H100, rank 2 on n2 has NVIDIA H200; expected one",
    ):
        check_products(
            {0: ("n1", "NVIDIA H100"), 1: ("n1", "NVIDIA H100"), 2: ("n2", "NVIDIA H200")}
        )


def test_a_rank_tells_what_it_runs_on():
    own = gather(3, 1, "cpu")
    assert (own.rank, own.local_rank, own.host, own.pid) == (
        3,
        1,
        socket.gethostname(),
        os.getpid(),
    )
    assert (own.devices, own.cores) == ((), len(os.sched_getaffinity(0)))
    assert {"pytest-roofline", "python", "torch"} <= own.versions.keys()


def test_a_device_is_told_from_every_other_by_its_uuid_or_its_place_on_the_bus(monkeypatch):
    place = {"pci_domain_id": 0, "pci_bus_id": 0x1B, "pci_device_id": 0}
    shown = [
        {"uuid": "GPU-1234"}, {"uuid": "GPU-00000000-0000", **place}, place, place | {"pci_bus_id": 0x1C}, {},
    ]  # fmt: skip
    fake = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: len(shown),
        get_device_properties=lambda index: SimpleNamespace(**shown[index]),
    )
    monkeypatch.setattr(torch, "xpu", fake)
    names = ("GPU-1234", "PCI 0000:1b:00", "PCI 0000:1b:00 part 1", "PCI 0000:1c:00", "#4")
    assert (visible_devices("xpu"), visible_devices("cpu")) == (names, ())


def test_the_cores_of_a_host_are_shared_and_one_pinned_has_its_own():
    for ranks, cores, shares in (
        ([facts(rank) for rank in range(4)], 8, [2] * 4),
        ([facts(rank) for rank in range(16)], 8, [1] * 16),
        ([facts(0, affinity="0-3", cores=4), facts(1, affinity="4-7", cores=4)], 8, [4, 4]),
        ([facts(0, affinity="0", cores=1), facts(1, affinity="1-7", cores=7)], 8, [1, 4]),
        ([facts(0, quota=2.5), facts(1, quota=2.5)], 2, [1, 1]),
        ([facts(0, affinity="", cores=6), facts(1, affinity="", cores=6)], 6, [3, 3]),
        ([facts(0, quota=0.5)], 1, [1]),
    ):
        assert cores_of(ranks) == cores
        assert list(threads(ranks).values()) == shares
    assert threads([facts(0), facts(1, host="n2"), facts(2, host="n2")]) == {0: 8, 1: 4, 2: 4}


def test_a_cpu_beside_an_accelerator_is_not_taken_unasked(monkeypatch):
    device = open_device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert unwanted_cpu(device).startswith(
        "this node has an accelerator, but the node of pytest has no accelerator for torch"
    )
