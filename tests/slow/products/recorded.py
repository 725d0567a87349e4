"""What torch and the management libraries say of each product, as recorded in public, read by the production code.

Each file of `facts/` holds the answers of `torch.cuda.get_device_properties`, and those of NVML or amdsmi by the name
of the question; null is an answer that no source was found for. `sources` says where they were recorded. UUIDs and
places on the bus are made up, since they are no facts of a product.
"""

import contextlib
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from pytest_roofline.core.facts import DeviceFacts, Environment, HostFacts
from pytest_roofline.engine.devices import amd
from pytest_roofline.engine.devices.cuda import CudaDevice

from ...engine.management import WITHHELD, AmdSmiLibraryException, FakeAmdsmi, FakeNvml

FOLDER = Path(__file__).with_name("facts")
PRODUCTS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
UUID = "00000000-1111-2222-3333-444444444444"
ADDRESS = "0000:c1:00.0"


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    """The file of a product."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def facts_of(name: str) -> DeviceFacts:
    """The facts of a product, as the plugin finds them on a machine that gives the recorded answers."""
    with _machine(recorded(name)):
        return CudaDevice(0).facts()


def environment_of(name: str) -> Environment:
    """A product in a host of no importance."""
    host = HostFacts("node", "a processor", 8, 8, 2**36, 2**36, kernel="6.8")
    return Environment(facts_of(name), host, {})


@contextlib.contextmanager
def _machine(told: dict[str, Any]) -> Iterator[None]:
    """Stand-ins for torch's properties and the vendor's library."""
    where = {"uuid": UUID, "pci_domain_id": 0, "pci_bus_id": 0xC1, "pci_device_id": 0}
    properties = SimpleNamespace(**told["torch"], **where)
    smi = told.get("amdsmi")
    with contextlib.ExitStack() as stack:
        for owner, field, value in (
            (torch.cuda, "set_device", lambda _: None),
            (torch.cuda, "get_device_properties", lambda _: properties),
            (torch.version, "hip", None if smi is None else "6.2"),
            (amd, "driver_version", lambda: (smi or {}).get("driver")),
        ):
            stack.enter_context(mock.patch.object(owner, field, value, create=True))
        libraries = {"pynvml": _nvml(told["nvml"])} if smi is None else {"amdsmi": _amdsmi(smi)}
        stack.enter_context(mock.patch.dict(sys.modules, libraries))
        yield


def _nvml(answers: dict[str, Any]) -> FakeNvml:
    """NVIDIA's management library with these answers; null is one that it withholds."""
    told = {name: WITHHELD if answer is None else answer for name, answer in answers.items()}
    gpu = {name.removeprefix("nvmlDeviceGet"): answer for name, answer in told.items()} | {
        "UUID": f"GPU-{UUID}"
    }
    if isinstance(clocks := gpu["ClockInfo"], dict):
        gpu["ClockInfo"] = {1: clocks["NVML_CLOCK_SM"], 2: clocks["NVML_CLOCK_MEM"]}.get
    return FakeNvml(gpu, driver=told["nvmlSystemGetDriverVersion"])


def _amdsmi(answers: dict[str, Any]) -> FakeAmdsmi:
    """AMD's management library with these answers; null is one that it withholds."""
    told = {
        name: AmdSmiLibraryException() if answer is None else answer
        for name, answer in answers.items()
    }
    gpu = {name.removeprefix("amdsmi_get_"): answer for name, answer in told.items()}
    return FakeAmdsmi(gpu | {"gpu_device_bdf": ADDRESS})
