"""A compiled kernel asks for more, for less, or for the same; which of these is red, and what is said of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.baselines.exact import KernelRecord, check_slack, figure_changes, judge_exact
from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.resources import JUDGED_FIGURES
from pytest_roofline.core.verdicts import Kind

PASSED, REGRESSED, IMPROVED, INVALID = Kind.PASSED, Kind.REGRESSED, Kind.IMPROVED, Kind.INVALID
HOPPER = {
    "shared_bytes": 114688, "registers": 198, "stack_bytes": 0, "spill_stores": 0, "spill_loads": 0,
    "matrix_instructions": 24, "serialized_wgmma": 0, "exposed_exponentials": 8, "narrow_lds": 0, "instructions": 900,
    "HGMMA": 24, "FFMA": 92,
}  # fmt: skip
CDNA = {
    "shared_bytes": 32768, "vgprs": 200, "agprs": 0, "sgprs": 40, "vgpr_spills": 0, "sgpr_spills": 0,
    "scratch_bytes": 0, "occupancy_waves": 2, "matrix_instructions": 48, "narrow_lds": 4, "instructions": 900,
    "v_mfma": 48,
}  # fmt: skip
# Without its matrix instructions, and what a disassembler that gave up leaves.
BARE = {
    name: value for name, value in HOPPER.items() if name not in ("HGMMA", "matrix_instructions")
}
UNREAD = {name: HOPPER[name] for name in ("shared_bytes", "registers", "stack_bytes")}


def entry(figures=HOPPER, **changes):
    facts = {
        "target": "sm_90",
        "compiler": {"triton": "3.9.0", "ptxas": "13.4.59"},
        "options": {"num_warps": 8},
    }
    return ExactEntry("flash", figures=figures, **(facts | changes))


def verdict(before=HOPPER, slack=None, **after):
    changed = {name: value for name, value in (before | after).items() if value is not None}
    return judge(entry(changed), entry(before), slack or {})


def judge(after, before, slack=(), unread=""):
    return judge_exact(
        KernelRecord(after, "run.jsonl", dict(slack), unread),
        KernelRecord(before, "resources.json"),
        "",
    )


def told(found):
    return [
        (change.figure, change.before, change.after, change.verdict) for change in found.changes
    ]


def test_the_verdict_follows_what_got_worse_better_or_another():
    for before, after, kind in [
        (HOPPER, {}, PASSED),
        *((HOPPER, {name: HOPPER[name] + 1}, REGRESSED)
          for name in ("registers", "shared_bytes", "stack_bytes", "spill_stores", "spill_loads", "serialized_wgmma",
                       "exposed_exponentials", "narrow_lds")),
        *((CDNA, {name: CDNA[name] + 1}, REGRESSED)
          for name in ("vgprs", "agprs", "vgpr_spills", "sgpr_spills", "scratch_bytes", "narrow_lds")),
        (HOPPER, {"matrix_instructions": 23}, REGRESSED), (CDNA, {"occupancy_waves": 1}, REGRESSED),
        (HOPPER, {"registers": 190}, IMPROVED), (HOPPER, {"shared_bytes": 65536}, IMPROVED),
        (HOPPER, {"matrix_instructions": 32}, IMPROVED),
        # Better in one figure does not pay for worse in another.
        (HOPPER, {"registers": 168, "spill_stores": 12}, REGRESSED),
        # Other counts judge nothing.
        *((HOPPER, after, PASSED) for after in ({"FFMA": 24}, {"FFMA": None}, {"MUFU.EX2": 8}, {"instructions": 1200})),
        # A kind of matrix instruction that is gone is red, though their number is not less; so are all of them.
        (HOPPER, {"HGMMA": None, "HMMA": 128, "matrix_instructions": 128}, REGRESSED),
        (HOPPER, {"HGMMA": None, "matrix_instructions": 0}, REGRESSED),
        # A newer kind in place of an older is better with fewer of them; one of the same generation a person accepts.
        *((BARE | {old: 128, "matrix_instructions": 128}, {old: None, new: 8, "matrix_instructions": 8}, IMPROVED)
          for old, new in (("HMMA", "HGMMA"), ("HGMMA", "UTCHMMA"), ("HMMA", "UTCQMMA"))),
        # Those of a warp never wait for each other, whatever the newer ones do.
        (BARE | {"HMMA": 128, "matrix_instructions": 128},
         {"HMMA": None, "HGMMA": 8, "matrix_instructions": 8, "serialized_wgmma": 8}, IMPROVED),
        (BARE | {"HMMA": 24, "matrix_instructions": 24}, {"HMMA": None, "IMMA": 24}, REGRESSED),
        (BARE | {"matrix_instructions": 0}, {"HMMA": 8, "matrix_instructions": 8}, IMPROVED),
    ]:  # fmt: skip
        assert verdict(before, **after).verdict == kind, after


def test_changes_are_named_the_worse_ones_first_and_what_was_not_read_before_is_not_taken_for_none():
    assert told(verdict(registers=199)) == [("registers", 198, 199, "worse")]
    both = told(verdict(registers=168, spill_stores=12))
    assert both == [("spill_stores", 0, 12, "worse"), ("registers", 198, 168, "better")]
    # An instruction that is not named is not there.
    assert told(verdict(FFMA=None)) == [("FFMA", 92, 0, "")]
    assert told(verdict(HGMMA=None, matrix_instructions=0)) == [
        ("matrix_instructions", 24, 0, "worse"), ("HGMMA", 24, 0, "worse"),
    ]  # fmt: skip
    found = verdict(
        {name: value for name, value in CDNA.items() if name != "occupancy_waves"},
        occupancy_waves=2,
    )
    assert (found.verdict, told(found)) == (PASSED, [("occupancy_waves", None, 2, "")])
    found = judge(entry(), entry(UNREAD))
    assert (found.verdict, ("HGMMA", None, 24, "") in told(found)) == (PASSED, True)


def test_slack_allows_what_it_says_and_no_more():
    for before, after, slack, kind in [
        (HOPPER, {"registers": 206}, {"registers": 8}, PASSED),
        (HOPPER, {"registers": 207}, {"registers": 8}, REGRESSED),
        (HOPPER, {"matrix_instructions": 22}, {"matrix_instructions": 2}, PASSED),
        # That of registers means vgprs where a target calls them so, and has none of its own.
        (CDNA, {"vgprs": 208}, {"registers": 8}, PASSED),
        (CDNA, {"vgprs": 208}, {"registers": 8, "vgprs": 4}, REGRESSED),
        # Worse within it is no improvement, whatever else is better.
        (HOPPER, {"registers": 206, "shared_bytes": 0}, {"registers": 8}, PASSED),
    ]:  # fmt: skip
        assert verdict(before, slack, **after).verdict == kind, (after, slack)
    for bad in (
        {"registres": 8},
        {"FFMA": 8},
        {"registers": -1},
        {"registers": 1.5},
        {"registers": True},
    ):
        with pytest.raises(BadInput, match="slack"):
            check_slack(bad)
    assert check_slack(None) == {}


def test_without_a_baseline_or_a_reading_there_is_a_reason_and_only_what_is_worse_is_still_red():
    found = judge_exact(KernelRecord(entry(), ""), None, "no baseline recorded")
    assert (found.verdict, found.reason) == (Kind.NO_BASELINE, "no baseline recorded")
    lost = (
        "spill_stores, spill_loads, matrix_instructions, serialized_wgmma, exposed_exponentials, narrow_lds can no "
        "longer be compared: nvdisasm gave up"
    )
    for registers, kind in [(198, INVALID), (128, INVALID), (255, REGRESSED)]:
        found = judge(entry(UNREAD | {"registers": registers}), entry(), unread="nvdisasm gave up")
        assert (found.verdict, found.reason) == (kind, lost), registers


def test_the_compiler_is_named_also_where_it_is_the_same_and_options_and_arguments_where_they_differ():
    now = {"compiler": {"triton": "3.10.0", "ptxas": "13.4.59"}, "options": {"num_warps": 4}}
    for before, after, remarks in [
        (entry(), entry(), ("triton 3.9.0",)),
        (
            entry(arguments={"BM": "128", "q": "*bf16"}), entry(**now, arguments={"BM": "64", "q": "*bf16"}),
            ("triton 3.9.0 → 3.10.0", "num_warps 8 → 4", "BM 128 → 64"),
        ),
        (
            entry(), entry(compiler={"triton": "3.9.0", "ptxas": "13.5.1"}),
            ("triton 3.9.0", "ptxas 13.4.59 → 13.5.1"),
        ),
    ]:  # fmt: skip
        assert judge(after, before).remarks == remarks


FIGURES = st.dictionaries(
    st.sampled_from([*JUDGED_FIGURES, "HMMA", "HGMMA", "FFMA", "instructions"]), st.integers(0, 300)
)


@given(FIGURES, FIGURES)
def test_what_is_worse_one_way_is_not_worse_the_other_way_and_the_same_never_differs(before, after):
    there, back = (
        {
            change.figure: change.verdict
            for change in figure_changes(*pair, {})
            if change.figure in JUDGED_FIGURES
        }
        for pair in ((before, after), (after, before))
    )
    assert there.keys() == back.keys()
    assert not [figure for figure, word in there.items() if word == "worse" == back[figure]]
    assert figure_changes(before, dict(before), {}) == ()
