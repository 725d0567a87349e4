"""What a machine has and what lies between its GPUs, through stand-ins for the management libraries.

What they withhold is unknown, never fine, and never guessed.
"""

import os
import resource
import shutil
import sys
from dataclasses import replace
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.core.facts import HARDWARE, POWER_CAP, THERMAL, Gpu
from pytest_roofline.engine import host, inventory
from pytest_roofline.engine.devices import amd, cpu, nvidia
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.cuda import CudaDevice
from pytest_roofline.engine.inventory import (
    Link,
    amd_link,
    kind_among,
    link_between,
    nvidia_link,
    take_stock,
)
from pytest_roofline.machine.diagnosis import diagnose

from .management import (
    DENIED,
    GIB,
    H100,
    METRICS,
    MI300X,
    WITHHELD,
    AmdSmiLibraryException,
    FakeAmdsmi,
    FakeNvml,
    NVMLError,
    memory,
    pcie,
    told,
)  # fmt: skip

GPU = Gpu(
    0, "NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0,
    power_default_w=700.0, pcie_generation=5, pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16, links=18,
    ecc=True, persistence=True, compute_mode="default", others_bytes=0, throttle_known=True, ecc_errors=0,
    remap_pending=False, remap_failed=False, active=(),
)  # fmt: skip
INSTINCT = Gpu(
    0, "AMD Instinct MI300X", uuid="uuid", memory_bytes=192 * GIB, driver="6.12.12", power_limit_w=750.0,
    power_default_w=750.0, pcie_generation=5, pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16,
    others_bytes=0, throttle_known=True, active=(), ecc=True, ecc_errors=0, remap_pending=False, remap_failed=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def install(monkeypatch, tmp_path):
    """A machine without management libraries, accelerators, profilers and MPS; puts a library in its place."""
    for library in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, library, None)
    for name in inventory.INJECTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "no-pipes"))
    monkeypatch.setattr(inventory, "ACCELERATOR_NODES", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    monkeypatch.setattr(amd, "_ROOT", tmp_path)
    version = tmp_path / "sys/module/amdgpu/version"
    version.parent.mkdir(parents=True)
    version.write_text("6.12.12\n")

    def install(library):
        monkeypatch.setitem(sys.modules, library.__name__, library)
        return library

    return install


def test_every_fact_that_a_library_tells_of_every_gpu_is_taken_whatever_torch_sees(
    install, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    library = install(FakeNvml(H100, H100 | {"UUID": "GPU-2"}))
    install(FakeAmdsmi(MI300X))
    machine = take_stock()
    assert machine.gpus == (GPU, replace(GPU, index=1, uuid="GPU-2"), INSTINCT)
    assert (machine.libraries, machine.silent, library.open) == (("NVML", "amdsmi"), (), 0)


def test_each_gpu_has_its_own_facts_and_findings_and_a_lost_one_takes_none_with_it(install):
    broken = [dict.fromkeys(H100, error) | {"UUID": WITHHELD} for error in (WITHHELD, DENIED)]
    install(
        FakeNvml(
            H100,
            H100 | {"CurrPcieLinkWidth": 8},
            H100 | {"EnforcedPowerLimit": 5e5},
            *broken,
            NVMLError(15),
        )
    )
    install(FakeAmdsmi(MI300X | {"gpu_device_bdf": AmdSmiLibraryException()}, MI300X))
    machine = take_stock()
    assert machine.gpus == (
        GPU, replace(GPU, index=1, pcie_width=8), replace(GPU, index=2, power_limit_w=500.0),
        Gpu(3, "unknown", driver="570.86"), Gpu(4, "unknown", driver="570.86"), Gpu(5, "unknown"),
        Gpu(0, "unknown"), replace(INSTINCT, index=1),
    )  # fmt: skip
    found = {finding.subject for finding in diagnose(machine)}
    assert {gpu.label for gpu in machine.gpus[1:7]} == {
        subject for subject in found if subject.startswith("GPU ")
    }


def test_an_answer_of_nvml_is_taken_as_it_is_meant_and_one_that_is_withheld_leaves_its_fact_unknown(
    install,
):
    reasons = ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    cases = [
        ({"Name": b"NVIDIA H100 80GB HBM3"}, {}),
        ({"EccMode": [0, 1], "PersistenceMode": 0}, {"ecc": False, "persistence": False}),
        ({"MigMode": [1, 1], "ComputeMode": 3}, {"partition": "mig", "compute_mode": "exclusive process"}),
        ({"MemoryInfo": memory(5 * GIB)}, {"others_bytes": 4 * GIB}),
        ({"TotalEccErrors": lambda kind, counter: 2}, {"ecc_errors": 2}),
        ({"RemappedRows": (0, 0, 1, 0)}, {"remap_pending": True}),
        ({"RemappedRows": (0, 0, 0, 1)}, {"remap_failed": True}),
        # GPUs before Ampere retire pages in place of remapping rows.
        ({"RemappedRows": WITHHELD, "RetiredPagesPendingStatus": 1}, {"remap_pending": True, "remap_failed": None}),
        ({"RemappedRows": WITHHELD, "RetiredPagesPendingStatus": 0}, {"remap_failed": None}),
        ({reasons[0]: 0x4 | 0x40}, {"active": (POWER_CAP, THERMAL)}),
        ({reasons[0]: WITHHELD, reasons[1]: 0x8}, {"active": (HARDWARE,)}),
        ({"NvLinkState": lambda link: 0}, {"links": 0}),
        ({"NvLinkState": lambda link: told(1 if link < 4 else WITHHELD)}, {"links": 4}),
        ({"ViolationStatus": WITHHELD}, {}),
        (dict.fromkeys(reasons, WITHHELD), {"active": None}),
        (dict.fromkeys((*reasons, "ViolationStatus"), WITHHELD), {"active": None, "throttle_known": False}),
        ({"MemoryInfo": WITHHELD}, {"memory_bytes": None, "others_bytes": None}),
        ({"RemappedRows": WITHHELD}, {"remap_pending": None, "remap_failed": None}),
        *(
            ({question: DENIED}, {fact: "unknown" if fact == "product" else None})
            for question, fact in [
                ("Name", "product"), ("UUID", "uuid"), ("EnforcedPowerLimit", "power_limit_w"),
                ("PowerManagementDefaultLimit", "power_default_w"), ("MaxPcieLinkGeneration", "pcie_generation"),
                ("GpuMaxPcieLinkGeneration", "pcie_generation_rated"), ("CurrPcieLinkWidth", "pcie_width"),
                ("MaxPcieLinkWidth", "pcie_width_rated"), ("NvLinkState", "links"), ("EccMode", "ecc"),
                ("TotalEccErrors", "ecc_errors"), ("PersistenceMode", "persistence"), ("ComputeMode", "compute_mode"),
            ]
        ),
    ]  # fmt: skip
    for answers, facts in cases:
        install(FakeNvml(H100 | answers))
        assert nvidia.gpus() == [replace(GPU, **facts)], answers


def test_a_library_without_a_driver_or_a_gpu(install):
    for library, found in [
        (FakeNvml(H100, starts=NVMLError(9)), ((), ())),
        (FakeNvml(), ((), ("NVML",))),
        (FakeAmdsmi(MI300X, starts=KeyError("libamd_smi.so")), ((), ())),
        (ModuleType("other"), ((), ())),
    ]:
        install(library)
        machine = take_stock()
        assert (machine.gpus, machine.libraries) == found
        assert len(machine.silent) == 2 - len(machine.libraries)
        sys.modules[library.__name__] = None


def test_an_answer_of_amdsmi_is_taken_as_it_is_meant_and_one_that_raises_leaves_its_fact_unknown(
    install,
):
    error, untold = AmdSmiLibraryException(), {"throttle_known": True, "active": None}
    link = ("pcie_generation", "pcie_generation_rated", "pcie_width", "pcie_width_rated")
    cases = [
        ("pcie_info", error, dict.fromkeys(link)),
        ("gpu_ecc_enabled", 0b100, {"ecc": False, "ecc_errors": None}),
        ("gpu_ecc_enabled", error, {"ecc": None, "ecc_errors": None}),
        ("gpu_total_ecc_count", {"uncorrectable_count": 3}, {"ecc_errors": 3}),
        ("gpu_total_ecc_count", error, {"ecc_errors": None}),
        ("gpu_bad_page_info", [{"status": 0}, {"status": 1}], {"remap_pending": True}),
        ("gpu_bad_page_info", [{"status": 2}], {"remap_failed": True}),
        ("gpu_bad_page_info", "No bad pages found.", {"remap_pending": None, "remap_failed": None}),
        ("violation_status", error, untold),
        ("gpu_metrics_info", error, {}),
        ("pcie_info", pcie(8, 16), {"pcie_width": 8, "pcie_generation": 4}),
        ("pcie_info", pcie("N/A", "N/A"), {"pcie_width": None, "pcie_generation": None}),
        ("power_cap_info", error, {"power_limit_w": None, "power_default_w": None}),
        # Of older versions, in watts.
        ("power_cap_info", {"power_cap": 1000}, {"power_limit_w": 1000.0, "power_default_w": None}),
        ("gpu_compute_partition", "CPX", {"partition": "cpx"}),
        ("gpu_compute_partition", error, {}),
        ("gpu_vram_usage", {"vram_total": 196608, "vram_used": 5120}, {"others_bytes": 4 * GIB}),
        (
            "gpu_vram_usage",
            {"vram_total": "N/A", "vram_used": "N/A"},
            {"memory_bytes": None, "others_bytes": None},
        ),
        ("gpu_asic_info", error, {"product": "unknown"}),
        ("gpu_device_uuid", error, {"uuid": None}),
    ]
    for question, answer, facts in cases:
        install(FakeAmdsmi(MI300X | {question: answer}))
        assert amd.gpus() == [replace(INSTINCT, **facts)], (question, answer)
    install(
        FakeAmdsmi(
            MI300X | {"violation_status": error, "gpu_metrics_info": dict.fromkeys(METRICS, "N/A")}
        )
    )
    assert amd.gpus() == [replace(INSTINCT, active=None, throttle_known=False)]


def test_what_shares_or_slows_the_machine_is_seen_by_pipe_variable_and_node(
    install, monkeypatch, tmp_path
):
    for name in inventory.INJECTIONS:
        monkeypatch.setenv(name, "/opt/tool.so")
        assert take_stock().profiler == name
        monkeypatch.setenv(name, "")
    assert take_stock().profiler == ""
    install(FakeNvml(H100))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert take_stock().mps is False
    os.mkfifo(tmp_path / "control")
    assert take_stock().mps is True
    there = tmp_path / "nvidiactl"
    there.write_text("")
    monkeypatch.setattr(inventory, "ACCELERATOR_NODES", (there, tmp_path / "kfd"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    machine = take_stock()
    assert (machine.accelerator_nodes, machine.torch_devices) == ((str(there),), 0)
    assert {"torch", "management library"} <= {finding.subject for finding in diagnose(machine)}


def test_the_limits_of_the_host_are_told_and_none_is_not_unknown(monkeypatch, tmp_path):
    for folder, size in [(tmp_path, shutil.disk_usage(tmp_path).total), (tmp_path / "none", None)]:
        monkeypatch.setattr(inventory, "_SHM", folder)
        assert take_stock().shm_bytes == size
    for limit, known in [
        (2**23, (2**23, True)),
        (0, (0, True)),
        (resource.RLIM_INFINITY, (None, True)),
    ]:
        monkeypatch.setattr(
            resource, "getrlimit", lambda which, limit=limit: (limit, resource.RLIM_INFINITY)
        )
        machine = take_stock()
        assert (machine.memlock_bytes, machine.memlock_known) == known


def test_the_pairs_without_peer_access_are_listed_where_torch_tells(monkeypatch):
    for cuda, devices, pairs in [(True, 4, ((0, 3),)), (True, 1, None), (False, 4, None)]:
        for module in (torch.cuda, torch.accelerator):
            monkeypatch.setattr(module, "device_count", lambda devices=devices: devices)
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *pair: pair != (0, 3))
        assert take_stock().no_peers == pairs, (cuda, devices)


def test_who_keeps_the_cores_busy_is_named_while_the_machine_is_watched(monkeypatch, tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")
    idle, busy, own = (
        tmp_path / "proc/7/stat",
        tmp_path / "proc/8/stat",
        tmp_path / f"proc/{os.getpid()}/stat",
    )

    def write(path, name, seconds):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"1 ({name}) R " + "0 " * 10 + f"{int(seconds * ticks)} 0 0 0")

    clock = [0.0]

    def pause(seconds):
        clock[0] += seconds
        write(busy, "cc1 (odd) name", 100 + 0.9 * seconds)
        write(own, "pytest", 50 + seconds)

    for path, name in ((idle, "sshd"), (busy, "cc1 (odd) name"), (own, "pytest")):
        write(path, name, {idle: 3, busy: 100, own: 50}[path])
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(inventory.time, "sleep", pause)
    monkeypatch.setattr(cpu.time, "perf_counter", lambda: clock[0])
    assert take_stock(watch_s=2.0).taken_by == ("cc1 (odd) name (8) 0.9",)
    assert (take_stock().cores_taken, take_stock().taken_by) == (None, ())


@pytest.fixture
def cards(monkeypatch):
    """Four cards of torch's, in its own numbers, and the pairs of them that cannot reach each other."""
    properties = [
        SimpleNamespace(
            uuid=f"GPU-{index}", pci_domain_id=0, pci_bus_id=0xC0 + index, pci_device_id=0
        )
        for index in range(4)
    ]
    apart = set()
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties[index])
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *pair: pair not in apart)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    return SimpleNamespace(properties=properties, apart=apart)


def test_a_device_tells_all_that_the_inventory_does_found_by_its_uuid_and_asked_anew(
    install, cards
):
    library = install(FakeNvml(*(H100 | {"UUID": f"GPU-{index}"} for index in (3, 2, 1))))
    device, mine = CudaDevice(1), replace(GPU, index=2, others_bytes=None)
    assert (device.gpu(), library.open) == (mine, 0)
    library.gpus[2].update({"EnforcedPowerLimit": 500_000})
    assert device.gpu() == replace(mine, power_limit_w=500.0)
    library.gpus[2].update(dict.fromkeys(H100, WITHHELD) | {"UUID": "GPU-1"})
    assert device.gpu() == Gpu(2, "unknown", uuid="GPU-1", driver="570.86")


def test_a_device_that_nobody_knows_is_unknown_and_raises_nothing(install, cards, monkeypatch):
    assert CudaDevice(0).gpu() is None
    assert CpuDevice().gpu() is None
    for library, index in [(FakeNvml(H100), 2), (FakeNvml(H100, starts=OSError("lib")), 1)]:
        install(library)
        assert CudaDevice(index).gpu() is None
    del cards.properties[1].uuid
    install(FakeNvml(H100))
    assert CudaDevice(1).gpu() is None


def test_an_amd_device_is_found_by_its_address_and_a_link_below_full_speed_may_idle(
    install, cards, monkeypatch
):
    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    install(
        FakeAmdsmi(
            MI300X | {"gpu_device_bdf": "0000:c3:00.0"}, MI300X | {"pcie_info": pcie(speed=2500)}
        )
    )
    mine = replace(INSTINCT, others_bytes=None)
    assert CudaDevice(1).gpu() == replace(mine, index=1, pcie_generation=None)
    assert (CudaDevice(3).gpu(), CudaDevice(0).gpu()) == (mine, None)


# What lies between two GPUs.

READ, WRITE, NVLINK, OK, NO = 0, 1, 2, 0, 5


def wired(wires=(), peer=(), ancestor=None, hides=(), lacks=()):
    """NVML on a machine with GPUs 1 to 3.

    Args:
        wires: by GPU, what is at the other end of each of its links: a GPU, `switch`, or None where the link is down.
        peer: by capability, its status; one that is not named is withheld.
        ancestor: the topology level of any pair; None is withheld.
        hides: questions that are withheld.
        lacks: questions that the library does not know.
    """
    buses = {f"GPU-{number}": f"00000000:{0x10 * number + 11:02X}:00.0" for number in (1, 2, 3)}

    def gpu(uuid):
        ends = dict(wires).get(uuid, [])
        answers = {
            "UUID": uuid,
            "PciInfo": SimpleNamespace(busId=buses[uuid].encode()),
            "NvLinkState": lambda link: (
                int(ends[link] is not None) if link < len(ends) else told(NVMLError(2))
            ),
            "NvLinkRemoteDeviceType": lambda link: 2 if ends[link] == "switch" else 0,
            # Lower case at one end, upper at the other: drivers are not of one mind.
            "NvLinkRemotePciInfo": lambda link: SimpleNamespace(
                busId=buses.get(ends[link], "0").lower()
            ),
            "P2PStatus": lambda other, cap: (
                dict(peer)[cap] if cap in dict(peer) else told(WITHHELD)
            ),
            "TopologyCommonAncestor": lambda other: (
                ancestor if ancestor is not None else told(WITHHELD)
            ),
        }
        return {
            name: answer for name, answer in answers.items() if name not in lacks
        } | dict.fromkeys(hides, WITHHELD)

    return FakeNvml(*map(gpu, buses))


def direct(count):
    """So many links between the first two GPUs, and one of the first to the third."""
    return {"GPU-1": ["GPU-2"] * count + ["GPU-3"], "GPU-2": ["GPU-1"] * count, "GPU-3": ["GPU-1"]}


SWITCHED = {f"GPU-{number}": ["switch"] * 18 for number in (1, 2, 3)}


def test_what_lies_between_two_nvidia_gpus_is_read_from_the_ends_of_their_links():
    hidden = ("NvLinkRemotePciInfo", "NvLinkRemoteDeviceType")
    older = ("NvLinkState", *hidden, "P2PStatus", "TopologyCommonAncestor")
    one, two, three = SWITCHED
    for nvml, first, second, link in [
        (wired(direct(4)), one, two, Link("nvlink", 4)),
        (wired(direct(4)), one, three, Link("nvlink", 1)),
        (wired({one: [two, None, two], two: [one, None, one]}), one, two, Link("nvlink", 2)),
        (wired(SWITCHED), one, three, Link("nvlink-switch", 18)),
        (wired(SWITCHED | {two: ["switch"] * 12}), one, two, Link("nvlink-switch", 12)),
        (wired({one: ["switch"] * 18}, {READ: OK, NVLINK: NO}), one, two, Link("pcie")),
        # A virtual machine.
        (wired(direct(4), {READ: OK, NVLINK: OK}, hides=hidden), one, two, Link("nvlink")),
        (wired({}, {WRITE: OK, NVLINK: NO}), one, two, Link("pcie")),
        (wired(ancestor=30), one, two, Link("pcie")),
        (wired(), one, two, Link("unknown")),
        (wired(SWITCHED, {NVLINK: OK}, 30, lacks=older), one, two, Link("unknown")),
        *((wired(SWITCHED), *pair, Link("unknown")) for pair in [("GPU-9", one), (None, one)]),
    ]:
        assert nvidia_link(nvml, first, second) == link, (first, second, link)


class Linked(FakeAmdsmi):
    """amdsmi with two GPUs, which says of what type their link is; `enums` are the enumerations of this version."""

    def __init__(self, told, **enums):
        super().__init__(*({"gpu_device_bdf": bdf} for bdf in ("0000:C1:00.0", "0000:c2:00.0")))
        self._told = told
        for name in ("AmdSmiIoLinkType", "AmdSmiLinkType"):
            setattr(self, name, IntEnum(name, enums[name]) if name in enums else None)

    def amdsmi_topo_get_link_type(self, first, second):
        assert first is not second
        return {"hops": 1, "type": self._told}


OLDER = {"AmdSmiIoLinkType": {"UNDEFINED": 0, "PCIEXPRESS": 1, "XGMI": 2}}


def test_a_type_of_amds_means_what_this_version_of_the_library_numbers_so():
    newer = {
        "AmdSmiLinkType": {
            "AMDSMI_LINK_TYPE_INTERNAL": 0,
            "AMDSMI_LINK_TYPE_PCIE": 1,
            "AMDSMI_LINK_TYPE_XGMI": 2,
        }
    }
    swapped = {"AmdSmiLinkType": {"AMDSMI_LINK_TYPE_XGMI": 1, "AMDSMI_LINK_TYPE_PCIE": 2}}
    # Of the versions with both, the older enumeration is the one of this question (hwloc's source says so).
    for enums, kinds in [
        (OLDER, ("unknown", "pcie", "xgmi")), (OLDER | swapped, ("unknown", "pcie", "xgmi")),
        (newer, ("unknown", "pcie", "xgmi")), (swapped, ("unknown", "xgmi", "pcie")), ({}, ("unknown",) * 3),
    ]:  # fmt: skip
        found = [
            amd_link(Linked(number, **enums), "0000:c1:00.0", "0000:C2:00.0") for number in range(3)
        ]
        assert found == [Link(kind) for kind in kinds], enums
    for addresses in [("0000:c1:00.0", "0000:c3:00.0"), (None, "0000:c2:00.0")]:
        assert amd_link(Linked(2, **OLDER), *addresses) == Link("unknown"), addresses


def test_gpus_of_torch_are_asked_of_by_uuid_or_address_and_staged_where_they_cannot_reach_each_other(
    install, cards, monkeypatch
):
    assert link_between(1, 2) == Link("unknown")
    library = install(wired(direct(4)))
    assert (link_between(1, 2), link_between(1, 3), library.open) == (
        Link("nvlink", 4),
        Link("nvlink", 1),
        0,
    )
    cards.apart |= {(2, 1)}
    assert link_between(1, 2) == Link("staged")
    cards.apart.clear()
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    for library in (ModuleType("amdsmi"), FakeAmdsmi(starts=OSError())):
        install(library)
        assert link_between(1, 2) == Link("unknown")
    install(Linked(2, **OLDER))
    assert (link_between(1, 2), link_between(1, 3)) == (Link("xgmi"), Link("unknown"))


def test_links_of_one_class_give_it_to_all_of_them_and_of_several_are_mixed(install, cards):
    install(wired(SWITCHED))
    names = ["cuda:1", "cuda:2", "cuda:3"]
    assert (kind_among(names), inventory.kind_among_uuids(list(SWITCHED))) == ("nvlink-switch",) * 2
    cards.apart |= {(2, 3)}
    assert (kind_among(names), kind_among(["fake", "other"])) == ("mixed", "unknown")
    assert inventory.kind_among_uuids(["GPU-1"]) == "unknown"
