"""The shipped benchmarks as a user starts them: what each tier selects, and one short real run."""

import functools
import os
import re
from pathlib import Path

import pytest

from pytest_roofline import Work
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.engine.cache import is_cold, rotation_sets
from pytest_roofline.engine.devices.base import INFINITY_CACHE_BYTES
from roofline_kernels.stream import ELEMENTS, LARGE_ELEMENTS
from roofline_kernels.work import STREAM, stream_work

from . import warm

MIB = 2**20
ROOT = Path(__file__).resolve().parent.parent
# The last size, 2,101,346,304 bytes, is 2004 MiB.
DECADES = ["4KiB", "32KiB", "512KiB", "4MiB", "32MiB", "512MiB", "2004MiB"]
POWERS = [f"{2**exponent}KiB" for exponent in range(2, 10)] + [f"{2**exponent}MiB" for exponent in range(10)] + ["1GiB"]
ALL = {*POWERS, "65537B", "1000003B", "16777259B", "2004MiB"}
EVERYWHERE = ("d2d", "d2d_triton", "h2d", "d2h")


def pytest_on_suite(*arguments):
    """A run of pytest on `perf_tests`, in a process of its own."""
    return warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )


@functools.cache
def collected(*arguments):
    """The ids that a selection lists."""
    done = pytest_on_suite("--collect-only", "-q", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return tuple(re.findall(r"^perf_tests/\S+::(\S+)$", done.stdout, re.MULTILINE))


def sizes(ids, test):
    """The sizes among the ids of a test."""
    return [match[1] for test_id in ids if (match := re.fullmatch(rf"test_{test}\[([^-\]]+)\S*", test_id))]


def of_tier(tier):
    """The ids of a tier."""
    return collected("perf_tests", f"--roofline-tier={tier}")


def test_the_sweep_has_twenty_three_sizes():
    assert len(ALL) == 23


def test_quick_runs_the_decades_and_the_last_size():
    assert sizes(of_tier("quick"), "memcpy_h2h") == DECADES


@pytest.mark.parametrize("tier", ["nightly", "full"])
def test_nightly_and_full_run_every_size(tier):
    assert (len(sizes(of_tier(tier), "memcpy_h2h")), set(sizes(of_tier(tier), "memcpy_h2h"))) == (23, ALL)


def test_quick_is_what_runs_without_an_option():
    assert of_tier("quick") == collected("perf_tests")


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_path_of_a_copy_has_every_size(path):
    assert set(sizes(of_tier("nightly"), f"memcpy_{path}")) == ALL


@pytest.mark.parametrize("path", ["h2d", "d2h"])
def test_links_are_measured_from_pinned_and_from_pageable_memory(path):
    ids = [test_id for test_id in of_tier("quick") if test_id.startswith(f"test_memcpy_{path}[4KiB")]
    assert [f"test_memcpy_{path}[4KiB-pageable]", f"test_memcpy_{path}[4KiB-pinned]"] == sorted(ids)


def test_stream_has_the_five_operations():
    expected = ["test_stream[copy]", "test_stream[scale]", "test_stream[add]", "test_stream[triad]", "test_stream[dot]"]
    assert expected == [test_id for test_id in of_tier("quick") if test_id.startswith("test_stream[")]


def test_the_large_arrays_of_stream_are_made_once_whatever_the_cache():
    """Two sets of 6.4 GB would be more than the rotation needs, and than some devices have."""
    for operation in STREAM:
        work = Work(**stream_work(operation, LARGE_ELEMENTS, 8))
        assert {rotation_sets(work, size, 10**12) for size in (4 * MIB, 50 * MIB, INFINITY_CACHE_BYTES)} == {1}


@pytest.mark.parametrize("operation", STREAM)
def test_the_arrays_of_stream_leave_the_largest_cache_of_a_processor_too(operation):
    work = Work(**stream_work(operation, ELEMENTS, 8))
    sets = rotation_sets(work, 480 * MIB, 16 * 2**30, set_bytes=3 * ELEMENTS * 8)
    assert is_cold(sets, work, 480 * MIB)


def test_the_large_arrays_of_stream_need_an_accelerator_and_have_the_five_operations():
    elsewhere = collected("perf_tests/test_stream.py", "--roofline-device=cuda:9")
    large = [test_id for test_id in elsewhere if test_id.startswith("test_stream_large[")]
    assert large == [f"test_stream_large[{operation}]" for operation in STREAM]


def test_a_nightly_size_that_is_asked_for_by_its_id_is_kept_under_quick():
    assert collected("perf_tests/test_memcpy.py::test_memcpy_h2h[8KiB]") == ("test_memcpy_h2h[8KiB]",)


def test_collecting_opens_no_device():
    # Nobody has that one; for an accelerator there are quick cases of the transformer beside those for a CPU.
    elsewhere = collected("perf_tests", "--roofline-tier=quick", "--roofline-device=cuda:9")
    assert set(of_tier("quick")) <= set(elsewhere)
    assert {name.partition("[")[0] for name in set(elsewhere) - set(of_tier("quick"))} == {"test_transformer"}


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """Two sizes measured for a twentieth of a second each: the finished process and its run."""
    folder = tmp_path_factory.mktemp("runs")
    done = pytest_on_suite(
        "perf_tests",
        "-k=memcpy_h2h and (4KiB or 32KiB)",
        "--roofline-device=cpu",
        "--roofline-budget=0.05",
        f"--roofline-dir={folder}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / "runs").glob("*.jsonl")
    return done, read_run(path)


@pytest.mark.serial
def test_a_short_run_measures_what_was_selected(short_run):
    assert [m.label for m in short_run[1].measurements] == ["memcpy_h2h[4KiB]", "memcpy_h2h[32KiB]"]


@pytest.mark.serial
def test_a_short_run_verifies_what_it_timed(short_run):
    assert [m.verified for m in short_run[1].measurements] == [True, True]
    # Others on this machine may spoil what is measured, and nothing else may.
    spoiled = r"(\d+ of \d+ blocks of samples were spoiled: \d+ × cores taken by the scheduler)?"
    assert [m.invalid for m in short_run[1].measurements if not re.fullmatch(spoiled, m.invalid)] == []


@pytest.mark.serial
def test_a_short_run_rotates_its_buffers(short_run):
    assert [m.key.cache for m in short_run[1].measurements] == ["rotate", "rotate"]


@pytest.mark.serial
def test_a_short_run_passes(short_run):
    assert [outcome.outcome for outcome in short_run[1].outcomes] == ["passed", "passed"]


@pytest.mark.serial
def test_a_short_run_ends_with_its_counts(short_run):
    assert (short_run[1].footer.measured, short_run[1].footer.exit_status) == (2, 0)


@pytest.mark.serial
def test_a_short_run_prints_each_size_with_its_rate(short_run):
    rows = [line for line in short_run[0].stdout.splitlines() if re.match(r"memcpy_h2h\S*\s+(4|32) KiB", line)]
    assert len(rows) == 2, short_run[0].stdout
