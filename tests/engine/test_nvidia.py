"""The state of an NVIDIA GPU as its management library tells it, with a stand-in for the library."""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_roofline.core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL
from pytest_roofline.engine.blocks.conditions import OTHERS_BYTES
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.nvidia import Nvml, busy_others, handle_of, silent

from .management import (
    GIB,
    H100,
    WITHHELD,
    FakeNvml,
    NVMLError,
    fields,
    holding,
    memory,
    violations,
    working,
)

# An idle A100: 912 MB by the first account, 7.8 MB by the second (Cldfire/nvml-wrapper#57); a context with cuBLAS.
IDLE, KEPT, CONTEXT = 7_800_000, 904_000_000, 800_000_000


@pytest.fixture
def install(monkeypatch):
    """Puts a stand-in for pynvml in its place, with one GPU that answers as usual but for what is given."""

    def install(lacking=(), **answers):
        gpu = {name: answer for name, answer in (H100 | answers).items() if name not in lacking}
        library = FakeNvml(gpu)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return install


@pytest.fixture
def counters(install):
    """The counters of a GPU that gives these answers."""

    def counters(own_bytes=0, before_bytes=None, **answers):
        install(**answers)
        return Nvml("1", before_bytes).counters(own_bytes)

    return counters


def test_every_reason_that_slows_the_device_is_its_cause_and_no_other(counters):
    for bits, causes in [
        (0x0, set()), (0x4, {POWER_CAP}), (0x8, {HARDWARE}), (0x20, {THERMAL}), (0x40, {THERMAL}), (0x80, {BRAKE}),
        (0x4 | 0x80, {POWER_CAP, BRAKE}), (0x1FF, {POWER_CAP, HARDWARE, THERMAL, BRAKE}),
        # Idle, clocks set by the user, sync boost, display.
        (0x1, set()), (0x2, set()), (0x10, set()), (0x100, set()),
    ]:  # fmt: skip
        assert (
            counters(CurrentClocksEventReasons=bits, CurrentClocksThrottleReasons=0x40).active
            == causes
        ), bits
    older = {"CurrentClocksThrottleReasons": 0x40}
    assert counters(CurrentClocksEventReasons=WITHHELD, **older).active == {THERMAL}
    assert counters(lacking={"CurrentClocksEventReasons"}, **older).active == {THERMAL}


def test_every_counter_of_a_cause_is_added_up_in_seconds_and_what_is_not_counted_is_left_out(
    counters,
):
    stray = SimpleNamespace(fieldId=1, nvmlReturn=0, value=SimpleNamespace(ullVal=7))
    newer = fields({269: 2e9, 270: 3e9, 271: 4e9})
    for status, field_values, seconds in [
        (violations(2.5e9, 0.5e9), fields(returned=3), {POWER_CAP: 2.5, THERMAL: 0.5}),
        (violations(thermal_ns=1e9), newer, {POWER_CAP: 0.0, THERMAL: 6.0, BRAKE: 4.0}),
        (WITHHELD, fields({270: 3e9}), {THERMAL: 3.0, BRAKE: 0.0}),
        (violations(), lambda _: [stray], {POWER_CAP: 0.0, THERMAL: 0.0}),
        (WITHHELD, WITHHELD, {}),
    ]:
        assert counters(ViolationStatus=status, FieldValues=field_values).seconds == pytest.approx(
            seconds
        )


def test_what_is_not_answered_is_unknown_and_does_not_cost_the_rest(counters):
    answers = {"MemoryInfo": memory(10 * GIB), "ViolationStatus": violations(1e9)}
    usual = counters(**answers)
    for questions, facts in [
        (("CurrentClocksEventReasons", "CurrentClocksThrottleReasons"), {"active": None}),
        (("ViolationStatus",), {"seconds": {}}), (("MemoryInfo",), {"others_bytes": None}),
        (("ProcessUtilization",), {"others_busy": None}),
    ]:  # fmt: skip
        for how in (dict.fromkeys(questions, WITHHELD), {"lacking": questions}):
            assert counters(**answers | how) == replace(usual, **facts), how
    assert counters(**dict.fromkeys(H100.keys() - {"UUID"}, WITHHELD)) == Counters()


def test_what_the_driver_keeps_is_no_neighbour_and_an_idle_one_shows_also_in_a_container(counters):
    def others(more, before, own=2 * GIB):
        return counters(
            own, before, MemoryInfo=memory(IDLE + CONTEXT + own + more, KEPT)
        ).others_bytes

    assert (others(0, None), others(0, IDLE)) == (0, IDLE)
    # There before this process, also where nobody looked; or come later.
    for before in (None, IDLE + 2 * GIB, IDLE):
        assert others(2 * GIB, before, 3 * GIB) > OTHERS_BYTES, before


def test_where_this_process_is_on_the_list_the_rest_is_the_others(counters):
    # 3 GiB by torch and 7 by NCCL, which torch does not count.
    running = holding(mine=CONTEXT + 10 * GIB, p7=2 * GIB)
    found = counters(
        3 * GIB, MemoryInfo=memory(CONTEXT + 12 * GIB, KEPT), ComputeRunningProcesses=running
    )
    assert found.others_bytes == 2 * GIB
    for blind in ([], holding(p7=GIB), holding(mine=None), WITHHELD):
        used = memory(IDLE + CONTEXT + 3 * GIB, KEPT)
        assert (
            counters(3 * GIB, MemoryInfo=used, ComputeRunningProcesses=blind).others_bytes == 0
        ), blind


def test_a_library_that_is_newer_than_the_driver_costs_no_other_answer(install):
    class NVMLLibraryMismatchError(Exception):
        """As pynvml has it, beside the tree of NVMLError."""

    library = install(
        MemoryInfo=memory(10 * GIB), ComputeRunningProcesses=NVMLLibraryMismatchError("Unversioned")
    )
    library.NVMLLibraryMismatchError = NVMLLibraryMismatchError
    assert Nvml("1").counters(0).others_bytes == 9 * GIB


def test_the_time_of_other_processes_adds_up_where_ours_is_on_the_list(counters):
    for running, busy in [
        ({"mine": 80}, 0.0), ({"mine": 50, "p7": 20, "p8": 10}, 0.3), ({"p7": 100, "mine": 0}, 1.0), ({}, None),
        ({"p7": 100}, None),
    ]:  # fmt: skip
        assert counters(ProcessUtilization=working(**running)).others_busy == (
            None if busy is None else pytest.approx(busy)
        ), running


def test_the_library_is_opened_once_and_asked_for_the_time_since_it_was_asked_last(install):
    library, before_us = install(), time.time_ns() // 1000
    nvml = Nvml("1")
    nvml.counters(0), nvml.counters(0)
    since = [arguments[0] for name, *arguments in library.asked if name == "ProcessUtilization"]
    assert before_us <= since[0] <= time.time_ns() // 1000
    assert (since[1], library.open) == (1050, 1)


def test_a_device_is_found_by_its_uuid_with_any_prefix_or_none_and_never_by_its_index():
    for known, uuid in [("GPU-1", "1"), ("GPU-1", "GPU-1"), ("MIG-3", "MIG-3"), ("MIG-3", "3")]:
        assert handle_of(FakeNvml(H100, H100 | {"UUID": known}), uuid)["UUID"] == known, (
            known,
            uuid,
        )
    for uuid in ("9", None):
        with pytest.raises(NVMLError):
            handle_of(FakeNvml(H100), uuid)


def test_a_library_that_cannot_be_asked_says_why_and_leaves_everything_unknown(monkeypatch):
    driver = (
        "NVML finds no driver (Driver Not Loaded; in a container, enable the driver's utilities: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
    )
    for library, uuid, why, of_all in [
        (None, "1", *["nvidia-ml-py is not installed (pip install nvidia-ml-py)"] * 2),
        (FakeNvml(H100, starts=NVMLError("Driver Not Loaded")), "1", driver, driver),
        (FakeNvml(H100), "9", "NVML does not know this device", ""),
        (FakeNvml(H100), None, "NVML does not know this device", ""),
    ]:
        monkeypatch.setitem(sys.modules, "pynvml", library)
        nvml = Nvml(uuid)
        assert (nvml.silent, silent(), nvml.counters(0)) == (why, of_all, Counters()), uuid
    library = FakeNvml(H100)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert (silent(), library.open, Nvml("1").silent) == ("", 0, "")


def test_the_share_of_the_time_of_every_other_gpu_is_told_where_ours_is_among_them(monkeypatch):
    gpus = [
        H100 | {"UUID": f"GPU-{n}", "UtilizationRates": SimpleNamespace(gpu=10 * n)}
        for n in range(3)
    ]
    gpus[2]["UtilizationRates"] = WITHHELD
    library = FakeNvml(*gpus, NVMLError(15))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert (busy_others("0"), busy_others("GPU-1")) == (
        {"GPU 1 (GPU-1)": 0.1},
        {"GPU 0 (GPU-0)": 0.0},
    )
    assert (busy_others("9"), busy_others(None), library.open) == ({}, {}, 0)
