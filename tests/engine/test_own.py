"""Which memory on a GPU is this run's own: no process that works for the same run is a neighbour."""

import json
import os
import threading
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.devices import base
from pytest_roofline.engine.devices.base import OWN_CONTEXT_BYTES, others_bytes, started_by
from pytest_roofline.plugin import round_child
from pytest_roofline.ranks import rank, worker

GIB = 2**30
CONTEXT = 600_000_000
ME, PARENT, BROTHER, CHILD, STRANGER = os.getpid(), 7_000_001, 7_000_002, 7_000_003, 7_000_004
PARENTS = {ME: PARENT, BROTHER: PARENT, CHILD: ME, STRANGER: 1}


@pytest.fixture(autouse=True)
def family(monkeypatch):
    """This process has a child; the rest of the family counts once it was told who started it."""
    monkeypatch.setattr(base, "_parent", PARENTS.get)
    monkeypatch.setattr(base, "_starters", set())


@pytest.fixture
def communicating(monkeypatch):
    """The process talks to others by torch.distributed."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)


def test_whoever_started_this_process_is_a_neighbour_until_told_otherwise():
    # A shell, say, which may have started a neighbour too.
    holders = {ME: CONTEXT, PARENT: CONTEXT, BROTHER: GIB}
    assert others_bytes(2 * CONTEXT + GIB, 0, holders) == CONTEXT + GIB


def test_the_family_is_none_of_the_neighbours():
    started_by(PARENT)
    holders = {ME: CONTEXT, PARENT: CONTEXT, BROTHER: GIB, CHILD: GIB, STRANGER: 2 * GIB}
    assert others_bytes(2 * CONTEXT + 4 * GIB, 0, holders) == 2 * GIB


def test_a_round_is_alone_beside_its_parent_where_the_list_is_blind():
    started_by(PARENT)
    assert others_bytes(2 * CONTEXT + 3 * GIB, 3 * GIB, {}, before_bytes=CONTEXT) == 0


def test_a_round_sees_a_neighbour_beside_its_parent_where_the_list_is_blind():
    started_by(PARENT)
    assert others_bytes(2 * CONTEXT + 5 * GIB, 3 * GIB, {}, before_bytes=CONTEXT + 2 * GIB) > GIB


def test_buffers_of_nccl_are_no_neighbour(communicating):
    used = CONTEXT + 3 * GIB + 6 * GIB
    assert others_bytes(used, 3 * GIB, {}, before_bytes=0) == 0
    assert others_bytes(used, 3 * GIB, {}) is None


def test_what_was_there_before_and_has_gone_is_no_neighbour_any_more():
    assert others_bytes(CONTEXT + GIB, GIB, {}, before_bytes=20 * GIB) == 0


def test_more_than_a_context_beyond_torchs_own_is_a_neighbours():
    assert others_bytes(5 * GIB, GIB, {}) == 4 * GIB - OWN_CONTEXT_BYTES


def test_the_parent_of_a_process_is_read_behind_whatever_it_is_called(monkeypatch):
    monkeypatch.undo()
    assert base._parent(os.getpid()) == os.getppid()
    assert base._parent(2**22 + 1) is None


def test_a_round_works_for_the_run_that_started_it(monkeypatch, tmp_path):
    monkeypatch.setattr(threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    asked = {"round": 2, "ids": [], "folder": "", "parent": PARENT, "deadline": None, "status": "", "own_process": True}
    (tmp_path / "round.json").write_text(json.dumps(asked), encoding="utf-8")
    monkeypatch.setenv(round_child.VARIABLE, str(tmp_path / "round.json"))
    plugins = SimpleNamespace(hasplugin=lambda name: False, register=lambda *_: None)
    round_child.begin(SimpleNamespace(stash=pytest.Stash(), option=SimpleNamespace(), pluginmanager=plugins))
    assert base._starters == {PARENT}


def test_a_rank_works_for_whoever_started_it(monkeypatch):
    def nobody(*_):
        raise ConnectionError("nobody there")

    for name, answer in {"pop_controller": lambda: None, "connect": nobody}.items():
        monkeypatch.setattr(worker, name, answer)
    # A guard would watch this very process.
    for name in ("die_with_parent", "guard_group"):
        monkeypatch.setattr(rank, name, lambda: None)
    monkeypatch.setattr(rank.faulthandler, "enable", lambda: None)
    assert (rank.main(), base._starters) == (1, {os.getppid()})
