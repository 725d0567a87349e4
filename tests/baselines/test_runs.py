"""Run files: what was written is read back, what is damaged is refused in a sentence, what is unfit says why."""

import json
import os

import pytest

from pytest_roofline.baselines.runs import encode_line, ends_of, read_run
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.reasons import Reason, ReasonCode, text_reasons
from pytest_roofline.core.samples import Block, Calibration, Samples
from pytest_roofline.core.verdicts import (
    Difference,
    Group,
    Kind,
    Reference,
    Spread,
    Subject,
    Verdict,
)

VERDICT = Verdict(
    Kind.INCONCLUSIVE,
    tolerance=0.05,
    subject=Subject(
        "test_memcpy.py::test_memcpy_d2d[64MiB]",
        "memcpy_d2d[64MiB]",
        changed=("driver 550.54 → 570.86",),
    ),
    reasons=(
        Reason(ReasonCode.NEEDS_ROUNDS, {"processes": 12, "tolerance_percent": 9}),
        *text_reasons("no baseline recorded"),
    ),
    estimate=0.04,
    interval=(-0.01, 0.09),
    p=0.2,
    p_adjusted=0.4,
    mde=0.07,
    reach=0.06,
    processes=3,
    reference=Reference(
        (Group((1e-3, 1.1e-3), "GPU-1", "2026-01-02T03:04:05Z"), Group((9e-4,))), "h200.json"
    ),
    difference=Difference(
        estimate=0.04,
        error=0.02,
        freedom=12.0,
        process=Spread(0.01, "estimated", 12.0),
        session=Spread(0.005, "prior, 1 session"),
        new_s=1.04e-3,
        reference_s=1e-3,
        device=Spread(0.04, "prior, 1 device"),
        unequal=True,
        parts=((1e-4, 12.0), (0.0, None)),
    ),
)
CALIBRATION = Calibration(
    "cuda:0", 5e-7, 1e-6, 2e-6, 1e-7, spin_hz=1.9e9, queue_depth=1023, process="process-1"
)


def test_a_run_reads_back_as_it_was_written(make, tmp_path):
    blocks = (Block(2, "host gap", 1.9e9, True), Block(1), Block(1, power_capped=False))
    how = {"overhead_s": 1e-7, "wall_s": 3.0, "neighbours": "seen", "throttle_known": True}
    samples = Samples((1.0, 2.0, 3.0, 4.0), 10, 1e-9, mode="graph", blocks=blocks, **how)
    one, bare = (
        make.measurement(samples=samples),
        Verdict(Kind.NO_BASELINE, 0.05, Subject("test_id", "label")),
    )
    run = make.run(
        tmp_path / "r.jsonl", CALIBRATION, one, VERDICT, bare, make.outcome(one), make.footer()
    )
    assert (run.header, run.footer, run.cut) == (make.header("r"), make.footer(), False)
    assert (run.measurements, run.outcomes, run.calibrations) == (
        (one,),
        (make.outcome(one),),
        (CALIBRATION,),
    )
    assert run.verdicts == (VERDICT, bare)
    line = json.loads(encode_line(make.measurement(1e-3)))
    assert line["derived"]["traffic_GBps"] == pytest.approx(2 * 64 * 2**20 / 1e-3 / 1e9)
    # A spread that is taken as known has no degrees of freedom in the file.
    assert json.loads(encode_line(VERDICT))["difference"]["session"].get("freedom") is None
    assert encode_line(make.measurement(label="two\nlines\r\u2028")).count("\n") == 1


def test_a_run_cut_at_any_byte_keeps_every_finished_measurement(make, tmp_path):
    one, other = (
        make.measurement(1.0, label="cópia[µ…64MiB]"),
        make.measurement(2.0, 3.0, process="process-2"),
    )
    path = make.save(tmp_path / "r.jsonl", one, make.outcome(one), other, make.footer())
    lines = path.read_bytes().splitlines(keepends=True)
    whole = b"".join(lines)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        if cut < len(lines[0]) - 1:
            with pytest.raises(BadFile, match=str(path)):
                read_run(path)
            continue
        # A missing newline loses nothing.
        end, expected = 0, 0
        for line in lines:
            end += len(line)
            expected += cut >= end - 1 and b'"type": "measurement"' in line
        run = read_run(path)
        assert len(run.measurements) == expected, cut
    path.write_bytes(whole[:-10])
    assert read_run(path).cut


def refused(path):
    with pytest.raises(BadFile) as error:
        read_run(path)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def test_a_damaged_file_names_the_line_and_what_is_wrong_with_it(make, tmp_path):
    path = tmp_path / "r.jsonl"

    def damaged(number, **changes):
        lines = make.save(path, make.measurement(), make.footer()).read_text().splitlines()
        lines[number] = json.dumps(json.loads(lines[number]) | changes)
        path.write_text("\n".join(lines) + "\n")
        return refused(path)

    assert (
        damaged(1, surprise=1) == "run file FILE, line 2: Object contains unknown field `surprise`"
    )
    schema = damaged(0, schema=99, future_field=1)
    assert (
        schema
        == "run file FILE, line 1 has schema version 99; this pytest-roofline reads version 1"
    )
    for kind in ("surprise", None, 1, [], {}):
        assert damaged(1, type=kind).startswith(f"run file FILE, line 2 has type {kind!r};")
    lines = make.save(path, make.measurement(), make.measurement()).read_text().splitlines()
    for text, told in [
        (
            "\n".join([lines[0], lines[1][:-5], lines[2]]) + "\n",
            "run file FILE, line 2 is not JSON",
        ),
        ("\n".join([lines[0], lines[0], ""]), "has two headers; expected one run in a file"),
        (lines[1] + "\n", "starts with a measurement; expected its header"),
        (
            lines[0] + "\n" + lines[1].replace('"seconds": [', '"seconds": [NaN, '),
            "line 2 holds NaN (byte ",
        ),
    ]:
        path.write_text(text + "\n")
        assert told in refused(path), told


def test_a_line_longer_than_any_of_ours_is_refused_before_it_fills_memory(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(), make.footer())
    said = "is longer than 64 MiB; the file is damaged, or another program wrote it"
    # 100 GB, of which the disk holds nothing; the last line is whole or was cut.
    for line, whole in ((5, path.read_bytes()), (1, b"")):
        path.write_bytes(whole)
        os.truncate(path, 10**11)
        assert refused(path) == f"run file FILE, line {line} {said}"
        path.write_bytes(whole)
    assert ends_of(path) is None
    path.write_bytes(b"")
    with path.open("r+b") as file:
        file.seek(10**11)
        file.write(b'\n{"type": "footer"}\n')
    with pytest.raises(BadFile, match="line 1 is not JSON"):
        ends_of(path)


def test_a_long_failure_is_shortened_to_its_first_sentence_between_words(make, tmp_path):
    one = make.measurement()
    for reason, shown in [
        (
            "+13 % time REGRESSED, tolerance 5 %. Lines: a, b",
            "+13 % time REGRESSED, tolerance 5 %.",
        ),
        ("wrong data\n  at 7", "wrong data"),
        ("word " * 100, "word " * 31 + "…"),
    ]:
        outcome = make.outcome(one, "failed", reason=reason)
        run = make.run(tmp_path / "r.jsonl", one, outcome)
        assert run.unfit(one, accept_slower=False) == f"the test failed: {shown}"


def test_a_measurement_is_unfit_for_what_became_of_it_or_of_its_test(make, tmp_path):
    one, bad = make.measurement(), make.measurement(invalid="wrong data")
    slower = make.outcome(one, "failed", reason="slower", by_verdict=True)
    without = make.outcome(one, "failed", verdicts=("NO BASELINE",), by_verdict=True)
    failed = make.outcome(one, "failed", reason="wrong data")
    for measured, outcome, accept, why in [
        (one, failed, True, "the test failed: wrong data"),
        (one, make.outcome(one, "skipped"), True, "the test was skipped"),
        *(
            (one, slower, True, ""),
            (one, slower, False, "the test failed: slower"),
            (one, without, False, ""),
        ),
        (bad, make.outcome(bad), True, "wrong data"),
        # The outcome of its test counts; a verdict alone says nothing of the number.
        (one, VERDICT, False, ""),
    ]:
        run = make.run(tmp_path / "r.jsonl", measured, outcome)
        assert run.unfit(measured, accept_slower=accept) == why, (outcome, accept)
    # Killed between its measuring and its last assertion: nobody knows whether it would have passed.
    run = make.run(tmp_path / "r.jsonl", one, ended=False)
    assert run.unfit(one, accept_slower=True) == "the test did not finish"
    # A rerun that passes does not undo a failure.
    assert make.run(tmp_path / "r.jsonl", failed, make.outcome(one)).not_passed == {
        one.test_id: failed
    }
    # Of a test of which most processes were invalid the few sound ones stand for nothing.
    sound = [make.measurement(process=f"sound-{index}") for index in range(2)]
    spoiled = [make.measurement(process=f"bad-{index}", invalid="neighbours") for index in range(3)]
    for count, why in [(3, "3 of 5 processes were invalid"), (2, "")]:
        run = make.run(tmp_path / "few.jsonl", *sound, *spoiled[:count])
        assert run.unfit(sound[0], accept_slower=False) == why
