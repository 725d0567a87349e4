"""Measuring on ranks: two real Gloo processes do every scenario of `lockstep_rank.py` in one world."""

import importlib.util
import os
import pickle
import socket
import sys
from itertools import product
from pathlib import Path

import pytest
import torch.distributed as dist

from pytest_roofline.engine.log import LatestBlock, TimedBlock
from pytest_roofline.ranks.lockstep import rank_seconds, samples_of

from .. import warm

SIZE = 2
PATIENCE_S = 120
SCRIPT = Path(__file__).with_name("lockstep_rank.py")
LATE_S = pytest.approx(0.02, rel=0.01)


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
    store = dist.TCPStore(
        "127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
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


def measured(outcomes, name):
    """What a rank measured, on each."""
    return [outcome.times.measured for outcome in outcomes[name]]


def test_a_late_rank_shows_as_its_delay_and_is_named_on_every_rank_whichever_it_is(outcomes):
    for late, (where, timing) in product((0, 1), (("before", "isolated"), ("after", "pipelined"))):
        undelayed, delayed = (
            measured(outcomes, f"{where} {rank} {timing}")[0].samples for rank in (-1, late)
        )
        assert delayed.median_s - undelayed.median_s == LATE_S
        for outcome in outcomes[f"{where} {late} {timing}"]:
            assert (outcome.times.straggler, outcome.times.lag_s[late]) == (late, LATE_S)
    # Between two collectives; without any the longest is late; leaving one later than its root is no lateness.
    for late in (0, 1):
        assert outcomes[f"between {late} pipelined"][0].times.straggler == late
    quiet, one_way = (outcomes[name][0].times for name in ("quiet", "one_way"))
    assert (quiet.straggler, quiet.lag_s[0]) == (1, 0.0)
    assert (one_way.straggler, max(one_way.lag_s)) == (None, pytest.approx(0.0, abs=1e-9))
    assert one_way.measured.samples.median_s == LATE_S


def test_both_ranks_make_the_same_calls_and_a_sample_is_the_longest_of_their_own(outcomes):
    for name, (first, second) in outcomes.items():
        assert first.calls == second.calls, name
    for name in ("right", "isolated", "rotate", "quiet", "after 0 pipelined"):
        first, second = measured(outcomes, name)
        assert first.samples.seconds == tuple(
            map(max, zip(first.rank_seconds, second.rank_seconds, strict=True))
        )
        assert second.samples.seconds == first.samples.seconds
        for outcome in outcomes[name]:
            # What was told on the way is what was measured.
            told, samples = samples_of(outcome.progress), first.samples
            assert (told.seconds, told.blocks, told.iterations) == (
                samples.seconds,
                samples.blocks,
                samples.iterations,
            )
            assert rank_seconds(outcome.progress) == outcome.times.measured.rank_seconds
    assert measured(outcomes, "short isolated")[0].samples.iterations == 1
    assert measured(outcomes, "short pipelined")[0].samples.iterations > 10
    counts = [each.samples.argument_sets for each in measured(outcomes, "rotate")]
    assert counts[0] == counts[1] > 1
    # A rank function without anything to call is timed itself; a drill is labelled; memory is each rank's own.
    assert measured(outcomes, "itself")[0].samples.median_s > 0
    assert "replaced" in measured(outcomes, "drill")[0].samples.labels
    assert all(each.peak_bytes is not None for each in measured(outcomes, "isolated"))


def test_data_are_verified_on_every_rank(outcomes):
    # Ranks make their sets alike however each of them verifies.
    for name in ("right", "isolated", "rotate", "as timed", "in bulk on 0"):
        assert [(each.verified, each.wrong) for each in measured(outcomes, name)] == [
            (True, "")
        ] * 2
    assert [each.verified for each in measured(outcomes, "itself")] == [None, None]
    right, wrong = (outcome.times for outcome in outcomes["wrong on 1"])
    assert (right.measured.verified, wrong.measured.verified) == (False, False)
    assert wrong.measured.wrong == "wrong data in argument set 0: last is -1, expected 1"
    assert right.measured.wrong == "wrong data (rank 1); the data of this rank are right"
    assert (right.straggler, right.lag_s) == (None, ())
    # Work that was done only once shows in refilled buffers.
    for each in measured(outcomes, "stale"):
        assert each.verified is False
        assert each.wrong.startswith(
            "wrong data in argument set 0, after refill changed it: last is 0"
        )


def test_what_cannot_be_measured_is_refused_on_every_rank(outcomes):
    assert [outcome.times for outcome in outcomes["crowded"]] == [None, None]
    for outcome in outcomes["crowded"]:
        assert outcome.error.startswith("a rank needs "), outcome.error
        assert "of free memory to rotate through" in outcome.error
        assert "found 0 B" in outcome.error
    text = (
        "on rank 0 the rank function returned a function, on rank 1 neither a function nor a Timed"
    )
    assert all(outcome.error.startswith(text) for outcome in outcomes["differing"])
    assert [outcome.error for outcome in outcomes["raising"]] == ["from rank 0", "from rank 1"]


def test_blocks_of_the_warm_up_are_told_apart_by_their_index():
    def told(index, seconds):
        common = {"iterations": 1, "tick_s": 1e-9, "labels": ()}
        return LatestBlock(index, TimedBlock(None, seconds, 1.0, False, seconds), common)

    assert rank_seconds(
        [told(0, (9.0,)), told(1, (8.0,)), told(0, (1.0, 2.0)), told(1, (3.0,))]
    ) == (
        1.0,
        2.0,
        3.0,
    )
    assert samples_of([]) is None
