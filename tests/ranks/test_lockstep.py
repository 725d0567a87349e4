"""Measuring on ranks: two real Gloo processes do every scenario of `lockstep_rank.py` in one world."""

import importlib.util
import os
import pickle
import socket
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from pytest_roofline.engine.log import TimedBlock
from pytest_roofline.ranks.lockstep import own_of, samples_of

from .. import warm

SIZE = 2
PATIENCE_S = 120
SCRIPT = Path(__file__).with_name("lockstep_rank.py")
TIMINGS = ("isolated", "pipelined")
pytestmark = pytest.mark.serial


def _script():
    """The script as the module that its pickles name."""
    spec = importlib.util.spec_from_file_location("lockstep_rank", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lockstep_rank"] = module
    spec.loader.exec_module(module)
    return module


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return super().find_class("lockstep_rank" if module == "__main__" else module, name)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By scenario, what came of it on each rank."""
    folder = tmp_path_factory.mktemp("lockstep")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach())
    files = [folder / f"{number}.pickle" for number in range(SIZE)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    said = folder / "said"
    ranks = [
        warm.Process([SCRIPT, number, SIZE, port, file], cwd=folder, env=environment, stdout=said)
        for number, file in enumerate(files)
    ]
    try:
        statuses = [rank.wait(PATIENCE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert statuses == [0] * SIZE, said.read_text()
    del store
    _script()
    by_rank = [_Unpickler(file.open("rb")).load() for file in files]
    return {name: [each[name] for each in by_rank] for name in by_rank[0]}


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("where", ["late_before", "late_after"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_late_rank_shows_as_its_delay_whichever_it_is(outcomes, late, where, timing):
    # The least of many: what a busy machine adds to a median is not the ranks'.
    undelayed_s = min(outcomes[f"{where} -1 {timing}"][0].times.measured.samples.seconds)
    delayed_s = min(outcomes[f"{where} {late} {timing}"][0].times.measured.samples.seconds)
    # A sleep is never shorter than asked for; on a busy machine either may be longer in every sample.
    assert 0.015 < delayed_s < undelayed_s + 0.06


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("where", ["late_before", "late_after"])
@pytest.mark.parametrize("late", [0, 1])
def test_the_late_rank_is_named_on_every_rank(outcomes, late, where, timing):
    for outcome in outcomes[f"{where} {late} {timing}"]:
        assert outcome.times.straggler == late
        assert 0.015 < outcome.times.lag_s[late] < 0.06


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_is_late_between_collectives_is_named(outcomes, late):
    assert outcomes[f"late_between {late}"][0].times.straggler == late


def test_leaving_a_collective_later_than_its_root_is_no_lateness(outcomes):
    times = outcomes["one_way"][0].times
    assert max(times.lag_s) < 0.2 * times.measured.samples.median_s


def test_without_a_collective_the_longest_is_late(outcomes):
    times = outcomes["quiet"][0].times
    assert (times.straggler, times.lag_s[0]) == (1, 0.0)


def test_both_ranks_make_the_same_calls(outcomes):
    for name, (first, second) in outcomes.items():
        assert first.calls == second.calls, name


@pytest.mark.parametrize("name", ["right", "isolated", "rotate", "late_after 0 pipelined"])
def test_a_sample_is_the_longest_of_the_ranks_own(outcomes, name):
    first, second = (outcome.times.measured for outcome in outcomes[name])
    assert first.samples.seconds == tuple(map(max, zip(first.own, second.own, strict=True)))
    assert second.samples.seconds == first.samples.seconds


@pytest.mark.parametrize("name", ["right", "isolated", "rotate", "quiet"])
def test_what_was_told_on_the_way_is_what_was_measured(outcomes, name):
    samples = outcomes[name][0].times.measured.samples
    for outcome in outcomes[name]:
        told = samples_of(outcome.progress)
        assert (told.seconds, told.blocks, told.iterations) == (samples.seconds, samples.blocks, samples.iterations)
        assert own_of(outcome.progress) == outcome.times.measured.own


def test_an_isolated_sample_is_one_call_and_a_pipelined_one_is_many(outcomes):
    assert outcomes["short isolated"][0].times.measured.samples.iterations == 1
    assert outcomes["short pipelined"][0].times.measured.samples.iterations > 10


@pytest.mark.parametrize("name", ["right", "isolated", "rotate", "as timed"])
def test_right_data_are_verified(outcomes, name):
    assert [(each.times.measured.verified, each.times.measured.wrong) for each in outcomes[name]] == [(True, "")] * 2


def test_nothing_to_verify_is_neither_right_nor_wrong(outcomes):
    assert [each.times.measured.verified for each in outcomes["itself"]] == [None, None]


def test_wrong_data_on_one_rank_are_wrong_for_both_and_said_in_its_words(outcomes):
    right, wrong = (outcome.times for outcome in outcomes["wrong on 1"])
    assert (right.measured.verified, wrong.measured.verified) == (False, False)
    assert wrong.measured.wrong == "wrong data in argument set 0: last is -1, expected 1"
    assert right.measured.wrong == "wrong data (rank 1); those of this rank are right"
    assert (right.straggler, right.lag_s) == (None, ())


def test_work_that_was_done_only_once_shows_in_refilled_buffers(outcomes):
    for outcome in outcomes["stale"]:
        assert outcome.times.measured.verified is False
        assert outcome.times.measured.wrong.startswith(
            "wrong data in argument set 0, filled again after timing: last is 0"
        )


def test_a_rotation_has_as_many_sets_on_both_ranks(outcomes):
    counts = [outcome.times.measured.samples.argument_sets for outcome in outcomes["rotate"]]
    assert counts[0] == counts[1] > 1
    assert outcomes["rotate"][0].times.measured.samples.argument_sets == counts[0]


def test_a_rotation_is_not_begun_where_one_rank_has_too_little_free_memory(outcomes):
    assert [outcome.times for outcome in outcomes["crowded"]] == [None, None]
    for outcome in outcomes["crowded"]:
        assert outcome.error.startswith("a rank needs "), outcome.error
        assert "of free memory to rotate through" in outcome.error
        assert "found 0 B" in outcome.error


@pytest.mark.parametrize("name", ["in bulk", "in bulk on 0"])
def test_ranks_make_their_sets_alike_however_each_of_them_verifies(outcomes, name):
    assert [(each.times.measured.verified, each.times.measured.wrong) for each in outcomes[name]] == [(True, "")] * 2


def test_a_rank_function_without_anything_to_call_is_timed_itself(outcomes):
    assert outcomes["itself"][0].times.measured.samples.median_s > 0


def test_a_drill_is_labelled(outcomes):
    assert "replaced" in outcomes["drill"][0].times.measured.samples.labels


def test_memory_of_a_call_is_each_ranks_own(outcomes):
    assert all(outcome.times.measured.peak_bytes is not None for outcome in outcomes["isolated"])


def test_ranks_that_give_different_things_to_time_are_refused_with_both(outcomes):
    text = "on rank 0 the rank function returned a function, on rank 1 something else than a function or a Timed"
    assert all(outcome.error.startswith(text) for outcome in outcomes["differing"])


def test_what_a_rank_raises_is_its_own_error(outcomes):
    assert [outcome.error for outcome in outcomes["raising"]] == ["from rank 0", "from rank 1"]


def test_blocks_of_the_warm_up_are_told_apart_by_their_index():
    def told(index, seconds):
        common = {"iterations": 1, "tick_s": 1e-9, "labels": ()}
        return {"index": index, "kept": TimedBlock(None, seconds, 1.0, False, seconds), "common": common}

    assert own_of([told(0, (9.0,)), told(1, (8.0,)), told(0, (1.0, 2.0)), told(1, (3.0,))]) == (1.0, 2.0, 3.0)


def test_nothing_told_is_no_samples():
    assert samples_of([]) is None
