"""Which GPUs a build of torch has code for, and what a device says whose build has none."""

from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.devices import open_device
from pytest_roofline.engine.devices.builds import runs

# torch.cuda.get_arch_list() of builds for CUDA 12.6 and 13.0.
CU126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


@pytest.mark.parametrize(
    ("entry", "capabilities"),
    [
        # Machine code: from its minor version on, within a major version.
        ("sm_80", [(8, 0), (8, 6), (8, 9)]),
        ("sm_86", [(8, 6), (8, 9)]),
        ("sm_90", [(9, 0)]),
        # PTX: every later GPU.
        ("compute_80", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)]),
        ("compute_90", [(9, 0), (10, 0), (10, 3), (12, 0)]),
        # For one GPU alone, and for one major version, whether machine code or PTX.
        ("sm_90a", [(9, 0)]),
        ("compute_90a", [(9, 0)]),
        ("sm_100a", [(10, 0)]),
        ("sm_100f", [(10, 0), (10, 3)]),
        ("compute_100f", [(10, 0), (10, 3)]),
    ],
)
def test_code_runs_where_cuda_says_that_it_is_compatible(entry, capabilities):
    gpus = [(7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)]
    assert [gpu for gpu in gpus if runs(entry, gpu)] == capabilities


@pytest.fixture
def gpu(monkeypatch):
    """Puts a GPU of a name, a capability and a list of a build's code behind torch.cuda."""

    def put(name, capability, entries, hip=None):
        properties = SimpleNamespace(name=name, major=capability[0], minor=capability[1])
        pieces = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "set_device": lambda index: None,
            "get_device_properties": lambda index: properties,
            "get_arch_list": lambda: entries,
        }
        for piece, function in pieces.items():
            monkeypatch.setattr(torch.cuda, piece, function)
        monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
        monkeypatch.setattr(torch.version, "hip", hip)

    return put


@pytest.mark.parametrize(
    ("name", "capability", "words"),
    [
        (
            "Tesla V100-SXM2-16GB",
            (7, 0),
            "--roofline-device asks for cuda:0, a Tesla V100-SXM2-16GB. This GPU is sm_70; torch 2.13.0+cu130 supports "
            "only sm_75, sm_80, sm_86, sm_90, sm_100, sm_120, compute_120. "
            "Wheels for CUDA 12.6 (up to torch 2.14) support sm_70: pip install --force-reinstall torch "
            "--index-url https://download.pytorch.org/whl/cu126",
        ),
        (
            "NVIDIA Thor",
            (11, 0),
            "--roofline-device asks for cuda:0, a NVIDIA Thor. This GPU is sm_110; torch 2.13.0+cu130 supports only "
            "sm_75, sm_80, sm_86, sm_90, sm_100, sm_120, compute_120. "
            "https://pytorch.org/get-started/locally/ lists builds for other versions of CUDA",
        ),
    ],
)
def test_a_gpu_that_the_build_has_no_code_for_is_refused_with_the_wheel_that_has(
    gpu, name, capability, words
):
    gpu(name, capability, CU130)
    with pytest.raises(DeviceError) as error:
        open_device("cuda")
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("name", "capability", "entries", "hip"),
    [
        ("Tesla V100-SXM2-16GB", (7, 0), CU126, None),
        ("NVIDIA L4", (8, 9), CU130, None),
        ("NVIDIA H100 80GB HBM3", (9, 0), CU130, None),
        # By PTX alone.
        ("NVIDIA GB10", (12, 1), ["sm_90", "compute_120"], None),
        # Nothing that torch tells is no reason to refuse, nor is what is not known yet.
        ("NVIDIA H100 80GB HBM3", (9, 0), [], None),
        ("NVIDIA H100 80GB HBM3", (9, 0), ["sm_80", "tile_90"], None),
        # ROCm names its GPUs otherwise.
        ("AMD Instinct MI300X", (9, 4), ["gfx90a"], "6.4"),
    ],
)
def test_a_gpu_that_the_build_may_have_code_for_is_opened(gpu, name, capability, entries, hip):
    gpu(name, capability, entries, hip)
    assert open_device("cuda").name == "cuda:0"
