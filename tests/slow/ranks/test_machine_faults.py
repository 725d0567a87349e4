"""A pytest that is stopped for seconds while it measures, and a host of ranks that vanishes: neither says a word."""

import re
import socket
import subprocess
import sys

import pytest

from pytest_roofline.engine.blocks.conditions import STOPPED

from ...plugin.rank_runs import RankRuns, by_label

STOPPING = """
import subprocess
import sys

# Lets a process go on that has been stopped for five seconds.
WAKE = '''
import os, signal, sys, time
pid = int(sys.argv[1])
while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T":
    time.sleep(0.01)
time.sleep(5)
os.kill(pid, signal.SIGCONT)
'''


def is_warm(calls, began_s):
    # Of the budget of 3 s the warm-up takes 0.6 s at most, so a slow machine is stopped after it and in good time, too.
    return calls >= 200 or time.monotonic() - began_s > 1


def stop(pid, name):
    Path(name).touch()
    subprocess.Popen([sys.executable, "-c", WAKE, str(pid)])
    os.kill(pid, signal.SIGSTOP)


def naps_beside(rank, controller):
    values, calls, began_s = torch.ones(8), [], time.monotonic()

    def call():
        calls.append(1)
        if rank == 1 and is_warm(len(calls), began_s) and not Path("over_ranks").exists():
            stop(controller, "over_ranks")
        time.sleep(0.002)
        dist.all_reduce(values)

    return call


@pytest.mark.roofline(budget=3)
def test_alone(roofline):
    calls, began_s = [], time.monotonic()

    def call():
        calls.append(1)
        if is_warm(len(calls), began_s) and not Path("alone").exists():
            stop(os.getpid(), "alone")
        time.sleep(0.002)

    roofline.measure(call, work=WORK)


@pytest.mark.roofline(ranks=2, budget=3)
def test_over_ranks(roofline, distributed):
    roofline.measure_ranks(distributed, naps_beside, os.getpid(), work=WORK, timeout=4)
"""


def test_a_stop_of_five_seconds_costs_one_block_and_no_rank_is_blamed_for_it(tmp_path):
    runs = RankRuns(tmp_path, STOPPING).run("--roofline-save=stopped")
    assert (runs.status, {name: how for name, (how, _) in runs.cases().items()}) == (
        0,
        {"test_alone": "passed", "test_over_ranks": "passed"},
    ), runs.text
    assert [(tmp_path / name).exists() for name in ("alone", "over_ranks")] == [True, True]
    assert re.search(
        rf"^blocks excluded: alone \((\d+ of \d+ by .*, )?1 of \d+ by {STOPPED}",
        runs.text,
        re.MULTILINE,
    )
    alone, over_ranks = (by_label(runs.saved("stopped"))[name] for name in ("alone", "over_ranks"))
    assert alone.samples.excluded[STOPPED] == 1
    assert max(alone.samples.seconds) > 0.1 > alone.median_s
    # The measurement went on to its end.
    assert len(alone.samples.blocks) > 10
    assert (over_ranks.invalid, max(over_ranks.samples.seconds) < 1) == ("", True)


# A network of its own, which then goes down: what no connection is told of, as where a machine loses its power.
VANISHING = """
import fcntl
import socket
import struct


def loopback(up):
    with socket.socket() as own:
        fcntl.ioctl(own, 0x8914, struct.pack("16sh14x", b"lo", up))


if os.environ.get("OWN_NETWORK") == str(os.getpid()):
    from pytest_roofline.ranks import channel

    loopback(1)
    # Sooner than the ranks, which live on here, miss their controller and end.
    channel._UNANSWERED = (("TCP_USER_TIMEOUT", 7000),)


def vanishes(rank):
    values, calls = torch.ones(8), [0]

    def call():
        calls[0] += 1
        if rank == 1 and calls[0] == 100:
            loopback(0)
        time.sleep(0.002)
        dist.all_reduce(values)

    return call


def test_before(roofline):
    roofline.measure(lambda: time.sleep(0.001), work=WORK)


@pytest.mark.roofline(ranks=2, budget=30)
def test_vanishes(roofline, distributed):
    roofline.measure_ranks(distributed, vanishes, work=WORK)


def test_after(roofline):
    roofline.measure(lambda: time.sleep(0.001), work=WORK)
"""
IN_OWN_NETWORK = """
import ctypes, os, runpy, sys
assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0, ctypes.get_errno()
os.environ["OWN_NETWORK"] = str(os.getpid())
sys.argv = sys.argv[2:]
runpy.run_module("pytest", run_name="__main__", alter_sys=True)
"""


# With and without something on its way to a peer that is gone; the kernel gives up in seconds and not in minutes.
ASKING = """
import time
from pytest_roofline.ranks import channel

channel._KEEPALIVE = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 1))
channel._UNANSWERED = (("TCP_USER_TIMEOUT", 2000),)
loopback(1)
ends = []
for _ in range(2):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ends.append((channel.Channel(listening.accept()[0], stall_s=5), peer))
time.sleep(0.1)
loopback(0)
ends[0][0].send("a task")
for own, _ in ends:
    try:
        own.receive(60.0)
    except EOFError:
        print("gone", flush=True)
"""


@pytest.fixture
def own_network():
    """Skips a test where no network can be made; the words that start a program in one."""
    words = ["unshare", "--net"]
    if subprocess.run([*words, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to make a network (unshare --net), found none")
    return words


def test_a_peer_that_vanishes_is_missed_whether_or_not_something_is_on_its_way_to_it(own_network):
    program = VANISHING.partition("\nif ")[0] + ASKING
    done = subprocess.run(
        [*own_network, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "gone\ngone\n"


def test_a_host_that_vanishes_is_named_and_costs_no_other_test_its_numbers(tmp_path, own_network):
    runs = RankRuns(tmp_path, VANISHING)
    child = runs.start(
        "--roofline-save=vanished", "-p", "no:cacheprovider", under=("-c", IN_OWN_NETWORK)
    )
    try:
        assert child.wait(180.0) == 1, runs.text
    finally:
        child.kill()
    cases = runs.cases()
    assert {name: how for name, (how, _) in cases.items()} == {
        "test_before": "passed",
        "test_vanishes": "failed",
        "test_after": "passed",
    }, runs.text
    name = rf"rank \d \(pid \d+ on {re.escape(socket.gethostname())}\)"
    said = rf"{name} was lost: the connection ended"
    assert re.search(rf"^.*RanksFailed: {said}$", cases["test_vanishes"][1], re.MULTILINE), cases[
        "test_vanishes"
    ][1]
    found = by_label(runs.saved("vanished"))
    assert (found["before"].invalid, found["after"].invalid) == ("", "")
    assert re.fullmatch(
        rf"the ranks failed during the measurement: {said}", found["vanishes"].invalid
    )
    assert len(found["vanishes"].samples.seconds) > 0
    assert runs.left_over() == {}
