"""The state of an AMD GPU as its management library tells it, with a stand-in for the library."""

import sys

import pytest

from pytest_roofline.core.facts import BRAKE, POWER_CAP, THERMAL
from pytest_roofline.engine.devices import amd
from pytest_roofline.engine.devices.amd import busy_others, gpu_at, start_amdsmi
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.cuda import HIP
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

from .management import GIB, METRICS, MI300X, VIOLATIONS, FakeAmdsmi

ADDRESS = MI300X["gpu_device_bdf"]


@pytest.fixture
def device(monkeypatch):
    """A GPU behind the library that answers as usual but for what is given."""

    def device(address=ADDRESS, lacking=(), **answers):
        gpu = {name: answer for name, answer in (MI300X | answers).items() if name not in lacking}
        second = MI300X | {"gpu_device_bdf": "0000:c2:00.0", "gpu_device_uuid": "second"}
        monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi(gpu, second))
        return gpu_at(address)

    return device


def test_what_is_active_is_its_cause_whether_told_by_truths_or_numbers(device):
    # amdsmi 7.0.2 gives truths (`_validate_if_max_uint` with `isBool`); a number is understood too.
    causes = {"prochot": BRAKE, "ppt": POWER_CAP, "socket": THERMAL, "vr": THERMAL, "hbm": THERMAL}
    fields = dict(
        zip(causes, ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm"), strict=True)
    )
    for status, active in [
        *(
            (VIOLATIONS | {f"active_{fields[name]}": True}, (cause,))
            for name, cause in causes.items()
        ),
        (VIOLATIONS | {"active_prochot_thrm": 1}, (BRAKE,)),
        (VIOLATIONS | {"active_ppt_pwr": True, "active_hbm_thrm": True}, (POWER_CAP, THERMAL)),
        (VIOLATIONS | {"active_hbm_thrm": "N/A", "active_vr_thrm": True}, (THERMAL,)),
        (dict.fromkeys(VIOLATIONS, "N/A"), None),
        (RuntimeError(), None),
    ]:
        assert device(violation_status=status).gpu().active == active, status


def test_accumulators_are_in_seconds_by_cause_and_their_cycles_tell_when_they_were_renewed(device):
    zero = {THERMAL: 0.0, BRAKE: 0.0, POWER_CAP: 0.0}
    for changes, seconds in [
        (
            {"prochot_residency_acc": 500, "ppt_residency_acc": 2500},
            zero | {BRAKE: 0.5, POWER_CAP: 2.5},
        ),
        (
            {
                "socket_thm_residency_acc": 1000,
                "vr_thm_residency_acc": 200,
                "hbm_thm_residency_acc": 30,
            },
            zero | {THERMAL: 1.23},
        ),
        ({"ppt_residency_acc": "N/A"}, {THERMAL: 0.0, BRAKE: 0.0}),
    ]:
        counters = device(gpu_metrics_info=METRICS | changes).counters(0)
        assert (counters.seconds, counters.renewals) == (pytest.approx(seconds), 10**6), changes
    # A GPU before MI300 has the fields too, all of them "N/A"; an older library does not have the table.
    for older in [
        {"gpu_metrics_info": dict.fromkeys(METRICS, "N/A")},
        {"gpu_metrics_info": RuntimeError()},
    ]:
        assert device(**older).counters(0) == Counters(others_bytes=0), older
    found = device(
        gpu_vram_usage={"vram_used": 10 * 1024}, gpu_metrics_info=RuntimeError()
    ).counters(0)
    assert found == Counters(others_bytes=9 * GIB)
    for untold in [{"vram_used": "N/A"}, RuntimeError()]:
        assert (
            device(gpu_vram_usage=untold, gpu_metrics_info=RuntimeError()).counters(0) == Counters()
        ), untold


class Waiting(FakeAmdsmi):
    """As amd_smi.cc has it: `amdsmi_get_violation_status` sleeps 100 ms, a table of metrics is read at once."""

    def __init__(self, fake, *raised):
        super().__init__(MI300X)
        self.fake, self.raised = fake, raised

    def amdsmi_get_violation_status(self, handle):
        self.fake.pass_time(0.1)
        return VIOLATIONS

    def amdsmi_get_gpu_metrics_info(self, handle):
        self.fake.pass_time(20e-6)
        # The firmware's cycles so far, a millisecond each.
        cycles = int(self.fake.host_s() * 1000)
        return METRICS | dict.fromkeys(("accumulation_counter", *self.raised), cycles)


class Mi300xDevice(FakeDevice):
    """A fake device whose state amdsmi tells, where it is there."""

    library = None

    def counters(self):
        return super().counters() if self.library is None else self.library.counters(0)


def samples_of(monkeypatch, *raised, asks=True):
    """The device and the samples of 0.4 ms calls within a second; these accumulators rise all the time."""
    device = Mi300xDevice(launch_s=8e-6, latency_s=4e-6, traits=HIP)
    if asks:
        monkeypatch.setitem(sys.modules, "amdsmi", Waiting(device, *raised))
        device.library = gpu_at(ADDRESS)
    engine = Engine(device, Plan(lambda: device.work(4e-4), [()], budget_s=1.0))
    engine.run()
    return device, engine.samples()


def test_the_engine_asks_without_waiting_and_excludes_what_the_accumulators_tell_of(monkeypatch):
    device, samples = samples_of(monkeypatch)
    free, unasked = samples_of(monkeypatch, asks=False)
    assert (len(samples.blocks), samples.labels) == (len(unasked.blocks), unasked.labels)
    assert device.host_s() - free.host_s() < 0.01
    assert (samples.throttle_known, samples.excluded, samples.power_capped_share) == (True, {}, 0.0)
    hot = samples_of(monkeypatch, "hbm_thm_residency_acc")[1]
    assert hot.excluded == {THERMAL: len(hot.blocks)}
    # A board at its power limit is measured, and says so.
    capped = samples_of(monkeypatch, "ppt_residency_acc")[1]
    assert (capped.excluded, capped.power_capped_share) == ({}, 1.0)


def test_a_gpu_is_found_by_its_address_however_it_is_spelt_and_counted_as_the_library_counts(
    device,
):
    for address, index, uuid in [
        (ADDRESS, 0, "uuid"),
        (ADDRESS.upper(), 0, "uuid"),
        ("0000:c2:00.0", 1, "second"),
    ]:
        gpu = device(address).gpu()
        assert (gpu.index, gpu.uuid) == (index, uuid), address
    for address in ("0000:c3:00.0", "", None):
        unknown = device(address)
        assert (unknown.counters(0), unknown.facts(), unknown.gpu()) == (Counters(), {}, None), (
            address
        )


PACKAGE = 'TOLD = "{}"\ndef amdsmi_init(): pass\n'
OWN = PACKAGE.format("ROCm's own")


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """A machine on which amdsmi is not installed; puts ROCm with its copy into a folder."""
    monkeypatch.setattr(amd, "_ROOT", tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)

    def ship(folder, text=OWN):
        sys.modules.pop("amdsmi", None)
        file = tmp_path / folder / "share/amd_smi/amdsmi/__init__.py"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        return str(tmp_path / folder)

    yield ship
    sys.modules.pop("amdsmi", None)


def test_a_library_that_only_rocm_ships_is_found_behind_the_one_that_the_user_names_and_an_installed_one(
    rocm, monkeypatch, tmp_path
):
    assert (
        amd.silent()
        == "amdsmi is not installed (ROCm ships it: pip install /opt/rocm/share/amd_smi)"
    )
    before = list(sys.path)
    rocm("opt/rocm-7.0.2")
    assert (start_amdsmi().TOLD, sys.path) == ("ROCm's own", before)
    rocm("opt/rocm", "raise OSError('the other one')")
    for variable in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.setenv(variable, rocm(variable, PACKAGE.format(variable)))
        assert start_amdsmi().TOLD == variable
    sys.modules.pop("amdsmi")
    (tmp_path / "amdsmi.py").write_text(PACKAGE.format("installed"), encoding="utf-8")
    assert start_amdsmi().TOLD == "installed"


def test_an_import_that_fails_in_any_way_prints_nothing_and_leaves_everything_unknown(
    monkeypatch, tmp_path, capsys
):
    # amdsmi 7 prints where the driver's library is missing: it came before the JSON of `roofline doctor --json`.
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "amdsmi.py").write_text("print('Unable to find')\nraise KeyError('ROCM_PATH')\n")
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    device = gpu_at(ADDRESS)
    assert (device.counters(0), device.facts(), capsys.readouterr().out) == (Counters(), {}, "")


def test_a_library_that_cannot_be_asked_says_why(monkeypatch):
    driver = (
        "amdsmi finds no driver (NOT_LOADED; in a container, pass /dev/kfd and /dev/dri through)"
    )
    broken = MI300X | {"gpu_device_bdf": RuntimeError("NOT_LOADED")}
    for library, address, why in [
        (FakeAmdsmi(MI300X, starts=RuntimeError("NOT_LOADED")), ADDRESS, driver),
        (FakeAmdsmi(broken), ADDRESS, "amdsmi does not know this device"),
        (FakeAmdsmi(MI300X), "0000:c3:00.0", "amdsmi does not know this device"),
        (FakeAmdsmi(MI300X), ADDRESS, ""),
        (FakeAmdsmi(MI300X), None, ""),
    ]:
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        assert amd.silent() == (why if why == driver else "")
        if address is not None:
            assert (gpu_at(address).silent, gpu_at(address).counters(0) == Counters()) == (
                why,
                bool(why),
            )


def test_the_share_of_the_time_of_every_other_gpu_is_told_where_ours_is_among_them(monkeypatch):
    addresses = ("0000:c0:00.0", "0000:c1:00.0", "0000:c2:00.0")
    busy = ({"gfx_activity": 10}, {"gfx_activity": 70}, {"gfx_activity": "N/A"})
    gpus = [
        MI300X
        | {"gpu_device_bdf": address, "gpu_activity": told, "gpu_device_uuid": f"uuid-{index}"}
        for index, (address, told) in enumerate(zip(addresses, busy, strict=True))
    ]
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi(*gpus))
    assert busy_others("0000:C0:00.0") == {"GPU 1 (uuid-1)": 0.7}
    assert (busy_others("0000:c9:00.0"), busy_others(None)) == ({}, {})
