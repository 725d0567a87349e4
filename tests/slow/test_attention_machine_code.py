"""The machine code of attention on Hopper by the installed compiler: its products do not wait for one another."""

import re
import subprocess
import tempfile

import pytest
import torch

from roofline_kernels.attention.ahead import Shape, launch_ahead
from roofline_kernels.attention.configurations import GLUON, chosen, shipped

triton = pytest.importorskip("triton", reason="needs Triton, serialized none")
TARGET = "sm_90"
# A turn of dQ at head dimension 64 has 12 products and two waits, one for the scores and one at its end.
PRODUCTS_A_WAIT = 6
# Of the exponentials of a turn, so many run under a product.
COVERED = 0.95
GENERAL = {"seq_q": 1000, "seq_k": 2000, "heads_k": 4}


class StandIn:
    """As much of Triton's driver as compiling asks for."""

    def get_current_target(self):
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return TARGET

    def get_current_stream(self, device):
        return 0


@pytest.fixture
def machine_code(monkeypatch):
    """The machine code of a launch."""
    monkeypatch.setattr(triton.runtime.driver, "_active", StandIn())

    def disassemble(launch):
        compiled = launch.kernel.warmup(
            grid=(launch.programs,), **launch.arguments, **launch.tiles.options()
        )
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(compiled.asm["cubin"])
            file.flush()
            command = [triton.knobs.nvidia.nvdisasm.path, "-c", file.name]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return disassemble


def turns(code):
    """The lines of each innermost loop with products; waits for barriers spin behind the code in their own loops."""
    lines, labels, loops = code.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = number
        branch = re.search(r"\bBRA\b.*`\((\.L\w+)\)", line)
        if branch and branch[1] in labels:
            loops.append((labels[branch[1]], number))
    innermost = [
        lines[first : last + 1]
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]
    return [loop for loop in innermost if count(loop, "HGMMA")]


def count(lines, word):
    return sum(word in line for line in lines)


@pytest.mark.parametrize("variant", ["causal", "full", "general"])
@pytest.mark.parametrize("kernel", ["d_keys", "d_queries"])
def test_a_backward_pass_waits_once_for_many_products_and_spills_nothing(
    machine_code, kernel, variant
):
    lengths = GENERAL if variant == "general" else {}
    serialized, spills = {}, {}
    for head_dim in shipped()[TARGET][kernel]["16-bit"]:
        shape = Shape(head_dim, torch.bfloat16, **lengths)
        code = machine_code(launch_ahead(TARGET, kernel, shape, causal=variant != "full"))
        if stores := count(code.splitlines(), " STL"):
            spills[head_dim] = stores
        loops = turns(code)
        counts = [(count(loop, "HGMMA"), count(loop, "WARPGROUP.DEPBAR")) for loop in loops]
        assert len(counts) == (1 if variant == "full" else 2)
        if any(waits * PRODUCTS_A_WAIT > products for products, waits in counts):
            serialized[head_dim] = counts
    assert ({}, {}) == (serialized, spills)


def exponentials(turn):
    """How many a turn has, and how many of them stand between a product and the wait for the last one."""
    total = under = 0
    under_way = False
    for line in turn:
        if "HGMMA" in line:
            under_way = True
        elif re.search(r"WARPGROUP\.DEPBAR.*0x0\s*;", line):
            under_way = False
        elif "MUFU.EX2" in line:
            total += 1
            under += under_way
    return total, under


@pytest.mark.parametrize("variant", ["causal", "full", "general"])
def test_exponentials_of_the_forward_pass_in_gluon_run_under_products(machine_code, variant):
    lengths = GENERAL if variant == "general" else {}
    for head_dim, tiles in GLUON.items():
        shape = Shape(head_dim, torch.bfloat16, **lengths)
        with chosen(forward=tiles):
            launch = launch_ahead(TARGET, "forward", shape, causal=variant != "full")
        counts = [exponentials(turn) for turn in turns(machine_code(launch))]
        # One loop a warpgroup.
        assert len(counts) == 2
        assert all(under >= COVERED * total > 0 for total, under in counts), (head_dim, counts)
