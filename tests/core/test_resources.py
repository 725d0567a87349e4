"""What a compiled kernel asks for, as a test gets it: figures by name, and the few that both vendors have."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.resources import ResourceKey, Resources, is_count, matrix_generation, with_target

NVIDIA = {"shared_bytes": 98304, "registers": 107, "stack_bytes": 16, "spill_stores": 3, "spill_loads": 4}
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


@pytest.mark.parametrize(
    ("figures", "registers", "spills", "matrix"), [(NVIDIA | COUNTS, 107, 7, 4), (AMD, 108, 3, 48)]
)
def test_both_vendors_have_registers_spills_and_matrix_instructions(figures, registers, spills, matrix):
    one = found(figures)
    assert (one.registers, one.spills, one.matrix_instructions) == (registers, spills, matrix)


def test_an_instruction_that_is_not_there_counts_none():
    assert (found(NVIDIA | COUNTS).count("HGMMA"), found(NVIDIA | COUNTS).count("HMMA")) == (4, 0)


@pytest.mark.parametrize("name", ["HGMA", "STL", "hgmma", "v_fmac", "registers", "matrix_instructions", ""])
def test_an_instruction_that_is_not_counted_is_an_error_and_never_nought(name):
    with pytest.raises(BadInput, match=f"instruction is '{name}', which is not counted; expected .*FFMA, .*v_exp"):
        found(NVIDIA | COUNTS).count(name)


@pytest.mark.parametrize("name", ["HMMA", "UTCQMMA", "v_mfma", "MUFU.EX2", "LDGSTS", "v_fma", "buffer_load"])
def test_an_instruction_that_is_counted_may_be_asked_for_on_any_target(name):
    assert found(NVIDIA | COUNTS).count(name) == 0


@pytest.mark.parametrize(
    "ask", [lambda one: one.spills, lambda one: one.matrix_instructions, lambda one: one.count("HMMA")]
)
def test_what_was_not_read_is_an_error_with_the_reason_and_never_nought(ask):
    one = found({"shared_bytes": 0, "registers": 32, "stack_bytes": 0}, "sm_70", unread="nvdisasm gave sm_70 up")
    with pytest.raises(BadInput, match="nvdisasm gave sm_70 up"):
        ask(one)


def test_a_figure_of_the_other_vendor_is_an_error_that_names_those_there_are():
    with pytest.raises(BadInput, match=r"no figure 'occupancy_waves'.*shared_bytes, registers"):
        _ = found(NVIDIA | COUNTS).occupancy_waves


@pytest.mark.parametrize("value", [-1, 1.5, True, None])
def test_a_figure_is_a_whole_number_of_things(value):
    with pytest.raises(BadInput, match="figure 'registers'"):
        found({"registers": value})


@pytest.mark.parametrize(
    ("figure", "generation"),
    [("HMMA", 1), ("IMMA", 1), ("DMMA", 1), ("v_mfma", 1), ("v_wmma", 1), ("HGMMA", 2), ("QGMMA", 2), ("UTCHMMA", 3),
     ("UTCQMMA", 3), ("FFMA", 0), ("HFMA2", 0), ("UTMALDG", 0), ("matrix_instructions", 0), ("v_fma", 0)],
)  # fmt: skip
def test_kinds_of_matrix_instructions_have_a_generation(figure, generation):
    assert matrix_generation(figure) == generation


@pytest.mark.parametrize(
    ("figure", "counts"), [("HGMMA", True), ("v_exp", True), ("registers", False), ("sgprs", False)]
)
def test_only_counts_of_instructions_may_be_left_out_for_nought(figure, counts):
    assert is_count(figure) == counts


@pytest.mark.parametrize(
    ("label", "target", "told"),
    [
        ("flash[sm_90-64]", "sm_90", "flash[sm_90-64]"),
        ("flash[64]", "sm_90", "flash[64]@sm_90"),
        ("flash[sm_100]", "sm_10", "flash[sm_100]@sm_10"),
        ("flash[gfx942-2]", "gfx942", "flash[gfx942-2]"),
        ("flash", "gfx90a", "flash@gfx90a"),
    ],
)
def test_a_label_names_its_target_once(label, target, told):
    assert with_target(label, target) == told


def test_two_targets_of_one_test_are_two_kernels():
    keys = {ResourceKey("gemm", {}, target).identity for target in ("sm_80", "sm_90")}
    assert len(keys) == 2
