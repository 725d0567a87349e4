"""What stands in the loops of machine code, read from short texts as the tools print them."""

import json

import pytest

from pytest_roofline.kernel_gate.assembler import words_on_waits
from pytest_roofline.kernel_gate.loops import loops_of
from pytest_roofline.kernel_gate.machine_code import code_of_amdgcn
from pytest_roofline.kernel_gate.targets import read_instructions
from pytest_roofline.kernel_gate.turns import turn_figures

ALONE, EXPOSED, NARROW = "serialized_wgmma", "exposed_exponentials", "narrow_lds"


def sass(text):
    """Return what `nvdisasm -json` prints of lines `[@P] OPCODE OPERANDS`, whose branches name a label `NAME:`."""
    lines = [line.strip() for line in text.strip().splitlines()]
    labels, instructions = {}, []
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = f"{16 * len(instructions):#x}"
            continue
        predicate, _, words = line.partition(" ") if line.startswith("@") else ("", "", line)
        opcode, _, operands = words.partition(" ")
        facts = {"predicate": predicate} if predicate else {}
        instructions.append(facts | {"opcode": opcode, "operands": operands})
    for instruction in instructions:
        *ahead, last = instruction["operands"].split(",")
        instruction["operands"] = ",".join([*ahead, labels.get(last, last)])
    return json.dumps([{}, [{"start": 0, "sass-instructions": instructions}]])


def figures(text, capability=90):
    """Return the figures of loops that code has."""
    read, _ = read_instructions(sass(text), capability)
    return {name: read[name] for name in (ALONE, EXPOSED, NARROW) if name in read}


PRODUCT = "HGMMA.64x128x16.F32.BF16 R88,gdesc[UR4],R88"
LAST = f"{PRODUCT},gsb0"
WAIT, LATER = "WARPGROUP.DEPBAR.LE gsb0,0x0", "WARPGROUP.DEPBAR.LE gsb0,0x1"
EXP = "MUFU.EX2 R1,R2"


def loop(*lines):
    """Return a loop of these lines, behind one product and ahead of an exponential."""
    return "\n".join([LAST, WAIT, "TOP:", *lines, "@!P0 BRA TOP", EXP, "EXIT"])


@pytest.mark.parametrize(
    ("lines", "alone", "exposed"),
    [
        # A group of two has one wait, and what stands between its first and its wait is under it.
        ([EXP, PRODUCT, EXP, LAST, EXP, EXP, WAIT, EXP], 0, 2),
        # Each waits for itself, and covers nothing.
        ([LAST, EXP, WAIT, LAST, WAIT, EXP, LAST, WAIT], 3, 2),
        # Two alone and a group of two.
        ([LAST, WAIT, LAST, WAIT, PRODUCT, LAST, WAIT], 2, 0),
        # A wait that leaves the youngest group under way: all are under one, from the second turn on.
        ([EXP, LAST, EXP, LATER, EXP], 0, 0),
        ([EXP, LAST, LAST, EXP, LATER, EXP, WAIT, EXP], 0, 2),
        # The only product of a turn runs alone too.
        ([LAST, WAIT], 1, 0),
        # The first is issued beside the last of the turn before, and only the second waits for itself.
        ([LAST, WAIT, LAST, EXP, WAIT, LAST, EXP], 1, 1),
        # Matrix instructions of a warp have nothing under way that the order tells.
        (["HMMA.16816.F32.BF16 R4,R8,R12,R4", EXP, EXP], 0, 2),
        # Where no matrix is multiplied no exponential could be under one.
        ([EXP, EXP, "FFMA R1,R2,R3,R4"], 0, 0),
    ],
)
def test_products_that_run_one_by_one_and_exponentials_under_none_are_counted_in_loops(
    lines, alone, exposed
):
    assert {ALONE: alone, EXPOSED: exposed, NARROW: 0} == figures(loop(*lines))


def test_where_no_warpgroup_multiplies_there_is_no_such_figure():
    for capability in (80, 89, 100, 120):
        assert {NARROW: 0} == figures(loop(LAST, WAIT, EXP), capability)
    assert {NARROW} == turn_figures([], warpgroups=False).keys()


def test_accesses_of_shared_memory_by_less_than_32_bits_count_in_loops_alone():
    narrow = ("LDS.U16 R1,[R2]", "LDS.S8 R1,[R2]", "STS.U8 [R2],R1", "STS.U16 [R2+0x2],R1")
    wide = (
        "LDS.128 R4,[R2]",
        "LDS R1,[R2]",
        "STS.64 [R2],R4",
        "LDSM.16.MT88.4 R4,[R2]",
        "LDG.E.U16 R1,[R2.64]",
    )
    assert 4 == figures(loop(*narrow, *wide))[NARROW]
    assert 0 == figures("\n".join([*narrow, "EXIT"]))[NARROW]


SPINNING = """
TOP:
SYNCS.PHASECHK.TRANS64.TRYWAIT P0,[UR4],R6
@!P0 BRA SPIN
GO:
HGMMA.64x128x16.F32.BF16 R88,gdesc[UR4],R88,gsb0
WARPGROUP.DEPBAR.LE gsb0,0x0
@!P1 BRA TOP
EXIT
SPIN:
SYNCS.PHASECHK.TRANS64.TRYWAIT P0,[UR4],R6
@!P0 BRA SPIN
BRA GO
END:
BRA END
"""


def test_a_wait_that_spins_out_of_line_makes_no_second_loop_of_its_products():
    """A barrier of TMA is tried again behind the end of the code, and comes back by a branch upward."""
    assert 1 == figures(SPINNING)[ALONE]


NESTED = """
PERSISTENT:
MUFU.EX2 R1,R2
TOP:
HGMMA.64x128x16.F32.BF16 R88,gdesc[UR4],R88
HGMMA.64x128x16.F32.BF16 R88,gdesc[UR4],R88,gsb0
MUFU.EX2 R1,R2
WARPGROUP.DEPBAR.LE gsb0,0x0
MUFU.EX2 R1,R2
BRA.U !UP0,TOP
@P1 BRA PERSISTENT
EXIT
"""


def test_what_stands_in_two_loops_counts_once():
    assert {ALONE: 0, EXPOSED: 2, NARROW: 0} == figures(NESTED)


BEHIND_A_TABLE = """
BRX R4,-0x1230
TOP:
HGMMA.64x128x16.F32.BF16 R88,gdesc[UR4],R88,gsb0
WARPGROUP.DEPBAR.LE gsb0,0x0
@!P0 BRA TOP
EXIT
"""


def test_loops_that_only_an_indirect_branch_leads_to_are_read_as_well():
    """Each partition of a kernel with specialized warps lies behind one."""
    assert 1 == figures(BEHIND_A_TABLE)[ALONE]


AMDGCN = """\
gemm:                                   ; @gemm
; %bb.0:
\ts_load_dwordx2 s[0:1], s[0:1], 0x0
\tds_write_b16 v1, v2
\ts_cbranch_scc1 .LBB0_3
.LBB0_1:                                ; =>This Loop Header: Depth=1
\tds_read_u16 v1, v2
.LBB0_2:                                ;   Parent Loop BB0_1 Depth=1
\tds_read_u16_d16_hi v1, v2 offset:64
\tds_write_b16 v1, v2
\tds_write_b8 v1, v2
\tds_load_u8 v1, v2
\tds_store_b16 v1, v2
\tds_read_b128 v[0:3], v4
\tds_read_b64_tr_b16 v[0:1], v4
\tds_read2st64_b64 v[0:3], v4 offset1:1
\tds_write_b64 v1, v[2:3]
\tbuffer_load_ushort v1, v2, s[0:3], 0 offen
\ts_cbranch_scc0 .LBB0_2
; %bb.2:
\ts_cbranch_vccnz .LBB0_1
.LBB0_3:
\tds_read_u16 v1, v2
\ts_endpgm
helper:
\tds_read_u8 v1, v2
\ts_setpc_b64 s[30:31]
"""


def test_amd_has_narrow_accesses_in_loops_by_its_labels():
    code = code_of_amdgcn(AMDGCN)
    assert [11, 2] == [len(each.direct) for each in loops_of(code)]
    assert {NARROW: 6} == turn_figures([code], warpgroups=False)


def test_the_assembler_says_why_products_wait_for_one_another():
    printed = (
        "ptxas-blackwell info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due "
        "to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline "
        "stage in the function 'd_keys_kernel' in line 1399\n"
        "ptxas info    : Used 236 registers\n"
    )
    assert (
        "wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a "
        "wgmma between start and end of the pipeline stage (C7515)"
    ) == words_on_waits(printed)
    assert "" == words_on_waits("ptxas info    : Used 236 registers\n")
