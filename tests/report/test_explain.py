"""One measurement of a run, process by process, and how its verdict came about."""

import math
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pytest_roofline.baselines.rows import rows_of_run
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.explain import explanation
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.looks import Looks
from pytest_roofline.stats.outlook import Policy

HOSTILE = "x\x1b[31m\r\ny\u202e"
MILLISECOND = math.log(1e-3)
LABEL = "memcpy_d2d[64MiB]"
INTERVAL = r"99 % interval [+-]\d+\.\d … [+-]\d+\.\d %"


def timed(make, *seconds, number=1, blocks=(), **changes):
    samples = Samples(seconds, 1, 1e-9, blocks=blocks)
    return make.measurement(samples=samples, process=f"{number:032d}", round=number, **changes)


def judged(make, *seconds, **changes):
    """The judgement on processes of so many seconds, as the end of a run writes it."""
    judged = make.result(*seconds, **changes).judgement
    return replace(judged, p_adjusted=min(1.0, 2 * judged.p)) if judged.p is not None else judged


def explained(make, folder, *records, width=80):
    rows = rows_of_run(make.run(folder / "r.jsonl", *records))
    return [line for row in rows if row.label == LABEL for line in explanation(row, width)]


def test_every_process_has_a_line_with_its_median_samples_and_blocks(make, tmp_path):
    one = timed(make, 1e-3, 1e-3, 1.2e-3, blocks=(Block(2), Block(1)))
    two = timed(make, 2e-3, 2e-3, number=2)
    first, heading, *rest = explained(make, tmp_path, one, two, judged(make, 1.1e-3, 2e-3))
    assert first == f"{LABEL} in {tmp_path / 'r.jsonl'}"
    assert heading == "samples by process, each strip from 1.00 ms to 2.00 ms:"
    assert re.match(r"  round 1, process 000000: 1\.10 ms \|.{8,32}\| 3 samples in 2 blocks$", rest[0])
    assert re.match(r"  round 2, process 000000: 2\.00 ms \|.{8,32}\| 2 samples in 2 blocks$", rest[1])


def test_one_sample_in_one_block_is_counted_as_one(make, tmp_path):
    *_, line = explained(make, tmp_path, timed(make, 1e-3, blocks=(Block(1),)), judged(make, 1e-3))[:3]
    assert line.endswith("| 1 sample in 1 block")


def test_a_strip_shows_where_the_samples_lie_on_one_scale(make, tmp_path):
    fast = timed(make, *[1e-3] * 9, 1.999e-3)
    slow = timed(make, *[2e-3] * 10, number=2)
    lines = explained(make, tmp_path, fast, slow, judged(make, 1e-3, 2e-3), width=200)
    strips = [re.search(r"\|(.*)\|", line)[1] for line in lines[2:4]]
    assert strips == ["█" + " " * 30 + "▁", " " * 31 + "█"]


def test_samples_that_are_all_alike_have_a_strip_too(make, tmp_path):
    lines = explained(make, tmp_path, timed(make, 1e-3, 1e-3), judged(make, 1e-3), width=200)
    assert "|█" + " " * 31 + "|" in lines[2]


@pytest.mark.parametrize(("width", "strip"), [(40, 8), (200, 32)])
def test_a_strip_is_as_long_as_the_terminal_leaves_room_for(make, tmp_path, width, strip):
    line = explained(make, tmp_path, timed(make, 1e-3), judged(make, 1e-3), width=width)[2]
    assert len(re.search(r"\|(.*)\|", line)[1]) == strip


def test_the_line_of_a_process_fits_80_columns(make, tmp_path):
    usual = timed(make, *[1.234e-3] * 100, blocks=(Block(10),) * 10, number=12)
    assert cell_len(explained(make, tmp_path, usual, judged(make, 1e-3))[2]) <= 80


def test_a_process_that_does_not_count_is_shown_with_the_reason(make, tmp_path):
    """Nothing that was measured is hidden."""
    spoiled = timed(make, 9e-3, number=2, invalid="neighbours")
    lines = explained(make, tmp_path, timed(make, 1e-3), spoiled, judged(make, 1e-3))
    assert lines[3].endswith("; does not count: neighbours")


def test_blocks_that_were_left_out_are_told_by_cause(make, tmp_path):
    blocks = (Block(1), Block(1, "host gap"), Block(1, "heat"), Block(1, "heat"))
    lines = explained(make, tmp_path, timed(make, *[1e-3] * 4, blocks=blocks), judged(make, 1e-3))
    assert lines[3] == "      blocks left out: 1 by host gap, 2 by heat"


def test_the_baseline_is_shown_session_by_session(make, tmp_path):
    groups = [
        *make.groups(1, 1, centre=MILLISECOND),
        *make.groups(1, 3, process=0.01, centre=MILLISECOND, device="GPU-2"),
    ]
    groups.append(make.group(MILLISECOND, device="", started=""))
    lines = explained(make, tmp_path, timed(make, 1e-3), judged(make, 1e-3, reference=make.reference(*groups)))
    assert lines[3:7] == [
        "baseline h200.json:",
        "  session of 2026-01-01T03:04:05Z on GPU-1: 1 process, 1.00 ms",
        "  session of 2026-01-01T03:04:05Z on GPU-2: 3 processes, 1.00 ms (990 µs … 1.01 ms)",
        "  session of an unknown time: 1 process, 1.00 ms",
    ]


@pytest.mark.parametrize(
    ("seconds", "verdict", "slower", "surely"),
    [(1.25e-3, "REGRESSED", "more", "yes"), (1e-3, "PASSED", "not more", "no"), (0.5e-3, "IMPROVED", "not more", "no")],
)
def test_the_rule_is_told_step_by_step_with_its_figures(make, tmp_path, seconds, verdict, slower, surely):
    judgement = judged(make, seconds)
    lines = explained(make, tmp_path, timed(make, seconds), judgement)
    text = "\n".join(lines)
    processes = "3 processes" if verdict == "REGRESSED" else "1 process"
    assert re.search(rf"^difference [+-]\d+\.\d % time \({INTERVAL}\), tolerance 5 %$", text, re.M)
    assert re.search(rf"^now .* from {processes} .*; baseline 1\.00 ms from 15 processes of 3 sessions", text, re.M)
    assert re.search(rf"^is it slower than the tolerance\? [+-]\d+\.\d % is {slower} than 5 %$", text, re.M)
    asked = rf"^is it surely more than the smallest effect worth reporting, 2 %\? {surely}: p .* against 0\.05$"
    assert re.search(asked, text, re.M)
    assert "note: driver 550.54 → 570.86" in lines
    assert lines[-1] == verdict


def test_an_open_verdict_ends_with_what_would_decide(make, tmp_path):
    reference = make.reference(*make.groups(1, 5, process=0.05, centre=MILLISECOND))
    judgement = judged(make, 1.04e-3, reference=reference, policy=Policy(looks=Looks(12)))
    last = explained(make, tmp_path, timed(make, 1.04e-3), judgement)[-1]
    assert re.match(r"INCONCLUSIVE: may be .* % after 1 process .*; .*(would decide|record)", last)


def test_a_breach_is_explained_with_its_difference_interval_and_processes(make, tmp_path):
    """The issue: every printed verdict shows them."""
    judgement = judged(make, 1.25e-3, known=False, limits=[Limit(make.published(), 1e-3)])
    text = "\n".join(explained(make, tmp_path, timed(make, 1.25e-3), judgement))
    assert "REGRESSED: BELOW THRESHOLD" in text
    assert "+25.0 %" in text
    assert re.search(r"[+-]\d+\.\d … [+-]\d+\.\d %", text)
    assert re.search(r"\b1 process\b", text)


@pytest.mark.parametrize(
    ("changes", "last"),
    [({"known": False}, "NO BASELINE: no baseline recorded"), ({"invalid": "wrong data"}, "INVALID: wrong data")],
)
def test_what_was_not_compared_says_why(make, tmp_path, changes, last):
    assert explained(make, tmp_path, timed(make, 1e-3), judged(make, 1e-3, **changes))[-1] == last


def test_a_test_without_a_verdict_still_shows_its_samples(make, tmp_path):
    lines = explained(make, tmp_path, timed(make, 1e-3))
    assert lines[-1] == "no verdict: the test failed for itself, or the run was cut before its end"
    assert "1.00 ms" in lines[2]


def test_only_the_measurement_that_was_asked_for_is_explained(make, tmp_path):
    other = timed(make, 5e-3, key=make.key("other"))
    text = "\n".join(explained(make, tmp_path, timed(make, 1e-3), other, judged(make, 1e-3)))
    assert "5.00 ms" not in text


@pytest.mark.parametrize("place", ["process", "cause", "invalid", "device", "source", "origin", "reason", "remark"])
def test_text_from_a_file_cannot_steer_the_terminal(make, tmp_path, place):
    samples = Samples((1e-3, 1e-3), 1, 1e-9, blocks=(Block(1), Block(1, HOSTILE if place == "cause" else "heat")))
    measurement = make.measurement(
        samples=samples,
        process=HOSTILE if place == "process" else "process-1",
        invalid=HOSTILE if place == "invalid" else "",
    )
    judgement = judged(make, 1.25e-3)
    judgement = {
        "device": replace(judgement, reference=(replace(judgement.reference[0], device=HOSTILE, started=HOSTILE),)),
        "source": replace(judgement, source=HOSTILE),
        "origin": replace(judgement, process_spread=replace(judgement.process_spread, origin=HOSTILE)),
        "reason": replace(judgement, reason=HOSTILE, verdict=HOSTILE),
        "remark": replace(judgement, remarks=(HOSTILE,)),
    }.get(place, judgement)
    lines = explained(make, tmp_path, measurement, judgement)
    assert not set("".join(lines)) & set("\x1b\r\n\u202e")


def test_a_test_that_failed_for_itself_says_how(make, tmp_path):
    one = timed(make, 1e-3)
    lines = explained(make, tmp_path, one, make.outcome(one, "failed", reason="AssertionError: bits flipped"))
    assert lines[-1] == "no verdict: the test failed for itself: AssertionError: bits flipped"
