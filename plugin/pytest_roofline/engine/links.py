"""What lies between two GPUs of this process: NVLink, xGMI, PCIe, or the host's memory where they cannot reach each
other. What nobody tells is `unknown`, never guessed."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import torch

from .devices import nvidia
from .devices.amd import started_amdsmi
from .devices.cuda import _pci_address as pci_address

Kind = Literal["nvlink", "nvlink-switch", "xgmi", "pcie", "staged", "unknown"]
# More than any product wires (nvml.h: NVML_NVLINK_MAX_LINKS); a device withholds those that it has not.
MOST_LINKS = 36
# nvml.h. As numbers, since the library's own name for reading holds a tuple in some versions of it.
_READ, _WRITE, _NVLINK = 0, 1, 2
_OK = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A way between two GPUs.

    Args:
        kind: `nvlink` from one to the other, `nvlink-switch` through a switch, `xgmi`, `pcie`, `staged` through the
            host's memory since peer access is impossible, or `unknown`.
        count: how many links carry it; None where nobody tells.
    """

    kind: Kind
    count: int | None = None


STAGED, UNKNOWN = Link("staged"), Link("unknown")


def between(first: int, second: int) -> Link:
    """The way between two GPUs, by their indices in torch."""
    if not (torch.cuda.can_device_access_peer(first, second) and torch.cuda.can_device_access_peer(second, first)):
        return STAGED
    if torch.version.hip is not None:
        return _amd(*(pci_address(torch.cuda.get_device_properties(index)) for index in (first, second)))
    uuids = [str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) or None for index in (first, second)]
    with nvidia.opened() as nvml:
        return UNKNOWN if nvml is None else of_nvidia(nvml, uuids[0], uuids[1])


def kind_among(names: Sequence[str]) -> str:
    """The class of the links among devices, as a hardware key has it: one kind, or `mixed`.

    Args:
        names: `cuda:0` …; devices of another kind are `unknown` to each other.
    """
    if not all(name.startswith("cuda:") for name in names):
        return "unknown"
    indices = [int(name.removeprefix("cuda:")) for name in names]
    kinds = {between(first, second).kind for first, second in combinations(indices, 2)}
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"


def kind_among_uuids(uuids: Sequence[str | None]) -> str:
    """The same for NVIDIA GPUs of this host that this process need not see."""
    with nvidia.opened() as nvml:
        pairs = combinations(uuids, 2) if nvml is not None else ()
        kinds = {of_nvidia(nvml, first, second).kind for first, second in pairs}
    return next(iter(kinds), "unknown") if len(kinds) <= 1 else "mixed"


def of_nvidia(nvml: Any, first_uuid: str | None, second_uuid: str | None) -> Link:
    """The way between two NVIDIA GPUs that can reach each other, by what NVML answers.

    Args:
        nvml: the library, open.
        first_uuid: of one of them.
        second_uuid: of the other.
    """
    try:
        first, second = nvidia.handle_of(nvml, first_uuid), nvidia.handle_of(nvml, second_uuid)
    except nvml.NVMLError:
        return UNKNOWN
    mine, theirs = _nvlinks(nvml, first), _nvlinks(nvml, second)
    address = _bus(_ask(nvml, "nvmlDeviceGetPciInfo", second))
    direct = sum(address is not None and remote == address for remote in mine)
    if direct:
        return Link("nvlink", direct)
    if "switch" in mine and "switch" in theirs:
        return Link("nvlink-switch", min(mine.count("switch"), theirs.count("switch")))
    if _ask(nvml, "nvmlDeviceGetP2PStatus", first, second, _NVLINK) == _OK:
        # A virtual machine hides what is at the other end.
        return Link("nvlink")
    crosses_pcie = any(_ask(nvml, "nvmlDeviceGetP2PStatus", first, second, cap) == _OK for cap in (_READ, _WRITE))
    known = crosses_pcie or _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", first, second) is not None
    return Link("pcie") if known else UNKNOWN


def _nvlinks(nvml: Any, handle: Any) -> list[str]:
    """What is at the other end of every link that is up: a GPU's PCI address, `switch`, or nothing that is known."""
    ends = []
    for link in range(MOST_LINKS):
        if _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        kind = _ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind is not None and kind == getattr(nvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2):
            ends.append("switch")
        else:
            ends.append(_bus(_ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)) or "")
    return ends


def _bus(info: Any) -> str | None:
    """`00000000:1b:00.0`, in lower case; None of nothing."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    return text.lower()


def _ask(nvml: Any, question: str, *arguments: Any) -> Any:
    """An answer; None where it is withheld or the library does not know the question."""
    try:
        return getattr(nvml, question)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _amd(first: str | None, second: str | None) -> Link:
    with contextlib.suppress(Exception):
        return of_amd(started_amdsmi(), first, second)
    return UNKNOWN


def of_amd(smi: Any, first: str | None, second: str | None) -> Link:
    """The way between two AMD GPUs that can reach each other, by what amdsmi answers.

    Args:
        smi: the library, open.
        first: PCI address of one of them.
        second: of the other.

    Raises:
        Exception: what the library raises; it has a tree of its own.
    """
    handles = {smi.amdsmi_get_gpu_device_bdf(handle).lower(): handle for handle in smi.amdsmi_get_processor_handles()}
    if first is None or second is None or not {first.lower(), second.lower()} <= handles.keys():
        return UNKNOWN
    told = smi.amdsmi_topo_get_link_type(handles[first.lower()], handles[second.lower()])["type"]
    xgmi, pcie = _amd_types(smi)
    # The number of hops is told, that of the links is not.
    return Link("xgmi") if told == xgmi else Link("pcie") if told == pcie else UNKNOWN


def _amd_types(smi: Any) -> tuple[int | None, int | None]:
    """The numbers of xGMI and PCIe in this version of the library: releases have swapped and renamed them."""
    older = getattr(smi, "AmdSmiIoLinkType", None)
    if older is not None:
        return int(older.XGMI), int(older.PCIEXPRESS)
    newer = getattr(smi, "AmdSmiLinkType", None)
    if newer is None:
        return None, None
    return int(newer.AMDSMI_LINK_TYPE_XGMI), int(newer.AMDSMI_LINK_TYPE_PCIE)
