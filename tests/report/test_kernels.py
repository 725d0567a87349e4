"""Compiled kernels in words: one line a kernel at 80 columns, what got worse first, nothing taken for markup."""

from dataclasses import replace

from pytest_roofline.baselines.exact import KernelRecord, entry_of, judge_exact
from pytest_roofline.baselines.exact_proposals import ExactChange
from pytest_roofline.baselines.rows import compiled_row, kernel_row
from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.resources import ResourceKey, Resources, with_target
from pytest_roofline.core.verdicts import ExactVerdict, FigureChange
from pytest_roofline.plugin.compiled import DOES_NOT_FIT
from pytest_roofline.report.kernels import (
    advice_lines,
    changes_text,
    difference_lines,
    explanation,
    failure_message,
    properties,
    status_word,
)
from pytest_roofline.report.messages import closing_lines, counts_line
from pytest_roofline.report.tables import (
    exact_change_lines,
    exact_reason_lines,
    exact_table,
    kernels_table,
)

HOSTILE = "x\x1b[31m\r\ny\u202e[bold]"
STEERS = set("\x1b\r\u202e")
FIGURES = {
    "shared_bytes": 114688, "registers": 198, "stack_bytes": 0, "spill_stores": 0, "spill_loads": 0,
    "matrix_instructions": 24, "instructions": 900, "HGMMA": 24,
}  # fmt: skip
# What is left where a disassembler gave the target up.
FEWER = {name: FIGURES[name] for name in ("shared_bytes", "registers", "stack_bytes")}


def kernel(target="sm_90", label=None, name="", **changes):
    key = ResourceKey("flash", {"target": target}, target, name)
    facts = {"figures": FIGURES, "compiler": {"triton": "3.9.0"}}
    return Resources(
        key, "test_flash.py::test_flash", label or key.label, "process-1", **(facts | changes)
    )


def judged(before=FIGURES, why_none="", **changes):
    found = kernel(**changes)
    known = (
        ExactEntry("flash", found.target, before, compiler={"triton": "3.9.0"}) if before else None
    )
    reference = KernelRecord(known, "resources.json") if known is not None else None
    exact = judge_exact(
        KernelRecord(entry_of(found, {}), "", unread=found.unread), reference, why_none
    )
    return compiled_row(found, replace(exact, label=found.label, test_id=found.test_id))


def unknown(key, figures):
    return kernel_row(
        key,
        figures,
        ExactVerdict("", key.label, "kernel", "NO BASELINE", target=key.target, reason="none"),
    )


def worse(**changes):
    return judged(figures=FIGURES | {"registers": 255, "spill_stores": 12}, **changes)


def rows(text):
    return [line.split() for line in text.split("\n")[2:]]


def test_a_table_fits_in_eighty_columns_with_the_worst_first_and_a_mark_for_what_was_not_read():
    long = with_target(
        "flash_attention_backward_keys[" + "-".join(map(str, range(40))) + "]", "sm_90"
    )
    table = kernels_table([judged(), judged(label=long), worse(label="worse")], 80, colour=False)
    assert max(map(len, table.split("\n"))) <= 80
    assert ("worse", "REGRESSED") == (rows(table)[0][0], rows(table)[0][-1])
    # The target stands in its column alone.
    (row,) = rows(kernels_table([judged(label="flash@sm_90")], 80, colour=False))
    assert row == ["flash", "sm_90", "198", "112", "KiB", "0", "24", "PASSED"]
    found = kernel(
        figures={"shared_bytes": 0, "registers": 32, "stack_bytes": 0}, unread="nvdisasm gave up"
    )
    result = replace(unknown(found.key, found.figures), resources=found)
    assert rows(kernels_table([result], 80, colour=False))[0][-4:] == ["?", "?", "NO", "BASELINE"]
    assert difference_lines([result, result]) == ["sm_90: nvdisasm gave up"]
    assert status_word(result) == "sm_90 32 registers, 0 B shared NO BASELINE"
    few = unknown(kernel().key, {"registers": 8})
    assert rows(kernels_table([few], 80, colour=False))[0][2:6] == ["8", "?", "?", "?"]
    amd = {
        "shared_bytes": 32768,
        "vgprs": 200,
        "vgpr_spills": 3,
        "sgpr_spills": 1,
        "matrix_instructions": 48,
    }
    entries = [
        ExactEntry("flash", "sm_90", FIGURES),
        ExactEntry("flash", "gfx942", amd, compiler={"triton": "3.9.0"}),
    ]
    assert rows(exact_table(entries, 80, colour=False)) == [
        ["flash", "sm_90", "198", "112", "KiB", "0", "24"],
        ["flash", "gfx942", "200", "32", "KiB", "4", "48", "3.9.0"],
    ]


def test_the_message_of_a_red_test_says_first_what_got_worse_and_what_could_not_be_compared():
    first, second = failure_message(worse(), "runs/r.jsonl").split("\n")
    assert (
        first
        == "flash[sm_90]: registers 198 → 255, spill_stores 0 → 12 REGRESSED; exact; triton 3.9.0"
    )
    assert (
        second == "  Details: runs/r.jsonl; accept the change with `pytest … --roofline-record "
        "--roofline-accept-slower=REASON`."
    )
    unread = judged(figures=FEWER | {"registers": 255}, unread="nvdisasm gave up")
    first, second = failure_message(unread, "r").split("\n")
    assert first == "flash[sm_90]: registers 198 → 255 REGRESSED; exact; triton 3.9.0"
    lost = (
        "spill_stores, spill_loads, matrix_instructions can no longer be compared: nvdisasm gave up"
    )
    assert second.startswith(f"  {lost}. also spill_stores 0 → not read")
    (line,) = exact_reason_lines([unread])
    assert line.startswith("REGRESSED flash[sm_90]: spill_stores, ")
    assert "nvdisasm gave up; registers 198 → 255" in line
    assert "The run could not be saved" in failure_message(worse(), "")
    missing = failure_message(judged(None, why_none="no baseline recorded"), "r")
    assert missing.startswith(
        "flash[sm_90]: NO BASELINE (no baseline recorded), and a baseline is required\n"
    )
    assert status_word(compiled_row(kernel(invalid="too big"), verdict=DOES_NOT_FIT)).endswith(
        " DOES NOT FIT"
    )
    lines = explanation("r.jsonl", kernel(invalid="needs more than there is"), None)
    assert lines[-1] == "no verdict: needs more than there is"


def test_a_figure_of_loops_that_is_worse_says_what_it_means_and_what_to_try():
    before = FIGURES | {"serialized_wgmma": 0, "exposed_exponentials": 0, "narrow_lds": 2}
    after = before | {"serialized_wgmma": 24, "narrow_lds": 0}
    row = judged(
        before, figures=after, warning="wgmma.mma_async instructions are serialized (C7515)"
    )
    meaning = (
        "serialized_wgmma: each of these matrix instructions waits for the previous matrix instruction. Let only "
        "matrix products write an accumulator, keep calls and prints out of the loop, or use more warps"
    )
    words = "ptxas: wgmma.mma_async instructions are serialized (C7515)"
    _, second = failure_message(row, "r").split("\n")
    assert f"also narrow_lds 2 → 0. {meaning}. {words}. Details" in second
    assert [f"note: {text}" for text in ("triton 3.9.0", meaning, words)] == [
        line for line in explanation("r", row.resources, row.exact) if line.startswith("note: ")
    ]
    # Of many kernels once.
    lines = exact_reason_lines([row, row])
    assert (3, meaning) == (len(lines), lines[-1])
    assert [] == advice_lines([FigureChange("serialized_wgmma", None, 24)])


def test_no_text_of_a_user_or_a_file_reaches_the_terminal_raw():
    for result in (
        worse(label=HOSTILE),
        judged(None, label=HOSTILE, why_none=HOSTILE),
        judged(label=HOSTILE, unread=HOSTILE, figures=FEWER),
        judged(label=HOSTILE, unread=HOSTILE, figures=FEWER | {"registers": 255}),
    ):
        table = kernels_table([result], 80, colour=False)
        texts = [
            failure_message(result, "r"),
            *difference_lines([result]),
            *closing_lines([result], {}, (), "pytest t.py --roofline-record"),
        ]
        texts += explanation("r", result.resources, result.time_verdict)
        assert not set("".join([table, *texts])) & STEERS
        assert all(len(text.split("\n")) <= 2 for text in texts)
    odd = ExactEntry("flash", HOSTILE, FIGURES)
    for text in (
        exact_table([odd], 80, colour=False),
        kernels_table([unknown(odd.key, FIGURES)], 80, colour=False),
    ):
        assert not set(text) & STEERS


def test_of_many_changes_and_kernels_the_first_are_told_and_the_others_counted():
    changes = [FigureChange(f"f{number}", 1, 2) for number in range(9)]
    assert changes_text(changes).endswith("f5 1 → 2 and 3 more")
    assert changes_text(changes, at_most=None).endswith("f8 1 → 2")
    lines = difference_lines([judged(figures=FIGURES | {"registers": 168})] * 15)
    assert (13, "… and 3 more of these") == (len(lines), lines[-1])
    assert difference_lines([judged(), worse()]) == []


def test_properties_carry_name_target_and_what_the_baseline_has_and_kernels_are_counted_beside_times(
    make,
):
    found = dict(properties([worse(name="forward")]))
    assert ("255", "198", "REGRESSED") == tuple(
        found[f"roofline.forward.sm_90.{name}"]
        for name in ("registers", "baseline_registers", "verdict")
    )
    (line,) = closing_lines([judged(), judged()], {}, (), "pytest t.py --roofline-record")
    assert line == "GREEN: 2 of 2 no worse"
    assert (
        counts_line({"measured": 1, "compiled": 2}, {"needs 2 GPUs": 2})
        == "1 measured, 2 compiled, 2 not measured (needs 2 GPUs)"
    )


def test_an_approval_shows_every_figure_that_changes():
    before, after = (
        ExactEntry("flash", "sm_90", FIGURES | more) for more in ({}, {"registers": 255})
    )
    changes = [
        ExactChange(after, None, "new"),
        ExactChange(after, before, "replaced", (FigureChange("registers", 198, 255, "worse"),)),
        ExactChange(after, after, "replaced"),
    ]
    assert exact_change_lines(changes) == [
        "flash@sm_90: replaced, registers 198 → 255",
        "flash@sm_90: replaced, the same figures, compiled differently or by another test",
    ]
