"""What a compiled kernel asks for, as a test gets it: figures by name, and the few that both vendors have."""

import pytest

from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.resources import (
    ResourceKey,
    Resources,
    is_count,
    matrix_generation,
    with_target,
)

NVIDIA = {
    "shared_bytes": 98304,
    "registers": 107,
    "stack_bytes": 16,
    "spill_stores": 3,
    "spill_loads": 4,
}
COUNTS = {"matrix_instructions": 4, "instructions": 408, "HGMMA": 4}
AMD = {
    "shared_bytes": 65536,
    "vgprs": 108,
    "agprs": 8,
    "sgprs": 28,
    "vgpr_spills": 2,
    "sgpr_spills": 1,
    "scratch_bytes": 8,
    "occupancy_waves": 4,
    "matrix_instructions": 48,
    "instructions": 758,
    "v_mfma": 48,
}


def found(figures, target="sm_90", **changes):
    key = ResourceKey("gemm", {"target": target}, target)
    return Resources(key, "test_gemm.py::test_gemm", key.label, "process-1", figures, **changes)


def test_both_vendors_have_registers_spills_and_matrix_instructions():
    for figures, registers, spills, matrix in ((NVIDIA | COUNTS, 107, 7, 4), (AMD, 108, 3, 48)):
        one = found(figures)
        assert (one.registers, one.spills, one.matrix_instructions) == (registers, spills, matrix)


def test_an_instruction_that_is_not_there_counts_none_and_one_that_is_not_counted_is_an_error():
    one = found(NVIDIA | COUNTS)
    assert one.count("HGMMA") == 4
    for name in ("HMMA", "UTCQMMA", "v_mfma", "MUFU.EX2", "LDGSTS", "v_fma", "buffer_load"):
        assert one.count(name) == 0, name
    for name in ("HGMA", "STL", "hgmma", "v_fmac", "registers", "matrix_instructions", ""):
        with pytest.raises(
            BadInput,
            match=f"instruction is '{name}', which is not counted; expected .*FFMA, .*v_exp",
        ):
            one.count(name)


def test_what_was_not_read_is_an_error_with_the_reason_and_never_nought():
    one = found(
        {"shared_bytes": 0, "registers": 32, "stack_bytes": 0},
        "sm_70",
        unread="nvdisasm gave sm_70 up",
    )
    for ask in (lambda: one.spills, lambda: one.matrix_instructions, lambda: one.count("HMMA")):
        with pytest.raises(BadInput, match="nvdisasm gave sm_70 up"):
            ask()
    with pytest.raises(BadInput, match=r"no figure 'occupancy_waves'.*shared_bytes, registers"):
        _ = found(NVIDIA | COUNTS).occupancy_waves


def test_a_figure_is_a_whole_number_of_things(make):
    assert (
        "FILE: figures['registers'] is -1; expected a whole number, zero or more"
        == make.refusal(found({"spill_loads": 0, "registers": -1}))
    )
    for value in (1.5, True, None):
        assert "FILE: Expected `int`" in make.refusal(found({"registers": value}))
    entry = ExactEntry("gemm", "sm_90", {})
    assert "FILE: figures is empty; expected the figures of a compiled kernel" == make.refusal(
        entry
    )


def test_kinds_of_matrix_instructions_have_a_generation():
    kinds = (
        "FFMA HFMA2 UTMALDG matrix_instructions v_fma", "HMMA IMMA DMMA v_mfma v_wmma", "HGMMA QGMMA", "UTCHMMA UTCQMMA"
    )  # fmt: skip
    for generation, names in enumerate(kinds):
        assert {name: matrix_generation(name) for name in names.split()} == dict.fromkeys(
            names.split(), generation
        )
    # Only counts of instructions may be left out for nought.
    assert [is_count(name) for name in ("HGMMA", "v_exp", "registers", "sgprs")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_label_names_its_target_once_and_two_targets_of_one_test_are_two_kernels():
    for label, target, told in (
        ("flash[sm_90-64]", "sm_90", "flash[sm_90-64]"),
        ("flash[64]", "sm_90", "flash[64]@sm_90"),
        ("flash[sm_100]", "sm_10", "flash[sm_100]@sm_10"),
        ("flash[gfx942-2]", "gfx942", "flash[gfx942-2]"),
        ("flash", "gfx90a", "flash@gfx90a"),
    ):
        assert with_target(label, target) == told
    assert len({ResourceKey("gemm", {}, target).identity for target in ("sm_80", "sm_90")}) == 2
