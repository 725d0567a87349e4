"""The state of an NVIDIA GPU as its management library tells it, with a stand-in for the library."""

import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from pytest_roofline.measuring.devices.base import BRAKE, HARDWARE, POWER_CAP, THERMAL, Counters
from pytest_roofline.measuring.devices.nvidia import Nvml

GIB = 2**30
UNKNOWN = Counters(active=None, seconds={}, others_bytes=None, others_busy=None, preemptions=None)


class NVMLError(Exception):
    """As pynvml has it."""


WITHHELD = NVMLError(3)
# A library older than the question does not know it at all.
LACKING = object()


def violations(power_ns=0, thermal_ns=0):
    """What every policy answers."""
    return {0: SimpleNamespace(violationTime=power_ns), 1: SimpleNamespace(violationTime=thermal_ns)}.get


def fields(returned=0, **counts_ns):
    """What every field answers, by its number."""
    counts = {int(name.removeprefix("field_")): count for name, count in counts_ns.items()}

    def answer(asked):
        return [
            SimpleNamespace(fieldId=number, nvmlReturn=returned, value=SimpleNamespace(ullVal=counts.get(number, 0)))
            for number in asked
        ]

    return answer


def processes(**percent_by_process):
    """What a list of processes says: `mine` is this one."""
    return lambda since: [
        SimpleNamespace(pid=os.getpid() if name == "mine" else int(name[1:]), smUtil=percent, timeStamp=1000 + percent)
        for name, percent in percent_by_process.items()
    ]


ANSWERS = {
    "nvmlInit": None,
    "nvmlDeviceGetHandleByUUID": "handle",
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=10 * GIB),
    "nvmlDeviceGetViolationStatus": violations(power_ns=10**9),
    "nvmlDeviceGetFieldValues": fields(returned=3),
    "nvmlDeviceGetProcessUtilization": processes(mine=50, p7=20),
}


class FakeNvml(ModuleType):
    """A library with these answers; one that is an error is raised, one that is a function is called."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6
    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN = 269
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN = 270
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN = 271

    def __init__(self, answers):
        super().__init__("pynvml")
        self.asked = []
        for name, answer in answers.items():
            if answer is not LACKING:
                setattr(self, name, self._question(name, answer))

    def _question(self, name, answer):
        def ask(*arguments):
            self.asked.append((name, *arguments))
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments[1:]) if callable(answer) else answer

        return ask

    def times_asked(self, name):
        """How often a question was asked."""
        return sum(question == name for question, *_ in self.asked)


@pytest.fixture
def install(monkeypatch):
    """Puts a stand-in for pynvml in its place, which answers as usual but for what is given."""

    def install(**answers):
        library = FakeNvml(ANSWERS | answers)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return install


def counters_of(install, own_bytes=0, **answers):
    """The counters of a GPU that gives these answers."""
    install(**answers)
    return Nvml("1").counters(own_bytes)


@pytest.mark.parametrize(
    ("bits", "causes"),
    [
        (0x0, set()),
        (0x4, {POWER_CAP}),
        (0x8, {HARDWARE}),
        (0x20, {THERMAL}),
        (0x40, {THERMAL}),
        (0x80, {BRAKE}),
        (0x4 | 0x80, {POWER_CAP, BRAKE}),
        (0x20 | 0x40, {THERMAL}),
        (0x1FF, {POWER_CAP, HARDWARE, THERMAL, BRAKE}),
    ],
)
def test_every_reason_that_slows_the_device_is_its_cause(install, bits, causes):
    assert counters_of(install, nvmlDeviceGetCurrentClocksEventReasons=bits).active == causes


@pytest.mark.parametrize("bits", [0x1, 0x2, 0x10, 0x100])
def test_idling_clocks_set_by_the_user_and_displays_are_no_causes(install, bits):
    assert counters_of(install, nvmlDeviceGetCurrentClocksEventReasons=bits).active == frozenset()


@pytest.mark.parametrize("newer", [WITHHELD, LACKING])
def test_an_older_driver_is_asked_by_the_older_name(install, newer):
    counters = counters_of(
        install, nvmlDeviceGetCurrentClocksEventReasons=newer, nvmlDeviceGetCurrentClocksThrottleReasons=0x40
    )
    assert counters.active == {THERMAL}


def test_no_reason_under_the_newer_name_is_an_answer(install):
    counters = counters_of(
        install, nvmlDeviceGetCurrentClocksEventReasons=0, nvmlDeviceGetCurrentClocksThrottleReasons=0x40
    )
    assert counters.active == frozenset()


def test_violations_of_a_policy_are_in_seconds(install):
    counters = counters_of(
        install, nvmlDeviceGetViolationStatus=violations(power_ns=2_500_000_000, thermal_ns=500_000_000)
    )
    assert counters.seconds == pytest.approx({POWER_CAP: 2.5, THERMAL: 0.5})


def test_violations_of_newer_drivers_add_to_those_of_the_policies(install):
    counters = counters_of(
        install,
        nvmlDeviceGetViolationStatus=violations(thermal_ns=10**9),
        nvmlDeviceGetFieldValues=fields(field_269=2 * 10**9, field_270=3 * 10**9, field_271=4 * 10**9),
    )
    assert counters.seconds == pytest.approx({POWER_CAP: 0.0, THERMAL: 6.0, BRAKE: 4.0})


def test_newer_counters_stand_alone_where_the_policies_are_withheld(install):
    counters = counters_of(
        install,
        nvmlDeviceGetViolationStatus=WITHHELD,
        nvmlDeviceGetFieldValues=fields(field_270=3 * 10**9),
    )
    assert counters.seconds == pytest.approx({THERMAL: 3.0, BRAKE: 0.0})


def test_a_counter_that_the_driver_does_not_keep_is_unknown_and_not_zero(install):
    assert set(counters_of(install, nvmlDeviceGetFieldValues=fields(returned=3)).seconds) == {POWER_CAP, THERMAL}


def test_a_field_that_nobody_asked_for_is_left_out(install):
    stray = SimpleNamespace(fieldId=1, nvmlReturn=0, value=SimpleNamespace(ullVal=7))
    assert set(counters_of(install, nvmlDeviceGetFieldValues=lambda _: [stray]).seconds) == {POWER_CAP, THERMAL}


QUESTIONS = {
    "nvmlDeviceGetCurrentClocksEventReasons": ("active", None),
    "nvmlDeviceGetViolationStatus": ("seconds", {}),
    "nvmlDeviceGetMemoryInfo": ("others_bytes", None),
    "nvmlDeviceGetProcessUtilization": ("others_busy", None),
}


@pytest.mark.parametrize("how", [WITHHELD, LACKING], ids=["withheld", "lacking"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_not_answered_is_unknown_and_never_fine(install, question, how):
    name, unknown = QUESTIONS[question]
    assert getattr(counters_of(install, **{question: how}), name) == unknown


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_not_answered_does_not_cost_the_rest(install, question):
    usual, without = counters_of(install), counters_of(install, **{question: WITHHELD})
    same = [name for name, _ in QUESTIONS.values() if getattr(usual, name) == getattr(without, name)]
    assert len(same) == len(QUESTIONS) - 1


def test_a_device_that_answers_nothing_is_unknown_throughout(install):
    withheld = dict.fromkeys((*QUESTIONS, "nvmlDeviceGetFieldValues"), WITHHELD)
    assert counters_of(install, **withheld) == UNKNOWN


@pytest.mark.parametrize(
    ("used", "own", "others"), [(10, 4, 5), (10, 0, 9), (5, 4, 0), (5, 5, 0), (4, 8, 0), (0, 0, 0)]
)
def test_memory_beyond_our_own_and_a_context_is_that_of_others(install, used, own, others):
    counters = counters_of(install, own * GIB, nvmlDeviceGetMemoryInfo=SimpleNamespace(used=used * GIB))
    assert counters.others_bytes == others * GIB


@pytest.mark.parametrize(
    ("running", "busy"),
    [({"mine": 80}, 0.0), ({"mine": 50, "p7": 20, "p8": 10}, 0.3), ({"p7": 100, "mine": 0}, 1.0)],
)
def test_the_time_of_other_processes_adds_up(install, running, busy):
    counters = counters_of(install, nvmlDeviceGetProcessUtilization=processes(**running))
    assert counters.others_busy == pytest.approx(busy)


@pytest.mark.parametrize("running", [{}, {"p7": 100}])
def test_a_list_without_us_is_blind_as_in_containers(install, running):
    assert counters_of(install, nvmlDeviceGetProcessUtilization=processes(**running)).others_busy is None


def test_only_the_time_since_the_library_was_opened_is_asked_for(install):
    library = install()
    before_us = time.time_ns() // 1000
    Nvml("1").counters(0)
    (asked,) = [question[-1] for question in library.asked if question[0] == "nvmlDeviceGetProcessUtilization"]
    assert before_us <= asked <= time.time_ns() // 1000


def test_only_the_time_since_the_last_question_is_asked_for(install):
    library = install()
    nvml = Nvml("1")
    nvml.counters(0)
    nvml.counters(0)
    asked = [question[-1] for question in library.asked if question[0] == "nvmlDeviceGetProcessUtilization"]
    assert asked[1] == 1050


def test_the_library_is_opened_once(install):
    library = install()
    device = Nvml("1")
    device.counters(0), device.counters(0)
    assert (library.times_asked("nvmlInit"), library.times_asked("nvmlDeviceGetHandleByUUID")) == (1, 1)


@pytest.mark.parametrize(
    ("uuid", "asked"),
    [("1111-2222", "GPU-1111-2222"), ("GPU-1111-2222", "GPU-1111-2222"), ("MIG-3333", "MIG-3333")],
)
def test_a_device_is_found_by_its_uuid_with_a_prefix(install, uuid, asked):
    library = install()
    Nvml(uuid)
    assert library.asked[-1] == ("nvmlDeviceGetHandleByUUID", asked)


def test_every_question_is_about_that_device(install):
    library = install(nvmlDeviceGetHandleByUUID=lambda: "this one")
    Nvml("1").counters(0)
    questions = [
        arguments for name, *arguments in library.asked if name not in ("nvmlInit", "nvmlDeviceGetHandleByUUID")
    ]
    assert {arguments[0] for arguments in questions} == {"this one"}


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_or_the_device_everything_is_unknown(install, failing):
    assert counters_of(install, **{failing: NVMLError(9)}) == UNKNOWN


def test_a_device_without_a_uuid_is_not_guessed_by_its_index(install):
    install()
    assert Nvml(None).counters(0) == UNKNOWN


def test_without_the_library_everything_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml("1").counters(0) == UNKNOWN
