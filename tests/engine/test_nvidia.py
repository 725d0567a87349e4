"""The state of an NVIDIA GPU as its management library tells it, with a stand-in for the library."""

import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from pytest_roofline.engine.conditions import OTHERS_BYTES
from pytest_roofline.engine.devices.base import BRAKE, HARDWARE, POWER_CAP, THERMAL, Counters
from pytest_roofline.engine.devices.nvidia import Nvml, handle_of, silent

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


def accounts(used, reserved):
    """Both of NVML's accounts of memory, in bytes (nvml.h): the first counts what is reserved as used."""

    def answer(version=None):
        if version is None:
            return SimpleNamespace(total=80 * GIB, used=used + reserved, free=80 * GIB - used - reserved)
        assert version == FakeNvml.nvmlMemory_v2
        return SimpleNamespace(total=80 * GIB, used=used, reserved=reserved, free=80 * GIB - used - reserved)

    return answer


def holding(**bytes_by_process):
    """What a list of running processes says: `mine` is this one; None is a driver that does not tell."""
    return [
        SimpleNamespace(pid=os.getpid() if name == "mine" else int(name[1:]), usedGpuMemory=size)
        for name, size in bytes_by_process.items()
    ]


class FakeNvml(ModuleType):
    """A library with these answers; one that is an error is raised, one that is a function is called."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6
    nvmlMemory_v2 = 0x02000028
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


def others_on(install, answer, torch_bytes=0, running=LACKING, **how):
    """The bytes of others on a GPU with these accounts of memory and this list of processes."""
    install(nvmlDeviceGetMemoryInfo=answer, nvmlDeviceGetComputeRunningProcesses=running)
    return Nvml("1", **how).counters(torch_bytes).others_bytes


# An idle A100: 912 MB by the first account, 7.8 MB by the second (Cldfire/nvml-wrapper#57).
IDLE, KEPT = 7_800_000, 904_000_000
# A context with cuBLAS and cuDNN.
CONTEXT = 800_000_000


def test_what_the_driver_keeps_for_itself_is_no_neighbour(install):
    assert others_on(install, accounts(IDLE + CONTEXT + 2 * GIB, KEPT), 2 * GIB) == 0


def test_an_empty_card_is_empty_where_it_was_looked_at_before(install):
    assert others_on(install, accounts(IDLE + CONTEXT + 2 * GIB, KEPT), 2 * GIB, before_bytes=IDLE) == IDLE


@pytest.mark.parametrize("before_bytes", [None, IDLE + 2 * GIB])
def test_an_idle_neighbour_in_a_container_shows(install, before_bytes):
    others = others_on(install, accounts(IDLE + CONTEXT + 5 * GIB, KEPT), 3 * GIB, before_bytes=before_bytes)
    assert others > OTHERS_BYTES


def test_a_neighbour_that_came_later_shows_in_a_container(install):
    answer = accounts(IDLE + CONTEXT + 5 * GIB, KEPT)
    assert others_on(install, answer, 3 * GIB, before_bytes=IDLE) > OTHERS_BYTES


@pytest.mark.parametrize("older", [NVMLError(13), TypeError("unexpected keyword"), AttributeError("nvmlMemory_v2")])
def test_a_driver_or_library_without_the_second_account_is_asked_for_the_first(install, older):
    first = accounts(3 * GIB, GIB)

    def answer(version=None):
        if version is not None:
            raise older
        return first()

    assert others_on(install, answer) == 3 * GIB


def test_where_this_process_is_on_the_list_the_rest_is_the_others(install):
    # 3 GiB by torch and 7 by NCCL, which torch does not count.
    running = holding(mine=CONTEXT + 10 * GIB, p7=2 * GIB)
    assert others_on(install, accounts(CONTEXT + 12 * GIB, KEPT), 3 * GIB, running) == 2 * GIB


@pytest.mark.parametrize(
    "running", [[], holding(p7=GIB), holding(mine=None), NVMLError(3)], ids=["empty", "others", "untold", "withheld"]
)
def test_a_list_that_does_not_tell_of_this_process_is_blind(install, running):
    assert others_on(install, accounts(IDLE + CONTEXT + 3 * GIB, KEPT), 3 * GIB, running) == 0


def test_a_library_that_is_newer_than_the_driver_costs_no_other_answer(install):
    class NVMLLibraryMismatchError(Exception):
        """As pynvml has it, beside the tree of NVMLError."""

    library = install(nvmlDeviceGetComputeRunningProcesses=NVMLLibraryMismatchError("Unversioned function called"))
    library.NVMLLibraryMismatchError = NVMLLibraryMismatchError
    assert Nvml("1").counters(0).others_bytes == 9 * GIB


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


def test_an_instance_of_mig_is_found_by_its_uuid_without_a_prefix(install):
    def instance(uuid):
        if uuid != "MIG-3333":
            raise NVMLError(6)
        return "instance"

    library = install()
    library.nvmlDeviceGetHandleByUUID = instance
    assert handle_of(library, "3333") == "instance"


def test_a_uuid_that_nobody_knows_is_no_device(install):
    with pytest.raises(NVMLError):
        handle_of(install(nvmlDeviceGetHandleByUUID=NVMLError(6)), "3333")


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


def test_a_library_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    said = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
    assert (Nvml("1").silent, silent()) == (said, said)


def test_a_library_that_finds_no_driver_says_so(install):
    install(nvmlInit=NVMLError("Driver Not Loaded"))
    said = (
        "NVML finds no driver (Driver Not Loaded; in a container, hand its utilities in: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
    )
    assert (Nvml("1").silent, silent()) == (said, said)


def test_a_device_that_the_library_does_not_know_is_named_as_the_reason(install):
    install(nvmlDeviceGetHandleByUUID=NVMLError(6))
    assert Nvml("1").silent == "NVML does not know this device"


def test_a_library_that_answers_is_not_silent(install):
    library = install(nvmlShutdown=None)
    assert (Nvml("1").silent, silent(), library.times_asked("nvmlShutdown")) == ("", "", 1)
