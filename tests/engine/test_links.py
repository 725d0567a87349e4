"""What lies between two GPUs, with stand-ins for the management libraries: what they withhold is never guessed."""

import sys
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.engine import inventory
from pytest_roofline.engine.inventory import Link, between, kind_among, of_amd, of_nvidia

BUSES = {"GPU-1": "00000000:1B:00.0", "GPU-2": "00000000:43:00.0", "GPU-3": "00000000:52:00.0"}
GPU, SWITCH = 0, 2
READ, WRITE, NVLINK = 0, 1, 2
OK, NO = 0, 5


class NVMLError(Exception):
    """As pynvml has it."""


class Nvml(ModuleType):
    """NVML on a machine with three GPUs.

    Args:
        wires: by GPU, what is at the other end of each of its links: a GPU, `switch`, or None where the link is down.
        peer: by capability, its status; one that is not named is withheld.
        ancestor: the topology level of any pair; None is withheld.
        hides: questions that are withheld.
    """

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6
    NVML_NVLINK_DEVICE_TYPE_SWITCH = SWITCH

    def __init__(self, wires=None, peer=None, ancestor=None, hides=()):
        super().__init__("pynvml")
        self.wires, self.peer, self.ancestor, self.hides = wires or {}, peer or {}, ancestor, hides
        self.open = 0

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in BUSES:
            raise NVMLError(6)
        return uuid

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=BUSES[handle].encode())

    def nvmlDeviceGetNvLinkState(self, handle, link):
        ends = self.wires.get(handle, [])
        if link >= len(ends):
            raise NVMLError(2)
        return int(ends[link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        if "type" in self.hides:
            raise NVMLError(3)
        return SWITCH if self.wires[handle][link] == "switch" else GPU

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        if "remote" in self.hides:
            raise NVMLError(3)
        # Lower case at one end, upper at the other: drivers are not of one mind.
        return SimpleNamespace(busId=BUSES.get(self.wires[handle][link], "00000000:00:00.0").lower().encode())

    def nvmlDeviceGetP2PStatus(self, first, second, capability):
        if capability not in self.peer:
            raise NVMLError(3)
        return self.peer[capability]

    def nvmlDeviceGetTopologyCommonAncestor(self, first, second):
        if self.ancestor is None:
            raise NVMLError(3)
        return self.ancestor


def direct(count):
    """So many links between the first two GPUs, and one of the first to the third."""
    return {"GPU-1": ["GPU-2"] * count + ["GPU-3"], "GPU-2": ["GPU-1"] * count, "GPU-3": ["GPU-1"]}


SWITCHED = {uuid: ["switch"] * 18 for uuid in BUSES}


def test_links_from_gpu_to_gpu_are_counted():
    for count in [1, 2, 6]:
        assert of_nvidia(Nvml(direct(count)), "GPU-1", "GPU-2") == Link("nvlink", count), count


def test_links_to_another_gpu_do_not_count():
    assert of_nvidia(Nvml(direct(4)), "GPU-1", "GPU-3") == Link("nvlink", 1)


def test_links_that_are_down_do_not_count():
    wires = {"GPU-1": ["GPU-2", None, "GPU-2"], "GPU-2": ["GPU-1", None, "GPU-1"]}
    assert of_nvidia(Nvml(wires), "GPU-1", "GPU-2") == Link("nvlink", 2)


def test_through_a_switch_every_link_carries():
    assert of_nvidia(Nvml(SWITCHED), "GPU-1", "GPU-3") == Link("nvlink-switch", 18)


def test_through_a_switch_the_gpu_with_fewer_links_counts():
    assert of_nvidia(Nvml(SWITCHED | {"GPU-2": ["switch"] * 12}), "GPU-1", "GPU-2") == Link("nvlink-switch", 12)


def test_a_switch_that_only_one_of_them_has_links_nobody():
    wires = {"GPU-1": ["switch"] * 18}
    assert of_nvidia(Nvml(wires, {READ: OK, NVLINK: NO}), "GPU-1", "GPU-2") == Link("pcie")


def test_in_a_virtual_machine_that_hides_the_other_end_nvlink_is_known_by_its_status():
    nvml = Nvml(direct(4), {READ: OK, NVLINK: OK}, hides=("remote", "type"))
    assert of_nvidia(nvml, "GPU-1", "GPU-2") == Link("nvlink")


def test_peers_without_nvlink_talk_over_pcie():
    for capability in [READ, WRITE]:
        assert of_nvidia(Nvml({}, {capability: OK, NVLINK: NO}), "GPU-1", "GPU-2") == Link("pcie"), capability


def test_a_common_ancestor_is_enough_to_know_of_pcie():
    assert of_nvidia(Nvml(ancestor=30), "GPU-1", "GPU-2") == Link("pcie")


def test_a_library_that_tells_nothing_leaves_it_unknown():
    assert of_nvidia(Nvml(), "GPU-1", "GPU-2") == Link("unknown")


def test_a_library_older_than_the_questions_leaves_it_unknown():
    class Old(Nvml):
        def __getattribute__(self, name):
            if name.startswith(("nvmlDeviceGetNvLink", "nvmlDeviceGetP2P", "nvmlDeviceGetTopology")):
                raise AttributeError(name)
            return super().__getattribute__(name)

    assert of_nvidia(Old(SWITCHED, {NVLINK: OK}, 30), "GPU-1", "GPU-2") == Link("unknown")


def test_a_gpu_that_the_library_does_not_know_leaves_it_unknown():
    for uuids in [("GPU-1", "GPU-9"), ("GPU-9", "GPU-1"), (None, "GPU-1")]:
        assert of_nvidia(Nvml(SWITCHED), *uuids) == Link("unknown"), uuids


class Amdsmi(ModuleType):
    """amdsmi on a machine with two GPUs, in the numbering of a version.

    Args:
        told: the type of the link, as this version numbers it.
        enums: the enumerations that it has.
    """

    def __init__(self, told, **enums):
        super().__init__("amdsmi")
        self._told = told
        for name, members in enums.items():
            setattr(self, name, IntEnum(name, members))

    def amdsmi_init(self):
        """Opens the library."""

    def amdsmi_get_processor_handles(self):
        return ["first", "second"]

    def amdsmi_get_gpu_device_bdf(self, handle):
        return {"first": "0000:C1:00.0", "second": "0000:c2:00.0"}[handle]

    def amdsmi_topo_get_link_type(self, first, second):
        assert first != second
        return {"hops": 1, "type": self._told}


ADDRESSES = ("0000:c1:00.0", "0000:C2:00.0")
OLDER = {"AmdSmiIoLinkType": {"UNDEFINED": 0, "PCIEXPRESS": 1, "XGMI": 2}}
# Of the versions with both, the older enumeration is the one of this question (hwloc's source says so).
MIDDLE = OLDER | {"AmdSmiLinkType": {"AMDSMI_LINK_TYPE_XGMI": 1, "AMDSMI_LINK_TYPE_PCIE": 2}}
NEWER = {"AmdSmiLinkType": {"AMDSMI_LINK_TYPE_INTERNAL": 0, "AMDSMI_LINK_TYPE_PCIE": 1, "AMDSMI_LINK_TYPE_XGMI": 2}}
SWAPPED = {"AmdSmiLinkType": {"AMDSMI_LINK_TYPE_INTERNAL": 0, "AMDSMI_LINK_TYPE_PCIE": 2, "AMDSMI_LINK_TYPE_XGMI": 1}}


def test_a_type_means_what_this_version_of_the_library_numbers_so():
    for told, enums, kind in [
        (2, OLDER, "xgmi"),
        (1, OLDER, "pcie"),
        (0, OLDER, "unknown"),
        (2, MIDDLE, "xgmi"),
        (1, MIDDLE, "pcie"),
        (2, NEWER, "xgmi"),
        (1, NEWER, "pcie"),
        (0, NEWER, "unknown"),
        (1, SWAPPED, "xgmi"),
        (2, SWAPPED, "pcie"),
        (2, {}, "unknown"),
    ]:
        assert of_amd(Amdsmi(told, **enums), *ADDRESSES) == Link(kind), (told, enums, kind)


def test_an_amd_gpu_that_the_library_does_not_know_leaves_it_unknown():
    for addresses in [("0000:c1:00.0", "0000:c3:00.0"), (None, "0000:c2:00.0")]:
        assert of_amd(Amdsmi(2, **OLDER), *addresses) == Link("unknown"), addresses


@pytest.fixture
def gpus(monkeypatch):
    """Three GPUs that can reach each other, but for the pairs that are `apart`."""
    apart = set()
    properties = [
        SimpleNamespace(uuid=f"GPU-{index + 1}", pci_domain_id=0, pci_bus_id=0xC1 + index, pci_device_id=0)
        for index in range(3)
    ]
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *pair: pair not in apart)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties[index])
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    return apart


def test_gpus_are_found_by_their_uuids(gpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(direct(4)))
    assert (between(0, 1), between(0, 2)) == (Link("nvlink", 4), Link("nvlink", 1))


def test_the_library_is_closed_again(gpus, monkeypatch):
    nvml = Nvml(SWITCHED)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    between(0, 1)
    assert nvml.open == 0


@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
def test_a_pair_that_cannot_reach_each_other_both_ways_is_staged_whatever_lies_between(gpus, monkeypatch, pair):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(SWITCHED))
    gpus.add(pair)
    assert between(0, 1) == Link("staged")


def test_without_the_library_the_link_is_unknown(gpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert between(0, 1) == Link("unknown")


def test_under_hip_amdsmi_is_asked(gpus, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    monkeypatch.setitem(sys.modules, "amdsmi", Amdsmi(2, **OLDER))
    assert (between(0, 1), between(0, 2)) == (Link("xgmi"), Link("unknown"))


@pytest.mark.parametrize("library", [None, ModuleType("amdsmi")])
def test_under_hip_a_library_that_fails_leaves_it_unknown(gpus, monkeypatch, library):
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    assert between(0, 1) == Link("unknown")


def test_links_of_one_class_give_it_to_all_of_them(gpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(SWITCHED))
    assert kind_among(["cuda:0", "cuda:1", "cuda:2"]) == "nvlink-switch"


def test_links_of_several_classes_are_mixed(gpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(SWITCHED))
    gpus.add((1, 2))
    assert kind_among(["cuda:0", "cuda:1", "cuda:2"]) == "mixed"


def test_devices_that_are_no_gpus_of_this_kind_have_no_known_link():
    assert kind_among(["fake", "other"]) == "unknown"


def test_the_numbers_of_capabilities_are_nvmls():
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py, found none")
    assert (inventory._WRITE, inventory._NVLINK) == (
        pynvml.NVML_P2P_CAPS_INDEX_WRITE,
        pynvml.NVML_P2P_CAPS_INDEX_NVLINK,
    )
    # A stray comma makes a tuple of this one in nvidia-ml-py 13.
    assert pynvml.NVML_P2P_CAPS_INDEX_READ in (inventory._READ, (inventory._READ,))
    # 18 until nvidia-ml-py 12.575 or so; asked for one link too many, NVML withholds it.
    assert inventory.MOST_LINKS in (pynvml.NVML_NVLINK_MAX_LINKS, 2 * pynvml.NVML_NVLINK_MAX_LINKS)
