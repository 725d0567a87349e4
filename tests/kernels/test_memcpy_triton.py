"""The Triton copy kernel: in the interpreter for what it does, compiled ahead of time for how it does it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

from .. import warm

triton = pytest.importorskip("triton", reason="needs Triton, found none")

INTERPRETED = """
import json
import torch
from roofline_kernels import memcpy

cpu = torch.device("cpu")
copy = memcpy.triton_copy(block=4096)
results = {}
for size in (1, 15, 4096, 65_537):
    for odd in (False, True):
        source, target = memcpy.CopyBuffers(size, cpu, cpu, odd_address=odd).pair()
        # A guard behind the target: a tail that is not masked would write into it.
        roomy = torch.full((size + 64,), 77, dtype=torch.uint8)
        inside = roomy[1 : 1 + size] if odd else roomy[:size]
        copy(source, inside)
        guarded = int((roomy == 77).sum()) >= 64 and int(roomy[-1]) == 77
        copy(source, target)
        results[f"{size} {odd}"] = [memcpy.same(source, inside), guarded, memcpy.same(source, target)]
print(json.dumps(results))
"""


def test_the_kernel_copies_every_byte_and_writes_nothing_beside_its_target():
    done = warm.run(["-c", INTERPRETED], env=os.environ | {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (len(found), {case: good for case, good in found.items() if good != [True] * 3}) == (
        8,
        {},
    )


TARGETS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}


def compiled(target, cache):
    """The kernel as binary for a GPU that is not here, for addresses and counts divisible by 16."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from roofline_kernels.memcpy_triton import copy_kernel

    source = ASTSource(
        fn=copy_kernel,
        signature={"source": "*i64", "target": "*i64", "count": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 16_384 // 8},
        attrs={(index,): [["tt.divisibility", 16]] for index in range(3)},
    )
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(cache)
        return triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": 8})


@pytest.mark.usefixtures("compiler")
def test_an_h100_copies_sixteen_bytes_at_once_and_spills_no_register(tmp_path):
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not disassembler.exists():
        pytest.skip(f"needs Triton's cuobjdump, found none at {disassembler}")
    binary = tmp_path / "copy.cubin"
    binary.write_bytes(compiled("sm_90", tmp_path / "cache").asm["cubin"])
    env = os.environ | {"PATH": f"{disassembler.parent}{os.pathsep}{os.environ['PATH']}"}
    sass = subprocess.check_output([disassembler, "-sass", binary], env=env, text=True, timeout=60)
    for operation in ("LDG", "STG"):
        assert {".128"} == set(re.findall(rf"\b{operation}\.E\S*?(\.128|\.64|\.U8|(?=\s))", sass))
    assert not re.findall(r"\b(?:STL|LDL)\b", sass)


@pytest.mark.usefixtures("compiler")
def test_an_mi300x_copies_sixteen_bytes_at_once_and_spills_no_register(tmp_path):
    gcn = compiled("gfx942", tmp_path).asm["amdgcn"]
    for operation in ("load", "store"):
        assert {"dwordx4"} == set(re.findall(rf"\b(?:global|buffer|flat)_{operation}_(\w+)", gcn))
    assert {"0"} == set(re.findall(r"\.vgpr_spill_count:\s+(\d+)", gcn))


def test_elements_are_wide_where_size_and_address_allow_and_the_grid_covers_every_byte_without_empty_blocks(
    monkeypatch,
):
    from roofline_kernels import memcpy_triton

    class Kernel:
        def __getitem__(self, grid):
            def call(source, target, count, **options):
                seen.update(
                    grid=grid, element=source.element_size(), count=count, block=options["BLOCK"]
                )

            return call

    monkeypatch.setattr(memcpy_triton, "copy_kernel", Kernel())
    for size, shift, element in [
        *(
            (4096, 0, 8),
            (4096, 1, 1),
            (4096, 8, 1),
            (4097, 0, 1),
            (65_537, 1, 1),
            (8, 0, 8),
            (1, 0, 1),
        ),
        *((16_384, 0, 8), (16_385, 0, 1), (2**20, 0, 8)),
    ]:
        seen = {}
        roomy = torch.zeros(size + 64, dtype=torch.uint8)
        start = -roomy.data_ptr() % 16 + shift
        buffer = roomy[start : start + size]
        memcpy_triton.launch(buffer, buffer, 16_384)
        (programs,) = seen["grid"]
        covered = programs * seen["block"]
        assert (seen["element"], seen["count"] * seen["element"]) == (element, size), (size, shift)
        assert covered - seen["block"] < seen["count"] <= covered, (size, shift)
