"""A compiled kernel asks for more, for less, or for the same; which of these is red, and what is said of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.resources import JUDGED
from pytest_roofline.kernel_gate.judging import check_slack, figure_changes, judge_exact
from pytest_roofline.stats.verdicts import Kind

HOPPER = {
    "shared_bytes": 114688,
    "registers": 198,
    "stack_bytes": 0,
    "spill_stores": 0,
    "spill_loads": 0,
    "matrix_instructions": 24,
    "instructions": 900,
    "HGMMA": 24,
    "FFMA": 92,
}
CDNA = {
    "shared_bytes": 32768,
    "vgprs": 200,
    "agprs": 0,
    "sgprs": 40,
    "vgpr_spills": 0,
    "sgpr_spills": 0,
    "scratch_bytes": 0,
    "occupancy_waves": 2,
    "matrix_instructions": 48,
    "instructions": 900,
    "v_mfma": 48,
}


def entry(figures=HOPPER, **changes):
    facts = {"target": "sm_90", "compiler": {"triton": "3.9.0", "ptxas": "13.4.59"}, "options": {"num_warps": 8}}
    return ExactEntry("flash", figures=figures, **(facts | changes))


def verdict(before=HOPPER, slack=None, **after):
    changed = {name: value for name, value in (before | after).items() if value is not None}
    return judge_exact(entry(changed), entry(before), slack=slack, source="resources.json")


def told(found):
    return [(change.figure, change.before, change.after, change.verdict) for change in found.changes]


def test_the_same_figures_pass():
    found = verdict()
    assert (found.verdict, found.changes) == (Kind.PASSED, ())


def test_a_figure_that_is_worse_by_one_is_red_on_either_vendors_target_and_a_better_one_is_an_improvement():
    for name in ("registers", "shared_bytes", "stack_bytes", "spill_stores", "spill_loads"):
        found = verdict(**{name: HOPPER[name] + 1})
        assert (found.verdict, told(found)) == (Kind.REGRESSED, [(name, HOPPER[name], HOPPER[name] + 1, "worse")])
    assert verdict(matrix_instructions=23).verdict == Kind.REGRESSED
    for name in ("vgprs", "agprs", "vgpr_spills", "sgpr_spills", "scratch_bytes"):
        assert verdict(CDNA, **{name: CDNA[name] + 1}).verdict == Kind.REGRESSED, name
    assert verdict(CDNA, occupancy_waves=1).verdict == Kind.REGRESSED
    for better in ({"registers": 190}, {"shared_bytes": 65536}, {"matrix_instructions": 32}):
        assert verdict(**better).verdict == Kind.IMPROVED


def test_better_in_one_figure_does_not_pay_for_worse_in_another():
    found = verdict(registers=168, spill_stores=12)
    assert found.verdict == Kind.REGRESSED
    assert [change.figure for change in found.changes] == ["spill_stores", "registers"]


def test_other_counts_are_named_and_judge_nothing():
    for after in ({"FFMA": 24}, {"FFMA": None}, {"MUFU.EX2": 8}, {"instructions": 1200}):
        found = verdict(**after)
        assert (found.verdict, [change.verdict for change in found.changes]) == (Kind.PASSED, [""])
    # An instruction that is not named is not there.
    assert told(verdict(FFMA=None)) == [("FFMA", 92, 0, "")]


def test_slack_allows_what_it_says_and_no_more():
    assert verdict(registers=206, slack={"registers": 8}).verdict == Kind.PASSED
    assert verdict(registers=207, slack={"registers": 8}).verdict == Kind.REGRESSED
    assert verdict(matrix_instructions=22, slack={"matrix_instructions": 2}).verdict == Kind.PASSED
    # That of registers means vgprs where a target calls them so, and has none of its own.
    assert verdict(CDNA, vgprs=208, slack={"registers": 8}).verdict == Kind.PASSED
    assert verdict(CDNA, vgprs=208, slack={"registers": 8, "vgprs": 4}).verdict == Kind.REGRESSED
    # Worse within it is no improvement, whatever else is better.
    assert verdict(registers=206, shared_bytes=0, slack={"registers": 8}).verdict == Kind.PASSED
    for bad in ({"registres": 8}, {"FFMA": 8}, {"registers": -1}, {"registers": 1.5}, {"registers": True}):
        with pytest.raises(BadInput, match="slack"):
            check_slack(bad)
    assert check_slack(None) == {}


def test_a_kind_of_matrix_instruction_that_is_gone_is_red_even_where_their_number_is_not_less():
    found = verdict(HGMMA=None, HMMA=128, matrix_instructions=128)
    assert found.verdict == Kind.REGRESSED
    assert ("HGMMA", 24, 0, "worse") in told(found)


def test_losing_every_matrix_instruction_is_red():
    found = verdict(HGMMA=None, matrix_instructions=0)
    assert [change.figure for change in found.changes if change.verdict == "worse"] == ["matrix_instructions", "HGMMA"]


def test_a_newer_kind_in_place_of_an_older_is_an_improvement_with_fewer_of_them():
    bare = {name: value for name, value in HOPPER.items() if name != "HGMMA"}
    for old, new in (("HMMA", "HGMMA"), ("HGMMA", "UTCHMMA"), ("HMMA", "UTCQMMA")):
        found = verdict(bare | {old: 128, "matrix_instructions": 128}, **{old: None, new: 8, "matrix_instructions": 8})
        assert found.verdict == Kind.IMPROVED
        assert [change.figure for change in found.changes if change.verdict == "better"] == [new]


def test_one_kind_in_place_of_another_of_the_same_generation_is_for_a_person_to_accept():
    before = {name: value for name, value in HOPPER.items() if name != "HGMMA"} | {"HMMA": 24}
    assert verdict(before, HMMA=None, IMMA=24).verdict == Kind.REGRESSED


def test_matrix_instructions_where_there_were_none_are_an_improvement():
    before = {name: value for name, value in HOPPER.items() if name != "HGMMA"} | {"matrix_instructions": 0}
    assert verdict(before, HMMA=8, matrix_instructions=8).verdict == Kind.IMPROVED


def test_nothing_to_compare_with_is_no_baseline_with_the_reason():
    found = judge_exact(entry(), None, why_none="no baseline recorded")
    assert (found.verdict, found.reason) == (Kind.NO_BASELINE, "no baseline recorded")


def test_a_figure_that_can_no_longer_be_read_is_never_passed_over():
    before = entry()
    now = entry({name: HOPPER[name] for name in ("shared_bytes", "registers", "stack_bytes")})
    found = judge_exact(now, before, unread="nvdisasm gave up")
    assert found.verdict == Kind.INVALID
    assert (
        found.reason == "spill_stores, spill_loads, matrix_instructions cannot be compared any more: nvdisasm gave up"
    )


def test_what_is_worse_is_red_although_something_else_can_no_longer_be_read():
    now = entry({name: HOPPER[name] for name in ("shared_bytes", "stack_bytes")} | {"registers": 255})
    found = judge_exact(now, entry(), unread="nvdisasm gave up")
    assert found.verdict == Kind.REGRESSED
    assert told(found)[0] == ("registers", 198, 255, "worse")
    assert found.reason.endswith("matrix_instructions cannot be compared any more: nvdisasm gave up")


def test_what_is_better_does_not_make_up_for_what_can_no_longer_be_read():
    now = entry({name: HOPPER[name] for name in ("shared_bytes", "stack_bytes")} | {"registers": 128})
    assert judge_exact(now, entry()).verdict == Kind.INVALID


def test_a_figure_that_the_baseline_lacks_is_named_only():
    before = {name: value for name, value in CDNA.items() if name != "occupancy_waves"}
    found = verdict(before, occupancy_waves=2)
    assert found.verdict == Kind.PASSED
    assert told(found) == [("occupancy_waves", None, 2, "")]


def test_instructions_that_were_not_counted_before_are_not_taken_for_none():
    before = {name: HOPPER[name] for name in ("shared_bytes", "registers", "stack_bytes")}
    found = judge_exact(entry(), entry(before))
    assert found.verdict == Kind.PASSED
    assert ("HGMMA", None, 24, "") in told(found)


def test_the_compiler_is_named_also_where_it_is_the_same():
    assert verdict().remarks == ("triton 3.9.0",)


def test_another_compiler_options_and_arguments_are_named():
    now = entry(
        compiler={"triton": "3.10.0", "ptxas": "13.4.59"},
        options={"num_warps": 4},
        arguments={"BM": "64", "q": "*bf16"},
    )
    found = judge_exact(now, entry(arguments={"BM": "128", "q": "*bf16"}))
    assert found.remarks == ("triton 3.9.0 → 3.10.0", "num_warps 8 → 4", "BM 128 → 64")


def test_another_assembler_is_named_beside_the_same_triton():
    now = entry(compiler={"triton": "3.9.0", "ptxas": "13.5.1"})
    assert judge_exact(now, entry()).remarks == ("triton 3.9.0", "ptxas 13.4.59 → 13.5.1")


FIGURES = st.dictionaries(st.sampled_from([*JUDGED, "HMMA", "HGMMA", "FFMA", "instructions"]), st.integers(0, 300))


@given(FIGURES, FIGURES)
def test_what_is_worse_one_way_is_not_worse_the_other_way(before, after):
    there, back = figure_changes(before, after, {}), figure_changes(after, before, {})
    judged = {change.figure: change.verdict for change in there if change.figure in JUDGED}
    mirrored = {change.figure: change.verdict for change in back if change.figure in JUDGED}
    assert judged.keys() == mirrored.keys()
    assert not [figure for figure, word in judged.items() if word == "worse" == mirrored[figure]]


@given(FIGURES)
def test_the_same_never_differs(figures):
    assert figure_changes(figures, dict(figures), {}) == ()
