"""The Triton copy kernel: in the interpreter for what it does, compiled ahead of time for how it does it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="needs Triton, found none")

INTERPRETED = """
import json
import torch
from roofline_kernels import memcpy

cpu = torch.device("cpu")
copy = memcpy.triton_copy(block={block})
results = dict()
for size in {sizes}:
    for odd in (False, True):
        source, target = memcpy.CopyBuffers(size, cpu, cpu, odd_address=odd).pair()
        # A guard behind the target: a tail that is not masked would write into it.
        roomy = torch.full((size + 64,), 77, dtype=torch.uint8)
        inside = roomy[1 : 1 + size] if odd else roomy[:size]
        copy(source, inside)
        results[f"{{size}} {{odd}}"] = dict(
            same=memcpy.same(source, inside), guarded=int((roomy == 77).sum()) >= 64 and int(roomy[-1]) == 77
        )
        copy(source, target)
        results[f"{{size}} {{odd}}"]["pair"] = memcpy.same(source, target)
print(json.dumps(results))
"""
SIZES = (1, 15, 4096, 65_537)
CASES = [(size, odd) for size in SIZES for odd in (False, True)]


def run(program):
    """What a program printed as JSON, run with Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def interpreted():
    """Results of the kernel in the interpreter, by size and address."""
    return run(INTERPRETED.format(block=4096, sizes=SIZES))


@pytest.mark.parametrize(("size", "odd"), CASES)
def test_the_kernel_copies_every_byte(interpreted, size, odd):
    assert interpreted[f"{size} {odd}"]["same"]


@pytest.mark.parametrize(("size", "odd"), CASES)
def test_the_kernel_writes_nothing_beside_its_target(interpreted, size, odd):
    assert interpreted[f"{size} {odd}"]["guarded"]


@pytest.mark.parametrize(("size", "odd"), CASES)
def test_the_kernel_copies_pairs_as_the_sweep_makes_them(interpreted, size, odd):
    assert interpreted[f"{size} {odd}"]["pair"]


TARGETS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}


def compiled(target, element, cache):
    """The kernel as binary for a GPU that is not here, for addresses and counts divisible by 16."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from roofline_kernels.memcpy_triton import copy_kernel

    signature = {"source": f"*{element}", "target": f"*{element}", "count": "i32", "BLOCK": "constexpr"}
    source = ASTSource(
        fn=copy_kernel,
        signature=signature,
        constexprs={"BLOCK": 16_384 // (8 if element == "i64" else 1)},
        attrs={(index,): [["tt.divisibility", 16]] for index in range(3)},
    )
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(cache)
        return triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": 8})


@pytest.fixture(scope="module")
def sass(compiler, tmp_path_factory):
    """The instructions of the kernel for an H100."""
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not disassembler.exists():
        pytest.skip(f"needs Triton's cuobjdump, found none at {disassembler}")
    folder = tmp_path_factory.mktemp("sass")
    binary = folder / "copy.cubin"
    binary.write_bytes(compiled("sm_90", "i64", folder / "cache").asm["cubin"])
    search = f"{disassembler.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(disassembler), "-sass", str(binary)],
        env=os.environ | {"PATH": search},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def gcn(compiler, tmp_path_factory):
    """The instructions of the kernel for an MI300X."""
    return compiled("gfx942", "i64", tmp_path_factory.mktemp("gcn")).asm["amdgcn"]


def test_an_h100_loads_sixteen_bytes_at_once(sass):
    assert {".128"} == set(re.findall(r"\bLDG\.E\S*?(\.128|\.64|\.U8|(?=\s))", sass))


def test_an_h100_stores_sixteen_bytes_at_once(sass):
    assert {".128"} == set(re.findall(r"\bSTG\.E\S*?(\.128|\.64|\.U8|(?=\s))", sass))


def test_an_mi300x_loads_sixteen_bytes_at_once(gcn):
    assert {"dwordx4"} == set(re.findall(r"\b(?:global|buffer|flat)_load_(\w+)", gcn))


def test_an_mi300x_stores_sixteen_bytes_at_once(gcn):
    assert {"dwordx4"} == set(re.findall(r"\b(?:global|buffer|flat)_store_(\w+)", gcn))


def test_an_h100_spills_no_register(sass):
    assert not re.findall(r"\b(?:STL|LDL)\b", sass)


def test_an_mi300x_spills_no_register(gcn):
    assert {"0"} == set(re.findall(r"\.vgpr_spill_count:\s+(\d+)", gcn))


def launched(monkeypatch, size, shift, block=16_384):
    """What `launch` gives the kernel: its grid, element size, count and block."""
    import torch

    from roofline_kernels import memcpy_triton

    seen = {}

    class Kernel:
        def __getitem__(self, grid):
            def call(source, target, count, **options):
                seen.update(grid=grid, element=source.element_size(), count=count, block=options["BLOCK"])

            return call

    monkeypatch.setattr(memcpy_triton, "copy_kernel", Kernel())
    roomy = torch.zeros(size + 64, dtype=torch.uint8)
    aligned = -roomy.data_ptr() % 16
    buffer = roomy[aligned + shift : aligned + shift + size]
    memcpy_triton.launch(buffer, buffer, block)
    return seen


@pytest.mark.parametrize(
    ("size", "shift", "element"), [(4096, 0, 8), (4096, 1, 1), (4096, 8, 1), (4097, 0, 1), (65_537, 1, 1), (8, 0, 8)]
)
def test_elements_are_wide_where_size_and_address_allow(monkeypatch, size, shift, element):
    assert element == launched(monkeypatch, size, shift)["element"]


@pytest.mark.parametrize("size", [1, 8, 4096, 16_384, 16_385, 65_537, 2**20])
def test_the_grid_covers_every_byte_and_no_block_is_empty(monkeypatch, size):
    seen = launched(monkeypatch, size, 0)
    (programs,) = seen["grid"]
    covered = programs * seen["block"]
    assert covered - seen["block"] < seen["count"] <= covered
    assert size == seen["count"] * seen["element"]
