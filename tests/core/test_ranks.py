"""The record of the ranks behind a measurement: what it refuses, and what of it is worth naming."""

import json

import pytest

from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.samples import Ranks


def ranks(**changes):
    """Two ranks of one host, with two samples each."""
    facts = {"size": 2, "launcher": "local", "backend": "gloo", "hosts": ("node7",) * 2, "seconds": ((1.0, 2.0),) * 2}
    return Ranks(**(facts | changes))


def test_a_world_has_one_rank_or_more():
    for size in [0, -1]:
        with pytest.raises(BadInput, match=f"size is {size}; expected one rank or more"):
            ranks(size=size, hosts=(), seconds=())


def test_what_is_told_by_rank_is_told_of_all_of_them():
    for name, value in [
        ("hosts", ("node7",)),
        ("hosts", ("node7",) * 3),
        ("seconds", ((1.0,),)),
        ("seconds", ((1.0,),) * 3),
        ("lag_s", (0.1,)),
        ("lag_s", (0.1,) * 3),
    ]:
        with pytest.raises(BadInput, match=f"{name} holds {len(value)} ranks; expected 2"):
            ranks(**{name: value})


def test_or_of_none():
    for name in ["hosts", "seconds", "lag_s"]:
        assert getattr(ranks(**{name: ()}), name) == (), name


def test_every_rank_has_as_many_samples():
    with pytest.raises(BadInput, match="rows of different length; expected as many samples of every rank"):
        ranks(seconds=((1.0, 2.0), (1.0,)))


def test_a_sample_of_a_rank_is_a_time():
    for value in [0.0, -1.0, float("nan"), float("inf")]:
        with pytest.raises(BadInput, match="seconds"):
            ranks(seconds=((1.0,), (value,)))


def test_the_straggler_is_one_of_them():
    for straggler in [-1, 2]:
        with pytest.raises(BadInput, match=f"straggler is {straggler}; expected a rank from 0 to 1"):
            ranks(straggler=straggler)


def test_any_of_them_may_be_late_or_none():
    for straggler in [None, 0, 1]:
        assert ranks(straggler=straggler).straggler == straggler, straggler


def test_nodes_are_the_hosts_that_took_part():
    for hosts, nodes in [((), 1), (("a", "a"), 1), (("a", "b"), 2), (("b", "a"), 2)]:
        assert ranks(hosts=hosts).nodes == nodes, (hosts, nodes)


def test_worth_naming_is_what_changes_the_time_without_being_part_of_the_key():
    told = ranks(hosts=("a", "b"), threads=4, straggler=1, generation=3)
    assert told.comparable() == {
        "launcher": "local",
        "back end": "gloo",
        "nodes": "2",
        "threads a rank": "4",
    }


def test_what_is_unknown_is_not_named():
    assert ranks(threads=None).comparable() == {"launcher": "local", "back end": "gloo", "nodes": "1"}


def test_a_measurement_names_what_its_ranks_do(make):
    assert make.measurement(ranks=ranks()).comparable() == ranks().comparable()


def test_a_run_file_holds_every_ranks_times(make, tmp_path):
    told = ranks(straggler=1, lag_s=(0.0, 0.02), threads=1, algorithm="tree", protocol="simple", generation=2)
    (found,) = make.run(tmp_path / "run.jsonl", make.measurement(ranks=told)).measurements
    assert found.ranks == told


def test_a_run_file_without_ranks_is_read_as_before(make, tmp_path):
    line = json.loads(encode_line(make.measurement()))
    assert line.get("ranks") is None
    (found,) = make.run(tmp_path / "run.jsonl", make.measurement()).measurements
    assert found.ranks is None


def test_ranks_in_a_file_obey_the_same_rules(make, tmp_path):
    path = make.save(tmp_path / "run.jsonl", make.measurement(ranks=ranks(straggler=1)), make.footer())
    path.write_text(path.read_text().replace('"straggler": 1', '"straggler": 7'))
    assert '"straggler": 7' in path.read_text()
    with pytest.raises(BadFile, match="straggler is 7; expected a rank from 0 to 1"):
        read_run(path)
