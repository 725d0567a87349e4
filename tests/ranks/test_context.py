"""A rank outside any process group: a plain number with what belongs to it."""

import pytest
import torch

from pytest_roofline.core.errors import BadInput
from pytest_roofline.engine.devices import open_device
from pytest_roofline.ranks.context import Rank, Skipped


def rank(number=2, size=4, **changes):
    facts = {"size": size, "local_rank": 0, "host": "n1", "backend": "gloo", "meter": open_device("cpu"), "side": None}
    return Rank.make(number, **(facts | changes))


def test_a_rank_is_its_number():
    own = rank(2)

    assert own == 2
    assert isinstance(own, int)
    assert [10, 20, 30][own] == 30
    assert f"{own} {own:02d}" == "2 02"
    assert {2: "here"}[own] == "here"
    assert (own + 1) % own.size == 3


def test_rank_nought_is_false_as_nought_is():
    assert not rank(0)


def test_a_rank_knows_its_world_and_its_device():
    own = rank(1, size=3, local_rank=1, host="n2", backend="mpi")

    assert (own.size, own.local_rank, own.host, own.backend) == (3, 1, "n2", "mpi")
    assert own.device == torch.device("cpu")
    assert own.meter.name == "cpu"


def test_alone_it_gathers_its_own_numbers_and_waits_for_nobody():
    own = rank(0, size=1)
    own.barrier()

    assert own.gather([1, 2.5]) == [(1.0, 2.5)]


@pytest.mark.parametrize("ranks", [[], [1, 0], [0, 0], [0, 4], [-1, 0], [4]])
def test_a_subgroup_of_ranks_that_are_not_there_is_refused(ranks):
    with pytest.raises(BadInput, match=r"subgroup of \[.*expected ascending ranks from 0 to 3"):
        rank().subgroup(ranks)


def test_a_skip_carries_its_reason():
    with pytest.raises(Skipped, match="no peer access"):
        rank().skip("no peer access")
