"""`roofline compare`, `explain` and `drill` as a user types them."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_roofline.core.memory import FailedAllocation, MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import Figure, Profile
from pytest_roofline.core.verdicts import Group, Reference, TimeLimit
from pytest_roofline.version import __version__


@pytest.fixture
def runs(make, tmp_path):
    """Saved runs of five processes: those of `fast` and `same` take a second, those of `slow` two."""
    for name, seconds in (("fast", 1.0), ("same", 1.0), ("slow", 2.0)):
        processes = [
            make.measurement(seconds, process=f"process-{number}", round=number)
            for number in range(1, 6)
        ]
        make.save(tmp_path / ".roofline" / "runs" / f"{name}.jsonl", *processes)
    return tmp_path / ".roofline" / "runs"


def test_compare_takes_names_paths_folders_and_a_tolerance(command, runs, make, tmp_path):
    assert command("compare", runs / "fast.jsonl", "slow").exit_code == 1
    assert command("compare", "fast", "slow", "--tolerance", "200%!").exit_code == 0
    make.save(tmp_path / "elsewhere" / "runs" / "r.jsonl", make.measurement())
    make.save(tmp_path / "elsewhere" / "runs" / "s.jsonl", make.measurement())
    assert command("compare", "r", "s", "--dir", "elsewhere").exit_code == 0
    for new in ("fast", "slow,fast"):
        done = command("compare", "fast", new)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "run fast is on both sides" in done.stderr
    # A folder means its runs, unless a saved run is called so.
    (tmp_path / "same").mkdir()
    assert "holds no run file" in command("compare", "fast", "same/").stderr
    assert command("compare", "fast", "same").exit_code == 0
    (runs / "slow.jsonl").rename(tmp_path / "same" / "slow.jsonl")
    assert command("compare", "fast", "same/").exit_code == 1


def test_compare_says_at_once_that_too_few_processes_turn_nothing_red(command, runs, make):
    for name, seconds in (("before", 1.0), ("after", 2.0)):
        make.save(runs / f"{name}.jsonl", make.measurement(seconds, process=name))
    done = command("compare", "before", "after")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (
        2,
        "no test can be REGRESSED with 1 process against 1, since REGRESSED needs 11. Measure each side with "
        "--roofline-rounds=5 --roofline-save=NAME, or name 5 runs of each side, separated by commas",
    )
    # Of many tests a few reasons are enough to see why.
    for name, seconds in (("many", 1.0), ("slower", 2.0)):
        measured = [
            make.measurement(seconds, process=name, key=make.key(f"copy{test}"))
            for test in range(12)
        ]
        make.save(runs / f"{name}.jsonl", *measured)
    lines = command("compare", "many", "slower").stdout.splitlines()
    assert sum(line.startswith("INCONCLUSIVE copy") for line in lines) == 8
    assert lines[-2:] == [
        "… and 4 more tests that are undecided or INVALID; --json has all of them",
        "12 INCONCLUSIVE; undecided: copy0[64MiB] +100 %, copy1[64MiB] +100 %, copy2[64MiB] +100 % and 9 more",
    ]
    assert (
        "since REGRESSED needs 5. Measure the new side with"
        in command("compare", "fast", "after").stdout
    )
    assert "can turn red" not in command("compare", "fast", "slow").stdout


def test_a_comparison_that_cannot_tell_ends_with_2_and_shows_its_table_all_the_same(
    command, runs, make
):
    for name, seconds in (("looks_slow", 1.3), ("calm", 1.03)):
        make.save(runs / f"{name}.jsonl", make.measurement(seconds, process=name))
    assert "tolerance 5 %" in command("compare", "fast", "calm").stdout.splitlines()
    for new, status, last in (
        ("same", 0, "1 PASSED"),
        ("calm", 0, "1 INCONCLUSIVE"),
        ("looks_slow", 2, "1 INCONCLUSIVE; undecided: memcpy_d2d[64MiB] +30 %"),
        ("slow", 1, "1 REGRESSED"),
    ):
        done = command("compare", "fast", new)
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (status, last)
        told = command("compare", "fast", new, "--json")
        assert (told.exit_code, len(json.loads(told.stdout))) == (status, 1)


def test_within_a_run_the_same_rule_tells_what_is_undecided(command, make, saved):
    ways = [
        make.measurement(seconds, process="1", key=make.key("step", parameters={"way": way}))
        for way, seconds in (("a", 1.0), ("b", 1.3))
    ]
    saved("ways", *ways)
    done = command("compare", "ways", "--by", "way", "--base", "a")
    assert (done.exit_code, done.stdout.splitlines()[-1].partition("; ")[2]) == (
        2,
        "undecided: step +30 %; 0.77x as fast in the geometric mean of 1 test",
    )


def test_what_compare_is_not_given_right_is_refused(refused, command, make, runs):
    other = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm")))
    make.save(runs / "other.jsonl", other)
    sentence = refused("compare", "fast", "other")
    assert ("h100-sxm, 141gb" in sentence, "h200-sxm, 141gb" in sentence) == (True, True)
    for tolerance in ("0", "-5%", "nan", "5", "many"):
        assert refused("compare", "fast", "slow", "--tolerance", tolerance).startswith(
            f"--tolerance is '{tolerance}'"
        )
    for name in ("no such run", ".hidden"):
        assert f"run name is {name!r}" in refused("compare", "fast", name)
    for arguments in (
        ["compare", "fast"],
        ["baseline", "propose"],
        ["nonsense"],
        ["compare", "--nonsense"],
    ):
        result = command(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments


def test_compare_within_a_run_says_its_verdicts_and_ends_as_any_comparison(
    command, refused, make, saved
):
    measured = [
        make.measurement(
            seconds, process=f"{number}", key=make.key("step", parameters={"way": way})
        )
        for number in range(1, 6)
        for way, seconds in (("a\x1b", 1.0), ("b", 0.5))
    ]
    saved("ways", *measured)
    faster = command("compare", "ways", "--by", "way", "--base", "a\x1b")
    head, heading, _, row, closing = faster.stdout.splitlines()
    assert (faster.exit_code, head, heading.split()[:3]) == (
        0,
        "tolerance 5 %",
        ["test", "a\\x1b", "b"],
    )
    assert row.split() == [
        "step",
        "1.00",
        "s",
        "500",
        "ms",
        "2.00x",
        "2.00",
        "…",
        "2.00",
        "5",
        "IMPROVED",
    ]
    assert closing == "b against a\\x1b: 1 IMPROVED; 2.00x as fast in the geometric mean of 1 test"
    slower = command("compare", "ways", "--by", "way", "--base", "b", "--json")
    (row,) = json.loads(slower.stdout)
    words = [row[name] for name in ("verdict", "by", "base", "other")]
    assert (slower.exit_code, words) == (1, ["REGRESSED", "way", "b", "a\x1b"])
    figures = [row[name] for name in ("speedup", "baseline_time_s", "time_s", "change")]
    assert figures == pytest.approx([0.5, 0.5, 1.0, 1.0])
    assert row["speedup_low"] < 0.5 < row["speedup_high"]
    missing = refused("compare", "ways", "--by", "way")
    assert (
        missing
        == "--base is missing; give the value of way to compare with; expected one of a\\x1b, b"
    )
    for words in (
        "ways ways --by way",
        "ways --table --by way",
        "ways --base b",
    ):
        assert refused("compare", *words.split()).startswith(
            "--by compares tests within OLD; leave out NEW and --table; give --base only together with"
        )


def test_the_process_ends_with_the_status_and_without_a_traceback(command, runs, tmp_path):
    program = "from pytest_roofline.cli.main import main; main()"
    line = [sys.executable, "-c", program, "compare", "fast", "slow"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert command("--version").stdout == f"roofline, version {__version__}\n"


def judged(make, measurement, kind="REGRESSED", **changes):
    """A verdict on three processes against a session, 30 % slower."""
    group = Group((1e-3, 1.01e-3, 0.99e-3), "GPU-1", "2026-01-01T12:00:00Z")
    facts = {
        "estimate": math.log(1.3), "interval": (math.log(1.27), math.log(1.33)), "reach": 0.06, "processes": 3,
        "reference": Reference((group,), "baselines/h200.json"),
    }  # fmt: skip
    return make.verdict(measurement, kind, **(facts | changes))


@pytest.fixture
def told(make, tmp_path):
    """A run of two judged tests."""
    slow, other = (make.measurement(1.3e-3, key=make.key(name)) for name in ("slow", "other"))
    path = tmp_path / ".roofline" / "runs" / "new.jsonl"
    return make.save(
        path, slow, other, judged(make, slow), judged(make, other, "PASSED", estimate=0.001)
    )


def test_a_name_under_which_nothing_is_saved_is_answered_with_those_that_are(
    command, refused, told, make, tmp_path
):
    for words in (
        ("explain", "newer"),
        ("compare", "new", "newer"),
        ("baseline", "propose", "newer", "-o", "p.json"),
    ):
        assert "run file .roofline/runs/newer.jsonl does not exist; saved runs: new" == refused(
            *words
        )
    expected = (
        "proposal new does not exist; write the file with `roofline baseline propose -o new`; if this command "
        "refuses, correct the "
        "faults that it names; record runs of a busy machine again once `roofline doctor` exits 0"
    )
    assert refused("baseline", "approve", "new") == expected
    for number in range(7):
        path = make.save(told.with_name(f"b{6 - number}.jsonl"), make.measurement())
        os.utime(path, (number, number))
    assert refused("explain", "newer").endswith("; saved runs: b3, b2, b1, b0, new and 3 older")
    for path in told.parent.iterdir():
        path.unlink()
    assert refused("explain", "new").endswith(
        "no run is saved in .roofline yet; save a run with --roofline-save=NAME"
    )


def test_a_test_is_named_by_part_of_its_label_or_by_its_id(command, refused, told, make, tmp_path):
    for test, count in (
        ("slow", 1),
        ("low[", 1),
        ("test_memcpy.py::test_slow[64MiB]", 1),
        ("slow[64MiB]", 1),
        ("", 2),
    ):
        assert (
            command("explain", "new", *[test] * bool(test)).stdout.count("samples by process")
            == count
        ), test
    sentence = refused("explain", "new", "nothing")
    assert ("'nothing'" in sentence, "slow[64MiB], other[64MiB]" in sentence) == (True, True)
    # A size goes before one whose name ends as it does, and a whole name before its part in others.
    names = ["copy[4MiB]", "copy[fp32-4MiB]", "copy[2004MiB]", "copy"]
    measured = [make.measurement(label=name, test_id=f"t.py::test_{name}") for name in names]
    make.save(tmp_path / "r.jsonl", *measured)
    cases = {
        "4MiB": names[:2],
        "4Mi": names[:3],
        "[4MiB": names[:1],
        "copy": names[3:],
        "opy": names,
    }
    for text, found in cases.items():
        shown = command("explain", "r.jsonl", text).stdout.splitlines()
        assert found == [
            name for name in names if any(line.startswith(f"{name} ") for line in shown)
        ], text
    make.save(tmp_path / "empty.jsonl")
    assert "since this run measured nothing; name another run" in refused("explain", "empty.jsonl")


def test_what_a_test_found_besides_times_can_be_read_again(command, make, tmp_path):
    step, told = make.measurement(key=make.key("step", parameters={})), {"process": "process-1"}
    use = MemoryUse(
        **told, test_id=step.test_id, label="step.forward", name="forward", device="cpu", peak_bytes=24,
        phase="forward", categories={"parameters": 8, "activations": 16}, before_bytes=8,
    )  # fmt: skip
    notes = (
        Figure(
            **told, test_id=step.test_id, label="step", name="efficiency", value=0.873, unit="share"
        ),
        Figure(
            **told,
            test_id="t.py::test_other",
            label="other",
            name="efficiency",
            value=0.5,
            unit="share",
        ),
        use,
        Profile(**told, test_id=step.test_id, label="step", device="cpu", calls=3, span_s=1.0),
    )
    make.save(tmp_path / "r.jsonl", step, *notes)
    text = command("explain", "r.jsonl", "step").stdout
    assert "step: efficiency 87.3 %" in text
    assert "profile of step on cpu, 3 calls" in text
    assert "other" not in text
    # Memory is followed under a name of its own, in a test that may have measured nothing.
    assert "activations 16 B (67 %)" in command("explain", "r.jsonl", "step.forward").stdout
    assert (
        command("explain", "r.jsonl", "other").stdout.splitlines()[-1] == "other: efficiency 50.0 %"
    )


class Pytest:
    """Stands for the pytest that a drill starts: notes its command, leaves a run, ends with a status."""

    def __init__(self, make, monkeypatch):
        self.make, self.records, self.status = make, (), 1
        self.command = []
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, command, **options):
        self.command = command
        values = dict(
            argument.split("=", 1) for argument in command if argument.startswith("--roofline-")
        )
        if self.records is not None:
            folder = Path(values.get("--roofline-dir", ".roofline")) / "runs"
            path = self.make.save(folder / f"{values['--roofline-save']}.jsonl", *self.records)
            # As a run does, wherever its ini file keeps it.
            Path(options["env"]["ROOFLINE_SAVED"]).write_text(str(path))
        return subprocess.CompletedProcess(command, self.status)


@pytest.fixture
def drilled(make, monkeypatch):
    return Pytest(make, monkeypatch)


def red_and_other(make, **changes):
    red, other = (make.measurement(key=make.key(name)) for name in ("red", "other"))
    return red, other, dosed(make, red), dosed(make, other, **({"kind": "PASSED"} | changes))


def dosed(make, measurement, seen=0.10, **changes):
    """A verdict in a drill that made a test slower by so much, give or take 3 %."""
    estimate = math.log1p(seen)
    return judged(
        make,
        measurement,
        **({"estimate": estimate, "interval": (estimate - 0.03, estimate + 0.03)} | changes),
    )


def test_a_drill_in_which_every_compared_test_turned_red_is_a_success(command, make, drilled):
    red, other, first, second = red_and_other(make, kind="REGRESSED")
    missing = make.verdict(other, "NO BASELINE", reason="none")
    drilled.records = (red, other, first, missing)
    result = command("drill", "10%")
    said = "drill of +10 %: 1 of 1 tests turned red\nmeasured against the baselines: +10.0 % time; requested: +10.0 %\n"
    assert (result.exit_code, result.stdout) == (0, said)
    # The verdict of the run's end, and not the outcome, is what a drill reads: an expected failure is red too.
    drilled.records = (red, other, first, second, make.outcome(other, "passed"))
    assert command("drill", "10%").exit_code == 0
    # What is held against a limit alone tells nothing of the dose.
    drilled.records = (
        red,
        dosed(
            make, red, 0.89, reference=None, limit=TimeLimit(1e-3, make.published(source="a guide"))
        ),
    )
    result = command("drill", "10%")
    assert (result.exit_code, result.stdout) == (0, "drill of +10 %: 1 of 1 tests turned red\n")


def test_a_test_slowed_down_by_something_else_than_was_asked_for_proves_nothing(
    command, make, drilled
):
    red, other = (make.measurement(key=make.key(name)) for name in ("red", "other"))
    cases = [
        (0.12, ""),
        (0.89, "takes +89.0 % time (+82.9…+95.3 %)"),
        # No further from the dose than the tolerance, whatever its interval.
        (0.06, ""),
        (0.0, "takes +0.0 % time (-3.2…+3.3 %)"),
    ]
    for seen, missed in cases:
        drilled.records = (red, other, dosed(make, red), dosed(make, other, seen))
        result = command("drill", "10%")
        assert result.exit_code == bool(missed)
        assert "drill of +10 %: 2 of 2 tests turned red\n" in result.stdout
        assert (f"not caused by the drill: other[64MiB] {missed}" in result.stdout) == bool(missed)
        told = json.loads(command("drill", "10%", "--json").stdout)
        assert [one["missed"] for one in told["tests"]] == ["", missed]


def test_a_drill_says_why_a_test_did_not_turn_red(command, make, drilled):
    seen = {"estimate": math.log(1.1)}
    cases = [
        *(
            (
                {"kind": verdict, "reach": 0.04, "reason": "too noisy"},
                f"{verdict}, measured as +10.0 %: too noisy",
            )
            for verdict in ("PASSED", "INCONCLUSIVE", "IMPROVED")
        ),
        ({"tolerance": 0.2}, "PASSED, measured as +10.0 %: within the tolerance of 20 %"),
        (
            {"kind": "INCONCLUSIVE", "reach": 0.15},
            "this run detects only slowdowns from 15 %; use ",
        ),
    ]
    for changes, why in cases:
        drilled.records = red_and_other(make, **seen, **changes)
        result = command("drill", "10%")
        assert (result.exit_code, "1 of 2 tests turned red" in result.stdout) == (1, True)
        assert "  not red: other[64MiB] " in result.stdout
        assert why in result.stdout


def test_a_drill_that_proves_nothing_says_what_was_missing(refused, make, drilled):
    one, other = (make.measurement(key=make.key(name)) for name in ("one", "other"))
    without = make.verdict(other, "NO BASELINE")
    reason = "others kept a core busy; run it on a quiet machine"
    invalid = make.verdict(one, "INVALID", reason=reason)
    nothing = "nothing was compared, so no test could turn red; "
    ended = (
        "pytest ended with status {} before any verdict; expected status 0 or 1; correct the fault that pytest's "
        "output shows, of which -q hides a part, or select other tests"
    )
    unmeasured = (
        "no test measured anything; expected tests with the fixture roofline; select such tests by path "
        "or -k"
    )
    broken = make.outcome(one, "failed")
    cases = [
        ((other, without), 0, f"{nothing}record a baseline first: pytest --roofline-record"),
        (
            (broken,),
            1,
            f"{nothing}{one.test_id} failed before its verdict; correct the test, and repeat the drill",
        ),
        ((one, other, invalid, without), 1, f"{nothing}one[64MiB] is INVALID: {reason}"),
        (
            None,
            5,
            "pytest selected no test, so nothing was measured; select other tests by path or -k",
        ),
        *((None, status, unmeasured) for status in (0, 1)),
        *((red_and_other(make), status, ended.format(status)) for status in (2, 3, 4, -9)),
    ]
    for records, drilled.status, said in cases:
        drilled.records = records
        assert refused("drill", "10%") == said
    drilled.records, drilled.status = (other, without), 0
    said = refused(
        "drill", "10%", "t.py", "-k", "a b", "--roofline-against=old", "--roofline-ci=shadow"
    )
    assert said == f"{nothing}record a baseline first: pytest t.py -k 'a b' --roofline-record"
    drilled.command = []
    for share in ("0", "lots", "10", "nan"):
        assert f"SHARE is {share!r}" in refused("drill", share)
    assert drilled.command == []


def test_the_arguments_of_a_drill_are_pytests_and_its_run_is_named_anew_each_time(
    command, make, drilled, tmp_path
):
    drilled.records = red_and_other(make)
    arguments = [
        "perf_tests",
        "-k",
        "copy and not 1GiB",
        "-vv",
        "--roofline-against=old",
        "-x",
        "-p",
        "no:x",
    ]
    for _ in range(2):
        command("drill", "10%", *arguments, "--roofline-dir=results")
    expected = [sys.executable, "-m", "pytest", "--roofline-rounds=auto", *arguments]
    assert drilled.command[: len(expected)] == expected
    assert "--roofline-drill=10%" in drilled.command
    names = [path.stem for path in (tmp_path / "results" / "runs").glob("*.jsonl")]
    assert len(names) == len(set(names)) == 2
    assert all(name.startswith("drill-") for name in names)


def test_runs_of_several_machines_stand_beside_each_other_by_test(command, refused, saved, make):
    steps = {"cpu": (1.7, 3.2), "a100": (0.1397, 0.2857), "mi300x": (0.0981, None)}
    products = {
        "cpu": "AMD EPYC 9654",
        "a100": "NVIDIA A100-SXM4-80GB",
        "mi300x": "AMD Instinct MI300X",
    }
    for name, seconds in steps.items():
        keys = [
            make.key("step", metric="TFLOPS", parameters={"size": size}) for size in ("small", "xl")
        ]
        measured = [
            make.measurement(taken, key=key, peak_bytes=3 * 2**30)
            for taken, key in zip(seconds, keys, strict=True)
            if taken
        ]
        copy = make.measurement(
            1e-3 if name == "cpu" else 1e-4, invalid="a neighbour" if name == "a100" else ""
        )
        lost = OutOfMemory(
            "test_memcpy.py::test_step[xl]",
            "step",
            {"size": "xl"},
            "step[xl]",
            "cuda:0",
            FailedAllocation("none"),
        )
        saved(name, *measured, copy, *[lost] * (name == "mi300x"), product=products[name])
    text = command("compare", "--table", "cpu,a100,mi300x").stdout
    lines = [line.split() for line in text.splitlines()]
    assert ["step:", "time", "in", "ms"] in lines
    assert ["step[small]", "1700", "140", "98.1"] in lines
    assert ["step[xl]", "3200", "286", "OOM"] in lines
    # 2 x 64 MiB in a millisecond; what is not to be trusted has no number here.
    assert ["memcpy_d2d[64MiB]", "134", "inv.", "1342"] in lines
    assert "GB/s" in text
    assert ["step[small]", "3.00", "3.00", "3.00"] in [
        line.split()
        for line in command(
            "compare", "--table", "cpu,a100,mi300x", "--of", "peak"
        ).stdout.splitlines()
    ]
    small, xl, copy = json.loads(command("compare", "--table", "cpu,a100,mi300x", "--json").stdout)
    assert (list(products.values()), [1.7, 0.1397, 0.0981]) == (small["devices"], small["values"])
    assert ([3.2, 0.2857, None], "OUT OF MEMORY", "s") == (
        xl["values"],
        xl["verdicts"][2],
        xl["unit"],
    )
    assert ("rate", [None, "INVALID"]) == (
        copy["quantity"],
        [copy["values"][1], copy["verdicts"][1]],
    )
    # Two runs of one device are told apart by their names.
    saved("again", make.measurement(1e-4), product=products["mi300x"])
    copies = (
        command("compare", "--table", "mi300x,again")
        .stdout.rpartition("memcpy_d2d: ")[2]
        .splitlines()
    )
    assert ["AMD Instinct", "AMD Instinct"] == re.split(" {2,}", copies[1].strip())
    assert ["MI300X, run", "MI300X, run"] == re.split(" {2,}", copies[2].strip())
    assert ["test", "mi300x", "again"] == copies[3].split()
    for words in (["--table"], ["--of", "time"]):
        assert refused("compare", "cpu", "a100", *words).startswith(
            "--table shows only the runs of OLD; leave out NEW; give --of only together with --table"
        )
