"""Compiled kernels in words: one line a kernel at 80 columns, what got worse first, nothing taken for markup."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.rows import compiled_row, kernel_row
from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.resources import ExactJudgement, FigureChange, ResourceKey, Resources, with_target
from pytest_roofline.kernel_gate.judging import entry_of, judge_exact
from pytest_roofline.kernel_gate.recording import ExactChange
from pytest_roofline.kernel_gate.text import (
    changes_text,
    difference_lines,
    explanation,
    failure_message,
    properties,
    status_word,
)
from pytest_roofline.plugin.results import DOES_NOT_FIT
from pytest_roofline.report.messages import counts_line, gate_lines
from pytest_roofline.report.tables import exact_change_lines, exact_reason_lines, exact_table, kernels_table

HOSTILE = "x\x1b[31m\r\ny\u202e[bold]"
FIGURES = {
    "shared_bytes": 114688, "registers": 198, "stack_bytes": 0, "spill_stores": 0, "spill_loads": 0,
    "matrix_instructions": 24, "instructions": 900, "HGMMA": 24,
}  # fmt: skip

# What is left where a disassembler gave the target up.
FEWER = {name: FIGURES[name] for name in ("shared_bytes", "registers", "stack_bytes")}


def kernel(target="sm_90", label=None, name="", **changes):
    key = ResourceKey("flash", {"target": target}, target, name)
    facts = {"figures": FIGURES, "compiler": {"triton": "3.9.0"}}
    return Resources(key, "test_flash.py::test_flash", label or key.label, "process-1", **(facts | changes))


def judged(before=FIGURES, why_none="", **changes):
    found = kernel(**changes)
    known = ExactEntry("flash", found.target, before, compiler={"triton": "3.9.0"}) if before else None
    exact = judge_exact(entry_of(found, {}), known, source="resources.json", why_none=why_none, unread=found.unread)
    return compiled_row(found, replace(exact, label=found.label, test_id=found.test_id))


def unknown(key, figures):
    exact = ExactJudgement("", key.label, key.target, "NO BASELINE", reason="none")
    return kernel_row(key, figures, exact)


def worse(**changes):
    return judged(figures=FIGURES | {"registers": 255, "spill_stores": 12}, **changes)


def test_a_table_fits_in_eighty_columns_and_the_worst_comes_first():
    long = with_target("flash_attention_backward_keys[" + "-".join(map(str, range(40))) + "]", "sm_90")
    rows = kernels_table([judged(), judged(label=long), worse(label="worse")], 80, colour=False).split("\n")
    assert max(map(len, rows)) <= 80
    assert [row.split()[-1] for row in rows[2:3]] == ["REGRESSED"]
    assert "worse" in rows[2]


def test_the_target_stands_in_its_column_alone():
    (row,) = kernels_table([judged(label="flash@sm_90")], 80, colour=False).split("\n")[2:]
    assert row.split() == ["flash", "sm_90", "198", "112", "KiB", "0", "24", "PASSED"]


def test_what_was_not_read_is_a_question_mark_and_has_its_reason():
    found = kernel(figures={"shared_bytes": 0, "registers": 32, "stack_bytes": 0}, unread="nvdisasm gave up")
    result = unknown(found.key, found.figures)
    result = replace(result, resources=found)
    assert kernels_table([result], 80, colour=False).split("\n")[2].split()[-4:] == ["?", "?", "NO", "BASELINE"]
    assert difference_lines([result, result]) == ["sm_90: nvdisasm gave up"]
    assert status_word(result) == "sm_90 32 registers, 0 B shared NO BASELINE"


def test_the_message_of_a_red_test_says_first_what_got_worse():
    first, second = failure_message(worse(), "runs/r.jsonl").split("\n")
    assert first == "flash[sm_90]: registers 198 → 255, spill_stores 0 → 12 REGRESSED; exact; triton 3.9.0"
    assert second == "  Details: runs/r.jsonl; accept with `roofline baseline propose --accept-slower`."


def test_the_message_of_what_is_worse_also_says_what_could_not_be_compared():
    found = judged(figures=FEWER | {"registers": 255}, unread="nvdisasm gave up")
    first, second = failure_message(found, "r").split("\n")
    assert first == "flash[sm_90]: registers 198 → 255 REGRESSED; exact; triton 3.9.0"
    lost = "spill_stores, spill_loads, matrix_instructions cannot be compared any more: nvdisasm gave up"
    assert second.startswith(f"  {lost}. also spill_stores 0 → not read")


def test_a_compared_row_tells_its_reason_and_its_changes():
    found = judged(figures=FEWER | {"registers": 255}, unread="nvdisasm gave up")
    (line,) = exact_reason_lines([found])
    assert line.startswith("REGRESSED flash[sm_90]: spill_stores, ")
    assert "nvdisasm gave up; registers 198 → 255" in line


def test_a_target_that_a_file_names_reaches_no_terminal_raw():
    entry = ExactEntry("flash", HOSTILE, FIGURES)
    row = unknown(entry.key, FIGURES)
    for text in (exact_table([entry], 80, colour=False), kernels_table([row], 80, colour=False)):
        assert not [character for character in "\x1b\r\u202e" if character in text]


def test_a_kernel_that_its_test_expected_not_to_fit_is_told_in_the_status_word():
    assert status_word(compiled_row(kernel(invalid="too big"), verdict=DOES_NOT_FIT)).endswith(" DOES NOT FIT")


def test_a_run_that_could_not_be_saved_is_told_of():
    assert "The run could not be saved" in failure_message(worse(), "")


@pytest.mark.parametrize(
    "result",
    [
        worse(label=HOSTILE),
        judged(None, label=HOSTILE, why_none=HOSTILE),
        judged(label=HOSTILE, unread=HOSTILE, figures=FEWER),
        judged(label=HOSTILE, unread=HOSTILE, figures=FEWER | {"registers": 255}),
    ],
    ids=lambda result: result.verdict,
)
def test_no_text_of_a_user_reaches_the_terminal_raw(result):
    texts = [
        failure_message(result, "r"),
        *difference_lines([result]),
        *explanation("r", result.resources, result.judgement),
        *gate_lines([result], 1, "r", "resources"),
        kernels_table([result], 80, colour=False),
    ]
    assert not [text for text in texts for character in "\x1b\r\u202e" if character in text]
    assert all(len(text.split("\n")) <= 2 for text in texts[:-1])


def test_of_many_changes_the_first_are_told_and_the_others_counted():
    changes = [FigureChange(f"f{number}", 1, 2) for number in range(9)]
    assert changes_text(changes).endswith("f5 1 → 2 and 3 more")
    assert changes_text(changes, at_most=None).endswith("f8 1 → 2")


def test_of_many_kernels_the_first_are_told_and_the_others_counted():
    better = judged(figures=FIGURES | {"registers": 168})
    lines = difference_lines([better] * 15)
    assert len(lines) == 13
    assert lines[-1] == "… and 3 more of these"


def test_an_unchanged_kernel_needs_no_line():
    assert difference_lines([judged(), worse()]) == []


def test_a_red_kernel_without_a_saved_baseline_names_the_reason():
    text = failure_message(judged(None, why_none="no baseline recorded"), "r")
    assert text.startswith("flash[sm_90]: NO BASELINE (no baseline recorded), and a baseline is required\n")


def test_properties_carry_name_target_and_what_the_baseline_has():
    found = dict(properties([worse(name="forward")]))
    assert found["roofline.forward.sm_90.registers"] == "255"
    assert found["roofline.forward.sm_90.baseline_registers"] == "198"
    assert found["roofline.forward.sm_90.verdict"] == "REGRESSED"


def test_the_last_lines_count_kernels_beside_times(make):
    (line,) = gate_lines([make.result(), judged(), worse()], 3, "r1", "h200")
    assert line == "3 of 3 compared: 1 REGRESSED, 2 PASSED"
    assert counts_line(1, {"needs 2 GPUs": 2}, 2) == "1 measured, 2 compiled, 2 not measured (needs 2 GPUs)"


def test_an_explanation_without_a_verdict_says_why():
    lines = explanation("r.jsonl", kernel(invalid="needs more than there is"), None)
    assert lines[-1] == "no verdict: needs more than there is"


def test_an_approval_shows_every_figure_that_changes():
    before = ExactEntry("flash", "sm_90", FIGURES)
    after = ExactEntry("flash", "sm_90", FIGURES | {"registers": 255})
    changes = [
        ExactChange(after, None, "new"),
        ExactChange(after, before, "replaced", (FigureChange("registers", 198, 255, "worse"),)),
        ExactChange(after, after, "replaced"),
    ]
    assert exact_change_lines(changes) == [
        "flash@sm_90: replaced, registers 198 → 255",
        "flash@sm_90: replaced, the same figures, compiled otherwise",
    ]


def test_entries_of_either_vendor_stand_in_one_table():
    amd = {"shared_bytes": 32768, "vgprs": 200, "vgpr_spills": 3, "sgpr_spills": 1, "matrix_instructions": 48}
    entries = [ExactEntry("flash", "sm_90", FIGURES), ExactEntry("flash", "gfx942", amd, compiler={"triton": "3.9.0"})]
    rows = [line.split() for line in exact_table(entries, 80, colour=False).split("\n")[2:]]
    assert rows == [
        ["flash", "sm_90", "198", "112", "KiB", "0", "24"],
        ["flash", "gfx942", "200", "32", "KiB", "4", "48", "3.9.0"],
    ]


def test_an_entry_with_little_in_it_shows_what_is_missing():
    row = unknown(kernel().key, {"registers": 8})
    assert kernels_table([row], 80, colour=False).split("\n")[2].split()[2:6] == ["8", "?", "?", "?"]
