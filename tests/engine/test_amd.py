"""The state of an AMD GPU as its management library tells it, with a stand-in for the library."""

import sys
from types import ModuleType

import pytest

from pytest_roofline.engine.devices import amd
from pytest_roofline.engine.devices.amd import Amdsmi, started_amdsmi
from pytest_roofline.engine.devices.base import BRAKE, POWER_CAP, THERMAL, Counters
from pytest_roofline.engine.devices.cuda import HIP
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

GIB = 2**30
ADDRESS = "0000:c1:00.0"
UNKNOWN = Counters(active=None, seconds={}, others_bytes=None, others_busy=None, preemptions=None)
CAUSES = {
    "prochot_thrm": BRAKE,
    "ppt_pwr": POWER_CAP,
    "socket_thrm": THERMAL,
    "vr_thrm": THERMAL,
    "hbm_thrm": THERMAL,
}


def status(everything=None, **changes):
    """A violation status as the library gives it: `active_` fields are truths, `acc_` fields counts, or "N/A"."""
    active, count = (False, 0) if everything is None else (everything, everything)
    whole = {f"active_{field}": active for field in CAUSES} | {f"acc_{field}": count for field in CAUSES}
    return whole | {"acc_counter": 10**6, "per_ppt_pwr": 100, "reference_timestamp": 1} | changes


def metrics(everything=0, cycles=10**6, **changes):
    """What a table of metrics holds of throttling, by the short names of its causes; "N/A" where it has no such field.

    The names are those of amdsmi 7.0.2 (amdsmi_interface.py).
    """
    names = ("prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm")
    counts = dict.fromkeys(names, everything) | changes
    whole = {f"{name}_residency_acc": count for name, count in counts.items()}
    return whole | {"accumulation_counter": everything if everything == "N/A" else cycles, "throttle_status": "N/A"}


def pcie(width):
    """PCIe information with this many lanes."""
    return {"pcie_metric": {"pcie_width": width, "pcie_speed": 32000}, "pcie_static": {"max_pcie_width": 16}}


ANSWERS = {
    "amdsmi_init": None,
    "amdsmi_get_processor_handles": ["first", "second"],
    "amdsmi_get_gpu_device_bdf": {"first": ADDRESS, "second": "0000:c2:00.0"},
    "amdsmi_get_violation_status": status(),
    "amdsmi_get_gpu_metrics_info": metrics(),
    "amdsmi_get_gpu_vram_usage": {"vram_total": 192 * 1024, "vram_used": 10 * 1024},
    "amdsmi_get_power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
    "amdsmi_get_pcie_info": pcie(16),
    "amdsmi_get_gpu_compute_partition": "SPX",
}


class FakeAmdsmi(ModuleType):
    """A library with these answers; one that is an error is raised, one by handle is looked up."""

    def __init__(self, answers):
        super().__init__("amdsmi")
        self.asked = []
        for name, answer in answers.items():
            setattr(self, name, self._question(name, answer))

    def _question(self, name, answer):
        def ask(*arguments):
            self.asked.append((name, *arguments))
            if isinstance(answer, Exception):
                raise answer
            by_handle = isinstance(answer, dict) and arguments and arguments[0] in answer
            return answer[arguments[0]] if by_handle else answer

        return ask


@pytest.fixture
def install(monkeypatch):
    """Puts a stand-in for amdsmi in its place, which answers as usual but for what is given."""

    def install(**answers):
        library = FakeAmdsmi(ANSWERS | {f"amdsmi_{name}": answer for name, answer in answers.items()})
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        return library

    return install


def test_a_library_that_prints_when_imported_leaves_standard_output_alone(tmp_path, monkeypatch, capsys):
    # amdsmi 7 does, where the driver's library is missing: it came before the JSON of `roofline doctor --json`.
    program = 'print("Unable to find libamd_smi.so")\nraise OSError("libamd_smi.so")\n'
    (tmp_path / "amdsmi.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    with pytest.raises(OSError, match=r"libamd_smi\.so"):
        started_amdsmi()
    assert "" == capsys.readouterr().out


def counters_of(install, own_bytes=0, **answers):
    """The counters of a GPU that gives these answers."""
    install(**answers)
    return Amdsmi(ADDRESS).counters(own_bytes)


def facts_of(install, **answers):
    """The facts of a GPU that gives these answers."""
    install(**answers)
    return Amdsmi(ADDRESS).facts()


@pytest.mark.parametrize("active", [True, 1], ids=["truth", "number"])
@pytest.mark.parametrize("field", CAUSES)
def test_every_active_violation_is_its_cause(install, field, active):
    # amdsmi 7.0.2 gives truths (`_validate_if_max_uint` with `isBool`); a number is understood too.
    assert gpu_of(install, get_violation_status=status(**{f"active_{field}": active})).active == (CAUSES[field],)


@pytest.mark.parametrize("inactive", [False, 0], ids=["truth", "number"])
def test_no_active_violation_is_known_as_such(install, inactive):
    answers = {f"active_{field}": inactive for field in CAUSES}
    assert gpu_of(install, get_violation_status=status(**answers)).active == ()


def test_violations_that_are_not_available_are_unknown_and_never_fine(install):
    assert gpu_of(install, get_violation_status=status("N/A")).active is None


def test_one_violation_that_is_not_available_does_not_cost_the_others(install):
    answers = {"active_hbm_thrm": "N/A", "active_vr_thrm": True}
    assert gpu_of(install, get_violation_status=status(**answers)).active == (THERMAL,)


def test_accumulated_violations_are_in_seconds_by_cause(install):
    counters = counters_of(install, get_gpu_metrics_info=metrics(prochot=500, ppt=2500))
    assert counters.seconds == pytest.approx({BRAKE: 0.5, POWER_CAP: 2.5, THERMAL: 0.0})


def test_accumulated_heat_adds_up_wherever_it_was(install):
    counters = counters_of(install, get_gpu_metrics_info=metrics(socket_thm=1000, vr_thm=200, hbm_thm=30))
    assert counters.seconds[THERMAL] == pytest.approx(1.23)


def test_an_accumulator_that_is_not_available_is_left_out(install):
    assert set(counters_of(install, get_gpu_metrics_info=metrics(ppt="N/A")).seconds) == {THERMAL, BRAKE}


def test_the_firmwares_cycles_tell_when_accumulators_were_renewed(install):
    assert counters_of(install, get_gpu_metrics_info=metrics(cycles=10**6 + 1)).renewals == 10**6 + 1


def test_a_gpu_before_mi300_has_no_accumulators(install):
    # Older tables of metrics have the fields too, all of them "N/A".
    counters = counters_of(install, get_gpu_metrics_info=metrics("N/A"))
    assert (counters.active, counters.seconds, counters.renewals) == (None, {}, None)


class Waiting(FakeAmdsmi):
    """As amd_smi.cc has it: `amdsmi_get_violation_status` sleeps 100 ms, a table of metrics is read at once."""

    def __init__(self, device, told):
        super().__init__(ANSWERS)
        self.amdsmi_get_violation_status = lambda handle: device.pass_time(0.1) or status()
        self.amdsmi_get_gpu_metrics_info = lambda handle: device.pass_time(20e-6) or told(device)


class Mi300x(FakeDevice):
    """A fake device whose state amdsmi tells."""

    def counters(self):
        return self.library.counters(0)


def timed(monkeypatch, told):
    """The device and the samples of 0.4 ms calls within a second, the library answering so."""
    device = Mi300x(launch_s=8e-6, latency_s=4e-6, traits=HIP)
    monkeypatch.setitem(sys.modules, "amdsmi", Waiting(device, told))
    device.library = Amdsmi(ADDRESS)
    return device, samples_on(device)


def samples_on(device):
    """The samples of 0.4 ms calls within a second."""
    engine = Engine(device, Plan(lambda: device.work(4e-4), [()], budget_s=1.0))
    engine.run()
    return engine.samples()


def cycles(device):
    """The firmware's cycles so far, a millisecond each."""
    return int(device.host_s() * 1000)


def test_asking_does_not_wait_for_the_firmware(monkeypatch):
    device, samples = timed(monkeypatch, lambda device: metrics(cycles=cycles(device)))
    free = FakeDevice(launch_s=8e-6, latency_s=4e-6, traits=HIP)
    unasked = samples_on(free)
    assert (len(samples.blocks), samples.labels) == (len(unasked.blocks), unasked.labels)
    assert device.host_s() - free.host_s() < 0.01
    assert (samples.throttle_known, samples.excluded, samples.power_capped_share) == (True, {}, 0.0)


def test_a_cause_that_the_accumulators_tell_of_excludes_blocks(monkeypatch):
    samples = timed(monkeypatch, lambda device: metrics(cycles=cycles(device), hbm_thm=cycles(device)))[1]
    assert samples.excluded == {THERMAL: len(samples.blocks)}


def test_a_board_at_its_power_limit_is_measured_and_says_so(monkeypatch):
    samples = timed(monkeypatch, lambda device: metrics(cycles=cycles(device), ppt=cycles(device)))[1]
    assert (samples.excluded, samples.power_capped_share) == ({}, 1.0)


@pytest.mark.parametrize(("used", "own", "others"), [(10, 4, 5), (10, 0, 9), (5, 4, 0), (5, 5, 0), (4, 8, 0)])
def test_memory_beyond_our_own_and_a_context_is_that_of_others(install, used, own, others):
    counters = counters_of(install, own * GIB, get_gpu_vram_usage={"vram_used": used * 1024})
    assert counters.others_bytes == others * GIB


def test_memory_that_is_not_available_is_unknown(install):
    assert counters_of(install, get_gpu_vram_usage={"vram_used": "N/A"}).others_bytes is None


def test_the_time_of_others_is_unknown(install):
    assert counters_of(install).others_busy is None


@pytest.mark.parametrize(
    ("question", "name", "unknown"),
    [
        ("gpu_metrics_info", "seconds", {}),
        ("gpu_vram_usage", "others_bytes", None),
    ],
)
def test_what_raises_is_unknown_and_never_fine(install, question, name, unknown):
    counters = counters_of(install, **{f"get_{question}": RuntimeError("not supported")})
    assert getattr(counters, name) == unknown


def test_metrics_that_raise_do_not_cost_the_memory(install):
    assert counters_of(install, get_gpu_metrics_info=RuntimeError()).others_bytes == 9 * GIB


def test_an_older_library_without_metrics_leaves_them_unknown(install):
    library = install()
    del library.amdsmi_get_gpu_metrics_info
    assert Amdsmi(ADDRESS).counters(0) == Counters(others_bytes=9 * GIB)


@pytest.mark.parametrize(("cap", "watts"), [(750_000_000, 750.0), (750, 750.0), (1000, 1000.0), (55_000_000, 55.0)])
def test_the_power_cap_is_understood_in_microwatts_and_in_watts(install, cap, watts):
    assert facts_of(install, get_power_cap_info={"power_cap": cap})["power_limit_w"] == watts


@pytest.mark.parametrize(("partition", "known"), [("CPX", "cpx"), ("DPX", "dpx"), ("SPX", None), ("N/A", None)])
def test_a_partitioned_gpu_says_so_and_a_whole_one_does_not(install, partition, known):
    assert facts_of(install, get_gpu_compute_partition=partition).get("partition") == known


def test_facts_tell_the_link_as_running(install):
    assert facts_of(install, get_pcie_info=pcie(8))["pcie_width"] == 8


@pytest.mark.parametrize(
    ("question", "answer", "facts"),
    [
        ("power_cap_info", {"power_cap": "N/A"}, {"power_limit_w"}),
        ("power_cap_info", RuntimeError(), {"power_limit_w"}),
        ("pcie_info", pcie("N/A"), {"pcie_width"}),
        ("pcie_info", RuntimeError(), {"pcie_width", "pcie_generation"}),
        ("gpu_compute_partition", RuntimeError(), {"partition"}),
    ],
)
def test_facts_that_are_not_available_stay_out(install, question, answer, facts):
    usual = {"get_gpu_compute_partition": "CPX"}
    lost = facts_of(install, **usual).keys() - facts_of(install, **usual | {f"get_{question}": answer}).keys()
    assert lost == facts


@pytest.mark.parametrize("address", [ADDRESS, ADDRESS.upper()])
def test_a_gpu_is_found_by_its_address_however_it_is_spelt(install, address):
    library = install()
    Amdsmi(address).counters(0)
    assert library.asked[-1] == ("amdsmi_get_gpu_vram_usage", "first")


def test_the_second_gpu_is_found_by_its_address(install):
    library = install()
    Amdsmi("0000:c2:00.0").counters(0)
    assert library.asked[-1] == ("amdsmi_get_gpu_vram_usage", "second")


@pytest.mark.parametrize("address", ["0000:c3:00.0", "", None])
def test_a_gpu_that_is_not_found_is_unknown_throughout(install, address):
    install()
    device = Amdsmi(address)
    assert (device.counters(0), device.facts()) == (UNKNOWN, {})


@pytest.mark.parametrize("failing", ["init", "get_processor_handles", "get_gpu_device_bdf"])
def test_a_library_that_finds_no_driver_leaves_everything_unknown(install, failing):
    install(**{failing: RuntimeError("no driver")})
    device = Amdsmi(ADDRESS)
    assert (device.counters(0), device.facts()) == (UNKNOWN, {})


def test_without_the_library_everything_is_unknown(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert Amdsmi(ADDRESS).counters(0) == UNKNOWN


@pytest.mark.parametrize("error", ["OSError('libamd_smi.so')", "KeyError('ROCM_PATH')", "AttributeError('symbol')"])
def test_an_import_that_fails_in_any_way_leaves_everything_unknown(monkeypatch, tmp_path, error):
    (tmp_path / "amdsmi.py").write_text(f"raise {error}\n")
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    device = Amdsmi(ADDRESS)
    assert (device.counters(0), device.facts()) == (UNKNOWN, {})


def test_the_driver_is_known_without_the_library(monkeypatch, tmp_path):
    version = tmp_path / "sys/module/amdgpu/version"
    version.parent.mkdir(parents=True)
    version.write_text("6.12.12\n")
    monkeypatch.setattr(amd, "_ROOT", tmp_path)
    assert amd.driver_version() == "6.12.12"


def test_a_machine_without_the_driver_has_no_version(monkeypatch, tmp_path):
    monkeypatch.setattr(amd, "_ROOT", tmp_path)
    assert amd.driver_version() is None


def gpu_of(install, **answers):
    """What the library tells of the whole GPU."""
    install(**answers)
    return Amdsmi(ADDRESS).gpu()


MEMORY = {"get_gpu_ecc_enabled": 1, "get_gpu_total_ecc_count": {"uncorrectable_count": 2}}


@pytest.mark.parametrize(("address", "index"), [(ADDRESS, 0), ("0000:c2:00.0", 1)])
def test_a_gpu_is_counted_as_the_library_counts(install, address, index):
    install()
    assert Amdsmi(address).gpu().index == index


def test_a_gpu_that_is_not_found_is_none(install):
    install()
    assert Amdsmi("0000:c3:00.0").gpu() is None


@pytest.mark.parametrize(
    ("blocks", "told"),
    [(0b1, (True, 2)), (0b11, (True, 2)), (0b10, (False, None)), (0, (False, None)), ("N/A", (None, None))],
)
def test_memory_errors_count_where_the_memory_has_ecc(install, blocks, told):
    gpu = gpu_of(install, **MEMORY | {"get_gpu_ecc_enabled": blocks})
    assert told == (gpu.ecc, gpu.ecc_errors)


def test_memory_errors_that_are_not_available_are_unknown_and_not_zero(install):
    assert gpu_of(install, **MEMORY | {"get_gpu_total_ecc_count": RuntimeError()}).ecc_errors is None


@pytest.mark.parametrize(("rated", "known"), [(32000, 5), (64000, None), ("N/A", None)])
def test_a_link_at_full_speed_is_a_fact_and_a_slower_one_may_idle(install, rated, known):
    link = pcie(16) | {"pcie_static": {"max_pcie_width": 16, "max_pcie_speed": rated}}
    assert gpu_of(install, get_pcie_info=link).pcie_generation == known


@pytest.mark.parametrize(
    ("violations", "active"), [({}, ()), ({"active_ppt_pwr": True, "active_hbm_thrm": True}, (POWER_CAP, THERMAL))]
)
def test_what_is_active_now_is_told_in_order(install, violations, active):
    assert gpu_of(install, get_violation_status=status(**violations)).active == active


def test_violations_that_raise_leave_what_is_active_unknown(install):
    assert gpu_of(install, get_violation_status=RuntimeError()).active is None


PACKAGE = """
TOLD = "ROCm's own"
def amdsmi_init(): pass
"""


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """A machine on which amdsmi is not installed; puts ROCm with its copy into a folder."""
    monkeypatch.setattr(amd, "_ROOT", tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)

    def ship(folder, text=PACKAGE):
        file = tmp_path / folder / "share/amd_smi/amdsmi/__init__.py"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        return str(tmp_path / folder)

    yield ship
    sys.modules.pop("amdsmi", None)


@pytest.mark.parametrize("folder", ["opt/rocm", "opt/rocm-7.0.2"])
def test_a_library_that_only_rocm_ships_is_found(rocm, folder):
    rocm(folder)
    before = list(sys.path)
    assert (started_amdsmi().TOLD, sys.path) == ("ROCm's own", before)


@pytest.mark.parametrize("variable", ["ROCM_HOME", "ROCM_PATH"])
def test_the_rocm_that_the_user_names_goes_first(rocm, monkeypatch, variable):
    rocm("opt/rocm", "raise OSError('the other one')")
    monkeypatch.setenv(variable, rocm("mine"))
    assert started_amdsmi().TOLD == "ROCm's own"


def test_an_installed_library_goes_before_that_of_rocm(rocm, tmp_path, monkeypatch):
    rocm("opt/rocm", "raise OSError('the other one')")
    (tmp_path / "amdsmi.py").write_text(PACKAGE.replace("ROCm's own", "installed"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert started_amdsmi().TOLD == "installed"


def test_a_library_that_is_nowhere_says_what_to_install(rocm):
    assert amd.silent(ADDRESS) == "amdsmi is not installed (ROCm ships it: pip install /opt/rocm/share/amd_smi)"


def test_a_library_without_a_driver_says_so(install):
    install(init=RuntimeError("AMDSMI_STATUS_DRIVER_NOT_LOADED"))
    assert amd.silent(ADDRESS) == (
        "amdsmi finds no driver (AMDSMI_STATUS_DRIVER_NOT_LOADED; in a container, hand /dev/kfd and /dev/dri in)"
    )


@pytest.mark.parametrize(
    ("address", "why"), [(ADDRESS, ""), (None, ""), ("0000:c3:00.0", "amdsmi does not know this device")]
)
def test_a_library_that_answers_is_not_silent_but_about_a_device_that_it_does_not_know(install, address, why):
    install()
    assert amd.silent(address) == why
