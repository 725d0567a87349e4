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


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        pytest.param(seen("abcd", "abcd", "abcd", "abcd"), "abcd", id="all see all"),
        pytest.param(seen("abcdefgh", "abcdefgh"), "ab", id="fewer ranks than devices"),
        pytest.param(seen("abcd", "abcd", local=[2, 3]), "cd", id="by local number"),
        pytest.param(seen("ab", "ab", local=[1, 0]), "ba", id="by local number, turned round"),
        pytest.param(seen("c", "a", "b"), "cab", id="each sees its own"),
        pytest.param(seen("gh", "gh"), "gh", id="narrowed for all"),
        pytest.param(seen("ba", "ba"), "ba", id="visible in another order"),
        pytest.param(seen("cd", "cd", local=[4, 5]), "cd", id="local numbers beyond what is visible"),
        pytest.param(seen("ab", "a"), "ba", id="who has no choice comes first"),
        pytest.param(
            seen("ab", "ab", "ab", "ab", hosts=["n1", "n1", "n2", "n2"], local=[0, 1, 0, 1]), "abab", id="hosts"
        ),
        pytest.param(seen("a", "a", hosts=["n1", "n2"], local=[0, 0]), "aa", id="one device a host"),
    ],
)
def test_every_rank_gets_an_accelerator_of_its_own_by_its_local_number_where_that_is_free(ranks, expected):
    given = assign(ranks)

    assert "".join(one.devices[given[one.rank]] for one in ranks) == expected


@example(visible=["ab", "ac", "ca"])
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=4, unique=True), min_size=1, max_size=4))
def test_devices_are_found_for_all_ranks_wherever_that_is_possible(visible):
    ranks = seen(*visible)
    possible = any(len(set(chosen)) == len(visible) for chosen in itertools.product(*visible))

    if not possible:
        enough = len(set().union(*visible)) >= len(visible)
        with pytest.raises(RanksFailed if enough else RanksSkipped):
            assign(ranks)
        return
    found = assign(ranks)
    assert len({one.devices[found[one.rank]] for one in ranks}) == len(ranks)


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        pytest.param(
            seen("a", "a", "bc"), r"rank 1 on n1 has no accelerator of its own.*a is rank 0's", id="one for two"
        ),
        pytest.param(seen("ab", ""), r"rank 1 on n1 sees no accelerator", id="none"),
        pytest.param(
            seen("a", "b", "b", "bcd", hosts=["n1", "n2", "n2", "n2"], local=[0, 0, 1, 2]),
            r"rank 2 on n2 has no accelerator of its own.*b is rank 1's",
            id="one for two on the second host",
        ),
    ],
)
def test_two_ranks_on_one_accelerator_are_refused_by_rank_and_host(ranks, why):
    with pytest.raises(RanksFailed, match=why):
        assign(ranks)


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        pytest.param(seen("a", "a"), "needs 2 GPUs, found 1 on n1", id="one for two"),
        pytest.param(seen("ab", "ab", "ab"), "needs 3 GPUs, found 2 on n1", id="two for three"),
        pytest.param(seen(""), "needs 1 GPUs, found 0 on n1", id="none"),
        pytest.param(
            seen("abc", "b", "b", hosts=["n1", "n2", "n2"], local=[0, 0, 1]), "needs 2 GPUs, found 1 on n2", id="hosts"
        ),
    ],
)
def test_fewer_accelerators_than_ranks_on_a_host_are_no_failure(ranks, why):
    with pytest.raises(RanksSkipped, match=f"^{why}$"):
        assign(ranks)


def test_ranks_of_one_version_fit_together():
    versions = {"torch": "2.13.0", "python": "3.11.9"}

    ranks = [facts(0, versions=versions), facts(1, versions=dict(versions), host="n2")]
    check(ranks)
    check(ranks, dict(versions))


@pytest.mark.parametrize(("own", "seen"), [({"torch": "2.4"}, "2.4"), ({}, "none")])
def test_ranks_of_another_version_than_pytest_are_refused(own, seen):
    told = rf"pytest and its ranks have different versions of torch: 2\.5 on n1 \(ranks 0, 1\); {seen} in pytest on "
    with pytest.raises(RanksFailed, match=told):
        check([facts(rank, versions={"torch": "2.5"}) for rank in range(2)], own)


def test_different_products_are_refused_by_the_first_rank_of_each():
    check_products({0: ("n1", "H100"), 1: ("n2", "H100")})
    with pytest.raises(RanksFailed, match=r"^rank 0 on n1 has A100, rank 8 on n2 has H100; expected one product"):
        check_products({0: ("n1", "A100"), 1: ("n1", "A100"), 9: ("n2", "H100"), 8: ("n2", "H100")})


@pytest.mark.parametrize("usable", [True, False])
def test_the_cpu_of_a_host_with_an_accelerator_is_unwanted(monkeypatch, tmp_path, usable):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    for module in ("ranks.facts", "engine.host"):
        monkeypatch.setattr(f"pytest_roofline.{module}.ACCELERATOR_NODES", (tmp_path / "kfd",))
    cpu = open_device("cpu")
    assert unwanted_cpu(cpu) == ""
    (tmp_path / "kfd").touch()
    assert ("pytest's own host has none" if usable else "cannot use it") in unwanted_cpu(cpu)


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ([{"torch": "2.4"}, {"torch": "2.5"}], r"versions of torch: 2\.4 on n0 \(ranks 0\); 2\.5 on n1 \(ranks 1\)"),
        ([{"torch": "2.4"}, {"torch": "2.4"}, {"torch": "2.5"}], r"2\.4 on n0, n1 \(ranks 0, 1\); 2\.5 on n2"),
        ([{"nccl": "2.2"}, {}], r"versions of nccl: 2\.2 on n0 .*none on n1"),
        ([{}, {"nccl": "2.2"}], r"versions of nccl: none on n0 .*2\.2 on n1"),
    ],
)
def test_different_versions_are_refused_by_the_names_of_the_nodes(versions, why):
    with pytest.raises(RanksFailed, match=why):
        check([facts(rank, versions=own, host=f"n{rank}") for rank, own in enumerate(versions)])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        pytest.param([facts(0)], [8], id="alone"),
        pytest.param([facts(0), facts(1)], [4, 4], id="two share eight"),
        pytest.param([facts(0), facts(1), facts(2)], [2, 2, 2], id="three share eight"),
        pytest.param([facts(rank, affinity="0-1", cores=2) for rank in range(6)], [1] * 6, id="never none"),
        pytest.param([facts(r, affinity=str(r), cores=1) for r in range(2)], [1, 1], id="pinned to one core each"),
        pytest.param(
            [facts(0, affinity="0-3", cores=4), facts(1, affinity="4-7", cores=4)], [4, 4], id="pinned to a half each"
        ),
        pytest.param([facts(0), facts(1, host="n2", cores=4, affinity="0-3")], [8, 4], id="two hosts"),
        pytest.param([facts(0, affinity=""), facts(1, affinity="")], [4, 4], id="no affinity told"),
        pytest.param([facts(0, affinity="0,2,4-5", cores=4), facts(1, affinity="0,2,4-5", cores=4)], [2, 2], id="gaps"),
    ],
)
def test_ranks_share_the_cores_of_their_host(ranks, expected):
    shares = threads(ranks)

    assert [shares[one.rank] for one in ranks] == expected


@pytest.mark.parametrize(
    ("ranks", "cores"),
    [
        ([facts(0, affinity="0-3", cores=4), facts(1, affinity="2-5", cores=4)], 6),
        ([facts(0, quota=2.5), facts(1, quota=2.5)], 2),
        ([facts(0, quota=0.5)], 1),
        ([facts(0, affinity="")], 8),
        ([facts(0, quota=16.0)], 8),
    ],
)
def test_the_cores_of_a_host_are_all_that_its_ranks_may_use_within_their_quota(ranks, cores):
    assert cores_of(ranks) == cores


def test_a_rank_tells_who_and_where_it_is():
    told = gather(3, 1, "cpu")

    assert (told.rank, told.local_rank, told.host, told.pid) == (3, 1, socket.gethostname(), os.getpid())
    assert told.devices == ()
    assert told.versions["torch"] == torch.__version__
    assert {"python", "pytest-roofline"} <= told.versions.keys()
    assert told.cores >= 1
    assert told.threads == torch.get_num_threads()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (SimpleNamespace(uuid="4fe2"), ("4fe2", "4fe2")),
        (SimpleNamespace(uuid="", pci_bus_id=27), ("PCI 0000:1b:00", "PCI 0000:1b:00 part 1")),
        (SimpleNamespace(pci_bus_id=0), ("PCI 0000:00:00", "PCI 0000:00:00 part 1")),
        (
            SimpleNamespace(uuid="00000000-0000-0000-0000-000000000000", pci_bus_id=5, pci_domain_id=1),
            ("PCI 0001:05:00", "PCI 0001:05:00 part 1"),
        ),
        (SimpleNamespace(), ("#0", "#1")),
    ],
)
def test_a_device_is_known_by_its_uuid_and_else_by_its_place(monkeypatch, properties, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)

    assert visible_devices("cuda") == expected


def test_without_an_accelerator_none_is_seen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert visible_devices("cuda") == ()
