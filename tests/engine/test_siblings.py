"""Whether other devices of the machine are at work: what this process just did is no neighbour."""

import sys
import traceback
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.core.samples import SIBLINGS
from pytest_roofline.core.work import Work
from pytest_roofline.engine.conditions import FORGOTTEN_S, busy_text, siblings_of
from pytest_roofline.engine.devices import amd, nvidia
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.measure import Observer, measure_request
from pytest_roofline.engine.request import RankOptions, Request, Timed
from pytest_roofline.engine.timing import Plan


class Card(FakeDevice):
    """One of several, whose others answer what is scripted, once each time they are asked."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def siblings(self):
        return ("cuda:0", "cuda:1")

    def current(self):
        raise NotImplementedError

    def busy_siblings(self):
        return self.answers.pop(0)


def asked(*answers):
    """What is said, and for how long was waited."""
    waits = []
    return busy_text(Card(*answers), waits.append), waits


def test_quiet_siblings_are_asked_once():
    assert asked({"GPU 1 (b)": 0.0, "GPU 2 (c)": 0.05}) == ("", [])


def test_what_is_busy_twice_is_told_with_its_share():
    busy, waits = asked({"GPU 1 (b)": 1.0}, {"GPU 1 (b)": 0.87, "GPU 2 (c)": 0.0})
    assert (busy, waits) == ("GPU 1 (b) was 87 % busy", [FORGOTTEN_S])


def test_what_this_process_just_did_is_over_when_asked_again():
    assert asked({"GPU 1 (b)": 1.0}, {"GPU 1 (b)": 0.0})[0] == ""


def test_a_device_that_knows_of_no_siblings_has_none():
    assert (siblings_of(FakeDevice()), busy_text(FakeDevice())) == ((), "")


UUIDS = ("GPU-aa", "GPU-bb", "GPU-cc")


class NVMLError(Exception):
    """As pynvml has it."""


@pytest.fixture
def nvml(monkeypatch):
    """Three GPUs of which the second is at work, and the third may not tell."""
    library = ModuleType("pynvml")
    library.NVMLError = NVMLError
    library.nvmlInit = library.nvmlShutdown = lambda: None
    library.nvmlDeviceGetCount = lambda: 3
    library.nvmlDeviceGetHandleByIndex = lambda index: index
    library.nvmlDeviceGetUUID = lambda index: UUIDS[index].encode()
    library.told = {0: 99, 1: 80}

    def rates(index):
        if index not in library.told:
            raise NVMLError(3)
        return SimpleNamespace(gpu=library.told[index])

    library.nvmlDeviceGetUtilizationRates = rates
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.mark.parametrize("uuid", ["GPU-aa", "aa"])
def test_nvidias_others_are_told_by_index_and_uuid(nvml, uuid):
    assert nvidia.busy_others(uuid) == {"GPU 1 (GPU-bb)": 0.8}


@pytest.mark.parametrize("uuid", ["MIG-1234", None, "", "GPU-cc"])
def test_where_ours_is_not_among_them_nobody_knows_the_others(nvml, uuid):
    assert nvidia.busy_others(uuid) == {}


def test_a_library_that_does_not_answer_tells_of_nobody(nvml):
    del nvml.nvmlDeviceGetUtilizationRates
    assert nvidia.busy_others("GPU-aa") == {}
    nvml.nvmlDeviceGetCount = lambda: (_ for _ in ()).throw(NVMLError(9))
    assert nvidia.busy_others("GPU-aa") == {}


@pytest.fixture
def amdsmi(monkeypatch):
    """Three GPUs of which the second is at work, and the third says "N/A"."""
    library = ModuleType("amdsmi")
    library.amdsmi_init = lambda: None
    library.amdsmi_get_processor_handles = lambda: [0, 1, 2]
    library.amdsmi_get_gpu_device_bdf = lambda handle: f"0000:C{handle}:00.0"
    library.amdsmi_get_gpu_device_uuid = lambda handle: f"uuid-{handle}"
    library.amdsmi_get_gpu_activity = lambda handle: {"gfx_activity": ["N/A", 70, "N/A"][handle]}
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    return library


def test_amds_others_are_told_by_index_and_uuid(amdsmi):
    assert amd.busy_others("0000:c0:00.0") == {"GPU 1 (uuid-1)": 0.7}


@pytest.mark.parametrize("address", ["0000:dd:00.0", None])
def test_of_amd_too_nobody_is_another_where_ours_is_not_found(amdsmi, address):
    assert amd.busy_others(address) == {}


def test_ranks_and_siblings_ask_nobody_whether_others_are_busy_and_one_device_alone_does():
    """The others are the ranks and siblings of the measurement itself."""
    copy = Work(payload_bytes=2**20, wire_bytes=2**20)

    def asks(**changes):
        return Request(work=copy, metric="pinned_payload_GBps", budget_s=0.1, **changes).over_host_link

    assert (asks(), asks(ranks=RankOptions(2), timing="isolated"), asks(labels=(SIBLINGS,))) == (True, False, False)


def test_the_traceback_of_a_failure_holds_no_plan_and_so_nothing_that_refills_or_flushes():
    calls = []

    def fails(x):
        calls.append(x.numel())
        if len(calls) > 2:
            raise ValueError("on purpose")

    timed = Timed(fails, lambda: (torch.zeros(4),))
    request = Request(work=Work(read_bytes=16), budget_s=0.1, timed=timed, refill=True)
    with pytest.raises(ValueError, match="on purpose") as raised:
        measure_request(FakeDevice(), request, Observer())
    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert "run" in [frame.f_code.co_name for frame in frames]
    held = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, Plan)]
    assert [(plan.refill, plan.flush) for plan in held if plan.refill or plan.flush] == []
