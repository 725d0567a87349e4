"""What surrounds a number, and the warning about an accelerator that stands idle."""

import platform

import pytest
import torch

from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.engine import host
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Names of drivers' device nodes, of which the first is there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    present, absent = tmp_path / "nvidiactl", tmp_path / "kfd"
    present.touch()
    monkeypatch.setattr(host, "ACCELERATOR_NODES", (present, absent))
    return present, absent


def test_an_accelerator_that_torch_cannot_use_is_a_warning(nodes):
    present, _ = nodes
    assert f"this machine has an accelerator ({present})" in host.unused_accelerator(CpuDevice())


def test_the_warning_names_only_what_is_there(nodes):
    _, absent = nodes
    assert str(absent) not in host.unused_accelerator(CpuDevice())


def test_the_warning_says_what_to_do(nodes):
    warning = host.unused_accelerator(CpuDevice())
    assert "install a torch for it, or ask for --roofline-device=cpu" in warning


def test_a_machine_without_an_accelerator_gives_no_warning(nodes):
    nodes[0].unlink()
    assert host.unused_accelerator(CpuDevice()) == ""


def test_a_torch_that_can_use_it_gives_no_warning(nodes, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert host.unused_accelerator(CpuDevice()) == ""


def test_measuring_another_device_than_the_cpu_gives_no_warning(nodes):
    assert host.unused_accelerator(FakeDevice()) == ""


def test_the_nodes_looked_for_are_nvidias_and_amds():
    assert [str(node) for node in host.ACCELERATOR_NODES] == ["/dev/nvidiactl", "/dev/kfd"]


def test_software_names_python_and_torch():
    software = host.software()
    assert (platform.python_version(), str(torch.__version__)) == (software["python"], software["torch"])


def test_software_leaves_out_what_is_not_installed(monkeypatch):
    def version(distribution):
        raise host.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(host.metadata, "version", version)
    assert {"python", "torch", "allocator"} == set(host.software()) - {"cuda", "hip"}


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"])
def test_software_names_the_settings_of_torchs_allocator(monkeypatch, name):
    for known in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        monkeypatch.delenv(known, raising=False)
    assert host.software()["allocator"] == "default"
    monkeypatch.setenv(name, "expandable_segments:True")
    assert host.software()["allocator"] == "expandable_segments:True"


def test_software_names_the_triton_of_rocm(monkeypatch):
    monkeypatch.setattr(host.metadata, "version", lambda distribution: f"1.0 of {distribution}")
    assert host.software()["pytorch-triton-rocm"] == "1.0 of pytorch-triton-rocm"


@pytest.mark.parametrize(("name", "value"), [("cuda", "12.8"), ("hip", "6.2")])
def test_software_names_what_torch_was_built_for(monkeypatch, name, value):
    monkeypatch.setattr(torch.version, name, value, raising=False)
    assert value == host.software()[name]


def test_an_environment_holds_the_devices_own_facts():
    facts = host.gather(FakeDevice(product="NVIDIA A100-SXM4-80GB")).device
    assert (facts.product, isinstance(facts, DeviceFacts)) == ("NVIDIA A100-SXM4-80GB", True)
